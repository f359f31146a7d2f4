"""JobStops: requests to suspend, drain, change and resume a job, and their progress.

A stop is a record next to the job. It is durable when the request returns, every leader sees it,
and if the leader dies, the next leader continues the stop. Cancelling overrides a stop at any time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import Conflict, CorruptRecord, InvalidInput, NoSuchJob, NotFound
from jrs.contract.operations import Absent, Check, Create, Delete, Fence, Op, Record, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.checks import check_job_id
from jrs.records.codec import decode, encode
from jrs.records.model import JobSpec, StopMode, StopRecord, StopState, StreamRecord
from jrs.records.signing import SpecKey, renewed
from jrs.records.snapshots import RestoreRecord
from jrs.store.result_store import JobResultStore


class JobStops:
    """The stops of one cluster's jobs.

    Args:
        spec_key: the key that signs a changed spec again; see `jrs.records.signing`.
    """

    def __init__(
        self, backend: Backend, *, now: Clock = time.time, spec_key: SpecKey | None = None
    ) -> None:
        self._backend = backend
        self._spec_key = spec_key
        self._now = now

    def request(
        self, job_id: str, mode: StopMode, *, reason: str = "", patience: float = 30.0
    ) -> StopRecord:
        """Request that the job is suspended or drained; return the stored request.

        Durable; needs no leader. Repeating the same request is a no-op, and a refused request may
        be repeated.

        Args:
            patience: the grace period of a suspend, in seconds. After it, the leader ends an
                attempt that has not quiesced. Nothing is lost, because the job can resume from
                every committed batch.

        Raises:
            NoSuchJob: no such job was submitted.
            InvalidInput: the job has ended or is already suspended, or another stop is under way;
                or the mode is HOLD, which only a leader and its attempts may set.
            CorruptRecord: the job's spec cannot be read.
        """
        check_job_id(job_id)
        if mode not in (StopMode.SUSPEND, StopMode.DRAIN):
            raise InvalidInput(
                f"a stop request is suspend or drain, not {mode!r}; to keep job {job_id!r} from "
                "running, suspend it"
            )
        spec = self._waiting(job_id, "stop")
        before, stored = self._stored(job_id)
        if before is not None and before.state is not StopState.REFUSED:
            if before.mode is not mode or before.state is StopState.DONE:
                raise InvalidInput(f"job {job_id!r} {_said(before)}")
            if not before.again:
                return before
        record = StopRecord(job_id, mode, StopState.REQUESTED, self._now(), reason, patience)
        if before is not None and before.again:
            # The job is being suspended for a restart and is now to stay suspended. This must be a
            # new request, or the process that handles the old one would restart the job.
            record = attrs.evolve(record, state=before.state, stages=before.stages)
        key, value = keys.STOPS + job_id, encode(record)
        op = Create(key, value) if stored is None else Update(key, value, stored.version)
        try:
            commit_and_read_back(
                self._backend, op, Check(spec.key, spec.version), Absent(keys.RESULTS + job_id)
            )
        except Conflict:
            raise InvalidInput(
                f"job {job_id!r} has just ended or received another stop request; check it again"
            ) from None
        return record

    def resume(self, job_id: str) -> None:
        """Resume a suspended or held job: the leader starts it. Durable.

        A drain that a hold has interrupted continues.

        Raises:
            NoSuchJob: no such job was submitted.
            InvalidInput: the job has ended, or is not suspended. A drained job cannot be resumed.
            CorruptRecord: the job's spec cannot be read.
            OutcomeUnknown: check whether the job is resumed; repeat the call if it is not.
        """
        check_job_id(job_id)
        self._waiting(job_id, "resume")
        before, stored = self._stored(job_id)
        if before is None or stored is None:
            raise InvalidInput(f"job {job_id!r} is not suspended; there is nothing to resume")
        if before.state is not StopState.DONE:
            raise InvalidInput(f"job {job_id!r} {_said(before)}; it is not suspended")
        if before.drain is None:
            self._backend.commit(Delete(stored.key, stored.version))
        else:
            self._backend.commit(Update(stored.key, encode(before.drain), stored.version))

    def reconfigure(
        self, job_id: str, *, entry_point: str | None = None, partitions: int | None = None
    ) -> JobSpec:
        """Change the job's entry point or partitions, and restart it with the change.

        The change and the request to suspend are one commit; the leader restarts the job as soon as
        it is suspended. A job that is already suspended is changed, and restarts when it is
        resumed. Durable; needs no leader. With another entry point the streams' plans may change as
        far as Spark can resume from their checkpoints.

        Raises:
            NoSuchJob: no such job was submitted.
            InvalidInput: the job has ended, a stop is under way, a value is invalid, or the spec is
                signed and cannot be signed again.
            CorruptRecord: the job's spec cannot be read.
            OutcomeUnknown: check the job's spec; repeat the call if it is unchanged.
        """
        check_job_id(job_id)
        spec = self._waiting(job_id, "change")
        before, stored = self._stored(job_id)
        waits = before is not None and before.state in (StopState.DONE, StopState.REFUSED)
        if before is not None and not waits:
            raise InvalidInput(f"job {job_id!r} {_said(before)}")
        changed = decode(JobSpec, spec.value, spec.key)
        ops: list[Op] = []
        if partitions is not None:
            changed = attrs.evolve(changed, partitions=partitions)
        if entry_point is not None:
            changed = attrs.evolve(changed, entry_point=entry_point)
            for plan in self._backend.scan(keys.streams(job_id)):
                any_plan = decode(StreamRecord, plan.value, plan.key).of_any_plan()
                ops.append(Update(plan.key, encode(any_plan), plan.version))
        if before is None or before.state is StopState.REFUSED:
            again = StopRecord(job_id, StopMode.SUSPEND, requested_at=self._now(), again=True)
            key, value = keys.STOPS + job_id, encode(again)
            ops.append(Create(key, value) if stored is None else Update(key, value, stored.version))
        rewritten = renewed(encode(changed), spec.value, self._spec_key, job_id)
        try:
            self._backend.commit(
                Update(spec.key, rewritten, spec.version),
                Absent(keys.RESULTS + job_id),
                *ops,
            )
        except Conflict:
            raise InvalidInput(
                f"job {job_id!r} has just ended or been changed; check it again"
            ) from None
        return changed

    def get(self, job_id: str) -> StopRecord | None:
        """Return the job's stop in any state, or None.

        Raises:
            CorruptRecord: the stop cannot be read.
        """
        return self._stored(job_id)[0]

    def wait(
        self,
        job_id: str,
        timeout: float | None = None,
        told: Callable[[StopRecord], None] = lambda stop: None,
    ) -> StopRecord | None:
        """Wait until the job is suspended or held; return its stop, or None if the job has ended.

        Args:
            told: called with the stop each time it has changed.

        Raises:
            TimeoutError: the job was not suspended within `timeout` seconds. The request stays.
            InvalidInput: the stop was refused; the message says why. The job keeps running.
            NotFound: the stop is gone, because the job was resumed.
        """
        deadline = Deadline.after(threading.TIMEOUT_MAX if timeout is None else timeout)
        results = JobResultStore(self._backend)
        seen: StopRecord | None = None
        with self._backend.watch(keys.STOPS + check_job_id(job_id)) as watch:
            while True:
                if results.has_entry(job_id):
                    return None
                stop = self.get(job_id)
                if stop is None:
                    if results.has_entry(job_id):
                        return None
                    raise NotFound(f"job {job_id!r} has no stop request any more: was it resumed?")
                if stop != seen:
                    seen = stop
                    told(stop)
                if stop.state is StopState.REFUSED:
                    raise InvalidInput(f"job {job_id!r} cannot be drained: {stop.reason}")
                if stop.state is StopState.DONE:
                    return stop
                if deadline.expired:
                    raise TimeoutError(f"job {job_id!r} has not stopped yet; the request stays")
                watch.wait(min(0.5, deadline.bounded()))

    def update(self, record: StopRecord, fence: Fence) -> bool:
        """Write the progress of a stop, as the leader or its attempt.

        Returns False, and writes nothing, if the stop was replaced or removed. A hold is always
        written.

        Raises:
            Fenced: a newer leader exists.
            Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
        """
        before, stored = self._stored(record.job_id)
        if before is None or stored is None:
            if record.mode is not StopMode.HOLD:
                return False
            commit_and_read_back(
                self._backend,
                Create(keys.STOPS + record.job_id, encode(record)),
                fence=fence,
            )
            return True
        if record.mode is not StopMode.HOLD and before.requested_at != record.requested_at:
            return False
        if record.mode is StopMode.HOLD:
            record = attrs.evolve(record, drain=_drain_in(before))
        commit_and_read_back(
            self._backend, Update(stored.key, encode(record), stored.version), fence=fence
        )
        return True

    def hold(self, job_id: str, reason: str, fence: Fence) -> None:
        """Hold the job until an operator has checked it, as the leader or its attempt.

        A requested drain is kept in the record.

        Raises:
            Fenced, Unavailable, OutcomeUnknown: as `update`.
        """
        held = StopRecord(job_id, StopMode.HOLD, StopState.DONE, self._now(), reason)
        self.update(held, fence)

    def clear(self, record: StopRecord, fence: Fence) -> None:
        """Remove a stop that was only made to restart the job, as the leader.

        Raises:
            Fenced: a newer leader exists.
            Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
        """
        before, stored = self._stored(record.job_id)
        if before is not None and stored is not None and before.again:
            self._backend.commit(Delete(stored.key, stored.version), fence=fence)

    def report_progress(self, job_id: str, stages: dict[str, str], fence: Fence) -> None:
        """Record the step of each stage if a stop is under way; best effort."""
        before = self.get(job_id)
        if before is not None and before.state is StopState.REQUESTED and before.stages != stages:
            self.update(attrs.evolve(before, stages=stages), fence)

    def _stored(self, job_id: str) -> tuple[StopRecord | None, Record | None]:
        stored = self._backend.get(keys.STOPS + check_job_id(job_id))
        if stored is None:
            return None, None
        return decode(StopRecord, stored.value, stored.key), stored

    def _waiting(self, job_id: str, what: str) -> Record:
        """Return the spec of a job that has not ended."""
        entry = JobResultStore(self._backend).get(job_id)
        if entry is not None:
            status = entry.result.status.name if entry.result else "and was expired"
            raise InvalidInput(f"job {job_id!r} has ended {status}; there is nothing to {what}")
        spec = self._backend.get(keys.JOBS + job_id)
        if spec is None:
            raise NoSuchJob(f"there is no job {job_id!r}")
        _check_readable(spec, job_id)
        return spec


def _check_readable(spec: Record, job_id: str) -> None:
    """Raise `CorruptRecord`, with the remedy, if the job's spec cannot be read."""
    try:
        decode(JobSpec, spec.value, spec.key)
    except CorruptRecord as error:
        with suppress(CorruptRecord):
            decode(RestoreRecord, spec.value, spec.key)
            return
        raise CorruptRecord(f"{error}; the job is held; end it: jrs cancel {job_id}") from None


def _drain_in(stop: StopRecord) -> StopRecord | None:
    """Return the drain that is under way, or that was under way when the job was held."""
    if stop.mode is StopMode.DRAIN and stop.state is StopState.REQUESTED:
        return stop
    return stop.drain


def _said(stop: StopRecord) -> str:
    if stop.mode is StopMode.HOLD:
        return f"is held: {stop.reason}"
    if stop.state is StopState.DONE:
        return "is already suspended"
    return f"already has a request to {stop.mode.value}; `jrs cancel` overrides it"
