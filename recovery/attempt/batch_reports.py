"""BatchReports: what an attempt records of a stream's progress, in the commits of its batches.

Reports are for people. Reading the progress never fails, changes or repeats a commit.
"""

from __future__ import annotations

from collections.abc import Callable

from jrs.contract.clock import Clock
from jrs.records.heads import BatchReport, StreamProgress

Progress = Callable[[], StreamProgress | None]
"""Returns the newest progress of a stream that is known; None if there is none."""


def unknown() -> StreamProgress | None:
    """Return that no progress is known."""
    return None


class BatchReports:
    """The reports of one stage's batches, one after the other."""

    def __init__(self, progress: Progress, now: Clock) -> None:
        self._progress = progress
        self._now = now
        self._newest: BatchReport | None = None

    def of(self, batch: int, before: BatchReport | None) -> BatchReport:
        """Return the report of a batch: the same for each try to commit it, since an outcome that
        is unknown is found out by comparing records.

        Args:
            before: the newest report that is stored. Its progress stays until there is a newer one.
        """
        if self._newest is None or self._newest.batch != batch:
            found = self._read(batch)
            if found is None and before is not None:
                found = before.progress
            self._newest = BatchReport(batch, self._now(), found)
        return self._newest

    def _read(self, batch: int) -> StreamProgress | None:
        try:
            found = self._progress()
        except Exception:
            return None
        # An idle query reports the batch that it waits for, without rows.
        return found if found is not None and found.batch < batch else None
