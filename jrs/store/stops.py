"""JobStops: requests to suspend, drain, change and resume a job, and their progress.

A stop is a record next to the job. It is durable when the request returns, every leader sees it,
and if the leader dies, the next leader continues the stop. Cancelling overrides a stop at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import Conflict, CorruptRecord, InvalidInput, NotFound, WrongState
from jrs.contract.inputs import check_is
from jrs.contract.masks import masked
from jrs.contract.operations import (
    Absent,
    Check,
    Create,
    Delete,
    Fence,
    Op,
    Record,
    Update,
    create_or_update,
)
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.texts import with_reason
from jrs.records import keys
from jrs.records.checks import check_entry_point, check_job_id
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.model import JobSpec, StopMode, StopRecord, StopState
from jrs.records.signing import SpecKey, renewed
from jrs.store import cluster_format, heads, restores
from jrs.store.historian import Historian
from jrs.store.history_texts import hold_text, of_change, plans_given_up, stop_came_to
from jrs.store.result_store import JobResultStore
from jrs.store.similar_job_ids import no_such_job
from jrs.store.stop_transitions import (
    STOP,
    RestoreEvent,
    StopEvent,
    StopStep,
    at_step,
    obstacle,
    step_after,
    step_of,
)
from jrs.store.stored_result import refuse_ended

_SINCE_FORMAT = 4
"""The first cluster format with version 2 of a stop's record."""
_REQUESTS = {StopMode.SUSPEND: StopEvent.SUSPEND, StopMode.DRAIN: StopEvent.DRAIN}
_BESIDES_PLANS = 8
"""Operations of a commit besides those of the streams' plans, at most."""
_REPORTED = (StopStep.SUSPENDING, StopStep.RESTARTING, StopStep.DRAINING)
"""The steps in which streaming stages still proceed."""


