"""The dispatcher: a level-triggered reconciler, in the manner of a Kubernetes controller.

On a hint or a tick it gathers the facts about each job, calls `decide`, and acts. The same
function decides at failover and in steady state. One thread owns all state; whatever takes time
runs in a pool and comes back to that thread as an event.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import tenacity

from jrs import keys
from jrs.backend import Backend, Create, Delete, Leadership, Op, Update
from jrs.clock import Clock, Deadline
from jrs.codec import decode, encode
from jrs.errors import (
    Conflict,
    CorruptRecord,
    Fenced,
    JrsError,
    OutcomeUnknown,
    ResultExists,
    Unavailable,
)
from jrs.model import (
    AttemptRecord,
    CleanupJournal,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    RunnerKind,
)
from jrs.recovery import processes
from jrs.recovery.cleanup import JobCleanup
from jrs.recovery.decision import Action, Attempt, Decision, Facts, Result, Spec, decide
from jrs.recovery.job import AttemptContext
from jrs.recovery.runners import Ended, Runner, RunningAttempt
from jrs.recovery.storage import JobStorage
from jrs.store import JobResultStore

_TICK = 1.0
_KILL = 30.0


@attrs.frozen
class Event:
    """Something a person who watches wants to know."""

    kind: str
    """``decision``, ``attempt``, ``died``, ``clean``, ``cleanup``, ``leading``, ``lost``, …"""
    job_id: str
    message: str
    epoch: int
    at: float


Report = Callable[[Event], None]


@attrs.frozen
class CleanupPolicy:
    """How a cleanup that left something is tried again; tenacity's own vocabulary."""

    wait: tenacity.wait.wait_base = attrs.field(
        factory=lambda: tenacity.wait_exponential(multiplier=1.0, max=3600.0)
    )
    stop: tenacity.stop.stop_base = tenacity.stop_never

    def delay(self, tries: int) -> float:
        return self.wait(self._state(tries))

    def is_last(self, tries: int) -> bool:
        return bool(self.stop(self._state(tries)))

    @staticmethod
    def _state(tries: int) -> tenacity.RetryCallState:
        state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
        state.attempt_number = tries
        return state


@attrs.define
class _Tracked:
    """What this leader remembers of a job between two looks at it."""

    running: RunningAttempt | None = None
    busy: bool = False
    due: float = 0.0
    """When a job that backs off may be looked at again, on the monotonic clock."""
    deaths: int | None = None
    """None until the stored attempt was read."""
    given_up: bool = False
    said: Decision | None = None


