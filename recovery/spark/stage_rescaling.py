"""Rescaling one stage of an attempt before its query starts, and telling its sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from jrs.contract.errors import JobHeld, JrsError, Unavailable

from ..attempt.batch_committer import BatchCommitter
from ..attempt.engine import StreamHost
from . import error_reasons, queries, rescaling
from .checkpoint_reads import position
from .session import jvm_died

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@attrs.define(eq=False)
class StageRescaling:
    """Spreads the state of a stage over the number of partitions that its job requests.

    Attributes:
        wanted: that number; None leaves it to the session.
        committer: what commits the stage's batches, if the sink of jrs does.
    """

    run: StreamHost
    stage: str
    writer: DataStreamWriter
    checkpoint: Path
    wanted: int | None
    committer: BatchCommitter | None
    _keeps_one_partition: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # Not while its query runs: only that one's own thread may be the first to plan it.
        self._keeps_one_partition = self.wanted is not None and queries.keeps_one_partition(
            self.writer
        )

    def is_due(self) -> bool:
        """Return whether the state is spread over another number of partitions."""
        return (
            self.wanted is not None
            and not self._keeps_one_partition
            and rescaling.partitions(self.checkpoint) not in (None, self.wanted)
        )

    def rescale(self) -> None:
        """Rescale the state; the query must be at a batch boundary.

        Raises:
            JobHeld: it cannot be rescaled, and is unchanged. Nor is it if the log of its sink is
                out of reach: rescaling is a batch, and that log would have a gap for good.
            Unavailable: it cannot be rescaled now; the call may be repeated.
            Whatever Spark raises if it cannot load the state, or if its JVM has died.
        """
        assert self.wanted is not None
        if (table := queries.remote_files(self.writer)) is not None:
            raise self._held(
                f"it writes with Spark's file sink to {table}, where jrs cannot complete the log "
                "of that sink"
            )
        try:
            rescaling.rescale(self.run.job.spark, self.checkpoint, self.wanted)
        except JrsError:
            raise
        except Exception as error:
            if error_reasons.lost_state(error) or jvm_died(error):
                raise
            if isinstance(error, OSError) or error_reasons.may_pass(error):
                raise Unavailable(
                    f"stage {self.stage!r} cannot be rescaled now: {error}"
                ) from error
            raise self._held(str(error)) from error

    def _held(self, why: str) -> JobHeld:
        now = rescaling.partitions(self.checkpoint)
        return JobHeld(
            f"stage {self.stage!r} cannot be rescaled, and its state is unchanged: go back "
            f"with: jrs rescale {self.run.context.job_id} --partitions {now}; {why}"
        )

    def tell_sink(self) -> None:
        """Tell the sink of the batches that it missed while the state was rescaled.

        Raises:
            JobHeld, Unavailable, OutcomeUnknown: as `BatchCommitter.skip` and
                `rescaling.fill_sink_log`.
        """
        if self.committer is not None:
            self.committer.skip(position(self.checkpoint).committed)
        table = None if self.wanted is None else queries.path_of(self.writer)
        if table is not None:
            every = self.run.job.spark.conf.get("spark.sql.streaming.fileSink.log.compactInterval")
            rescaling.fill_sink_log(table, self.checkpoint, int(every or 10))
