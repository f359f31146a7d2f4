"""Actions: what a leader does about a job once it is decided.

Each method blocks, so the dispatcher calls it in a pool. No method keeps anything in memory: it
returns what it learns, and commits under the fence what must outlive this leader.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    CannotStartHere,
    Conflict,
    CorruptRecord,
    Fenced,
    JobHeld,
)
from jrs.contract.masks import masked
from jrs.contract.operations import Delete
from jrs.contract.texts import error_text
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.history import HistoryKind
from jrs.records.model import (
    Failure,
    JobSpec,
    JobStatus,
    StageRecord,
    StopMode,
    StopState,
)
from jrs.store import attempt_fence, obstacles
from jrs.store.result_store import JobResultStore
from jrs.store.stop_transitions import StopEvent, StopStep
from jrs.store.stops import JobStops

from ..attempt.context import AttemptContext
from ..attempt.own_attempt import OwnAttempt
from ..attempt.runners import AttemptExit, NotStarted, OnEnd, RunningAttempt
from ..attempt.tracing import FLUSHED_IN
from ..processes import last_words
from ..processes.pools import side_by_side
from ..rules.events import EventKind
from ..rules.used_time import Passed
from . import suspects
from .attempt_records import AttemptRecords
from .attempts import AttemptHandle, Attempts
from .context import LeaderContext
from .hand_over import HandOver
from .job_memory import End
from .orphans import KILL, Orphans
from .recovery_point import RecoveryPoints
from .restart_plan import RestartPlan
from .results import Results
from .take_over import publish_finished

_COMPLETED = FLUSHED_IN + 1.0
"""Seconds in which an attempt that has recorded its job's result has to end by itself."""


@attrs.frozen
class PendingCleanup:
    """The outcome of a cleanup pass that left something."""

    tries: int
    delay: float
    """Seconds until the next pass, unless the cleanup was given up."""


