"""Suspects: jobs that may have killed the leader in whose process they ran.

Only a job of the thread runner can: an attempt in a process of its own dies alone, unless the
kernel ends all processes of a cgroup when one is out of memory. When a leader has died without a
farewell, the jobs that ran in its process become suspects. A suspect that can be loaded anywhere
runs in a process of its own from then on. A suspect that only the driver's main can provide runs on
probation: nothing else is started in that process meanwhile, so a leader's death of a fatal error
during the probation counts as a death of this job. A leader that was killed from outside leaves no
last words, and no job is blamed (see `last_words`).

No I/O in this file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import attrs

from jrs.contract.clock import Clock
from jrs.records.model import AttemptRecord, Failure, JobSpec, RunnerKind
from jrs.records.policies import RestartPolicy

from ..processes.last_words import LeaderEnd

PROBATION = 1.0
"""Seconds that a suspect runs alone if there is no evidence that a job killed the leader."""
_FATAL = 5.0
"""The probation's factor once a leader died of a fatal error. Each further fatal error doubles it,
for jobs that take long to kill their leader."""
_MARGIN = 2.0
"""The least ratio of the probation to the time that the job ran in the leader that died of a fatal
error, up to `_LONGEST`: on a busy host the next leader may survive longer, too."""
_LONGEST = 60.0
_UNHEARD = 8
LAST_WORDS = 4.0
"""How long a job waits, in ttls, for the last words of a leader that hangs and in whose process it
ran alone. A job that keeps the interpreter's lock may use half a ttl of processor time: this factor
suffices on a host that is eight times too busy."""


class LeaderHangs(Exception):
    """A replaced leader has not ended yet: the jobs in its process cannot be evaluated."""


def runner_of(spec: JobSpec, suspicion: int) -> RunnerKind:
    """Return the runner of the job's next attempt."""
    if suspicion and not spec.only_in_driver:
        return RunnerKind.PROCESS
    return spec.runner


def is_on_probation(spec: JobSpec, suspicion: int) -> bool:
    """Return whether the job's next attempt has to run alone for a while."""
    return suspicion > 0 and runner_of(spec, suspicion) is RunnerKind.THREAD


def probation(suspicion: int, base: float = PROBATION) -> float:
    """Return the seconds for which a suspect has to run alone."""
    if suspicion <= 1:
        return base * suspicion
    return min(base * _FATAL * 2.0 ** min(suspicion - 2, 16), max(base, _LONGEST))


def ran_in_its_leader(record: AttemptRecord, spec: JobSpec) -> bool:
    """Return whether the attempt ran in its leader's process and no leader has recorded its end."""
    return runner_of(spec, record.suspicion) is RunnerKind.THREAD and not record.retry_at


def hangs_alone(record: AttemptRecord, end: LeaderEnd) -> bool:
    """Return whether the attempt runs alone in a leader's process that has not ended.

    Starting its next attempt now would count that leader's death too late. Attempts that hold the
    interpreter's lock would also slow each other down, and be counted ever later, until no master
    is left.
    """
    return record.on_probation and end.hangs and not end.orderly


def after_leader_death(
    record: AttemptRecord, policy: RestartPolicy, end_of: Callable[[int], LeaderEnd], now: float
) -> AttemptRecord:
    """Return the updated record of an attempt whose leader is gone.

    Args:
        end_of: returns how the leadership of an epoch ended, as far as is known by now.
    """
    end = end_of(record.epoch)
    if end.orderly:
        return record
    suspicion = max(1, record.suspicion)
    if end.fatal:
        suspicion = max(suspicion + 1, _suspicion_after((end.at or now) - record.started_at))
    alone = (*record.unheard, *((record.epoch,) if record.on_probation else ()))
    heard = {epoch: end_of(epoch) for epoch in alone}
    fatal = [each for each in heard.values() if each.fatal]
    deaths, failure, delay = record.deaths + len(fatal), record.failure, 0.0
    if fatal:
        failure = Failure("exit", f"its master died with it: {fatal[-1].fatal}", fatal[-1].detail)
        delay = policy.delay_after(deaths)
    return attrs.evolve(
        record,
        deaths=deaths,
        failure=failure,
        retry_at=now + delay,
        suspicion=suspicion + (1 if fatal and not end.fatal else 0),
        on_probation=False,
        unheard=tuple(
            epoch for epoch, each in heard.items() if not each.fatal and not each.orderly
        )[-_UNHEARD:],
    )


