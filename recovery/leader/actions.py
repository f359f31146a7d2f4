"""Actions: what a leader does about a job once it is decided.

Each method blocks, so the dispatcher calls it in a pool. No method keeps anything in memory: it
returns what it learns, and commits under the fence what must outlive this leader.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import Conflict, CorruptRecord, Fenced, JobHeld, ResultExists
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Absent, Check, Create, Delete, Fence, Op, Record, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import (
    AttemptRecord,
    CancelRequest,
    CleanupJournal,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    RunnerKind,
    StageRecord,
    StageSummary,
    StopMode,
    StopRecord,
    StopState,
)
from jrs.store import attempt_fence, restores
from jrs.store.protocols import StopEvent, StopStep
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops

from ..attempt.context import AttemptContext
from ..attempt.runners import AttemptExit, Runner
from ..cleanup.job_cleanup import CleanupPolicy, JobCleanup
from ..files.job_folders import JobStorage
from ..processes import last_words, left_running
from ..processes.last_words import LeaderEnd
from ..processes.marks import new_mark
from ..rules.decision import Stop
from . import suspects
from .attempts import AttemptHandle, Attempts
from .recovery_point import RecoveryPoints
from .trust import Trust

_KILL = 30.0
"""Seconds in which processes have to die after SIGKILL."""

_AGAIN = 1.0
"""Seconds until an attempt that this process could not begin is tried again."""

Emit = Callable[[str, str, str], None]
"""Reports an event to observers: kind, job id, message."""


@attrs.frozen
class RestartPlan:
    """The outcome of counting an attempt's death."""

    deaths: int
    delay: float
    """Seconds until the next attempt, if there is one."""


@attrs.frozen
class PendingCleanup:
    """The outcome of a cleanup pass that left something."""

    tries: int
    delay: float
    """Seconds until the next pass, unless the cleanup was given up."""