class Actions:
    """What the leader of one epoch does about jobs."""

    def __init__(self, context: LeaderContext, attempts: Attempts, records: AttemptRecords) -> None:
        self._context = context
        self._backend = context.backend
        self._storage = context.storage
        self._fence = context.fence
        self._emit = context.emit
        self._now = context.runtime.now
        self._attempts = attempts
        self._records = records
        self._results = Results(context)
        self._stops = JobStops(context.backend, now=self._now, historian=context.historian)
        folder = last_words.folder_of(context.storage.root)
        self._last_words = last_words.LastWords(folder, self._fence.epoch)
        self._recovery_points = RecoveryPoints(context)
        self._orphans = Orphans(context, records)
        self.consider_hand_over = HandOver(context, attempts).consider

    # -- running ---------------------------------------------------------------------------

    def start(
        self,
        spec: JobSpec,
        function: Callable[..., Any] | None,
        on_end: Callable[[AttemptHandle, AttemptExit], None],
    ) -> float | None:
        """Start the job's next attempt, once no earlier attempt can do harm any more.

        Return the seconds that the job has run before it. Nothing is started, and None is
        returned, if the job was changed or has to stop meanwhile: the dispatcher then decides
        again.
        """
        job_id = spec.job_id
        try:
            self._recovery_points.refuse_foreign_files(job_id)
            self._orphans.end(job_id)
            self._recovery_points.ensure_recoverable(job_id)
            self._context.decisions.fold(job_id)
            recorded = self._records.begin(spec)
        except JobHeld as error:
            self._hold(job_id, error)
            return None
        if recorded is None:
            return None
        record, fence = recorded
        kind = suspects.runner_of(spec, record.suspicion)
        context = AttemptContext(
            spec=attrs.evolve(spec, runner=kind),
            attempt=record.attempt,
            fence=fence,
            backend=self._backend,
            storage=self._storage,
            first_started_at=record.first_started_at,
            runtime=self._context.runtime,
            lifeline=self._context.leadership.lifeline,
            last_words=self._last_words,
            mark=record.mark,
            own=OwnAttempt(record),
            on_report=partial(self._context.emit_of_stage, job_id),
        )
        how = ", alone" if record.on_probation else ""
        if kind is not spec.runner:
            how = " in a process of its own: a leader died while the job ran in its process"
        self._emit(EventKind.ATTEMPT, job_id, f"attempt {record.attempt} starts{how}")
        self._context.health.attempt_started()
        try:
            self._attempts.begin(job_id, lambda ended: self._run(context, function, ended), on_end)
        except BaseException:
            self._context.runners[kind].release(record.mark)
            raise
        return record.used

    def time_out(self, job_id: str, passed: Passed | None) -> tuple[AttemptExit, float]:
        """End the job's attempt because a time limit has passed; return that end, still to be
        counted, and the seconds that it ran."""
        assert passed is not None, "a job that is in time is not timed out"
        ran = self._attempts.ran(job_id)
        self._attempts.end(job_id, Deadline.after(KILL))
        return AttemptExit(passed.said, timed_out=True, used_up=passed.of_job), ran

    def evaluate(self, end: End, interruptions: int) -> RestartPlan | None:
        """Count the end of an attempt that ended by itself: as a death, durably; and for the
        metrics, by what the store says of it.

        Args:
            interruptions: how many attempts in a row before this one have not died.
        """
        # The end of a leadership has ended such an attempt: the backend may be away.
        lapsed = end.how.lapsed
        completed = not lapsed and JobResultStore(self._backend).has_entry(end.spec.job_id)
        death = None
        if not completed:
            if end.how.lack:
                self._record_lack(end.spec.job_id, end.how.lack)
            death = self._records.count_death(
                end.spec, end.how, end.count, ran=end.ran, interruptions=interruptions
            )
        if end.counted:
            return death
        how = end.how.how
        if death is None and end.how.interrupted:
            how = ""  # It has recorded its job's result, or that the job is held.
        elif death and how in ("", "completed"):
            how = "died"
        self._context.health.attempt_ended(how or ("completed" if completed else "stopped"))
        return death

    def _run(
        self, context: AttemptContext, function: Callable[..., Any] | None, on_end: OnEnd
    ) -> RunningAttempt:
        runner = self._context.runners[context.spec.runner]
        # Its attempt is recorded already: without an end, it would seem to run.
        try:
            return runner.start(context, function, on_end)
        except Fenced:
            raise
        except CannotStartHere as error:
            ended = self._end_for_lack(context.job_id, str(error))
        except Exception as error:
            ended = AttemptExit(f"it could not be started: {error_text(error)}", begun=False)
        runner.release(context.mark)
        on_end(ended)
        return NotStarted()

    def _end_for_lack(self, job_id: str, lack: str) -> AttemptExit:
        """Record what this host lacks; return the attempt's end, which says it in either case."""
        try:
            self._record_lack(job_id, lack)
        except Fenced:
            raise
        except Exception as error:
            why = f"{masked(lack)}; not recorded: {error_text(error)}"
            return AttemptExit(f"it could not be started: {why}", begun=False)
        return AttemptExit(lack, cannot_start=True)

    def _record_lack(self, job_id: str, lack: str) -> None:
        obstacles.record(self._backend, job_id, lack, self._fence, self._context.historian)

    def check_stages(self, job_id: str) -> None:
        """Raise `CorruptRecord` if a stage's record is unreadable: no stage runs on a guess."""
        for stored in self._backend.scan(keys.stages(job_id)):
            decode(StageRecord, stored.value, stored.key)

    def farewell(self, deadline: Deadline) -> None:
        """Record that this leadership has ended, and that no attempt has killed its process."""
        self._last_words.farewell(deadline)

    def release(self, deadline: Deadline) -> None:
        """Release what this master holds of jobs that continue on another master."""
        jobs = self._attempts.jobs()
        calls = [partial(self._context.cleanup.release, job_id) for job_id in jobs]
        for job_id, end in zip(jobs, side_by_side("jrs-release", calls, deadline), strict=True):
            if end.hangs:
                self._emit(EventKind.ERROR, job_id, "not released: the release does not end")
            elif end.error is not None:
                why = error_text(end.error)
                self._emit(EventKind.ERROR, job_id, f"not released: {why}")

    # -- results ---------------------------------------------------------------------------

    def fail(self, spec: JobSpec) -> None:
        """Record the job as failed, once none of its attempts can act any more."""
        self._end_for_good(spec.job_id)
        stored, _ = self._records.newest(spec.job_id)
        failure = (stored.failure if stored else None) or Failure("exit", "every attempt died")
        self._results.record(spec.job_id, JobStatus.FAILED, failure, stored)

    def cancel(self, job_id: str, killed_at: float | None = None) -> None:
        """End the job's attempt, then record the job as canceled once it cannot act any more.

        Args:
            killed_at: when this leader has ended its attempt, in seconds since 1970, if it has.
        """
        self._attempts.end(job_id, Deadline.after(KILL))
        self._end_for_good(job_id)
        stored, _ = self._records.newest(job_id)
        why = self._results.why_canceled(job_id)
        self._results.record(job_id, JobStatus.CANCELED, why, stored, killed_at)

    def cancel_restore(self, job_id: str, killed_at: float | None = None) -> None:
        """Cancel a job that is held by its restore, unless another process carries the restore out:
        then the folders are that process's, and the job is canceled once it has finished."""
        if not self._recovery_points.is_being_restored(job_id):
            self.cancel(job_id, killed_at)

    def suspend(self, spec: JobSpec, killed_at: float | None = None) -> None:
        """End the job's attempt, then record that the job is suspended and must not be started.

        Args:
            killed_at: as for `cancel`.
        """
        job_id = spec.job_id
        self._attempts.end(job_id, Deadline.after(KILL))
        attempt_fence.shut_out(self._backend, job_id, self._fence)
        if JobResultStore(self._backend).has_entry(job_id):
            return  # It ended before it was shut out.
        if spec.timeout.any:
            self._records.count_time(spec, ended_at=killed_at or self._now())
        stop = self._stops.get(job_id)
        if stop is None or stop.mode is not StopMode.SUSPEND or stop.state is StopState.DONE:
            return
        try:
            self._orphans.end(job_id)
        except JobHeld as error:
            self._hold(job_id, error)
            return
        self._records.end(job_id, "suspended", at=killed_at)
        self._recovery_points.complete_rescales(job_id)
        self._recovery_points.take_scheduled_snapshot(job_id, spec.snapshots)
        step = self._stops.advance(stop, StopEvent.COMPLETE, self._fence)
        if step is StopStep.NONE:
            self._emit(EventKind.SUSPENDED, job_id, "suspended; it starts again with the changes")
        elif step is StopStep.SUSPENDED:
            self._emit(EventKind.SUSPENDED, job_id, "suspended; resume it with `jrs resume`")

    def finish_restore(self, job_id: str) -> None:
        """Carry out an interrupted restore of the job; a restore in progress is left alone."""
        self._attempts.end(job_id, Deadline.after(KILL))

        def end_all() -> None:
            with suppress(JobHeld):  # A restore replaces the bad state.
                self._orphans.end(job_id)

        # Not before the restore is ours: another process may need the epoch's folder in place.
        if self._recovery_points.finish_restore(job_id, end_all):
            self._emit(EventKind.RESTORED, job_id, "an interrupted restore was completed")

    def until_scheduled_snapshot(self, spec: JobSpec) -> float:
        return self._recovery_points.until_scheduled_snapshot(spec.job_id, spec.snapshots)

    def take_scheduled_snapshot(self, spec: JobSpec, failures: int) -> float | None:
        """Take a snapshot that the job's spec requests, if one is due; return as that function."""
        job_id, policy = spec.job_id, spec.snapshots
        wait = self._recovery_points.take_snapshot_if_due(job_id, policy, failures)
        self._context.decisions.fold(job_id)
        return wait

    def end(self, job_id: str, *, completed: bool) -> None:
        """End the job's attempt. One that has recorded the job's result may do so by itself: its
        process exports what it has traced."""
        how, allowed = ("completed", _COMPLETED) if completed else ("stopped", 0.0)
        self._attempts.end(job_id, Deadline.after(KILL), how, allowed=allowed)

    def record_hold(self, job_id: str, why: str) -> None:
        """Record in the history why this leader can do nothing about the job. Durable."""
        with self._context.decisions.recorded(job_id, HistoryKind.HELD, why) as event:
            self._backend.commit(*event, fence=self._fence)

    # -- cleaning up -----------------------------------------------------------------------

    def clean_up(self, job_id: str) -> PendingCleanup | None:
        """Do one pass of the job's cleanup; return None if nothing is left."""
        policy = self._context.cleanup_policy
        journal = self._context.cleanup.run(
            job_id,
            self._fence,
            is_last=policy.is_last,
            timeout=policy.timeout,
            history=self._context.decisions,
            begins=self._context.jobs_end.set,
            said=lambda name, why: self._emit(
                EventKind.CLEANUP, job_id, f"{name}: {why} (continues without it)"
            ),
        )
        if not journal.problems:
            self._emit(EventKind.CLEAN, job_id, "its resources are gone and its result is clean")
            return None
        delay = policy.delay(journal.tries)
        for name, problem in journal.problems.items():
            again = "given up" if journal.exhausted else f"again in {delay:g} s"
            self._emit(EventKind.CLEANUP, job_id, f"{name} is left: {problem} ({again})")
        return PendingCleanup(journal.tries, delay)

    def sweep_spec(self, job_id: str) -> None:
        """Remove the spec that a job with a clean result has left: nothing may start from it."""
        for prefix in (keys.JOBS, keys.APPLICATIONS, keys.CANCEL, keys.STOPS, keys.RESTORES):
            try:
                self._backend.commit(Delete(prefix + job_id), fence=self._fence)
            except (Conflict, CorruptRecord):
                pass  # It is gone already, or damage may have hit it, and `jrs fsck` says so.

    # -- inside ----------------------------------------------------------------------------

    def _hold(self, job_id: str, error: JobHeld) -> None:
        """Record that the job is held. Every reader of the reason adds how to resume the job."""
        self._records.end(job_id, "held", only_unstarted=True)
        try:
            self._stops.hold(job_id, str(error), self._fence)
        except Conflict:
            return  # The job has just changed, or is being restored: it is decided again.
        self._emit(EventKind.HELD, job_id, f"held: {error}; then: jrs resume {job_id}")

    def _end_for_good(self, job_id: str) -> None:
        """Ensure that nothing of the job appears after its result is recorded: no record, and no
        batch that a sink publishes. The output of its finished stages appears before."""
        with suppress(JobHeld):  # The reason to hold does not matter: the job ends here.
            self._orphans.end(job_id)
        if self._storage.objects is None:
            publish_finished(self._backend, self._storage, job_id, self._fence)