class JobStops:
    """The stops of one cluster's jobs.

    Args:
        spec_key: the key that signs a changed spec again; see `jrs.records.signing`.
        historian: of the leader or the attempt that uses it; None: of the user of this process.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        now: Clock = time.time,
        spec_key: SpecKey | None = None,
        historian: Historian | None = None,
    ) -> None:
        self._backend = backend
        self._spec_key = spec_key
        self._now = now
        self._historian = historian or Historian.of(backend, None, now)

    def request(
        self, job_id: str, mode: StopMode, *, reason: str = "", grace: float = 30.0
    ) -> StopRecord:
        """Request that the job is suspended or drained; return the stored request.

        Durable; needs no leader. Repeating the same request is a no-op, also once the job is
        suspended. A refused request may be repeated.

        Args:
            grace: the grace period of a suspend, in seconds. After it, the leader ends an
                attempt that has not quiesced. Nothing is lost, because the job can resume from
                every committed batch.

        Raises:
            NoSuchJob: no such job was submitted.
            WrongState: the job has ended or is held, or another stop or a restore is under way.
            InvalidInput: the mode is HOLD, which only a leader and its attempts may set.
            CorruptRecord: the job's spec, or whether it has ended, cannot be read.
        """
        check_job_id(job_id)
        check_is(mode, "mode", StopMode)
        event = _REQUESTS.get(mode)
        if event is None:
            hint = f"to keep job {job_id!r} from running, suspend it"
            raise InvalidInput(f"a stop request is suspend or drain, not {mode!r}; {hint}")
        spec = self._waiting(job_id, "stop")
        before = self._stored(job_id)
        step = step_after(STOP, before.step, event)
        if step is None:
            raise WrongState(f"job {job_id!r} {obstacle(before.stop)}")
        if before.stop is not None and step is before.step:
            return before.stop
        restarts = before.step in (StopStep.RESTARTING, StopStep.RESTART_QUIESCED)
        # A new request even where the job is being suspended for a restart: the process that
        # handles the earlier request must not restart the job.
        record = at_step(
            StopRecord(
                job_id,
                mode,
                requested_at=self._now(),
                reason=masked(reason),
                grace=grace,
                stages=before.stop.stages if restarts and before.stop is not None else {},
            ),
            step,
        )
        said, own = with_reason(f"a {mode.value} was requested", reason), self._put(before, record)
        try:
            with self._historian.recorded(job_id, HistoryKind.STOP, said) as also:
                conditions = (Check(spec.key, spec.version), *_is_free(job_id))
                commit_and_read_back(self._backend, own, *conditions, *also)
        except Conflict:
            raise WrongState(
                f"job {job_id!r} has just ended or received another stop request; check it again"
            ) from None
        return record

    def resume(self, job_id: str) -> bool:
        """Resume a suspended or held job: the leader starts it. Durable, idempotent. Return False,
        and change nothing, if the job has no stop.

        A drain that a hold has interrupted continues.

        Raises:
            NoSuchJob: no such job was submitted.
            WrongState: the job has ended, is not suspended yet, or is being restored. A drained
                job cannot be resumed.
            CorruptRecord: the job's spec, or whether it has ended, cannot be read.
            OutcomeUnknown: check whether the job is resumed; repeat the call if it is not.
        """
        check_job_id(job_id)
        spec = self._waiting(job_id, "resume")
        before = self._stored(job_id)
        if before.stop is None:
            return False
        if step_after(STOP, before.step, StopEvent.RESUME) is None:
            raise WrongState(f"job {job_id!r} {obstacle(before.stop)}; it is not suspended")
        drain = before.stop.drain
        op = _delete(before) if drain is None else self._put(before, drain)
        conditions = Check(spec.key, spec.version), *_is_free(job_id)
        try:
            with self._historian.recorded(job_id, HistoryKind.RESUMED, "resumed") as also:
                self._backend.commit(op, *conditions, *also)
        except Conflict:
            raise WrongState(f"job {job_id!r} has just been changed; check it again") from None
        return True

    def reconfigure(
        self, job_id: str, *, entry_point: str | None = None, partitions: int | None = None
    ) -> JobSpec:
        """Change the job's entry point or partitions, and restart it with the change.

        The change and the request to suspend are one commit; the leader restarts the job as soon as
        it is suspended. A job that is already suspended is changed, and restarts when it is
        resumed. Durable; needs no leader. With another entry point the streams' plans may change as
        far as Spark can resume from their checkpoints. If they are many, earlier commits say so,
        each with an event. If the call ends behind one of these, repeat it: until then any code is
        accepted for these checkpoints.

        Raises:
            NoSuchJob: no such job was submitted.
            WrongState: the job has ended, or a stop or a restore is under way.
            InvalidInput: a value is invalid, or the spec is signed and cannot be signed again.
            CorruptRecord: the job's spec, or whether it has ended, cannot be read.
            OutcomeUnknown: check the job's spec; repeat the call if it is unchanged.
        """
        check_job_id(job_id)
        spec = self._waiting(job_id, "change")
        before = self._stored(job_id)
        step = step_after(STOP, before.step, StopEvent.RECONFIGURE)
        if step is None:
            raise WrongState(f"job {job_id!r} {obstacle(before.stop)}")
        changed = decode(JobSpec, spec.value, spec.key)
        if partitions is not None:
            changed = attrs.evolve(changed, partitions=partitions)
        if entry_point is not None:
            changed = attrs.evolve(changed, entry_point=check_entry_point(entry_point))
        rewritten = renewed(encode(changed), spec.value, self._spec_key, job_id)
        own, said = Update(spec.key, rewritten, spec.version), of_change(entry_point, partitions)

        def commit(text: str, *ops: Op) -> None:
            with self._historian.recorded(job_id, HistoryKind.CHANGED, text) as also:
                self._backend.commit(*ops, *_is_free(job_id), *also)

        def give_up(some: list[Op]) -> None:
            commit(plans_given_up(len(some)), Check(spec.key, spec.version), *some)

        most = self._backend.capabilities.max_ops - _BESIDES_PLANS
        try:
            plans: list[Op] = []
            if entry_point is not None:
                # Before the change: the new code would be held for a stream with its old plan.
                plans = heads.changed_code_ops(self._backend, job_id, most, give_up)
            commit(said, own, self._restart(before, step), *plans)
        except Conflict:
            raise WrongState(
                f"job {job_id!r} has just ended or been changed; check it, and repeat the change"
            ) from None
        return changed

    def get(self, job_id: str) -> StopRecord | None:
        """Return the job's stop in any state, or None.

        Raises:
            CorruptRecord: the stop cannot be read.
        """
        return self._stored(job_id).stop

    def wait(
        self,
        job_id: str,
        timeout: float | None = None,
        notify: Callable[[StopRecord], None] = lambda stop: None,
    ) -> StopRecord | None:
        """Wait until the job is suspended or held; return its stop, or None if the job has ended.

        Args:
            notify: called with the stop each time it has changed.

        Raises:
            TimeoutError: the job was not suspended within `timeout` seconds. The request stays.
            WrongState: the stop was refused; the message says why. The job keeps running.
            NotFound: the stop is gone, because the job was resumed.
            CorruptRecord: the stop, or whether the job has ended, cannot be read.
        """
        deadline = Deadline.of_wait(timeout)
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
                    notify(stop)
                if stop.state is StopState.REFUSED:
                    raise WrongState(f"job {job_id!r} cannot be drained: {stop.reason}")
                if stop.state is StopState.DONE:
                    return stop
                if deadline.expired:
                    raise TimeoutError(f"job {job_id!r} has not stopped yet; the request stays")
                watch.wait(min(0.5, deadline.bounded()))

    def advance(
        self,
        stop: StopRecord,
        event: StopEvent,
        fence: Fence,
        *,
        reason: str | None = None,
        stages: dict[str, str] | None = None,
    ) -> StopStep | None:
        """Record an event of a stop, as the leader or its attempt; return the new step.

        Returns None, and writes nothing, if the stop was replaced or removed, or if the event is
        not possible in its step.

        Args:
            reason: why a drain is refused.
            stages: the steps of the streaming stages.

        Raises:
            Conflict: the stop has just changed, or the job has ended or is being restored.
            Fenced: a newer leader exists.
            Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
        """
        before = self._stored(stop.job_id)
        if before.stop is None or before.stop.requested_at != stop.requested_at:
            return None
        step = step_after(STOP, before.step, event)
        if step is None:
            return None
        free = _is_free(stop.job_id)
        kind, said = stop_came_to(step, before.stop.mode, reason or "")
        if step is StopStep.NONE:
            with self._historian.recorded(stop.job_id, kind, said) as also:
                self._backend.commit(_delete(before), *free, *also, fence=fence)
            return step
        after = at_step(before.stop, step)
        if reason is not None:
            after = attrs.evolve(after, reason=masked(reason))
        if stages is not None:
            after = attrs.evolve(after, stages=stages)
        own = self._put(before, after)
        with self._historian.recorded(stop.job_id, kind, said) as also:
            commit_and_read_back(self._backend, own, *free, *also, fence=fence)
        return step

    def hold(self, job_id: str, reason: str, fence: Fence) -> None:
        """Hold the job until an operator has checked it, as the leader or its attempt.

        A requested drain is kept in the record.

        Raises:
            Conflict: the stop has just changed, or the job has ended or is being restored.
            Fenced: a newer leader exists.
            Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
        """
        before = self._stored(job_id)
        held = StopRecord(job_id, StopMode.HOLD, StopState.DONE, self._now(), masked(reason))
        if step_after(STOP, before.step, StopEvent.HOLD) is StopStep.HELD_IN_DRAIN:
            assert before.stop is not None
            held = attrs.evolve(held, drain=before.stop.drain or before.stop)
        free, own = _is_free(job_id), self._put(before, held)
        said = hold_text(reason)
        with self._historian.recorded(job_id, HistoryKind.STOP, said) as also:
            commit_and_read_back(self._backend, own, *free, *also, fence=fence)

    def report_progress(self, job_id: str, stages: dict[str, str], fence: Fence) -> None:
        """Record the step of each stage if a stop is under way; best effort."""
        before = self._stored(job_id)
        if before.step in _REPORTED and before.stop is not None and before.stop.stages != stages:
            after = attrs.evolve(before.stop, stages=stages)
            commit_and_read_back(self._backend, self._put(before, after), fence=fence)

    # -- inside ----------------------------------------------------------------------------

    def _stored(self, job_id: str) -> _StoredStop:
        key = keys.STOPS + check_job_id(job_id)
        stored = self._backend.get(key)
        if stored is None:
            return _StoredStop(key)
        stop = decode(StopRecord, stored.value, stored.key)
        return _StoredStop(key, stop, step_of(stop), stored.version)

    def _put(self, before: _StoredStop, after: StopRecord) -> Create | Update:
        version = 2 if cluster_format.is_at_least(self._backend, _SINCE_FORMAT) else 1
        value = encode(after, version)
        return create_or_update(before.key, value, before.version)

    def _restart(self, before: _StoredStop, step: StopStep) -> Op:
        """Return the operation that brings a stop to the step of a restart, or checks that it is
        still there: a job that was resumed meanwhile has to be restarted."""
        if step is before.step and before.version is not None:
            return Check(before.key, before.version)
        restart = StopRecord(keys.job_of(before.key), StopMode.SUSPEND, requested_at=self._now())
        return self._put(before, at_step(restart, step))

    def _waiting(self, job_id: str, what: str) -> Record:
        """Return the spec of a job that has not ended and is not being restored."""
        refuse_ended(JobResultStore(self._backend).get(job_id), what)
        try:
            spec = self._backend.get(keys.JOBS + job_id)
            if spec is None:
                raise no_such_job(self._backend, job_id)
            restores.check_possible(self._backend, job_id, RestoreEvent.STOP)
            decode(JobSpec, spec.value, spec.key)
        except CorruptRecord as error:
            raise CorruptRecord(f"{error}; the job is held; end it: jrs cancel {job_id}") from None
        return spec


@attrs.frozen
class _StoredStop:
    """A job's stop as it is stored, if there is one."""

    key: str
    stop: StopRecord | None = None
    step: StopStep = StopStep.NONE
    version: int | None = None


def _delete(before: _StoredStop) -> Delete:
    return Delete(before.key, before.version)


def _is_free(job_id: str) -> tuple[Op, ...]:
    """Return the conditions that the job has not ended and is not being restored."""
    return Absent(keys.RESULTS + job_id), restores.none_of(job_id)
