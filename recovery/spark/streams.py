"""Streams: the streaming stages of one attempt, supervised one by one.

A stage goes through these steps, each of which the next attempt finds in its checkpoint::

    running ──► catching up ──► flushing ──► drained ──► finished (the record is the mark)
       └──► stands (suspended)

A bounded stage begins with *catching up*: it takes what is there and ends. An unbounded one gets
there when the job is drained. *Flushing* is one more batch, without input, at the end of time; see
`ending`. Stages that are drained on request are marked as finished together, in one commit.
"""

from __future__ import annotations

import enum
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql.streaming import DataStreamWriter

from jrs import keys
from jrs.backend import Create, commit_and_read_back
from jrs.clock import Deadline
from jrs.codec import decode, encode
from jrs.errors import Conflict, Fenced, InvalidInput, JobHeld, JrsError
from jrs.model import Json, RestartPolicy, StageRecord, StreamRecord
from jrs.recovery.job import Job, Stage, StateLost
from jrs.recovery.spark import cancel_work, queries, rescaling
from jrs.recovery.spark.ending import plan_flush, position

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_LOOK = 0.25
"""Seconds between two looks at the queries: a dead one is noticed within a second."""
_FENCE = 1.0
"""Seconds between two looks at the fence."""
_BOUNDARY = 10.0
"""Seconds that a query is given to come to a batch boundary by itself before it is stopped."""

Build = Callable[["StreamStage"], "DataStreamWriter"]


class Step(enum.Enum):
    """Where a streaming stage is."""

    WAITING = "waiting to be started again"
    RUNNING = "running"
    CATCHING_UP = "catching up"
    FLUSHING = "flushing"
    DRAINED = "drained"
    FINISHED = "finished"
    STANDS = "stands"


class StageDied(Exception):
    """A streaming stage died, and its restart policy allows no other start."""


class StreamStage(Stage):
    """A streaming stage, as the function sees it that builds its query."""

    def files(self, path: str | Path) -> str:
        """Return a folder with links to the files that were in `path` when the stage was first
        started, and to no others: a closed input, the same for every attempt.

        Raises:
            InvalidInput: `path` is no folder on this host.
            Fenced: a newer leader exists.
        """
        context = self.job._context
        return str(context.storage.close_input(self.job.job_id, self.name, Path(path)))


class Stream:
    """A streaming stage that was started, in this attempt or an earlier one."""

    def __init__(self, streams: Streams, name: str, output: Path) -> None:
        self.name = name
        self.output = output
        """The folder of its published output."""
        self.skipped = False
        """Whether an earlier attempt had finished it, so that it was not run again."""
        self._streams = streams
        self._result: Json = None

    @classmethod
    def finished(cls, streams: Streams, record: StageRecord, output: Path, attempt: int) -> Stream:
        """Return one that has finished before."""
        stream = cls(streams, record.name, output)
        stream.skipped = record.attempt < attempt
        stream._result = record.result
        return stream

    def result(self) -> Json:
        """Wait until the stage has finished and return what is recorded of it: its number of
        batches, and the newest progress that Spark reported.

        Raises:
            StageDied: it died, or another stage of the job did.
            Fenced: a newer leader exists.
        """
        self._streams.wait(self)
        return self._result


@attrs.define(eq=False)
class _Run:
    """A stage's query in this attempt."""

    stream: Stream
    writer: DataStreamWriter
    checkpoint: Path
    bounded: bool
    restart: RestartPolicy
    order: int
    after: tuple[str, ...]
    began: float
    step: Step = Step.WAITING
    query: StreamingQuery | None = None
    holds_back: str | None = None
    """Why there is something that no watermark flushes, if there is."""
    trigger: Any = None
    stopping: bool = False
    """Whether its query is brought to a batch boundary, to be started again in another way."""
    deaths: int = 0
    start_at: float = 0.0
    progress: Json = None

    @property
    def ends(self) -> bool:
        """Whether it is at its end, or beyond."""
        return self.step in (Step.FLUSHING, Step.DRAINED, Step.FINISHED)


