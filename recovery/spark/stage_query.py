"""StageQuery: the query of one streaming stage in one attempt, from its start to its end.

It goes through these steps, each of which the next attempt finds in its checkpoint::

    running ──► catching up ──► flushing ──► drained ──► finished (the record is the mark)
       └──► quiesced (suspended at a batch boundary)

A bounded stage begins with *catching up*: it processes the input that exists, and ends. An
unbounded stage catches up when the job is drained. *Flushing* is one more batch, without input, at
the end of time; see `final_batch`. Two steps may come before any of these: an unfinished batch of
an earlier run is *completed* before the state is rescaled or the stage catches up, and *repeated*,
for the state alone, if the sink has it already.
"""

from __future__ import annotations

import enum
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from jrs.contract.clock import Clock
from jrs.contract.errors import JobHeld, JrsError, OutcomeUnknown, StageDied, Unavailable
from jrs.contract.operations import Check
from jrs.contract.texts import counted
from jrs.records.model import Json, StageRecord
from jrs.records.policies import RestartPolicy

from ..attempt.batch_committer import BatchCommitter
from ..attempt.engine import StateLost, StreamHost
from ..attempt.plan_keeper import PlanKeeper
from ..attempt.stage_outputs import has_rows
from ..checkpoint_format.sink_log import SINK_LOG
from ..files.disk_errors import check_answers, writing
from . import boundary, cluster, error_reasons, queries, rescaling
from .batch_watch import BatchWatch
from .checkpoint_reads import is_computed, newest_in_table, plan_flush, position
from .error_reasons import why
from .progress import ProgressWatch, summary
from .stage_rescaling import StageRescaling
from .waiting import Waiting

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_AGAIN = 1.0
"""Seconds before what has failed, and may pass, is tried again."""


class Step(enum.Enum):
    """The step of a streaming stage."""

    WAITING = "waiting to be started again"
    RUNNING = "running"
    COMPLETING = "completing a batch that was left"
    REPEATING = "repeating a batch that its sink has, for the state"
    CATCHING_UP = "catching up"
    FLUSHING = "flushing"
    DRAINED = "drained"
    FINISHED = "finished"
    QUIESCED = "at a batch boundary"


class _Interrupted(Unavailable):
    """The host, or the storage, fails a stage in this attempt: the attempt ends."""


@attrs.frozen
class DeclaredStream:
    """What the job's function has declared of a streaming stage."""

    name: str
    bounded: bool
    restart: RestartPolicy
    order: int
    after: tuple[str, ...]