def _suspicion_after(lasted: float) -> int:
    """Return the suspicion whose probation detects a job that kills its leader after `lasted`
    seconds; 0 if no probation is long enough."""
    if lasted * _MARGIN > _LONGEST:
        return 0
    suspicion = 1
    while probation(suspicion) < lasted * _MARGIN:
        suspicion += 1
    return suspicion


def remaining_delay(record: AttemptRecord, policy: RestartPolicy, now: float) -> float:
    """Return the seconds until the next attempt; an earlier leader may have begun the delay.

    Hosts' clocks differ, so the result is never more than the policy's delay.
    """
    if not record.deaths:
        return 0.0
    return min(max(0.0, record.retry_at - now), policy.delay_after(record.deaths))


@attrs.define
class _Running:
    since: float
    probation: float
    """Seconds; 0 if the job is not a suspect, or has survived its probation."""


class Probations:
    """The probations of the jobs of this process. Safe for use by many threads.

    While there is no suspect, all jobs may start at once.

    Args:
        base: seconds of the shortest probation.
    """

    def __init__(self, base: float, clock: Clock) -> None:
        self._base = base
        self._clock = clock
        self._lock = threading.Lock()
        self._here: dict[str, _Running] = {}
        self._on_probation: set[str] = set()
        """Those here whose probation is not over: apart, since each start of any job asks."""
        self._waiting: set[str] = set()

    def may_start(self, job_id: str, suspicion: int) -> bool:
        """Return whether an attempt may start in this process now; if not, ask again later."""
        with self._lock:
            free = self._on_probation <= {job_id}
            if not suspicion:
                return free and not self._waiting
            self._waiting.add(job_id)
            # A job that has just been started would become a suspect along with this one.
            others = (turn for each, turn in self._here.items() if each != job_id)
            return free and all(self._clock() >= turn.since + self._base for turn in others)

    def enter(self, job_id: str, suspicion: int) -> None:
        """Record that an attempt is being started in this process."""
        with self._lock:
            self._waiting.discard(job_id)
            self._remove(job_id)
            self._here[job_id] = turn = _Running(self._clock(), probation(suspicion, self._base))
            if turn.probation:
                self._on_probation.add(job_id)

    def has_survived(self, job_id: str) -> bool:
        """Return whether the job is on probation and has survived it."""
        with self._lock:
            turn = self._here.get(job_id)
            return (
                turn is not None
                and turn.probation > 0
                and self._clock() >= turn.since + turn.probation
            )

    def due(self, job_id: str) -> float:
        """Return when the job's probation is over, on the clock; 0 if it is on none."""
        with self._lock:
            turn = self._here.get(job_id)
            return turn.since + turn.probation if turn is not None and turn.probation else 0.0

    def acquit(self, job_id: str) -> None:
        """End the job's probation: other jobs may start next to it."""
        with self._lock:
            if job_id in self._here:
                self._here[job_id].probation = 0.0
                self._on_probation.discard(job_id)

    def note_end(self, job_id: str) -> None:
        """Record that no attempt of the job runs here; it may wait for its turn."""
        with self._lock:
            self._remove(job_id)

    def leave(self, job_id: str) -> None:
        """Record that no attempt of the job runs here, or is about to."""
        with self._lock:
            self._remove(job_id)
            self._waiting.discard(job_id)

    def _remove(self, job_id: str) -> None:
        self._here.pop(job_id, None)
        self._on_probation.discard(job_id)
