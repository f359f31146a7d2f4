"""FeedSweep: the leader keeps the feed of the history bounded."""

from __future__ import annotations

from jrs.store import feed

from .context import LeaderContext
from .leader_task import RepeatedTask

_PAUSE = 60.0
"""Seconds between two passes, and before the first one: a new leader has more urgent work."""


class FeedSweep(RepeatedTask):
    """The sweeping of one leadership; a context manager, which runs it."""

    def __init__(self, context: LeaderContext) -> None:
        super().__init__(context, "jrs-feed", _PAUSE, "the feed of the history cannot be swept")

    def _pass(self) -> None:
        feed.sweep(self._context.backend, self._context.fence)
