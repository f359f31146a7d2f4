"""EndsCount: while jobs end, the leader counts that in the store and in the storage.

So a store that was restored from a backup which this very leader could have made is noticed.
"""

from __future__ import annotations

from ..files.storage_identity import StorageIdentity
from .context import LeaderContext
from .leader_task import Upkeep

_PAUSE = 10.0
"""Seconds between two counts. What ends after the last one is not noticed if it is lost."""


class EndsCount(Upkeep):
    """The counting of one leadership."""

    def __init__(self, context: LeaderContext) -> None:
        failing = "the ends of jobs cannot be counted in the storage"
        super().__init__(context, "ends", failing, first=_PAUSE, pause=_PAUSE)
        self._identity = StorageIdentity(context.backend, context.storage)

    def _work(self) -> bool:
        ended = self._context.jobs_end
        if not ended.is_set():
            return True
        ended.clear()  # Before it counts: what ends meanwhile is for the next pass.
        try:
            self._identity.count(self._context.fence)
        except BaseException:
            ended.set()
            raise
        return True
