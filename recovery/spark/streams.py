"""Streams: the streaming stages of one attempt, supervised one by one.

A `StageQuery` carries each stage through its steps. This module starts, supervises, stops and
finishes the stages together: stages that are drained on request are marked in one commit.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from pyspark.sql.streaming.readwriter import DataStreamWriter

from jrs.contract.errors import (
    Fenced,
    InvalidInput,
    JrsError,
    OutcomeUnknown,
    Unavailable,
)
from jrs.contract.pool import ThreadPool
from jrs.records.model import Json, StageRecord, StopMode, StopState, StreamRecord
from jrs.records.policies import RestartPolicy
from jrs.store.stops import JobStops

from ..attempt.batch_committer import BatchCommitter
from ..attempt.engine import StreamHost
from ..attempt.job import Build, Stream, StreamStage
from ..attempt.plan_keeper import PlanKeeper
from ..attempt.triage import call_users
from ..files.disk_errors import writing
from . import queries
from .commits import Commits
from .data_format import register_format
from .pool import RejectingPool
from .progress import ProgressWatch
from .session import cancel_work
from .sink_server import SinkServer
from .stage_query import DeclaredStream, StageQuery, Step
from .stream_records import is_new, record_query
from .waiting import Waiting

_LOOK = 0.25
"""Seconds between two checks of the queries: a dead query is noticed within a second."""
_FENCE = 1.0
"""Seconds between two checks of the fence."""
_FENCE_LOOK = "/"
"""No stage has this name."""
_MOST = 256
"""Stages that are checked at once; threads are started as needed."""


class Streams:
    """All streaming stages of one attempt. Started with the first stage, closed with the job."""

    def __init__(self, run: StreamHost, *, draining: bool) -> None:
        self._run = run
        self._context = run.context
        self._stages: dict[str, StageQuery] = {}
        self._results: dict[str, Json] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._failure: BaseException | None = None
        self._aware: set[int | None] = set()
        """The threads that wait for a stage, or were notified that one has died."""
        self._draining = draining
        self._suspending = False
        self._over = threading.Event()
        self._wake = threading.Event()
        self._fence_at = 0.0
        self._marks: list[StageRecord] = []
        """The records of the stages that are being marked as finished."""
        self._sinks: SinkServer | None = None
        waiting = self._context.reporter.waiting
        self._commits = Commits(self._fail, waiting)
        self._waiting = Waiting(waiting, self._context.runtime.clock)
        self._supervisor = self._context.runtime.thread(self._supervise, "jrs-streams")
        try:
            self._supervisor.start()
        except RuntimeError as error:
            raise Unavailable(f"streams cannot be supervised now: {error}") from error

    # -- what the job's function does -------------------------------------------------------

    def start(
        self,
        name: str,
        build: Build,
        *,
        bounded: bool,
        after: tuple[str, ...],
        restart: RestartPolicy | None,
        order: int,
    ) -> Stream:
        """Start a stage that has not finished; see `Job.stream`."""
        context, job = self._context, self._run.job
        context.check()
        output = context.storage.published(job.job_id, name, temporary=False)
        writer = _built(build, StreamStage(job, name, output))
        session = job.spark  # Not before `build`: the job's function configures the session.
        begins = partial(is_new, context, name)
        queries.check_writer(writer, name, context.storage, output, bounded=bounded, begins=begins)
        self._hold_back()
        place = StreamRecord(
            job.job_id, name, bounded, "", str(session.version), order=order, after=after,
            sink=queries.sink_of(writer),
        )  # fmt: skip
        sink = record_query(context, place, writer).sink
        committer, progress = None, ProgressWatch()
        if queries.uses_sink(writer):
            committer = self._committer(name, output, progress, sink.since if sink else 0)
        folder = context.storage.stream(job.job_id, job.epoch, name)
        checkpoint = folder / "ck"
        # Unique in the session, which jobs may share; but a table has the name of its stage.
        title = name if queries.is_table(writer) else f"{job.job_id}/{name}"
        writer = writer.queryName(title).option("checkpointLocation", str(checkpoint))
        if committer is not None:
            register_format(session)
            writer = writer.option("staging", str(folder / "staging"))
            writer = writer.option("stage", name).option("address", self._sink_server().address)
        keeper = None
        if queries.calls_function(writer):
            keeper = self._keep_plans(name, writer, checkpoint, progress)
        declared = DeclaredStream(name, bounded, restart or RestartPolicy(attempts=1), order, after)
        stage = StageQuery(
            self._run, declared, writer, checkpoint, context.spec.partitions, committer, progress,
            keeper,
        )  # fmt: skip
        stage.start(draining=self._draining)
        with self._lock:
            self._stages[name] = stage
            suspending = self._suspending
            self._raise_failure()
        if suspending:
            stage.suspend()  # The other stages were suspended before this one was known.
        self._wake.set()
        return Stream(name, self._run.stream_output(name), lambda stream: self._wait(stream.name))

    def _wait(self, name: str) -> Json:
        """Wait until the stage has finished; return its recorded result."""
        with self._changed:
            self._aware.add(threading.get_ident())
            stage = self._stages.get(name)
            while stage is not None and stage.step is not Step.FINISHED:
                self._raise_failure()
                self._changed.wait(_FENCE)
                if self._context.lost.is_set():
                    raise Fenced(
                        f"job {self._context.job_id!r} stops here: its leader was replaced"
                    )
            self._aware.discard(threading.get_ident())
            return self._results.get(name)

    def wait_for_all(self) -> None:
        """Wait until every stage has finished; an unbounded one finishes when the job is
        drained."""
        for name in list(self._stages):
            self._wait(name)

    def close(self) -> None:
        """End the supervision, and every query that still runs. Idempotent."""
        with self._lock:
            self._over.set()
        self._wake.set()
        if threading.current_thread() is not self._supervisor:
            self._supervisor.join()
        # First, or a query that is to stop waits for a commit, and that one for the backend.
        self._commits.close()
        if self._sinks is not None:
            self._sinks.close()
        for stage in self._stages.values():
            stage.close()

    @property
    def failure(self) -> BaseException | None:
        """The error of which a stage died, so that the attempt must end; None if there is none."""
        return self._failure

    # -- stopping ---------------------------------------------------------------------------

    def _hold_back(self) -> None:
        """Wait while the job is being suspended: the next attempt begins the stage."""
        while self._is_to_suspend():
            if self._over.wait(_LOOK) or self._context.lost.is_set():
                raise Fenced(
                    f"job {self._context.job_id!r} is suspended and starts nothing more here"
                )

    def _is_to_suspend(self) -> bool:
        if self._suspending:
            return True
        try:
            stop = JobStops(self._context.backend).get(self._context.job_id)
        except JrsError:
            return False  # The thread that checks for stops will find it.
        return (
            stop is not None
            and stop.mode is StopMode.SUSPEND
            # If no stage was started yet, the job is suspended before this check.
            and stop.state in (StopState.REQUESTED, StopState.QUIESCED)
        )

    def steps(self) -> dict[str, str]:
        """Return the position of each stage, for people."""
        with self._lock:
            return {name: str(stage) for name, stage in self._stages.items()}

    def suspend(self) -> None:
        """Bring every query to a batch boundary and end it; return when all are suspended."""
        with self._lock:
            self._suspending = True
            stages = list(self._stages.values())
        if stages:
            with ThreadPool(len(stages), "jrs-suspend") as pool:
                list(pool.map(StageQuery.suspend, stages))

    def drain(self) -> str | None:
        """Have every stage finish its remaining input and flush. Return why a stage cannot.

        A repeated call includes the stages that were started meanwhile.
        """
        with self._lock:
            why = [
                f"stage {name!r}: {stage.holds_back}"
                for name, stage in self._stages.items()
                if stage.holds_back and not stage.declared.bounded and not stage.ends
            ]
            self._draining = not why
        self._wake.set()
        return why[0] if why else None

    # -- the supervisor -----------------------------------------------------------------------

    def _supervise(self) -> None:
        # Each check runs by itself: none waits for a slow backend, or for a query that is starting.
        looks: dict[str, Future[None]] = {}
        with RejectingPool(_MOST, "jrs-look", self._context.runtime) as pool:
            while not self._over.is_set():
                self._wake.wait(_LOOK)
                self._wake.clear()
                if self._failure is not None:
                    continue
                with self._lock:
                    draining = self._draining
                    todo: dict[str, Callable[[], None]] = {
                        name: partial(stage.look, draining=draining)
                        for name, stage in self._stages.items()
                    }
                todo[_FENCE_LOOK] = self._check_fence
                # What waits longest comes first: there may be fewer threads than checks.
                turn = [*(name for name in todo if name not in looks), *looks]
                try:
                    for look in looks.values():
                        if look.done():
                            look.result()
                    for name in turn:
                        if name not in looks or looks[name].done():
                            begun = pool.submit(todo[name])
                            if begun is not None:
                                looks.pop(name, None)
                                looks[name] = begun
                    self._finish_drained()
                except BaseException as error:
                    self._fail(error)

    def _check_fence(self) -> None:
        now = self._context.runtime.clock()
        if now >= self._fence_at:
            self._fence_at = now + _FENCE
            try:
                self._context.check()
            except Fenced:
                raise
            except JrsError:
                pass  # The fence is checked again soon, and by every commit.

    def _finish_drained(self) -> None:
        with self._lock:
            left = [stage for stage in self._stages.values() if stage.step is not Step.FINISHED]
        drained = [stage for stage in left if stage.step is Step.DRAINED]
        if not drained:
            return
        if self._draining and (len(drained) < len(left) or not self._aware):
            # Stages that are drained on request finish together, including those that the function
            # has yet to start after a failover because it waits for none of them.
            return
        try:
            self._marks = self._marks or [stage.record() for stage in drained]
            ends = {one.name: self._stages[one.name].output_ends() for one in self._marks}
            conditions = {name: end for name, end in ends.items() if end is not None}
            self._run.commit_stages(self._marks, conditions)
        except (Unavailable, OutcomeUnknown) as error:
            # The same marks are tried at the next check: this try may have been applied.
            self._waiting.say(f"stages that have drained are not marked yet: {error}")
            return
        self._run.add_finished(self._marks)
        with self._changed:
            for record in self._marks:
                self._results[record.name] = record.result
                self._stages[record.name].step = Step.FINISHED
            self._marks = []
            self._changed.notify_all()

    def _committer(
        self, stage: str, output: Path, progress: ProgressWatch, since: int
    ) -> BatchCommitter:
        """Return what commits the batches of a stage, once it has published what is committed.

        Args:
            since: the first batch that goes to the sink of jrs.
        """
        context = self._context
        folder = context.storage.stream_folder(context.job_id, context.epoch, stage)
        committer = BatchCommitter(context, stage, folder, output, progress.newest)
        if context.storage.objects is None:
            with writing(f"making {output}"):
                context.storage.make_folder(output)
        committer.begin(since)
        self._sink_server().add(stage, committer)
        return committer

    def _keep_plans(
        self, stage: str, writer: DataStreamWriter, checkpoint: Path, progress: ProgressWatch
    ) -> PlanKeeper:
        """Have the plan of each batch recorded before the stage's function is called for it;
        return what does so."""
        keeper = PlanKeeper(self._context, stage, checkpoint, progress.newest)
        keeper.begin()
        queries.guard_function(
            writer, lambda batch: self._commits.carry_out(lambda: keeper.keep(batch))
        )
        return keeper

    def _sink_server(self) -> SinkServer:
        if self._sinks is None:
            self._sinks = SinkServer(self._context.runtime, self._commits)
        return self._sinks

    # -- inside -----------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()
        try:
            cancel_work(self._context.job_id)
        except Exception:
            pass  # Its JVM is gone, and its work with it.
        self._interrupt()

    def _interrupt(self) -> None:
        """Interrupt the job's function, unless it notices the failure by itself or has returned:
        code that runs after it must not be interrupted."""
        function = self._run.thread
        with self._lock:
            if self._over.is_set() or function.ident in self._aware:
                return
            if function is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
                # To that thread, so that it wakes up from any call that blocks in the kernel.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._aware.add(threading.get_ident())
            raise self._failure


def _built(build: Build, stage: StreamStage) -> DataStreamWriter:
    writer = call_users(build, stage)
    if not isinstance(writer, DataStreamWriter):
        raise InvalidInput(
            f"stage {stage.name!r} has to return df.writeStream…, not {type(writer).__name__}"
        )
    return writer