class Streams:
    """All streaming stages of one attempt. Started with the first of them, closed with the job."""

    def __init__(self, job: Job, *, draining: bool) -> None:
        self._job = job
        self._context = job._context
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._failure: BaseException | None = None
        self._told: set[int | None] = set()
        """The threads that wait for a stage, or were told that one has died."""
        self._draining = draining
        self._standing = False
        self._over = threading.Event()
        self._wake = threading.Event()
        self._fence_at = 0.0
        self._supervisor = threading.Thread(target=self._supervise, name="jrs-streams", daemon=True)
        self._supervisor.start()

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
        context, job = self._context, self._job
        job.check()
        folder = context.storage.stream(job.job_id, job.epoch, name)
        output = context.storage.published(job.job_id, name, temporary=False)
        writer = build(StreamStage(job, name, output))
        if not isinstance(writer, DataStreamWriter):
            raise InvalidInput(
                f"stage {name!r} has to return df.writeStream…, not {type(writer).__name__}"
            )
        session = job.spark  # Not before: how it is configured is up to the function.
        queries.check_writer(writer, name, bounded=bounded)
        self._check_plan(name, writer, bounded, str(session.version))
        checkpoint = folder / "ck"
        # Unlike any other in the session, which jobs may share; but a table is called as its stage.
        title = name if queries.is_table(writer) else f"{job.job_id}/{name}"
        writer = writer.queryName(title).option("checkpointLocation", str(checkpoint))
        if queries.uses_sink(writer):
            queries.register_sink(session)
            output.mkdir(mode=0o700, parents=True, exist_ok=True)
            writer = writer.option("staging", str(folder / "staging")).option("out", str(output))
        self._scale(writer, checkpoint)
        run = _Run(
            stream=Stream(self, name, output),
            writer=writer,
            checkpoint=checkpoint,
            bounded=bounded,
            restart=restart or RestartPolicy(attempts=1),
            order=order,
            after=after,
            began=time.monotonic(),
            holds_back=queries.holds_back(writer),
            trigger=queries.trigger(writer),
        )
        self._launch(run)
        with self._lock:
            self._runs[name] = run
            self._raise_failure()
        self._wake.set()
        return run.stream

    def wait(self, stream: Stream) -> None:
        """Wait until the stage has finished."""
        with self._changed:
            self._told.add(threading.get_ident())
            run = self._runs.get(stream.name)
            while run is not None and run.step is not Step.FINISHED:
                self._raise_failure()
                self._changed.wait(_FENCE)
                if self._context.lost.is_set():
                    raise Fenced(f"job {self._job.job_id!r} stops here: its leader was replaced")
            self._told.discard(threading.get_ident())

    def wait_for_all(self) -> None:
        """Wait until every stage has finished: an unbounded one when the job is drained."""
        for run in list(self._runs.values()):
            self.wait(run.stream)

    def close(self) -> None:
        """End the supervision, and every query that still runs. Idempotent."""
        with self._lock:
            self._over.set()
        self._wake.set()
        if threading.current_thread() is not self._supervisor:
            self._supervisor.join()
        for run in self._runs.values():
            if run.query is not None and run.step is not Step.FINISHED:
                _stop(run.query)

    @property
    def failure(self) -> BaseException | None:
        """What the attempt has to end of, if a stage died of it."""
        return self._failure

    # -- stopping ---------------------------------------------------------------------------

    def steps(self) -> dict[str, str]:
        """Return where each stage is, for people."""
        with self._lock:
            return {name: _said(run) for name, run in self._runs.items()}

    def stand(self) -> None:
        """Bring every query to a batch boundary and end it; return when all of them stand."""
        with self._lock:
            self._standing = True
            runs = [run for run in self._runs.values() if run.query is not None]
        if runs:
            with ThreadPoolExecutor(len(runs), thread_name_prefix="jrs-stand") as pool:
                list(pool.map(lambda run: _stop_at_boundary(run.query), runs))
        with self._changed:
            for run in self._runs.values():
                if run.step is not Step.FINISHED:
                    run.step = Step.STANDS
            self._changed.notify_all()

    def drain(self) -> str | None:
        """Have every stage end: process what is there, flush, finish. Return why one can not.

        Asked again, it takes in the stages that were started meanwhile.
        """
        with self._lock:
            why = [
                f"stage {name!r}: {run.holds_back}"
                for name, run in self._runs.items()
                if run.holds_back and not run.bounded and not run.ends
            ]
            self._draining = not why
        self._wake.set()
        return why[0] if why else None

    # -- the supervisor -----------------------------------------------------------------------

    def _supervise(self) -> None:
        while not self._over.is_set():
            self._wake.wait(_LOOK)
            self._wake.clear()
            if self._failure is not None or self._standing:
                continue
            try:
                self._check_fence()
                with self._lock:
                    runs = list(self._runs.values())
                for run in runs:
                    self._look(run)
                self._finish_drained()
            except BaseException as error:
                self._fail(error)

    def _check_fence(self) -> None:
        now = time.monotonic()
        if now >= self._fence_at:
            self._fence_at = now + _FENCE
            try:
                self._job.check()
            except Fenced:
                raise
            except JrsError:
                pass  # It will be asked again; every commit asks for itself.

    def _look(self, run: _Run) -> None:
        if run.step in (Step.DRAINED, Step.FINISHED, Step.STANDS):
            return
        if run.query is None:
            if time.monotonic() >= run.start_at:
                self._relaunch(run)
            return
        if run.query.isActive:
            if self._draining and run.step is Step.RUNNING and not run.stopping:
                run.stopping = True
                name = f"jrs-stop-{run.stream.name}"
                stop = threading.Thread(
                    target=_stop_at_boundary, args=(run.query,), name=name, daemon=True
                )
                stop.start()
            return
        if self._standing or not queries.is_over(run.query):
            return
        error = run.query.exception()
        run.progress = _progress(run.query) or run.progress
        run.query = None
        if error is not None:
            self._died(run, error)
        elif run.step is Step.FLUSHING:
            self._to(run, Step.DRAINED)
        elif run.step is Step.CATCHING_UP:
            if not run.bounded and not self._draining:
                self._relaunch(run)  # The drain was refused meanwhile.
                return
            at = position(run.checkpoint)
            # In complete mode nothing waits for a watermark.
            if at.stateful and at.committed >= 0 and run.holds_back is None:
                plan_flush(run.checkpoint)
                self._relaunch(run)
            else:
                self._to(run, Step.DRAINED)
        elif run.stopping:
            self._relaunch(run)
        else:
            self._died(run, StageDied("its query was stopped by somebody else"))

    def _launch(self, run: _Run) -> None:
        """Start the query in the way that its checkpoint and its job ask for."""
        at = position(run.checkpoint)
        if at.flushed:
            self._to(run, Step.DRAINED)
            return
        writer = run.writer
        if at.at_the_end:
            step, writer = Step.FLUSHING, writer.trigger(once=True)
        elif run.bounded or (self._draining and run.holds_back is None):
            step, writer = Step.CATCHING_UP, writer.trigger(availableNow=True)
        else:
            step = Step.RUNNING
            queries.set_trigger(writer, run.trigger)
        queries.make_active(writer)
        query = writer.start()
        with self._changed:
            run.query, run.step, run.stopping = query, step, False
            self._changed.notify_all()

    def _relaunch(self, run: _Run) -> None:
        """Start the query once more; one that can not be started has died again."""
        try:
            self._launch(run)
        except JrsError:
            raise
        except Exception as error:
            self._died(run, error)

    def _died(self, run: _Run, error: BaseException) -> None:
        self._job.check()  # One that was fenced has died of that.
        if queries.lost_state(error):
            self._job._report_damage(run.stream.name, str(error))
            raise StateLost(f"stage {run.stream.name!r}: its state can not be loaded") from error
        run.deaths += 1
        if run.deaths >= run.restart.attempts:
            raise StageDied(f"stage {run.stream.name!r} died: {error}") from error
        run.start_at = time.monotonic() + run.restart.delay_after(run.deaths)
        self._to(run, Step.WAITING)

    def _finish_drained(self) -> None:
        with self._lock:
            left = [run for run in self._runs.values() if run.step is not Step.FINISHED]
        drained = [run for run in left if run.step is Step.DRAINED]
        if not drained:
            return
        if self._draining and (len(drained) < len(left) or not self._told):
            # Those that are drained on request finish together: also those that the function, which
            # waits for none of them yet, is still to start after a failover.
            return
        records = [self._record(run) for run in drained]
        self._job._commit_stages(records)
        self._job._records.extend(records)
        with self._changed:
            for run, record in zip(drained, records, strict=True):
                run.stream._result = record.result
                run.step = Step.FINISHED
            self._changed.notify_all()

    def _record(self, run: _Run) -> StageRecord:
        context = self._context
        return StageRecord(
            job_id=self._job.job_id,
            name=run.stream.name,
            result={"batches": position(run.checkpoint).committed + 1, "progress": run.progress},
            attempt=self._job.attempt,
            epoch=self._job.epoch,
            seconds=round(time.monotonic() - run.began, 3),
            finished_at=context.now(),
            order=run.order,
            after=run.after,
        )

    def _scale(self, writer: DataStreamWriter, checkpoint: Path) -> None:
        """Spread the stage's state over as many partitions as the job is to have."""
        wanted = self._context.spec.partitions
        if wanted is None:
            return
        session = self._job.spark
        rescaling.settle(checkpoint)
        if rescaling.partitions(checkpoint) not in (None, wanted):
            at = position(checkpoint)
            if at.at_the_end:
                return  # All it has left to do is to end.
            if at.planned > at.committed:
                with queries.once(writer):
                    writer.start().awaitTermination()
            rescaling.rescale(session, checkpoint, wanted)
        table = queries.path_of(writer)
        if table is not None:
            every = session.conf.get("spark.sql.streaming.fileSink.log.compactInterval")
            rescaling.fill_sink_log(table, checkpoint, int(every or 10))
        session.conf.set("spark.sql.shuffle.partitions", str(wanted))

    def _check_plan(self, name: str, writer: DataStreamWriter, bounded: bool, spark: str) -> None:
        """Record what the stage's checkpoint is of, or refuse one that is of something else."""
        context, job_id = self._context, self._job.job_id
        folder = str(context.storage.folder(job_id))
        plan = queries.plan_hash(writer, folder)
        record = StreamRecord(job_id, name, bounded, plan, spark, context.now())
        key = keys.stream(job_id, name)
        try:
            commit_and_read_back(context.backend, Create(key, encode(record)), fence=context.fence)
            return
        except Conflict:
            stored = context.backend.get(key)
        if stored is None:
            return  # Cleaned up in this moment: whoever did it has fenced us.
        before = decode(StreamRecord, stored.value, key)
        if before.bounded != bounded or (before.spark == spark and before.plan != plan):
            raise JobHeld(
                f"stage {name!r} of job {job_id!r} is not the query that its checkpoint is of: "
                "deploy the code that wrote it, or cancel the job and submit it under another id"
            )

    # -- inside -----------------------------------------------------------------------------

    def _to(self, run: _Run, step: Step) -> None:
        with self._changed:
            run.step = step
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()
        try:
            cancel_work(self._job.job_id)
        except Exception:
            pass  # Its JVM is gone, and with it what was to be canceled.
        self._interrupt()

    def _interrupt(self) -> None:
        """Break off what the job's function does, unless it finds the failure by itself or is over:
        what follows it is not to be broken off."""
        function = self._job._thread
        with self._lock:
            if self._over.is_set() or function.ident in self._told:
                return
            if function is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
                # To that thread, so that it wakes up from whatever it waits for in the kernel.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._told.add(threading.get_ident())
            raise self._failure


def _stop_at_boundary(query: StreamingQuery | None) -> None:
    if query is None:
        return
    deadline = Deadline.after(_BOUNDARY)
    try:
        while query.isActive and query.status["isTriggerActive"] and not deadline.expired:
            time.sleep(0.01)  # Spark tells of no boundary but by being asked.
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


def _said(run: _Run) -> str:
    at = position(run.checkpoint)
    return f"{run.step.value}, {at.committed + 1} batches committed"
