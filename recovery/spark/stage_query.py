"""StageQuery: the query of one streaming stage in one attempt, from its start to its end.

It goes through these steps, each of which the next attempt finds in its checkpoint::

    running ──► catching up ──► flushing ──► drained ──► finished (the record is the mark)
       └──► stands (suspended)

A bounded stage begins with *catching up*: it takes what is there and ends. An unbounded one gets
there when the job is drained. *Flushing* is one more batch, without input, at the end of time; see
`ending`. Wherever it is, a batch that its sink has and the commit log has not is *repeated* first.
"""

from __future__ import annotations

import enum
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from jrs.clock import Deadline
from jrs.errors import JrsError
from jrs.model import Json, StageRecord
from jrs.policy import RestartPolicy
from jrs.recovery.job import Job, StateLost
from jrs.recovery.spark import queries
from jrs.recovery.spark.ending import plan_flush, position

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

_BOUNDARY = 10.0
"""Seconds that a query is given to come to a batch boundary by itself before it is stopped."""


class Step(enum.Enum):
    """Where a streaming stage is."""

    WAITING = "waiting to be started again"
    RUNNING = "running"
    REPEATING = "repeating a batch that its sink has, for the state"
    CATCHING_UP = "catching up"
    FLUSHING = "flushing"
    DRAINED = "drained"
    FINISHED = "finished"
    STANDS = "stands"


class StageDied(Exception):
    """A streaming stage died, and its restart policy allows no other start."""


