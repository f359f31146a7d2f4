"""Streams: the streaming stages of one attempt, supervised one by one.

What each goes through is a matter of its `StageQuery`; here they are started, looked after, stopped
and finished together: stages that are drained on request are marked in one commit.
"""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql.streaming import DataStreamWriter

from jrs.contract.errors import (
    Conflict,
    Fenced,
    InvalidInput,
    JobHeld,
    JrsError,
    OutcomeUnknown,
    Unavailable,
)
from jrs.contract.operations import Create, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import Json, StageRecord, StopMode, StopState, StreamRecord
from jrs.records.policies import RestartPolicy
from jrs.store.stops import JobStops

from ..attempt.engine import StreamHost
from ..attempt.job import Build, Stream, StreamStage
from . import queries
from .session import cancel_work
from .stage_query import StageQuery, Step

_LOOK = 0.25
"""Seconds between two looks at the queries: a dead one is noticed within a second."""
_FENCE = 1.0
"""Seconds between two looks at the fence."""
_FENCE_LOOK = "/"
"""No stage is called so."""
_MOST = 256
"""Stages that are looked at at once; threads are started as they are needed."""


class Streams:
    """All streaming stages of one attempt. Started with the first of them, closed with the job."""

    def __init__(self, run: StreamHost, *, draining: bool) -> None:
        self._run = run
        self._context = run.context
        self._stages: dict[str, StageQuery] = {}
        self._handles: dict[str, Stream] = {}
        self._results: dict[str, Json] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._failure: BaseException | None = None
        self._told: set[int | None] = set()
        """The threads that wait for a stage, or were told that one has died."""
        self._draining = draining
        self._suspending = False
        self._over = threading.Event()
        self._wake = threading.Event()
        self._fence_at = 0.0
        self._marks: list[StageRecord] = []
        """Of the stages that are being marked as finished."""
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
        context, job = self._context, self._run.job
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
        self._hold_back()
        self._check_plan(name, writer, bounded, str(session.version))
        checkpoint = folder / "ck"
        # Unlike any other in the session, which jobs may share; but a table is called as its stage.
        title = name if queries.is_table(writer) else f"{job.job_id}/{name}"
        writer = writer.queryName(title).option("checkpointLocation", str(checkpoint))
        if queries.uses_sink(writer):
            queries.register_sink(session)
            context.storage.make_folder(output)
            writer = writer.option("staging", str(folder / "staging")).option("out", str(output))
        once = RestartPolicy(attempts=1)
        stage = StageQuery(
            self._run, name, writer, checkpoint, bounded, restart or once, order, after,
            context.spec.partitions,
        )  # fmt: skip
        stage.start(draining=self._draining)
        with self._lock:
            self._stages[name] = stage
            handle = self._handles[name] = Stream(name, output, self.wait)
            suspending = self._suspending
            self._raise_failure()
        if suspending:
            stage.suspend()  # The others stood before this one was seen.
        self._wake.set()
        return handle

    def wait(self, stream: Stream) -> Json:
        """Wait until the stage has finished; return what is recorded of it."""
        with self._changed:
            self._told.add(threading.get_ident())
            stage = self._stages.get(stream.name)
            while stage is not None and stage.step is not Step.FINISHED:
                self._raise_failure()
                self._changed.wait(_FENCE)
                if self._context.lost.is_set():
                    raise Fenced(
                        f"job {self._context.job_id!r} stops here: its leader was replaced"
                    )
            self._told.discard(threading.get_ident())
            return self._results.get(stream.name)

    def wait_for_all(self) -> None:
        """Wait until every stage has finished: an unbounded one when the job is drained."""
        for handle in list(self._handles.values()):
            self.wait(handle)

    def close(self) -> None:
        """End the supervision, and every query that still runs. Idempotent."""
        with self._lock:
            self._over.set()
        self._wake.set()
        if threading.current_thread() is not self._supervisor:
            self._supervisor.join()
        for stage in self._stages.values():
            stage.close()

    @property
    def failure(self) -> BaseException | None:
        """What the attempt has to end of, if a stage died of it."""
        return self._failure

    # -- stopping ---------------------------------------------------------------------------

    def _hold_back(self) -> None:
        """Wait while the job is to stand: what has not begun is begun by the attempt that comes
        next, with other code perhaps."""
        while self._is_to_suspend():
            if self._over.wait(_LOOK) or self._context.lost.is_set():
                raise Fenced(f"job {self._context.job_id!r} stands, and starts nothing more here")

    def _is_to_suspend(self) -> bool:
        if self._suspending:
            return True
        try:
            stop = JobStops(self._context.backend).get(self._context.job_id)
        except JrsError:
            return False  # Whoever looks for stops will find it.
        return (
            stop is not None
            and stop.mode is StopMode.SUSPEND
            # Where nothing was started yet, the job stands before this is asked.
            and stop.state in (StopState.REQUESTED, StopState.QUIESCED)
        )

    def steps(self) -> dict[str, str]:
        """Return where each stage is, for people."""
        with self._lock:
            return {name: str(stage) for name, stage in self._stages.items()}

    def suspend(self) -> None:
        """Bring every query to a batch boundary and end it; return when all of them stand."""
        with self._lock:
            self._suspending = True
            stages = list(self._stages.values())
        if stages:
            with ThreadPoolExecutor(len(stages), thread_name_prefix="jrs-stand") as pool:
                list(pool.map(StageQuery.suspend, stages))

    def drain(self) -> str | None:
        """Have every stage end: process what is there, flush, finish. Return why one cannot.

        Asked again, it takes in the stages that were started meanwhile.
        """
        with self._lock:
            why = [
                f"stage {name!r}: {stage.holds_back}"
                for name, stage in self._stages.items()
                if stage.holds_back and not stage.bounded and not stage.ends
            ]
            self._draining = not why
        self._wake.set()
        return why[0] if why else None

    # -- the supervisor -----------------------------------------------------------------------

    def _supervise(self) -> None:
        # Each look by itself: none waits for a backend that is slow, or a query that is started.
        looks: dict[str, Future[None]] = {}
        with ThreadPoolExecutor(_MOST, thread_name_prefix="jrs-look") as pool:
            while not self._over.is_set():
                self._wake.wait(_LOOK)
                self._wake.clear()
                if self._failure is not None:
                    continue
                with self._lock:
                    todo = {name: stage.look for name, stage in self._stages.items()}
                    draining = self._draining
                try:
                    for look in looks.values():
                        if look.done():
                            look.result()
                    for name, what in todo.items():
                        if name not in looks or looks[name].done():
                            looks[name] = pool.submit(what, draining=draining)
                    if _FENCE_LOOK not in looks or looks[_FENCE_LOOK].done():
                        looks[_FENCE_LOOK] = pool.submit(self._check_fence)
                    self._finish_drained()
                except BaseException as error:
                    self._fail(error)

    def _check_fence(self) -> None:
        now = time.monotonic()
        if now >= self._fence_at:
            self._fence_at = now + _FENCE
            try:
                self._context.check()
            except Fenced:
                raise
            except JrsError:
                pass  # It will be asked again; every commit asks for itself.

    def _finish_drained(self) -> None:
        with self._lock:
            left = [stage for stage in self._stages.values() if stage.step is not Step.FINISHED]
        drained = [stage for stage in left if stage.step is Step.DRAINED]
        if not drained:
            return
        if self._draining and (len(drained) < len(left) or not self._told):
            # Those that are drained on request finish together: also those that the function, which
            # waits for none of them yet, is still to start after a failover.
            return
        self._marks = self._marks or [stage.record() for stage in drained]
        try:
            self._run.commit_stages(self._marks)
        except (Unavailable, OutcomeUnknown):
            return  # The same marks are tried at the next look: a try may have happened.
        self._run.add_finished(self._marks)
        with self._changed:
            for record in self._marks:
                self._results[record.name] = record.result
                self._stages[record.name].step = Step.FINISHED
            self._marks = []
            self._changed.notify_all()

    def _check_plan(self, name: str, writer: DataStreamWriter, bounded: bool, spark: str) -> None:
        """Record what the stage's checkpoint is of, or refuse one that is of something else."""
        context, job_id = self._context, self._context.job_id
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
        if not before.plan:
            commit_and_read_back(
                context.backend, Update(key, encode(record), stored.version), fence=context.fence
            )
        elif before.bounded != bounded or (before.spark == spark and before.plan != plan):
            raise JobHeld(
                f"stage {name!r} of job {job_id!r} is not the query that its checkpoint is of: "
                "deploy the code that wrote it, or cancel the job and submit it under another id"
            )

    # -- inside -----------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()
        try:
            cancel_work(self._context.job_id)
        except Exception:
            pass  # Its JVM is gone, and with it what was to be canceled.
        self._interrupt()

    def _interrupt(self) -> None:
        """Break off what the job's function does, unless it finds the failure by itself or is over:
        what follows it is not to be broken off."""
        function = self._run.thread
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
