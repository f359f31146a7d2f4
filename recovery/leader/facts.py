"""Gathering the facts about jobs: their stored records, and their leader's memory.

One `get_many` reads the records of a whole page of jobs. A scan of the few kinds of records that
other processes write shows which jobs have changed since the last check.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import groupby
from operator import itemgetter

import attrs

from jrs.contract.errors import CorruptRecord, Fenced, OutcomeUnknown, Unavailable
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, CleanupJournal, JobSpec, StopRecord
from jrs.records.obstacles import described
from jrs.store import applications, attempt_fence
from jrs.store.result_store import JobResultStore

from ..rules import used_time
from ..rules.decision import Action, Attempt, Facts, Result, Stop
from ..rules.events import EventKind
from ..rules.recorded_facts import Stored, gathered
from . import suspects
from .attempts import Attempts
from .context import LeaderContext
from .job_memory import SCANNED, JobMemory
from .pause import Pause

_READ = (*SCANNED[:1], keys.RESULTS, *SCANNED[1:], keys.ATTEMPTS, keys.TOMBSTONES)
"""What is read of a job. A result goes before its marker and its tombstone: see `_result`."""


_AGAIN = 1.0
"""Seconds until unreadable storage is asked again."""


@attrs.frozen
class Look:
    """The result of checking a job."""

    facts: Facts
    spec: JobSpec | None
    """Its spec, if that can be read."""
    journal: Stored
    """The journal of its cleanup."""
    stop_due: float | None
    """When the grace period of its stop ends, on the monotonic clock."""
    time_up: float | None = None
    """When a time limit of its attempt passes, on the monotonic clock."""
    overtime: used_time.Passed | None = None
    """Which time limit has passed."""
    runs: bool = False
    """Whether it has an attempt here, also one whose time limit has passed."""
    restarts: bool = False
    """Whether its stop is only for a change: it starts again, and keeps its slot for that."""

    def read_journal(self) -> CleanupJournal | None:
        """Return the journal.

        Raises:
            CorruptRecord: it cannot be read.
        """
        if isinstance(self.journal, CorruptRecord):
            raise self.journal
        if self.journal is None:
            return None
        return decode(CleanupJournal, self.journal.value, self.journal.key)


class Gatherer:
    """Gathers the facts about the jobs of one leadership; called by its dispatcher's thread.

    Args:
        count_leader_death: returns a job's newest attempt, with an earlier leader's end, and the
            seconds until the next attempt may start.
        probations: which jobs may run in this process.
        wake: has a job checked soon.
        pause: is told what was read of it.
    """

    def __init__(
        self,
        context: LeaderContext,
        attempts: Attempts,
        *,
        count_leader_death: Callable[[JobSpec, Record | None], tuple[AttemptRecord | None, float]],
        probations: suspects.Probations,
        pause: Pause,
        wake: Callable[[str], None] = lambda job_id: None,
    ) -> None:
        self._backend = context.backend
        self._emit = context.emit
        self._clock = context.runtime.clock
        self._now = context.runtime.now
        self._attempts = attempts
        self._count_leader_death = count_leader_death
        self._probations = probations
        self._wake = wake
        self._store = JobResultStore(context.backend)
        self._parts: dict[str, set[str]] = {}
        """The jobs of each application that are not over."""
        self._application_of: dict[str, str] = {}
        self._over: set[str] = set()
        """Those of these applications that have ended."""
        self._pause = pause

    def forget(self, job_id: str) -> None:
        """Forget a job that is over. Idempotent."""
        name = self._application_of.pop(job_id, "")
        if (parts := self._parts.get(name)) is not None:
            parts.discard(job_id)
            if not parts:
                del self._parts[name]
                self._over.discard(name)

    def urgent(self) -> list[str]:
        """Return the jobs whose attempt was let in by an earlier leader, and those whose results
        are dirty; some of them may be both.

        Raises:
            Unavailable: the backend could not be asked.
            CorruptRecord: the records cannot be listed.
        """
        dirty = [keys.job_of(one.key) for one in self._backend.scan(keys.DIRTY)]
        damaged = self._backend.damaged_under(keys.DIRTY)
        if damaged:
            lost = f"some dirty results may be missing, because damage in {damaged} may have hit"
            self._emit(EventKind.HELD, "", f"{lost} their markers; restore the file from a copy")
        return [*attempt_fence.let_in(self._backend), *dirty]

    def changed(
        self, jobs: Mapping[str, JobMemory], prefixes: Collection[str]
    ) -> Iterator[tuple[str, dict[str, Stored]]]:
        """Yield the jobs whose records under `prefixes` (some of `SCANNED`) have changed since the
        last check, with those records: each job once, those that are gone last.

        Raises:
            Unavailable: the backend could not be asked.
            CorruptRecord: the records cannot be listed.
        """
        scanned = [prefix for prefix in SCANNED if prefix in prefixes]
        present = set()
        records = heapq.merge(*map(self._scan, scanned), key=itemgetter(0, 1))
        for job_id, of_job in groupby(records, key=itemgetter(0)):
            found: dict[str, Stored] = dict.fromkeys(scanned)
            found.update((prefix, record) for _, prefix, record in of_job)
            present.add(job_id)
            if job_id not in jobs or _differs(jobs[job_id], found):
                yield job_id, found
        nothing: dict[str, Stored] = dict.fromkeys(scanned)
        for job_id in jobs.keys() - present:
            if job_id in jobs and _differs(jobs[job_id], nothing):
                yield job_id, nothing

    def _scan(self, prefix: str) -> Iterator[tuple[str, str, Record]]:
        return ((keys.job_of(one.key), prefix, one) for one in self._backend.scan(prefix))

    def gather(
        self,
        jobs: Mapping[str, JobMemory],
        known: Mapping[str, dict[str, Stored]],
        driven: Collection[str],
    ) -> dict[str, Look | Exception]:
        """Return the facts about a page of jobs, read by one request; for a job whose facts cannot
        be gathered, the exception.

        Args:
            known: the records that were just read, by job and prefix.
            driven: the jobs whose function the driver's main has provided here.

        Raises:
            Unavailable: the backend could not be asked.
        """
        may_omit = self._backend.capabilities.may_omit  # What no scan has shown may be there.
        stored = {
            job_id: {
                prefix: record
                for prefix, record in known.get(job_id, {}).items()
                if record is not None or not may_omit
            }
            for job_id in jobs
        }
        wanted = [
            (job_id, prefix)
            for job_id, job in jobs.items()
            for prefix in _READ
            if prefix not in stored[job_id]
            and (prefix != keys.ATTEMPTS or job.restart.deaths is None)
        ]
        names = [prefix + job_id for job_id, prefix in wanted]
        *read, pause = self._backend.get_many([*names, keys.PAUSE])
        self._pause.read(pause)
        for (job_id, prefix), record in zip(wanted, read, strict=True):
            stored[job_id][prefix] = record
        found: dict[str, Look | Exception] = {}
        for job_id, job in jobs.items():
            try:
                found[job_id] = self._look(job_id, job, stored[job_id], driven=job_id in driven)
            except (Fenced, Unavailable, OutcomeUnknown):
                raise
            except Exception as error:
                found[job_id] = error
        return found

    def _look(
        self, job_id: str, job: JobMemory, stored: dict[str, Stored], *, driven: bool
    ) -> Look:
        job.checked_at = self._clock()
        job.seen = tuple(_version(stored[prefix]) for prefix in SCANNED)
        found = gathered(job_id, stored, self._result_in_order(job_id, job, stored))
        for problem in found.problems:
            self._emit_once(job_id, job, problem)
        if found.result is not Result.DIRTY:
            job.cleanup.dirty_since = 0.0
        elif found.finished_at:
            job.cleanup.dirty_since = found.finished_at
        if found.result not in (Result.NONE, Result.UNREADABLE):
            self._note_end(job_id)
        overdue, stop_due = self._grace(job, found.stop)
        stop = found.stop_fact(overdue=overdue)
        # A leader that died after the job's result did not die of the job: no attempt is evaluated.
        unended = found.spec if found.result is Result.NONE else None
        attempt = self._attempt(job_id, job, unended, stored)
        overtime, time_up = self._time(job_id, job, unended, attempt)
        # A job that has to stop is given the grace period of its stop, and no other end.
        if overtime and stop is Stop.NONE:
            attempt = Attempt.OVERTIME
        facts = Facts(
            spec=found.spec_fact,
            result=found.result,
            outcome=found.outcome,
            attempt=attempt,
            cancel=found.cancel,
            stop=stop,
            lost=unended is not None and self._is_lost(unended),
            startable=found.spec is None or not found.spec.only_in_driver or driven,
            obstacles=described(job.restart.obstacles),
            paused=self._pause.on,
        )
        runs, restarts = self._attempts.is_running(job_id), bool(found.stop and found.stop.again)
        journal = stored[keys.CLEANUP]
        return Look(facts, found.spec, journal, stop_due, time_up, overtime, runs, restarts)

    def _time(
        self, job_id: str, job: JobMemory, spec: JobSpec | None, attempt: Attempt
    ) -> tuple[used_time.Passed | None, float | None]:
        """Return which time limit has passed, and when one of the running attempt passes."""
        if spec is None or not spec.timeout.any or attempt in (Attempt.TIMED_OUT, Attempt.UNHEARD):
            return None, None
        ran = self._attempts.ran(job_id)
        passed = used_time.passed(spec.timeout, job.time.used, ran)
        left = used_time.left(spec.timeout, job.time.used)
        began_at = self._attempts.began_at(job_id)
        if left is None or began_at is None or attempt is not Attempt.RUNNING:
            return passed, None
        # The sum is rounded: what has not passed passes later than now.
        soonest = 0.0 if passed else math.nextafter(self._clock(), math.inf)
        return passed, max(began_at + left, soonest)

    def _result_in_order(
        self, job_id: str, job: JobMemory, stored: dict[str, Stored]
    ) -> Result | None:
        """Return the fact about a result that was read apart from its marker, perhaps the marker
        first; None if they fit. A difference matters where a job may be started or a spec swept.
        """
        record, marker = stored[keys.RESULTS], stored[keys.DIRTY]
        if (record is None) == (marker is None) or not (marker or stored[keys.JOBS]):
            return None
        entry = self._store.get(job_id)
        if entry is None:
            # jrs never stores a marker without its result; never start a job over it.
            lone = self._backend.get(keys.DIRTY + job_id) is not None
            return Result.UNREADABLE if lone else Result.NONE
        if entry.problem:
            self._emit_once(job_id, job, entry.problem)
            return Result.UNREADABLE
        return Result(entry.state.value)

    def _attempt(
        self, job_id: str, job: JobMemory, spec: JobSpec | None, stored: dict[str, Stored]
    ) -> Attempt:
        if self._attempts.is_running(job_id):
            return Attempt.RUNNING
        self._probations.note_end(job_id)
        if spec is None:
            return Attempt.NONE
        if job.restart.deaths is None:
            record = stored[keys.ATTEMPTS]
            try:
                newest, delay = self._count_leader_death(
                    spec, record if isinstance(record, Record) else None
                )
            except suspects.LeaderHangs:
                job.restart.at = self._clock() + _AGAIN
                return Attempt.UNHEARD
            except OSError as error:
                self._emit(
                    EventKind.WAITING, job_id, f"its leader's last words cannot be read: {error}"
                )
                job.restart.at = self._clock() + _AGAIN
                return Attempt.BACKING_OFF
            job.restart.has_begun = newest is not None
            job.restart.suspicion = newest.suspicion if newest else 0
            job.restart.at = job.checked_at + delay
            job.restart.deaths = newest.deaths if newest else 0
            job.time.used = used_time.used(newest, spec.timeout, self._now())
            job.time.is_up = used_time.is_final(newest, spec)
        if job.time.is_up:
            return Attempt.TIMED_OUT
        if job.restart.deaths >= spec.restart.attempts:
            return Attempt.SPENT
        if job.checked_at >= job.restart.at:
            return Attempt.NONE
        return Attempt.UNSTARTABLE if job.restart.obstacles else Attempt.BACKING_OFF

    def _is_lost(self, spec: JobSpec) -> bool:
        """Return whether the job's application has ended without it."""
        name = spec.application
        if not name:
            return False
        self._parts.setdefault(name, set()).add(spec.job_id)  # First: it may end just now.
        self._application_of[spec.job_id] = name
        if name not in self._over and applications.has_ended(self._backend, name):
            self._note_end(name)
        return name in self._over

    def _note_end(self, application: str) -> None:
        """Have all parts of an application that has ended checked, once: a part that runs has no
        other news of it. For any other job, nothing is done."""
        if application in self._parts and application not in self._over:
            self._over.add(application)
            for part in self._parts[application]:
                self._wake(part)

    def _grace(self, job: JobMemory, stop: StopRecord | None) -> tuple[bool, float | None]:
        """Return whether the grace period of a stop is over, and when it ends on the clock."""
        if stop is None:
            return False, None
        if job.stop_since is None or job.stop_since[0] != stop.requested_at:
            job.stop_since = stop.requested_at, job.checked_at
        due = job.stop_since[1] + stop.grace
        return job.checked_at >= due, due

    def _emit_once(self, job_id: str, job: JobMemory, message: str) -> None:
        if not (job.last_reported and job.last_reported.action is Action.HOLD):
            self._emit(EventKind.HELD, job_id, message)


def _version(record: Stored) -> int | None:
    return record.version if isinstance(record, Record) else None


def _differs(job: JobMemory, found: dict[str, Stored]) -> bool:
    seen = zip(SCANNED, job.seen, strict=True)
    return any(prefix in found and version != _version(found[prefix]) for prefix, version in seen)