@attrs.define(eq=False)
class StageQuery:
    """A stage's query. The supervisor checks it; the thread that stops the job suspends it."""

    run: StreamHost
    declared: DeclaredStream
    writer: DataStreamWriter
    checkpoint: Path
    partitions: int | None = None
    """The number of partitions for its state; None leaves it to the session."""
    committer: BatchCommitter | None = None
    """What commits its batches; None if they go to another sink than that of jrs."""
    progress: ProgressWatch = attrs.field(factory=ProgressWatch)
    keeper: PlanKeeper | None = None
    """What keeps the plans of its batches; None if it calls no function."""
    step: Step = attrs.field(default=Step.WAITING, init=False)
    holds_back: str | None = attrs.field(init=False)
    """Why it holds back rows that no watermark flushes; None if it does not."""
    _clock: Clock = attrs.field(init=False)
    _began: float = attrs.field(init=False)
    _trigger: Any = attrs.field(init=False)
    _rescaling: StageRescaling = attrs.field(init=False)
    _query: StreamingQuery | None = attrs.field(default=None, init=False)
    _stopper: boundary.Stopper = attrs.field(init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    """Whether it is being brought to a batch boundary, to be started again in another way."""
    _suspending: bool = attrs.field(default=False, init=False)
    _committed: int = attrs.field(default=-1, init=False)
    """The newest committed batch when the query was started."""
    _in_sink: int | None = attrs.field(default=None, init=False)
    """The planned batch, if its sink has it."""
    _tried_at: tuple[int, bool] | None = attrs.field(default=None, init=False)
    """The batch that was tried once more, without a death; and whether its state looks lost."""
    _deaths: int = attrs.field(default=0, init=False)
    _launched: float = attrs.field(default=0.0, init=False)
    _start_at: float = attrs.field(default=0.0, init=False)
    """Before then, no further step is taken."""
    _waiting: Waiting = attrs.field(init=False)
    _summary: Json = attrs.field(default=None, init=False)
    _batches: BatchWatch = attrs.field(init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    """Held during each check, so that nothing is started once the stage is to be suspended."""

    def __attrs_post_init__(self) -> None:
        self._clock = self.run.context.runtime.clock
        self._began = self._clock()
        self._waiting = Waiting(self.run.context.reporter.waiting, self._clock)
        self._stopper = boundary.Stopper(self.run.context.runtime, self.name)
        self._batches = BatchWatch(self.run.context, self.name, self.checkpoint, self.progress)
        # Not while it runs: only its own thread may be the first to plan it.
        self.holds_back = queries.holds_back(self.writer)
        self._rescaling = StageRescaling(
            self.run, self.name, self.writer, self.checkpoint, self.partitions, self.committer
        )
        self._trigger = queries.trigger(self.writer)

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def ends(self) -> bool:
        """Whether it is flushing, drained or finished."""
        return self.step in (Step.FLUSHING, Step.DRAINED, Step.FINISHED)

    def __str__(self) -> str:
        done = position(self.checkpoint).committed + 1
        return f"{self.step.value}, {counted(done, 'batch', 'batches')} committed"

    def start(self, *, draining: bool) -> None:
        """Start it for the first time in this attempt; Spark's exceptions reach the caller, and
        one that passes as `Unavailable`."""
        with self._lock:
            if not self._suspending:
                what = f"stage {self.name!r} cannot be started now"
                with error_reasons.unavailable(what, error_reasons.passes):
                    self._launch(draining)

    def look(self, *, draining: bool) -> None:
        """Take the stage as many steps further as is possible now.

        Raises:
            StageDied: it died once more than it may.
            StateLost: its checkpoint cannot be loaded.
            _Interrupted: it cannot continue here now.
            JobHeld: its checkpoint is damaged.
        """
        with self._lock:
            if self._suspending or self.step in (Step.DRAINED, Step.FINISHED):
                return
            try:
                self._step(draining)
            except _Interrupted:
                raise
            except (Unavailable, OutcomeUnknown) as error:
                self._wait(error)  # The same step is tried again: what it has done stays done.

    def suspend(self) -> None:
        """Bring it to a batch boundary and end it; it is not started again. Idempotent."""
        with self._lock:
            self._suspending = True
        if self._query is not None:
            boundary.stop_at_boundary(self._query, self.checkpoint)
            if self.keeper is not None:
                self.keeper.keep_done()
        if self.step is not Step.FINISHED:
            self.step = Step.QUIESCED

    def close(self) -> None:
        """End it in any step. Idempotent."""
        if self._query is not None and self.step is not Step.FINISHED:
            boundary.stop(self._query)

    def record(self) -> StageRecord:
        """Return the mark of a stage that is drained."""
        context, committed = self.run.context, position(self.checkpoint).committed
        return StageRecord(
            job_id=context.job_id, name=self.name, attempt=context.attempt, epoch=context.epoch,
            result={"batches": committed + 1, "progress": self._summary},
            seconds=round(self._clock() - self._began, 3), finished_at=context.runtime.now(),
            order=self.declared.order, after=self.declared.after,
            has_rows=has_rows(context, self.name, committed if self.committer else -1),
        )  # fmt: skip

    def output_ends(self) -> Check | None:
        """Return the condition that the output ends where the mark says; None if the sink of jrs
        does not commit it. Raises as `BatchCommitter.ends_at`."""
        if self.committer is None:
            return None
        return self.committer.ends_at(position(self.checkpoint).committed)

    # -- inside, under the lock ---------------------------------------------------------------

    def _launch(self, draining: bool) -> None:
        """Start the query in the way that its checkpoint and its job require."""
        self._launched = self._clock()
        rescaling.complete(self.checkpoint)  # An interrupted one would look like no checkpoint.
        at = position(self.checkpoint)
        self._batches.begin(at.committed)
        if at.flushed:
            self.step = Step.DRAINED
            return
        self._check_table(at.planned)
        queries.make_active(self.writer)
        cluster.require_shared(self.run.context)
        left = at.planned if at.planned > at.committed else None
        to_end = self.declared.bounded or (draining and self.holds_back is None)
        to_rescale = not at.at_the_end and self._rescaling.is_due()
        if to_rescale and left is None:
            self._rescale()
        self._rescaling.tell_sink()
        writer = self.writer
        if left is not None and left == self._in_sink:
            step, writer = Step.REPEATING, queries.for_state_only(writer)
        elif at.at_the_end:
            step, writer = Step.FLUSHING, writer.trigger(once=True)
        elif left is not None and (to_rescale or to_end):
            step, writer = Step.COMPLETING, writer.trigger(once=True)
        elif to_end:
            step, writer = Step.CATCHING_UP, writer.trigger(availableNow=True)
        else:
            step = Step.RUNNING
            queries.set_trigger(writer, self._trigger)
        if self.committer is not None:
            writer = writer.option("run", self.committer.new_run())
        with queries.spread(writer, self.partitions):
            self._query, self._stopping = writer.start(), False
        self.step, self._committed = step, at.committed

    def _check_table(self, planned: int) -> None:
        """Raise `JobHeld` if the table of Spark's file sink has batches that the checkpoint has not
        planned: the sink would leave out the new batches of these numbers, without an error."""
        table = queries.local_files(self.writer)
        newest = -1 if table is None else newest_in_table(table)
        if newest > planned:
            raise JobHeld(
                f"stage {self.name!r}: {table} has batches up to {newest}, and the checkpoint up "
                f"to {planned}: Spark's file sink would leave out those in between. Remove them "
                f"from {table}, with their entries in {SINK_LOG}, or move the table away"
            )

    def _relaunch(self, draining: bool) -> None:
        """Start it once more; a failure to start is one of the query. Raises as `_died`.

        Raises:
            Unavailable, OutcomeUnknown: the backend is away; the call may be repeated.
        """
        self.step = Step.WAITING
        try:
            self._launch(draining)
        except Unavailable as error:
            check_answers(self.run.context.backend)
            self._died(error)
        except (JrsError, StateLost):
            raise
        except Exception as error:
            self._died(error)

    def _step(self, draining: bool) -> None:
        """Do what `look` does."""
        if self._query is not None and self._query.isActive:
            self._batches.look(self._query)
            if draining and self.step is Step.RUNNING:
                self._stopping |= self._stopper.begin(self._query, self.checkpoint)
        elif self._clock() < self._start_at:
            pass
        elif self._query is None:
            self._relaunch(draining)
        elif queries.is_over(self._query):
            again = self._ended(self._query, draining)
            self._query = None  # Behind all that may have to be tried again.
            if again:
                self._relaunch(draining)

    def _wait(self, error: JrsError) -> None:
        """Wait for a moment: the backend is away, or a disk, which is no death of the stage."""
        self._start_at = self._clock() + _AGAIN
        self._waiting.say(f"stage {self.name!r}: {error}")

    def _ended(self, query: StreamingQuery, draining: bool) -> bool:
        """Take the next step after the end of a query; return whether to start it again now.

        Raises:
            Unavailable: a file cannot be read or written now; the call may be repeated.
        """
        self._summary = summary(query) or self._summary
        error = query.exception()
        self._batches.look(query, now=True)
        at = position(self.checkpoint)
        if error is not None and self._failed_by_itself(error):
            if self.step is not Step.REPEATING and error_reasons.not_computed(error):
                self._in_sink = self._check_computed(at.planned)
                return True
            self._died(error)
        elif self._stopping or self._is_refused(draining):
            return True
        elif at.planned > at.committed or not self._is_done(query, at.committed):
            self._died(StageDied("its query was stopped, but not by jrs"))
        elif self.step is Step.FLUSHING:
            self.step = Step.DRAINED
        elif self.step is not Step.CATCHING_UP:
            return True
        # In complete mode nothing waits for a watermark.
        elif at.stateful and at.committed >= 0 and self.holds_back is None:
            plan_flush(self.checkpoint)
            return True
        else:
            self.step = Step.DRAINED
        return False

    def _failed_by_itself(self, error: BaseException) -> bool:
        """Return whether a query failed by itself, not because jrs stopped it. Such a query fails
        again when restarted."""
        return (
            not self._stopping
            or error_reasons.not_computed(error)
            or error_reasons.lost_state(error)
        )

    def _is_done(self, query: StreamingQuery, committed: int) -> bool:
        """Return whether a query that ended without an error has done its step."""
        if self.step is Step.CATCHING_UP:
            return queries.is_caught_up(query, has_run=committed > self._committed)
        return self.step is not Step.RUNNING

    def _is_refused(self, draining: bool) -> bool:
        """Return whether it catches up for a drain that was refused meanwhile."""
        return self.step is Step.CATCHING_UP and not self.declared.bounded and not draining

    def _check_computed(self, batch: int) -> int:
        """Return a batch that its sink took without having it computed, if an earlier run computed
        it, or an earlier attempt called the stage's function for it: its state may be lost with its
        host. Otherwise no sink can have it, and repeating it for the state alone would lose it.

        Raises:
            JobHeld: it was not computed. The next start hands it to the sink again.
        """
        if is_computed(self.checkpoint, batch) or (self.keeper and self.keeper.may_have(batch)):
            return batch
        if self.keeper is not None:
            self.keeper.note_unread(batch)
        raise JobHeld(
            f"stage {self.name!r}: its sink took batch {batch}, which is new, without reading all "
            "of it: the sink has batches of another history, ignores an error, or leaves rows "
            "unread; fix the sink, and remove the batch from it if it has the batch"
        )

    def _rescale(self) -> None:
        try:
            self._rescaling.rescale()
        except Exception as error:
            if error_reasons.lost_state(error):
                raise self._lost(error) from None
            raise

    def _died(self, error: BaseException) -> None:
        # No check of the fence: a replaced leader's attempt is refused every consequence.
        lost = error_reasons.lost_state(error)
        if lost or isinstance(error, Unavailable) or error_reasons.is_interrupted(error):
            at = position(self.checkpoint).planned, lost
            if at == self._tried_at:
                said = f"stage {self.name!r} cannot continue here now: {why(error)}"
                raise self._lost(error) if lost else _Interrupted(said) from error
            # Its storage may have been full, or out of reach, for a moment.
            self._tried_at, self._start_at = at, self._clock() + _AGAIN
        else:
            restart, ran = self.declared.restart, self._clock() - self._launched
            got_on = position(self.checkpoint).committed > self._committed
            self._deaths = restart.deaths_after(self._deaths, ran, got_on=got_on)
            if self._deaths >= restart.attempts:
                raise StageDied(f"stage {self.name!r} died: {error}") from error
            self._start_at = self._clock() + restart.delay_after(self._deaths)
        self.step = Step.WAITING

    def _lost(self, error: BaseException) -> StateLost:
        """Record durably that the state cannot be loaded; return the error to die of."""
        with writing(f"recording the damage of stage {self.name!r}"):
            self.run.report_damage(self.name, str(error))
        return StateLost(f"stage {self.name!r}: its state cannot be loaded")