class Actions:
    """What the leader of one epoch does about jobs."""

    def __init__(
        self,
        backend: Backend,
        leadership: Leadership,
        *,
        storage: JobStorage,
        runners: dict[RunnerKind, Runner],
        attempts: Attempts,
        cleanup: JobCleanup,
        policy: CleanupPolicy,
        emit: Emit,
        master: str,
        now: Clock,
        trust: Trust,
        mark: Callable[[], str] = new_mark,
        clock: Clock = time.monotonic,
        hanging: float = 0.0,
    ) -> None:
        self._backend = backend
        self._leadership = leadership
        self._fence = leadership.fence
        self._storage = storage
        self._runners = runners
        self._attempts = attempts
        self._cleanup = cleanup
        self._policy = policy
        self._emit = emit
        self._master = master
        self._now = now
        self._trust = trust
        self._mark = mark
        self._clock = clock
        self._hanging = hanging
        self._hangs_since: dict[int, float] = {}
        self._store = JobResultStore(backend, now=now)
        self._stops = JobStops(backend, now=now)
        self._leaders = storage.root / ".leaders"
        self._last_words = last_words.LastWords(self._leaders, self._fence.epoch)
        self._state = RecoveryPoints(backend, storage, self._fence, emit, spec_key=trust.key)

    # -- running ---------------------------------------------------------------------------

    def start(
        self,
        spec: JobSpec,
        function: Callable[..., Any] | None,
        on_end: Callable[[AttemptHandle, AttemptExit], None],
    ) -> None:
        """Start the job's next attempt, once no earlier attempt can do harm any more.

        Nothing is started if the job was changed or has to stop meanwhile: the dispatcher then
        decides again.
        """
        job_id = spec.job_id
        try:
            self._state.refuse_foreign_files(job_id)
            self._end_left_over(job_id)
            self._state.ensure_recoverable(job_id)
            recorded = self._record_attempt(spec)
        except JobHeld as error:
            self._hold(job_id, error)
            return
        if recorded is None:
            return
        record, fence = recorded
        kind = suspects.runner_of(spec, record.suspicion)
        context = AttemptContext(
            spec=attrs.evolve(spec, runner=kind),
            attempt=record.attempt,
            fence=fence,
            backend=self._backend,
            storage=self._storage,
            first_started_at=record.first_started_at,
            now=self._now,
            lifeline=self._leadership.lifeline,
            last_words=self._last_words,
            mark=record.mark,
        )
        how = ", alone" if record.on_probation else ""
        if kind is not spec.runner:
            how = " in a process of its own: a leader died while the job ran in its process"
        self._emit("attempt", job_id, f"attempt {record.attempt} starts{how}")
        self._attempts.begin(
            job_id,
            lambda ended: self._runners[kind].start(context, function, ended),
            on_end,
        )

    def check_stages(self, job_id: str) -> None:
        """Raise `CorruptRecord` if a stage's record is unreadable: no stage runs on a guess."""
        for stored in self._backend.scan(keys.stages(job_id)):
            decode(StageRecord, stored.value, stored.key)

    def count_death(self, spec: JobSpec, ended: AttemptExit) -> RestartPlan | None:
        """Count an attempt that ended without a result; return None if that was no death.

        The count is durable, so failovers do not reset the restart policy.
        """
        job_id = spec.job_id
        if ended.lapsed:
            return None  # Its leadership failed it: the leader has yet to notice.
        if self._store.has_entry(job_id) or self._backend.get(keys.CANCEL + job_id) is not None:
            return None
        stop = self._stops.get(job_id)
        if stop is not None and stop.state in (StopState.QUIESCED, StopState.DONE):
            return None  # It ended because the job has to stop, or is held.
        if ended.fenced and not self._backend.is_current(self._fence):
            raise Fenced(f"the attempt of {job_id!r} was fenced: {ended.message}")
        before, version = self.stored_attempt(job_id)
        before = before or AttemptRecord(job_id)
        if not ended.begun:
            self._emit("waiting", job_id, f"{ended.message}; trying again")
            return RestartPlan(before.deaths, _AGAIN)
        deaths = before.deaths + 1
        failure = Failure("exit", ended.message, ended.detail, ended.exit_status)
        policy = spec.restart
        delay = policy.delay_after(deaths)
        record = attrs.evolve(
            before,
            deaths=deaths,
            failure=failure,
            retry_at=self._now() + delay,
            on_probation=False,
        )
        self._put(keys.ATTEMPTS + job_id, encode(record), version)
        left = policy.attempts - deaths
        said = f"attempt {record.attempt} died: {ended.message}"
        said += f"; {left} left, next in {delay:g} s" if left > 0 else "; none left"
        self._emit("died", job_id, said)
        return RestartPlan(deaths, delay)

    def stored_attempt(self, job_id: str) -> tuple[AttemptRecord | None, int | None]:
        """Return the job's newest attempt, if it can be read, and its record's version."""
        record = self._backend.get(keys.ATTEMPTS + job_id)
        if record is None:
            return None, None
        try:
            return decode(AttemptRecord, record.value, record.key), record.version
        except CorruptRecord:
            return None, record.version  # It is only a counter; starting it again does no harm.

    def settle(self, spec: JobSpec, stored: Record | None) -> tuple[AttemptRecord | None, float]:
        """Return the job's newest attempt, and the seconds until another attempt may start.

        An attempt that ran in an earlier leader's process is judged by how that leader ended. The
        judgement is recorded durably, so that the next leader does not repeat it.

        Raises:
            OSError: the leader's last words cannot be read now.
            LeaderHangs: the last words may still come.
            Fenced, Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
        """
        job_id, policy = spec.job_id, spec.restart
        try:
            record = decode(AttemptRecord, stored.value, stored.key) if stored else None
        except CorruptRecord:
            record = None  # It is only a counter; starting it again does no harm.
        if record is None or stored is None:
            return None, 0.0
        is_old = record.epoch < self._fence.epoch
        if is_old and suspects.ran_in_its_leader(record, spec):
            stop = self._stops.get(job_id)
            stopped = stop is not None and stop.state is StopState.DONE

            def end_of(epoch: int) -> LeaderEnd:
                if stopped:
                    return LeaderEnd(orderly=True)  # It was suspended before.
                return last_words.read(self._leaders, epoch, job_id)

            if suspects.hangs_alone(record, end_of(record.epoch)):
                self._wait_for_last_words(job_id, record.epoch)
            before, record = record, suspects.settled(record, policy, end_of, self._now())
            if record != before:
                self._put(stored.key, encode(record), stored.version)
                why = end_of(record.epoch).fatal or "it left no last words"
                said = f"the leader of epoch {record.epoch} died while it ran there: {why}"
                if record.deaths > before.deaths:
                    said += f"; it ran alone, so this is its death ({record.deaths} so far)"
                self._emit("suspect", job_id, said)
        return record, suspects.remaining_delay(record, policy, self._now())

    def _wait_for_last_words(self, job_id: str, epoch: int) -> None:
        """Raise `LeaderHangs`, unless that leader has hung for too long already."""
        now = self._clock()
        if epoch not in self._hangs_since:
            self._hangs_since[epoch] = now
            said = f"it ran alone in the leader of epoch {epoch}, whose process hangs"
            self._emit("suspect", job_id, said)
        if now < self._hangs_since[epoch] + self._hanging:
            raise suspects.LeaderHangs(f"the process of the leader of epoch {epoch} hangs")

    def end_probation(self, job_id: str) -> None:
        """Record that the job survived its probation: its leader's death is no longer its own."""
        record, version = self.stored_attempt(job_id)
        if record is not None and record.on_probation and record.epoch == self._fence.epoch:
            record = attrs.evolve(record, on_probation=False)
            self._put(keys.ATTEMPTS + job_id, encode(record), version)

    def farewell(self) -> None:
        """Record that this leadership has ended, and that no attempt has killed its process."""
        self._last_words.farewell()

    # -- results ---------------------------------------------------------------------------

    def fail(self, spec: JobSpec) -> None:
        """Record the job as failed, once none of its attempts can act any more."""
        self._end_for_good(spec.job_id)
        stored, _ = self.stored_attempt(spec.job_id)
        failure = (stored.failure if stored else None) or Failure("exit", "every attempt died")
        self._record(spec.job_id, JobStatus.FAILED, failure, stored)

    def cancel(self, job_id: str) -> None:
        """End the job's attempt, then record the job as canceled once it cannot act any more."""
        self._attempts.end(job_id, Deadline.after(_KILL))
        self._end_for_good(job_id)
        stored, _ = self.stored_attempt(job_id)
        failure = Failure("cancel", self._why_canceled(job_id))
        self._record(job_id, JobStatus.CANCELED, failure, stored)

    def cancel_restore(self, job_id: str) -> None:
        """Cancel a job that is held by its restore, unless another process carries the restore out:
        then the folders are that process's, and the job is canceled once it has finished."""
        if not self._state.is_being_restored(job_id):
            self.cancel(job_id)

    def suspend(self, spec: JobSpec) -> None:
        """End the job's attempt, then record that the job is suspended and must not be started."""
        job_id = spec.job_id
        self._attempts.end(job_id, Deadline.after(_KILL))
        attempt_fence.shut_out(self._backend, job_id, self._fence)
        stop = self._stops.get(job_id)
        if stop is None or stop.mode is not StopMode.SUSPEND or stop.state is StopState.DONE:
            return
        try:
            self._end_left_over(job_id)
        except JobHeld as error:
            self._hold(job_id, error)
            return
        self._state.settle(job_id)
        self._state.take_scheduled_snapshot(job_id, spec.snapshots)
        step = self._stops.advance(stop, StopEvent.COMPLETE, self._fence)
        if step is StopStep.NONE:
            self._emit("suspended", job_id, "suspended; it starts again with the changes")
        elif step is StopStep.SUSPENDED:
            self._emit("suspended", job_id, "suspended; resume it with `jrs resume`")

    def finish_restore(self, job_id: str) -> None:
        """Carry out an interrupted restore of the job; a restore in progress is left alone."""
        self._attempts.end(job_id, Deadline.after(_KILL))

        def end_all() -> None:
            with suppress(JobHeld):  # A restore replaces the bad state.
                self._end_left_over(job_id)

        # Not before the restore is ours: another process may need the epoch's folder in place.
        if self._state.finish_restore(job_id, end_all):
            self._emit("restored", job_id, "an interrupted restore was completed")

    def take_scheduled_snapshot(self, spec: JobSpec) -> None:
        """Take one of the snapshots that the job's spec requests."""
        self._state.take_scheduled_snapshot(spec.job_id, spec.snapshots)

    def _why_canceled(self, job_id: str) -> str:
        stored = self._backend.get(keys.CANCEL + job_id)
        try:
            reason = decode(CancelRequest, stored.value, stored.key).reason if stored else ""
        except CorruptRecord:
            reason = ""  # The request itself counts, not its reason.
        return f"canceled on request: {reason}" if reason else "canceled on request"

    def end(self, job_id: str) -> None:
        """End the job's attempt: its result is durable, so its further work is useless."""
        self._attempts.end(job_id, Deadline.after(_KILL))

    # -- cleaning up -----------------------------------------------------------------------

    def clean_up(self, job_id: str) -> PendingCleanup | None:
        """Do one pass of the job's cleanup; return None if nothing is left."""
        before = self.journal(job_id)
        tries = before.tries + 1 if before else 1
        journal = self._cleanup.run(
            job_id, self._fence, last_try=self._policy.is_last(tries), timeout=self._policy.timeout
        )
        if not journal.problems:
            self._emit("clean", job_id, "its resources are gone and its result is clean")
            return None
        delay = self._policy.delay(tries)
        for name, problem in journal.problems.items():
            again = "given up" if journal.exhausted else f"again in {delay:g} s"
            self._emit("cleanup", job_id, f"{name} is left: {problem} ({again})")
        return PendingCleanup(tries, delay)

    def journal(self, job_id: str) -> CleanupJournal | None:
        """Return the journal of the job's cleanup.

        Raises:
            CorruptRecord: it cannot be read.
        """
        record = self._backend.get(keys.CLEANUP + job_id)
        return None if record is None else decode(CleanupJournal, record.value, record.key)

    def sweep_spec(self, job_id: str) -> None:
        """Remove the spec that a job with a clean result has left: nothing may start from it."""
        for prefix in (keys.JOBS, keys.CANCEL, keys.STOPS, keys.RESTORES):
            try:
                self._backend.commit(Delete(prefix + job_id), fence=self._fence)
            except Conflict:
                pass  # It is gone already.

    # -- inside ----------------------------------------------------------------------------

    def _hold(self, job_id: str, error: JobHeld) -> None:
        """Record that the job is held. Every reader of the reason adds how to resume the job."""
        self._stops.hold(job_id, str(error), self._fence)
        self._emit("held", job_id, f"held: {error}; then: jrs resume {job_id}")

    def _end_left_over(self, job_id: str) -> None:
        """Ensure that no earlier attempt of the job can do harm any more.

        Raises:
            JobHeld: its files are of an epoch that the backend has not reached.
        """
        held: JobHeld | None = None
        # Shut out, then read: from here on no older attempt commits anything.
        attempt_fence.shut_out(self._backend, job_id, self._fence)
        try:
            # The rename first: from here on no older attempt can publish, dead or not.
            self._storage.take_over(job_id, self._fence.epoch)
        except Fenced:
            if not self._backend.is_current(self._fence):
                raise
            # No newer leader exists, so the folder predates the backend: only this job is affected.
            folder = self._storage.folder(job_id)
            held = JobHeld(
                f"{folder} has files of a later epoch than {self._fence.epoch}, from before the "
                f"backend was new; restore the job: jrs snapshot restore --from {folder}/snapshots/"
                f"NUMBER; or move the folder away"
            )
        orphans = left_running.end(
            self._backend, job_id, Deadline.after(_KILL), up_to_epoch=self._fence.epoch
        )
        if orphans:
            self._emit("orphans", job_id, f"killed {len(orphans)} left-over processes")
        if held is not None:
            raise held

    def _end_for_good(self, job_id: str) -> None:
        """Ensure that nothing of the job appears after its result is recorded: no record, and no
        batch that a sink publishes."""
        with suppress(JobHeld):  # The reason to hold does not matter: the job ends here.
            self._end_left_over(job_id)

    def _record_attempt(self, spec: JobSpec) -> tuple[AttemptRecord, Fence] | None:
        """Record the job's next attempt and let it in; return it and its fence, or None if the job
        has changed since it was decided."""
        job_id = spec.job_id
        guards = self._as_decided(spec)
        if guards is None:
            return None
        before, version = self.stored_attempt(job_id)
        record = AttemptRecord(
            job_id=job_id,
            attempt=before.attempt + 1 if before else 1,
            epoch=self._fence.epoch,
            master=self._master,
            started_at=self._now(),
            deaths=before.deaths if before else 0,
            failure=before.failure if before else None,
            first_started_at=before.first_started_at if before else self._now(),
            suspicion=before.suspicion if before else 0,
            on_probation=before is not None and suspects.is_on_probation(spec, before.suspicion),
            unheard=before.unheard if before else (),
            mark=self._mark(),
            earlier_marks=left_running.marks_after(before),
        )
        name = attempt_fence.name_of(record.epoch, record.attempt, record.mark)
        let_in = attempt_fence.let_in_ops(self._backend, job_id, name)
        try:
            self._put(keys.ATTEMPTS + job_id, encode(record), version, *guards, *let_in)
        except Conflict:
            return None
        if not let_in:
            return record, self._fence
        fence = attempt_fence.of_attempt(self._backend, job_id, name, self._fence)
        return None if fence is None else (record, fence)

    def _as_decided(self, spec: JobSpec) -> list[Op] | None:
        """Return the conditions that the job is unchanged and may run; None if it is not.

        Raises:
            JobHeld: this master does not run the job.
        """
        key, stop_key = keys.JOBS + spec.job_id, keys.STOPS + spec.job_id
        stored, stop = self._backend.get(key), self._backend.get(stop_key)
        if stored is None or restores.took_place_of(stored):
            return None
        # Not by its version: this leader's own restore changes that, too.
        if decode(JobSpec, stored.value, key) != spec:
            return None
        self._trust.check(spec, stored.value)
        if stop is None:
            unchanged: Op = Absent(stop_key)
        elif Stop.of(decode(StopRecord, stop.value, stop.key)) is Stop.NONE:
            unchanged = Check(stop_key, stop.version)
        else:
            return None
        return [Check(key, stored.version), unchanged, restores.none_of(spec.job_id)]

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
            stages=self._stages(job_id),
        )
        try:
            self._store.create_dirty(result, self._fence)
        except ResultExists:
            pass  # The job has just ended by itself: the first durable result wins.

    def _stages(self, job_id: str) -> tuple[StageSummary, ...]:
        """Return the stages that finished before the job failed or was canceled. An unreadable
        record is left out: it must not keep a job from ending."""
        found = []
        for stored in self._backend.scan(keys.stages(job_id)):
            try:
                found.append(decode(StageRecord, stored.value, stored.key))
            except CorruptRecord:
                continue
        found.sort(key=lambda record: record.order)
        return tuple(record.summary() for record in found)

    def _put(self, key: str, value: bytes, version: int | None, *guards: Op) -> None:
        """Commit a record under the fence; an unknown outcome is read back."""
        op = Create(key, value) if version is None else Update(key, value, version)
        commit_and_read_back(self._backend, op, *guards, fence=self._fence)