class Dispatcher:
    """Dispatches the jobs of a cluster for one leadership.

    Args:
        runners: how attempts of each kind are started.
        cleanup: what removes a job's resources.
        report: told of every event, from any thread; must not block.
    """

    def __init__(
        self,
        backend: Backend,
        leadership: Leadership,
        *,
        storage: JobStorage,
        runners: dict[RunnerKind, Runner],
        cleanup: JobCleanup,
        cleanup_policy: CleanupPolicy | None = None,
        report: Report = lambda event: None,
        master: str = "",
        clock: Clock = time.monotonic,
        now: Clock = time.time,
    ) -> None:
        self._backend = backend
        self._leadership = leadership
        self._fence = leadership.fence
        self._storage = storage
        self._runners = runners
        self._cleanup = cleanup
        self._policy = cleanup_policy or CleanupPolicy()
        self._report = report
        self._master = master
        self._clock = clock
        self._now = now
        self._store = JobResultStore(backend, now=now)
        self._jobs: dict[str, _Tracked] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="jrs-dispatch")
        self._threads = [
            threading.Thread(target=target, name=f"jrs-{name}", daemon=True)
            for name, target in (("dispatcher", self._run), ("hints", self._hint))
        ]

    # -- what a master calls ---------------------------------------------------------------

    def recover(self) -> None:
        """Decide once about every job there is; call it before `start`, before announcing.

        Raises:
            Fenced: a newer leader exists.
            Unavailable: the backend could not be asked.
        """
        self._storage.empty_trash()
        for job_id in list(self._job_ids()):
            self._reconcile(job_id)

    def start(self) -> None:
        """Go on deciding until `stop`, in threads of its own."""
        for thread in self._threads:
            thread.start()

    def provide(self, job_id: str, function: Callable[..., Any]) -> None:
        """Give the function of a job that only the driver's own main can give."""
        self._functions[job_id] = function
        self._wake.set()

    def stop(self, deadline: Deadline) -> bool:
        """End every attempt and all threads; return whether every attempt is known to be dead."""
        self._stopping.set()
        self._wake.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(deadline.bounded())
        running = {id_: job.running for id_, job in self._jobs.items() if job.running}
        ends = [self._pool.submit(attempt.end, deadline) for attempt in running.values()]
        dead = False not in [end.result() for end in ends]
        for job_id in running:
            self._cleanup.release(job_id)
        self._pool.shutdown(wait=dead, cancel_futures=True)
        return dead

    # -- the loop --------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._leadership.lost.is_set():
            self._wake.wait(self._until_due())
            self._wake.clear()
            try:
                while not self._events.empty():
                    self._events.get()()
                for job_id in sorted({*self._job_ids(), *self._active()}):
                    self._reconcile(job_id)
            except Fenced as error:
                self._step_down(error)
            except (Unavailable, OutcomeUnknown) as error:
                self._say("waiting", "", f"the backend does not answer: {error}")
            except CorruptRecord as error:
                self._say("held", "", str(error))

    def _hint(self) -> None:
        """Turn the backend's hints into wake-ups."""
        while not self._stopping.is_set():
            try:
                with self._backend.watch("") as watch:
                    while not self._stopping.is_set():
                        if watch.wait(0.2):
                            self._wake.set()
            except JrsError:
                self._stopping.wait(0.2)  # The tick stands in until the watch can be made again.

    def _until_due(self) -> float:
        now = self._clock()
        due = [job.due - now for job in self._jobs.values() if job.due > now]
        return min([_TICK, *due])

    def _job_ids(self) -> Iterator[str]:
        seen = set()
        for prefix in (keys.JOBS, keys.DIRTY):
            for record in self._backend.scan(prefix):
                job_id = keys.job_of(record.key)
                if job_id not in seen:
                    seen.add(job_id)
                    yield job_id

    def _active(self) -> list[str]:
        return [job_id for job_id, job in self._jobs.items() if job.running is not None]

    def _reconcile(self, job_id: str) -> None:
        job = self._jobs.setdefault(job_id, _Tracked())
        if job.busy:
            return
        facts, spec = self._facts(job_id, job)
        decision = decide(facts)
        if decision != job.said:
            job.said = decision
            if decision.action is not Action.LEAVE:
                self._say("decision", job_id, f"{decision.action.value}: {decision.reason}")
        if decision.action is Action.RECOVER:
            assert spec is not None
            self._offload(job_id, lambda: self._start(spec))
        elif decision.action is Action.CLEAN_UP:
            self._clean_up(job_id, job)
        elif decision.action is Action.CANCEL:
            assert spec is not None
            self._offload(job_id, lambda: self._cancel(spec, job))
        elif decision.action is Action.FAIL:
            assert spec is not None
            self._offload(job_id, lambda: self._fail(spec))
        elif decision.action is Action.SKIP:
            if facts.spec is not Spec.NONE:
                self._offload(job_id, lambda: self._sweep_spec(job_id))
            elif job.running is None:
                del self._jobs[job_id]

    # -- facts -----------------------------------------------------------------------------

    def _facts(self, job_id: str, job: _Tracked) -> tuple[Facts, JobSpec | None]:
        spec, spec_fact = self._spec(job_id)
        startable = True
        if spec is not None and spec.only_in_driver:
            startable = job_id in self._functions
        attempt = Attempt.NONE
        if job.running is not None:
            attempt = Attempt.RUNNING
        elif spec is not None:
            if job.deaths is None:
                stored = self._stored_attempt(job_id)
                job.deaths = stored.deaths if stored else 0
            if job.deaths >= spec.restart.attempts:
                attempt = Attempt.SPENT
            elif self._clock() < job.due:
                attempt = Attempt.BACKING_OFF
        facts = Facts(
            spec=spec_fact,
            result=self._result(job_id),
            attempt=attempt,
            cancel=self._backend.get(keys.CANCEL + job_id) is not None,
            startable=startable,
        )
        return facts, spec

    def _spec(self, job_id: str) -> tuple[JobSpec | None, Spec]:
        try:
            record = self._backend.get(keys.JOBS + job_id)
            if record is None:
                return None, Spec.NONE
            return decode(JobSpec, record.value, record.key), Spec.READABLE
        except CorruptRecord as error:
            self._say_once(job_id, "held", str(error))
            return None, Spec.UNREADABLE

    def _result(self, job_id: str) -> Result:
        entry = self._store.get(job_id)
        if entry is None:
            # A marker without its result can not come from jrs; never start over it.
            lone = self._backend.get(keys.DIRTY + job_id) is not None
            return Result.UNREADABLE if lone else Result.NONE
        if entry.problem:
            self._say_once(job_id, "held", entry.problem)
            return Result.UNREADABLE
        return Result(entry.state.value)

    def _stored_attempt(self, job_id: str) -> AttemptRecord | None:
        try:
            record = self._backend.get(keys.ATTEMPTS + job_id)
            return None if record is None else decode(AttemptRecord, record.value, record.key)
        except CorruptRecord:
            return None  # It only counts deaths; counting them anew is no harm.

    # -- actions, in the pool --------------------------------------------------------------

    def _start(self, spec: JobSpec) -> Callable[[], None]:
        job_id, epoch = spec.job_id, self._fence.epoch
        # The rename first: from here on no older attempt can publish, dead or not.
        self._storage.take_over(job_id, epoch)
        orphans = processes.end(
            processes.mark_of_job(self._backend.url, self._backend.cluster, job_id),
            Deadline.after(_KILL),
        )
        if orphans:
            self._say("orphans", job_id, f"killed {len(orphans)} left-over processes")
        record = self._record_attempt(job_id)
        context = AttemptContext(
            spec=spec,
            attempt=record.attempt,
            fence=self._fence,
            backend=self._backend,
            storage=self._storage,
            first_started_at=record.first_started_at,
            now=self._now,
        )
        self._say("attempt", job_id, f"attempt {record.attempt} starts")
        running = self._runners[spec.runner].start(
            context,
            self._functions.get(job_id),
            lambda ended: self._post(lambda: self._ended(spec, ended)),
        )

        def started() -> None:
            self._jobs[job_id].running = running

        return started

    def _record_attempt(self, job_id: str) -> AttemptRecord:
        key = keys.ATTEMPTS + job_id
        stored = self._backend.get(key)
        before = self._stored_attempt(job_id)
        record = AttemptRecord(
            job_id=job_id,
            attempt=before.attempt + 1 if before else 1,
            epoch=self._fence.epoch,
            master=self._master,
            started_at=self._now(),
            deaths=before.deaths if before else 0,
            failure=before.failure if before else None,
            first_started_at=before.first_started_at if before else self._now(),
        )
        self._put(key, encode(record), stored.version if stored else None)
        return record

    def _died(self, spec: JobSpec, ended: Ended) -> Callable[[], None]:
        """Count a death, durably, so that failovers do not reset the restart policy."""
        job_id = spec.job_id
        key = keys.ATTEMPTS + job_id
        stored = self._backend.get(key)
        before = self._stored_attempt(job_id) or AttemptRecord(job_id)
        deaths = before.deaths + 1
        failure = Failure("exit", ended.message, ended.detail, ended.exit_status)
        record = attrs.evolve(before, deaths=deaths, failure=failure)
        self._put(key, encode(record), stored.version if stored else None)
        policy = spec.restart
        delay = min(policy.delay * 2 ** (deaths - 1), policy.max_delay)
        left = policy.attempts - deaths
        said = f"attempt {record.attempt} died: {ended.message}"
        said += f"; {left} left, next in {delay:g} s" if left > 0 else "; none left"
        self._say("died", job_id, said)

        def counted() -> None:
            job = self._jobs[job_id]
            job.deaths = deaths
            job.due = self._clock() + delay

        return counted

    def _fail(self, spec: JobSpec) -> None:
        stored = self._stored_attempt(spec.job_id)
        failure = (stored.failure if stored else None) or Failure("exit", "every attempt died")
        self._record(spec.job_id, JobStatus.FAILED, failure, stored)

    def _cancel(self, spec: JobSpec, job: _Tracked) -> None:
        if job.running is not None and not job.running.end(Deadline.after(_KILL)):
            raise Unavailable(f"the attempt of {spec.job_id!r} does not end; trying again")
        stored = self._stored_attempt(spec.job_id)
        failure = Failure("cancel", "canceled on request")
        self._record(spec.job_id, JobStatus.CANCELED, failure, stored)

    def _record(
        self, job_id: str, status: JobStatus, failure: Failure, stored: AttemptRecord | None
    ) -> None:
        result = JobResult(
            job_id=job_id,
            status=status,
            failure=failure,
            attempt=stored.attempt if stored else 1,
            epoch=self._fence.epoch,
            started_at=stored.first_started_at if stored else self._now(),
            finished_at=self._now(),
        )
        try:
            self._store.create_dirty(result, self._fence)
        except ResultExists:
            pass  # It ended by itself in this moment: the first durable result wins.

    def _clean_up(self, job_id: str, job: _Tracked) -> None:
        if job.running is not None:
            # Its result is durable, so whatever it still does is of no use.
            running = job.running
            self._offload(job_id, lambda: self._end(job_id, running))
        elif job.given_up:
            if self._is_given_up(job_id):
                return
            job.given_up, job.due = False, 0.0
            self._wake.set()
        elif self._clock() >= job.due:
            self._offload(job_id, lambda: self._cleanup_pass(job_id))

    def _end(self, job_id: str, running: RunningAttempt) -> Callable[[], None]:
        running.end(Deadline.after(_KILL))

        def ended() -> None:
            job = self._jobs.get(job_id)
            if job is not None:
                job.running, job.due = None, 0.0

        return ended

    def _cleanup_pass(self, job_id: str) -> Callable[[], None]:
        journal = self._journal(job_id)
        tries = journal.tries + 1 if journal else 1
        if journal is not None and journal.exhausted:

            def known() -> None:
                self._jobs[job_id].given_up = True

            return known
        journal = self._cleanup.run(job_id, self._fence, last_try=self._policy.is_last(tries))
        if not journal.problems:
            self._say("clean", job_id, "its resources are gone and its result is clean")
        delay = self._policy.delay(tries)
        for name, problem in journal.problems.items():
            again = "given up" if journal.exhausted else f"again in {delay:g} s"
            self._say("cleanup", job_id, f"{name} is left: {problem} ({again})")

        def passed() -> None:
            job = self._jobs.get(job_id)
            if job is not None and journal.problems:
                job.given_up = journal.exhausted
                job.due = self._clock() + delay

        return passed

    def _journal(self, job_id: str) -> CleanupJournal | None:
        record = self._backend.get(keys.CLEANUP + job_id)
        return None if record is None else decode(CleanupJournal, record.value, record.key)

    def _is_given_up(self, job_id: str) -> bool:
        try:
            journal = self._journal(job_id)
        except CorruptRecord:
            return True
        return journal is not None and journal.exhausted

    def _sweep_spec(self, job_id: str) -> None:
        """Remove the spec that a job with a clean result has left: nothing may start from it."""
        for prefix in (keys.JOBS, keys.CANCEL):
            try:
                self._backend.commit(Delete(prefix + job_id), fence=self._fence)
            except Conflict:
                pass  # Gone already.

    def _put(self, key: str, value: bytes, version: int | None) -> None:
        op: Op = Create(key, value) if version is None else Update(key, value, version)
        self._backend.commit(op, fence=self._fence)

    # -- events, on the dispatcher's thread ------------------------------------------------

    def _ended(self, spec: JobSpec, ended: Ended) -> None:
        job = self._jobs.get(spec.job_id)
        if job is None:
            return
        if job.busy:
            # Its start or its end is still on its way back to this thread.
            self._pool.submit(self._post, lambda: self._ended(spec, ended))
            return
        job.running = None
        if ended.fenced or self._result(spec.job_id) is not Result.NONE:
            return
        if self._backend.get(keys.CANCEL + spec.job_id) is None:
            self._offload(spec.job_id, lambda: self._died(spec, ended))

    def _post(self, event: Callable[[], None]) -> None:
        self._events.put(event)
        self._wake.set()

    def _offload(self, job_id: str, action: Callable[[], Callable[[], None] | None]) -> None:
        """Run `action` in the pool; what it returns runs on the dispatcher's thread after it."""
        job = self._jobs[job_id]
        job.busy = True

        def done(then: Callable[[], None] | None, error: Exception | None) -> None:
            job.busy = False
            if isinstance(error, Fenced):
                self._step_down(error)
            elif error is not None:
                job.due = self._clock() + _TICK
                job.said = None
                self._say("error", job_id, f"{type(error).__name__}: {error}; trying again")
            elif then is not None:
                then()

        def work() -> None:
            then, failed = None, None
            try:
                then = action()
            except Exception as error:
                failed = error
            self._post(lambda: done(then, failed))

        self._pool.submit(work)

    def _step_down(self, error: Fenced) -> None:
        if not self._leadership.lost.is_set():
            self._leadership.lost.set()
            self._say("lost", "", str(error))

    def _say_once(self, job_id: str, kind: str, message: str) -> None:
        job = self._jobs.get(job_id)
        if job is None or job.said is None or job.said.action is not Action.HOLD:
            self._say(kind, job_id, message)

    def _say(self, kind: str, job_id: str, message: str) -> None:
        self._report(Event(kind, job_id, message, self._fence.epoch, self._now()))
