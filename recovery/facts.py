"""Gathering the facts about a job: what is stored of it, and what its leader remembers."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from jrs import keys
from jrs.backend import Backend
from jrs.clock import Clock
from jrs.codec import decode
from jrs.errors import CorruptRecord
from jrs.model import AttemptRecord, JobSpec, RunnerKind
from jrs.recovery import suspects
from jrs.recovery.attempts import Attempts
from jrs.recovery.decision import Action, Attempt, Decision, Facts, Result, Spec, Stop, decide
from jrs.recovery.runners import Ended
from jrs.recovery.snapshots import pending
from jrs.stops import JobStops
from jrs.store import JobResultStore


@attrs.define(eq=False)
class Tracked:
    """What this leader remembers of a job between two looks at it."""

    busy: bool = False
    """An action about it is in the pool: it is not looked at until that has come back."""
    pinning: bool = False
    """A snapshot of it is being taken, beside which it is still looked at."""
    ended: tuple[JobSpec, Ended] | None = None
    """An attempt's end that is still to be judged."""
    retry_at: float = 0.0
    """When to look again after an action that raised; like all of these on the monotonic clock."""
    restart_at: float = 0.0
    deaths: int | None = None
    """None until the stored attempt was read."""
    suspicion: int = 0
    cleanup_at: float = 0.0
    cleanup_tries: int = 0
    said: Decision | None = None
    said_given_up: bool = False
    snapshot_at: float | None = None
    """When the next of the snapshots is due that the job's spec asks for."""
    stop_since: tuple[float, float] | None = None
    """Which stop this leader has seen, by the time of its request, and since when."""


class Gatherer:
    """Gathers the facts about the jobs of one leadership; called by its dispatcher's thread.

    Args:
        settle: returns a job's newest attempt, once the end of an earlier leader's is judged, and
            the seconds until the next one may start.
        turns: whose turn it is to run in this process.
        say: told of what can not be read, once until something else was decided of its job.
    """

    def __init__(
        self,
        backend: Backend,
        attempts: Attempts,
        *,
        settle: Callable[[JobSpec], tuple[AttemptRecord | None, float]],
        turns: suspects.Turns,
        say: Callable[[str, str, str], None],
        clock: Clock,
    ) -> None:
        self._backend = backend
        self._attempts = attempts
        self._settle = settle
        self._turns = turns
        self._say = say
        self._clock = clock
        self._store = JobResultStore(backend)
        self._stops = JobStops(backend)

    def gather(self, job_id: str, job: Tracked, *, driven: bool) -> tuple[Facts, JobSpec | None]:
        """Return the facts about a job, and its spec if it can be read.

        Args:
            driven: whether the driver's main has given the job's function here.

        Raises:
            Unavailable: the backend could not be asked.
        """
        spec, spec_fact = self._spec(job_id, job)
        facts = Facts(
            spec=spec_fact,
            result=self._result(job_id, job),
            attempt=self._attempt(job_id, job, spec),
            cancel=self._backend.get(keys.CANCEL + job_id) is not None,
            stop=self._stop(job_id, job),
            startable=spec is None or not spec.only_in_driver or driven,
        )
        if spec is not None and decide(facts).action is Action.RECOVER:
            facts = attrs.evolve(facts, turn=self._may_start(spec, job.suspicion))
        return facts, spec

    def _spec(self, job_id: str, job: Tracked) -> tuple[JobSpec | None, Spec]:
        try:
            record = self._backend.get(keys.JOBS + job_id)
            if record is None:
                return None, Spec.NONE
            if pending.is_one(record):
                return None, Spec.RESTORING
            return decode(JobSpec, record.value, record.key), Spec.READABLE
        except CorruptRecord as error:
            self._say_once(job_id, job, str(error))
            return None, Spec.UNREADABLE

    def _result(self, job_id: str, job: Tracked) -> Result:
        entry = self._store.get(job_id)
        if entry is None:
            # A marker without its result can not come from jrs; never start over it.
            lone = self._backend.get(keys.DIRTY + job_id) is not None
            return Result.UNREADABLE if lone else Result.NONE
        if entry.problem:
            self._say_once(job_id, job, entry.problem)
            return Result.UNREADABLE
        return Result(entry.state.value)

    def _attempt(self, job_id: str, job: Tracked, spec: JobSpec | None) -> Attempt:
        if self._attempts.is_running(job_id):
            return Attempt.RUNNING
        self._turns.leave(job_id)
        if spec is None:
            return Attempt.NONE
        if job.deaths is None:
            record, delay = self._settle(spec)
            job.suspicion = record.suspicion if record else 0
            job.restart_at = self._clock() + delay
            job.deaths = record.deaths if record else 0
        if job.deaths >= spec.restart.attempts:
            return Attempt.SPENT
        return Attempt.BACKING_OFF if self._clock() < job.restart_at else Attempt.NONE

    def _may_start(self, spec: JobSpec, suspicion: int) -> bool:
        here = suspects.runner_of(spec, suspicion) is RunnerKind.THREAD
        return not here or self._turns.may_start(spec.job_id, suspicion)

    def _stop(self, job_id: str, job: Tracked) -> Stop:
        try:
            stop = self._stops.get(job_id)
        except CorruptRecord as error:
            self._say_once(job_id, job, str(error))
            return Stop.UNREADABLE
        if stop is None:
            return Stop.NONE
        if job.stop_since is None or job.stop_since[0] != stop.requested_at:
            job.stop_since = stop.requested_at, self._clock()
        overdue = self._clock() - job.stop_since[1] >= stop.patience
        return Stop.of(stop, overdue=overdue)

    def _say_once(self, job_id: str, job: Tracked, message: str) -> None:
        if job.said is None or job.said.action is not Action.HOLD:
            self._say("held", job_id, message)
