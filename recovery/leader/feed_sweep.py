"""FeedSweep: the leader keeps the feed of the history bounded."""

from __future__ import annotations

from jrs.store import feed

from .context import LeaderContext
from .leader_task import Upkeep

_PAUSE = 60.0
"""Seconds between two passes, and before the first one."""


class FeedSweep(Upkeep):
    """The sweeping of one leadership."""

    def __init__(self, context: LeaderContext) -> None:
        failing = "the feed of the history cannot be swept"
        super().__init__(context, "feed", failing, first=_PAUSE, pause=_PAUSE)

    def _work(self) -> bool:
        feed.sweep(self._context.backend, self._context.fence)
        return True
