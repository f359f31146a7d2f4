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
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from jrs import keys
from jrs.backend import Backend, Leadership
from jrs.clock import Clock, Deadline
from jrs.errors import CorruptRecord, Fenced, JrsError, OutcomeUnknown, Unavailable
from jrs.model import JobSpec, RunnerKind
from jrs.recovery import suspects
from jrs.recovery.actions import Actions, Death, Left
from jrs.recovery.attempts import Attempts, Begun
from jrs.recovery.cleanup import CleanupPolicy, JobCleanup
from jrs.recovery.decision import Action, Attempt, Decision, Facts, Spec, decide
from jrs.recovery.events import Event, Report, tell
from jrs.recovery.facts import Gatherer, Tracked
from jrs.recovery.runners import Ended, Runner
from jrs.recovery.storage import JobStorage

_TICK = 1.0
_SETTLE = 0.5
"""Seconds that `stop` waits for actions in flight: all of them may be cut off anywhere."""

T = TypeVar("T")


class Dispatcher:
    """Dispatches the jobs of a cluster for one leadership.

    Args:
        runners: how attempts of each kind are started.
        cleanup: what removes a job's resources.
        report: told of every event, from any thread; must not block.
        probation: seconds that a job runs alone which may have killed a leader.
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
        probation: float = suspects.PROBATION,
    ) -> None:
        self._backend = backend
        self._leadership = leadership
        self._storage = storage
        self._cleanup = cleanup
        self._report = report
        self._clock = clock
        self._now = now
        self._attempts = Attempts()
        self._actions = Actions(
            backend,
            leadership,
            storage=storage,
            runners=runners,
            attempts=self._attempts,
            cleanup=cleanup,
            policy=cleanup_policy or CleanupPolicy(),
            say=self._say,
            master=master,
            now=now,
        )
        self._turns = suspects.Turns(probation, clock)
        self._facts = Gatherer(
            backend,
            self._attempts,
            settle=self._actions.settle,
            turns=self._turns,
            say=self._say,
            clock=clock,
        )
        self._jobs: dict[str, Tracked] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        # Two pools: an attempt or a resource that will not go must not keep others from starting.
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="jrs-dispatch")
        self._slow = ThreadPoolExecutor(32, thread_name_prefix="jrs-dispatch-slow")
        self._doing: set[Future[None]] = set()
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
        self._look()
        self._submit(self._slow, self._storage.empty_trash)

    def start(self) -> None:
        """Go on deciding until `stop`, in threads of its own."""
        for thread in self._threads:
            thread.start()

    def provide(self, job_id: str, function: Callable[..., Any]) -> None:
        """Give the function of a job that only the driver's own main can give."""
        self._functions[job_id] = function
        self._wake.set()

    def end_attempts(self, deadline: Deadline) -> bool:
        """End every attempt at once, and let none begin; return whether all are known to be dead.

        Safe to call from any thread, whatever the others are busy with.
        """
        dead = not self._attempts.end_all(deadline)
        self._actions.farewell()
        return dead

    def stop(self, deadline: Deadline) -> bool:
        """End every attempt and all threads; return whether every attempt is known to be dead."""
        self._stopping.set()
        self._wake.set()
        # The attempts first: a thread of ours may wait for a backend that does not answer.
        dead = self.end_attempts(deadline)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(deadline.bounded())
        for pool in (self._pool, self._slow):
            pool.shutdown(wait=False, cancel_futures=True)
        wait(set(self._doing), min(_SETTLE, deadline.bounded()))
        for job_id in self._attempts.jobs():
            self._release(job_id)
        return dead

    # -- the loop --------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over():
            self._wake.wait(self._until_due())
            self._wake.clear()
            try:
                while not self._events.empty() and not self._over():
                    self._events.get()()
                self._look()
            except Fenced as error:
                self._step_down(error)
            except (Unavailable, OutcomeUnknown) as error:
                self._say("waiting", "", f"the backend does not answer: {error}")
            except CorruptRecord as error:
                self._say("held", "", str(error))
            except Exception as error:
                # A leader that looks at nothing any more would keep others from leading.
                self._say("error", "", f"{type(error).__name__}: {error}; looking again")

    def _over(self) -> bool:
        return self._stopping.is_set() or self._leadership.lost.is_set()

    def _hint(self) -> None:
        """Turn the backend's hints into wake-ups."""
        while not self._over():
            try:
                with self._backend.watch("") as watch:
                    while not self._over():
                        if watch.wait(0.05):
                            self._wake.set()
            except JrsError:
                self._stopping.wait(0.2)  # The tick stands in until the watch can be made again.

    def _until_due(self) -> float:
        now = self._clock()
        moments = (
            moment
            for job in self._jobs.values()
            for moment in (job.retry_at, job.restart_at, job.cleanup_at, job.snapshot_at or 0.0)
        )
        return min([_TICK, *(moment - now for moment in moments if moment > now)])

    def _look(self) -> None:
        """Look at every job once; what is wrong with one of them keeps no other from its turn."""
        there = {*self._job_ids()}
        for job_id in sorted({*there, *self._unsettled()}):
            if self._over():
                return
            try:
                self._reconcile(job_id)
            except (Fenced, Unavailable, OutcomeUnknown):
                raise
            except CorruptRecord as error:
                self._decided(job_id, Decision(Action.HOLD, str(error)))
            except Exception as error:
                self._failed(job_id, error)
        for job_id in self._jobs.keys() - there - {*self._unsettled()}:
            del self._jobs[job_id]
            self._functions.pop(job_id, None)

    def _job_ids(self) -> Iterator[str]:
        for prefix in (keys.JOBS, keys.DIRTY):
            for record in self._backend.scan(prefix):
                yield keys.job_of(record.key)

    def _unsettled(self) -> list[str]:
        return [
            job_id
            for job_id, job in self._jobs.items()
            if job.busy or job.pinning or job.ended or self._attempts.is_running(job_id)
        ]

    def _reconcile(self, job_id: str) -> None:
        job = self._jobs.setdefault(job_id, Tracked())
        if job.busy or self._clock() < job.retry_at:
            return
        if job.ended is not None:
            spec, ended = job.ended
            self._offload(
                job_id,
                lambda: self._actions.count_death(spec, ended),
                lambda death: self._counted(job, death),
            )
            return
        facts, spec_or_none = self._facts.gather(job_id, job, driven=job_id in self._functions)
        decision = decide(facts)
        self._decided(job_id, decision)
        self._act(job_id, job, decision.action, facts, spec_or_none)

    def _act(
        self, job_id: str, job: Tracked, action: Action, facts: Facts, spec: JobSpec | None
    ) -> None:
        do = self._actions
        if job.pinning and action is not Action.CANCEL:
            # Whatever else is done about a job takes its files or its records from under the
            # snapshot, or takes another one; but to end its attempt waits for nothing.
            if action in (Action.CLEAN_UP, Action.SUSPEND) and facts.attempt is Attempt.RUNNING:
                self._offload(job_id, lambda: do.end(job_id), slow=True)
        elif action is Action.CLEAN_UP:
            if facts.attempt is Attempt.RUNNING:
                self._offload(job_id, lambda: do.end(job_id), slow=True)
            elif self._may_clean_up(job_id, job):
                self._offload(
                    job_id,
                    lambda: do.clean_up(job_id),
                    lambda left: self._cleaned_up(job, left),
                    slow=True,
                )
        elif action is Action.SKIP and facts.spec is not Spec.NONE:
            self._offload(job_id, lambda: do.sweep_spec(job_id))
        elif action is Action.RESTORE:
            self._offload(
                job_id, lambda: do.finish_restore(job_id), lambda _: self._rest(job), slow=True
            )
        elif action is Action.CANCEL and facts.spec is Spec.RESTORING:
            self._offload(
                job_id, lambda: do.cancel_restore(job_id), lambda _: self._rest(job), slow=True
            )
        elif action is Action.CANCEL:
            self._offload(job_id, lambda: do.cancel(job_id), slow=True)
        elif spec is None:
            return
        elif action is Action.RECOVER:
            do.check_stages(job_id)
            function = self._functions.get(job_id) if spec.only_in_driver else None
            on_end = self._on_end(spec)
            if suspects.runner_of(spec, job.suspicion) is RunnerKind.THREAD:
                self._turns.enter(job_id, job.suspicion)
            self._offload(job_id, lambda: do.start(spec, function, on_end))
        elif action is Action.SUSPEND:
            self._offload(job_id, lambda: do.suspend(spec), slow=True)
        elif action is Action.FAIL:
            self._offload(job_id, lambda: do.fail(spec))
        elif action is Action.LEAVE and self._turns.has_survived(job_id):
            self._offload(
                job_id,
                lambda: do.end_probation(job_id),
                lambda _: self._turns.acquit(job_id),
            )
        elif action is Action.LEAVE and self._snapshot_is_due(job, spec):
            self._offload(job_id, lambda: do.pin(spec), slow=True, pins=True)

    # -- when things are due -----------------------------------------------------------------

    def _snapshot_is_due(self, job: Tracked, spec: JobSpec) -> bool:
        if spec.snapshots.every is None:
            return False
        now, due = self._clock(), job.snapshot_at
        if due is None or now >= due:
            job.snapshot_at = now + spec.snapshots.every
        return due is not None and now >= due

    def _may_clean_up(self, job_id: str, job: Tracked) -> bool:
        journal = self._actions.journal(job_id)
        # A new leader tries once: what stood in the way may have been the other one's host.
        if journal is not None and journal.exhausted and job.cleanup_tries:
            if not job.said_given_up:
                job.said_given_up = True
                left = ", ".join(journal.problems)
                self._say("cleanup", job_id, f"given up after {journal.tries} tries; left: {left}")
            return False
        job.said_given_up = False
        asked_for = journal is not None and journal.tries < job.cleanup_tries
        return asked_for or self._clock() >= job.cleanup_at

    # -- events, on the dispatcher's thread ------------------------------------------------

    def _on_end(self, spec: JobSpec) -> Callable[[Begun, Ended], None]:
        return lambda begun, ended: self._post(lambda: self._ended(spec, begun, ended))

    def _ended(self, spec: JobSpec, begun: Begun, ended: Ended) -> None:
        if self._attempts.over:
            return  # It ended with its leader.
        # One that is known no more was ended on purpose.
        if self._attempts.forget(spec.job_id, begun):
            self._jobs[spec.job_id].ended = spec, ended

    def _counted(self, job: Tracked, death: Death | None) -> None:
        job.ended = None
        if death is not None:
            job.deaths = death.deaths
            job.restart_at = self._clock() + death.delay

    def _cleaned_up(self, job: Tracked, left: Left | None) -> None:
        if left is not None:
            job.cleanup_tries = left.tries
            job.cleanup_at = self._clock() + left.delay
            job.said_given_up = True  # If it was, the pass itself has said so.

    def _rest(self, job: Tracked) -> None:
        """Look at the job again a little later: somebody else may be at it for long."""
        job.retry_at = self._clock() + _TICK

    def _post(self, event: Callable[[], None]) -> None:
        self._events.put(event)
        self._wake.set()

    def _offload(
        self,
        job_id: str,
        action: Callable[[], T],
        then: Callable[[T], None] = lambda found: None,
        *,
        slow: bool = False,
        pins: bool = False,
    ) -> None:
        """Run `action` in a pool, then `then` with what it returned on the dispatcher's thread.

        The job is not looked at meanwhile, unless the action only `pins` it.
        """
        job = self._jobs[job_id]

        def under_way(yes: bool) -> None:
            if pins:
                job.pinning = yes
            else:
                job.busy = yes

        def come_back(event: Callable[[], None]) -> None:
            def back() -> None:
                under_way(False)
                event()

            self._post(back)

        def work() -> None:
            try:
                found = action()
            except Exception as error:
                if isinstance(error, Fenced):
                    self._step_down(error)
                failed = error
                come_back(lambda: self._failed(job_id, failed))
            else:
                come_back(lambda: then(found))

        under_way(True)
        self._submit(self._slow if slow else self._pool, work)

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], None]) -> None:
        try:
            doing = pool.submit(work)
        except RuntimeError:
            return  # Stopped meanwhile: nothing more is begun.
        self._doing.add(doing)
        doing.add_done_callback(self._doing.discard)

    def _failed(self, job_id: str, error: Exception) -> None:
        job = self._jobs[job_id]
        job.retry_at = self._clock() + _TICK
        if not isinstance(error, Fenced):
            job.said = None
            self._say("error", job_id, f"{type(error).__name__}: {error}; trying again")

    def _release(self, job_id: str) -> None:
        try:
            self._cleanup.release(job_id)
        except Exception as error:
            self._say("error", job_id, f"not released: {type(error).__name__}: {error}")

    def _step_down(self, error: Fenced) -> None:
        if not self._leadership.lost.is_set():
            self._leadership.lost.set()
            self._say("lost", "", str(error))

    # -- telling ---------------------------------------------------------------------------

    def _decided(self, job_id: str, decision: Decision) -> None:
        job = self._jobs[job_id]
        if decision != job.said:
            job.said = decision
            if decision.action is not Action.LEAVE:
                self._say("decision", job_id, f"{decision.action.value}: {decision.reason}")

    def _say(self, kind: str, job_id: str, message: str) -> None:
        event = Event(kind, job_id, message, self._leadership.fence.epoch, self._now())
        tell(self._report, event)
