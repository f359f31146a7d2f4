"""EndsCount: while jobs end, the leader counts that in the store and in the storage.

So a store that was restored from a backup which this very leader could have made is noticed.
"""

from __future__ import annotations

from ..files.storage_identity import StorageIdentity
from .context import LeaderContext
from .leader_task import RepeatedTask

_PAUSE = 10.0
"""Seconds between two counts. What ends after the last one is not noticed if it is lost."""


class EndsCount(RepeatedTask):
    """The counting of one leadership; a context manager, which runs it."""

    def __init__(self, context: LeaderContext) -> None:
        failed = "the ends of jobs cannot be counted in the storage"
        super().__init__(context, "jrs-ends", _PAUSE, failed)
        self._identity = StorageIdentity(context.backend, context.storage)

    def _pass(self) -> None:
        ended = self._context.jobs_end
        if not ended.is_set():
            return
        ended.clear()  # Before it counts: what ends meanwhile is for the next pass.
        try:
            self._identity.count(self._context.fence)
        except BaseException:
            ended.set()
            raise
