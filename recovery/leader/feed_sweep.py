"""FeedSweep: the leader keeps the feed of the history bounded."""

from __future__ import annotations

from jrs.contract.errors import Fenced, JrsError, OutcomeUnknown, Unavailable
from jrs.store import feed

from ..rules.events import EventKind
from .context import LeaderContext
from .leader_task import LeaderTask

_PAUSE = 60.0
"""Seconds between two passes, and before the first one: a new leader has more urgent work."""


class FeedSweep(LeaderTask):
    """The sweeping of one leadership; a context manager, which runs it."""

    def __init__(self, context: LeaderContext) -> None:
        super().__init__(context, "jrs-feed")
        self._last_reported = ""

    def _run(self) -> None:
        while not self._over.wait(_PAUSE):
            try:
                feed.sweep(self._context.backend, self._context.fence)
            except Fenced:
                return  # The dispatcher notices it, too.
            except (OutcomeUnknown, Unavailable):
                continue  # The next pass does it.
            except JrsError as error:
                if str(error) != self._last_reported:
                    self._last_reported = str(error)
                    said = f"the feed of the history cannot be swept: {error}; trying again"
                    self._context.emit(EventKind.ERROR, "", said)
