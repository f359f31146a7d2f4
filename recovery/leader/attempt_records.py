"""AttemptRecords: the stored attempts of one leader's jobs: their numbers, deaths and probation.

Each method blocks, so the dispatcher calls it in a pool. No method keeps anything that must outlive
this leader in memory: it is committed under the fence.
"""

from __future__ import annotations

import attrs

from jrs.contract.errors import Conflict, CorruptRecord, Fenced
from jrs.contract.operations import Absent, Check, Fence, Op, Record, create_or_update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import AttemptRecord, Failure, JobSpec, StopRecord, StopState
from jrs.store import attempt_fence, restores
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops

from ..attempt.runners import AttemptExit
from ..processes import last_words, left_running
from ..processes.last_words import LeaderEnd
from ..rules.decision import Stop
from . import suspects
from .context import LeaderContext

_AGAIN = 1.0
"""Seconds until an attempt that this process could not begin is tried again."""


@attrs.frozen
class RestartPlan:
    """The outcome of counting an attempt's death."""

    deaths: int
    delay: float
    """Seconds until the next attempt, if there is one."""


class AttemptRecords:
    """The stored attempts of one leader's jobs."""

    def __init__(self, context: LeaderContext) -> None:
        self._context = context
        self._backend = context.backend
        self._fence = context.fence
        self._emit = context.emit
        self._now = context.runtime.now
        self._hanging = 0.0 if context.ttl is None else context.ttl * suspects.LAST_WORDS
        self._hangs_since: dict[int, float] = {}
        self._store = JobResultStore(context.backend, now=self._now)
        self._stops = JobStops(context.backend, now=self._now)
        self._leaders = context.storage.root / ".leaders"

    def newest(self, job_id: str) -> tuple[AttemptRecord | None, int | None]:
        """Return the job's newest attempt, if it can be read, and its record's version."""
        record = self._backend.get(keys.ATTEMPTS + job_id)
        if record is None:
            return None, None
        try:
            return decode(AttemptRecord, record.value, record.key), record.version
        except CorruptRecord:
            return None, record.version  # It is only a counter; starting it again does no harm.

    def begin(self, spec: JobSpec) -> tuple[AttemptRecord, Fence] | None:
        """Record the job's next attempt and let it in; return it and its fence, or None if the job
        has changed since it was decided."""
        job_id = spec.job_id
        guards = self._as_decided(spec)
        if guards is None:
            return None
        before, version = self.newest(job_id)
        record = AttemptRecord(
            job_id=job_id,
            attempt=before.attempt + 1 if before else 1,
            epoch=self._fence.epoch,
            master=self._context.master,
            started_at=self._now(),
            deaths=before.deaths if before else 0,
            failure=before.failure if before else None,
            first_started_at=before.first_started_at if before else self._now(),
            suspicion=before.suspicion if before else 0,
            on_probation=before is not None and suspects.is_on_probation(spec, before.suspicion),
            unheard=before.unheard if before else (),
            mark=self._context.runtime.token(),
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
        before, version = self.newest(job_id)
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

    def count_leader_death(
        self, spec: JobSpec, stored: Record | None
    ) -> tuple[AttemptRecord | None, float]:
        """Return the job's newest attempt, and the seconds until another attempt may start.

        An attempt that ran in an earlier leader's process is counted by how that leader ended. The
        outcome is recorded durably, so that the next leader does not repeat it.

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
            before, record = (
                record,
                suspects.after_leader_death(record, policy, end_of, self._now()),
            )
            if record != before:
                self._put(stored.key, encode(record), stored.version)
                why = end_of(record.epoch).fatal or "it left no last words"
                said = f"the leader of epoch {record.epoch} died while it ran there: {why}"
                if record.deaths > before.deaths:
                    said += f"; it ran alone, so this is its death ({record.deaths} so far)"
                self._emit("suspect", job_id, said)
        return record, suspects.remaining_delay(record, policy, self._now())

    def end_probation(self, job_id: str) -> None:
        """Record that the job survived its probation: its leader's death is no longer its own."""
        record, version = self.newest(job_id)
        if record is not None and record.on_probation and record.epoch == self._fence.epoch:
            record = attrs.evolve(record, on_probation=False)
            self._put(keys.ATTEMPTS + job_id, encode(record), version)

    # -- inside ----------------------------------------------------------------------------

    def _wait_for_last_words(self, job_id: str, epoch: int) -> None:
        """Raise `LeaderHangs`, unless that leader has hung for too long already."""
        now = self._context.runtime.clock()
        if epoch not in self._hangs_since:
            self._hangs_since[epoch] = now
            said = f"it ran alone in the leader of epoch {epoch}, whose process hangs"
            self._emit("suspect", job_id, said)
        if now < self._hangs_since[epoch] + self._hanging:
            raise suspects.LeaderHangs(f"the process of the leader of epoch {epoch} hangs")

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
        self._context.trust.check(spec, stored.value)
        if stop is None:
            unchanged: Op = Absent(stop_key)
        elif Stop.of(decode(StopRecord, stop.value, stop.key)) is Stop.NONE:
            unchanged = Check(stop_key, stop.version)
        else:
            return None
        return [Check(key, stored.version), unchanged, restores.none_of(spec.job_id)]

    def _put(self, key: str, value: bytes, version: int | None, *guards: Op) -> None:
        """Commit a record under the fence; an unknown outcome is read back."""
        op = create_or_update(key, value, version)
        commit_and_read_back(self._backend, op, *guards, fence=self._fence)
