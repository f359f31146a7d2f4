"""BatchWatch: reports the batches of a stage while its queries commit them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jrs.contract.errors import JrsError

from ..attempt.context import AttemptContext
from .checkpoint_reads import position
from .progress import ProgressWatch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_REPORT = 1.0
"""Seconds between two reports of committed batches."""


class BatchWatch:
    """Reports the batches that one stage has committed in this attempt, and looks at its progress.

    Args:
        checkpoint: of the stage.
        progress: asked along with each report.
    """

    def __init__(
        self, context: AttemptContext, stage: str, checkpoint: Path, progress: ProgressWatch
    ) -> None:
        self._context = context
        self._stage = stage
        self._checkpoint = checkpoint
        self._progress = progress
        self._reported: int | None = None
        """The newest batch that was reported as committed, or was there before the attempt."""
        self._report_at = 0.0

    def begin(self, committed: int) -> None:
        """Report only batches after this one, which the attempt has found. Only the first call
        counts."""
        if self._reported is None:
            self._reported = committed

    def look(self, query: StreamingQuery, *, now: bool = False) -> None:
        """Report the batches that were committed since the last report, once a second. It never
        raises: what needs the checkpoint finds the error.

        Args:
            now: report them in any case.
        """
        clock = self._context.runtime.clock
        if not now and clock() < self._report_at:
            return
        self._report_at = clock() + _REPORT
        with suppress(JrsError, OSError):
            newest = position(self._checkpoint).committed
            if self._reported is not None and newest > self._reported:
                self._context.reporter.committed(self._stage, self._reported + 1, newest)
            self._reported = newest
            self._progress.look(query, newest)