@attrs.define(eq=False)
class StageQuery:
    """A stage's query. Looked at by the supervisor, brought to stand by whoever stops the job."""

    job: Job
    name: str
    writer: DataStreamWriter
    checkpoint: Path
    bounded: bool
    restart: RestartPolicy
    order: int
    after: tuple[str, ...]
    partitions: int | None = None
    """Over how many its state is to be spread; None leaves it to the session."""
    step: Step = Step.WAITING
    holds_back: str | None = attrs.field(init=False)
    """Why there is something that no watermark flushes, if there is."""
    _began: float = attrs.field(factory=time.monotonic)
    _trigger: Any = attrs.field(init=False)
    _query: StreamingQuery | None = None
    _stopping: bool = False
    """Whether it is brought to a batch boundary, to be started again in another way."""
    _standing: bool = False
    _sink_has_it: bool = False
    """Whether the batch that is planned needs no more than to be computed."""
    _deaths: int = 0
    _start_at: float = 0.0
    _progress: Json = None
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    """Held while it is looked at, so that nothing is started once it is to stand."""

    def __attrs_post_init__(self) -> None:
        # Not once it runs: only its own thread may be the first to plan it.
        self.holds_back = queries.holds_back(self.writer)
        self._trigger = queries.trigger(self.writer)

    @property
    def ends(self) -> bool:
        """Whether it is at its end, or beyond."""
        return self.step in (Step.FLUSHING, Step.DRAINED, Step.FINISHED)

    def __str__(self) -> str:
        return f"{self.step.value}, {position(self.checkpoint).committed + 1} batches committed"

    def start(self, *, draining: bool) -> None:
        """Start it for the first time in this attempt; what Spark raises is the function's."""
        with self._lock:
            if not self._standing:
                self._launch(draining)

    def look(self, *, draining: bool) -> None:
        """Go on with it as far as it goes by now.

        Raises:
            StageDied: it died once more than it may.
            StateLost: its checkpoint can not be loaded.
            JobHeld: its checkpoint is damaged.
        """
        with self._lock:
            if self._standing or self.step in (Step.DRAINED, Step.FINISHED):
                return
            if self._query is None:
                if time.monotonic() >= self._start_at:
                    self._relaunch(draining)
            elif self._query.isActive:
                if draining and self.step is Step.RUNNING and not self._stopping:
                    self._stopping = True
                    threading.Thread(
                        target=_stop_at_boundary,
                        args=(self._query, self.checkpoint),
                        name=f"jrs-stop-{self.name}",
                        daemon=True,
                    ).start()
            elif queries.is_over(self._query):
                self._ended(self._query, draining)

    def stand(self) -> None:
        """Bring it to a batch boundary and end it; it is not started again. Idempotent."""
        with self._lock:
            self._standing = True
        if self._query is not None:
            _stop_at_boundary(self._query, self.checkpoint)
        if self.step is not Step.FINISHED:
            self.step = Step.STANDS

    def close(self) -> None:
        """End it wherever it is. Idempotent."""
        if self._query is not None and self.step is not Step.FINISHED:
            _stop(self._query)

    def record(self) -> StageRecord:
        """Return the mark of a stage that is drained."""
        return StageRecord(
            job_id=self.job.job_id,
            name=self.name,
            result={"batches": position(self.checkpoint).committed + 1, "progress": self._progress},
            attempt=self.job.attempt,
            epoch=self.job.epoch,
            seconds=round(time.monotonic() - self._began, 3),
            finished_at=self.job._context.now(),
            order=self.order,
            after=self.after,
        )

    # -- inside, under the lock ---------------------------------------------------------------

    def _launch(self, draining: bool) -> None:
        """Start the query in the way that its checkpoint and its job ask for."""
        at = position(self.checkpoint)
        if at.flushed:
            self.step = Step.DRAINED
            return
        writer = self.writer
        self._sink_has_it &= at.planned > at.committed
        if self._sink_has_it:
            step, writer = Step.REPEATING, queries.for_state_only(writer)
        elif at.at_the_end:
            step, writer = Step.FLUSHING, writer.trigger(once=True)
        elif self.bounded or (draining and self.holds_back is None):
            step, writer = Step.CATCHING_UP, writer.trigger(availableNow=True)
        else:
            step = Step.RUNNING
            queries.set_trigger(writer, self._trigger)
        queries.make_active(writer)
        with queries.spread(writer, self.partitions):
            self._query, self._stopping = writer.start(), False
        self.step = step

    def _relaunch(self, draining: bool) -> None:
        """Start it once more; one that can not be started has died again."""
        try:
            self._launch(draining)
        except JrsError:
            raise
        except Exception as error:
            self._died(error)

    def _ended(self, query: StreamingQuery, draining: bool) -> None:
        """Go on behind the end of a query."""
        self._progress = _progress(query) or self._progress
        self._query, error = None, query.exception()
        if error is not None:
            if self.step is Step.REPEATING or not queries.not_computed(error):
                self._died(error)
                return
            self._sink_has_it = True
            self._relaunch(draining)
        elif self.step is Step.REPEATING:
            self._relaunch(draining)
        elif self.step is Step.FLUSHING:
            self.step = Step.DRAINED
        elif self.step is Step.CATCHING_UP:
            if not self.bounded and not draining:
                self._relaunch(draining)  # The drain was refused meanwhile.
                return
            at = position(self.checkpoint)
            # In complete mode nothing waits for a watermark.
            if at.stateful and at.committed >= 0 and self.holds_back is None:
                plan_flush(self.checkpoint)
                self._relaunch(draining)
            else:
                self.step = Step.DRAINED
        elif self._stopping:
            self._relaunch(draining)
        else:
            self._died(StageDied("its query was stopped by somebody else"))

    def _died(self, error: BaseException) -> None:
        # The fence is not asked: whatever comes of a death is refused to who was replaced.
        lost = state_lost(self.job, self.name, error)
        if lost is not None:
            raise lost from error
        self._deaths += 1
        if self._deaths >= self.restart.attempts:
            raise StageDied(f"stage {self.name!r} died: {error}") from error
        self._start_at = time.monotonic() + self.restart.delay_after(self._deaths)
        self.step = Step.WAITING


def state_lost(job: Job, name: str, error: BaseException) -> StateLost | None:
    """Return what a stage has died of if its state can not be loaded; whoever starts the job next
    is told so, durably."""
    if not queries.lost_state(error):
        return None
    job._report_damage(name, str(error))
    return StateLost(f"stage {name!r}: its state can not be loaded")


def _stop_at_boundary(query: StreamingQuery, checkpoint: Path) -> None:
    """Stop a query between two batches: when it waits for its trigger, or has just committed one
    of those that it runs without a pause."""
    deadline = Deadline.after(_BOUNDARY)
    before = position(checkpoint).committed
    try:
        # Spark tells of no boundary but by being asked.
        while query.isActive and query.status["isTriggerActive"] and not deadline.expired:
            if position(checkpoint).committed > before:
                break
            time.sleep(0.01)
    except Exception:
        return  # Its JVM is gone: it stands.
    _stop(query)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except Exception:
        pass  # It did not end in time, or its JVM is gone: its process group is ended in any case.


def _progress(query: StreamingQuery) -> Json:
    """Return the newest progress that Spark reported, as far as it is of use afterwards."""
    newest: Any = query.lastProgress
    if newest is None:
        return None
    return {"batch": newest.batchId, "timestamp": newest.timestamp, "rows": newest.numInputRows}
