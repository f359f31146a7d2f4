"""Results that a leader writes: of jobs that it fails or cancels."""

from __future__ import annotations

import attrs

from jrs.contract.errors import Conflict, CorruptRecord, ResultExists
from jrs.records import keys
from jrs.records.applications import LOST_MAIN, ApplicationRecord
from jrs.records.codec import decode
from jrs.records.history import HistoryKind
from jrs.records.model import (
    AttemptRecord,
    AttemptSummary,
    CancelRequest,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    StageSummary,
)
from jrs.store import applications, restores
from jrs.store.jobs import readable_stages
from jrs.store.result_store import JobResultStore

from ..attempt.code_version import about_code
from ..attempt.own_attempt import about_attempt
from .context import LeaderContext


class Results:
    """The results that the leader of one epoch writes by itself."""

    def __init__(self, context: LeaderContext) -> None:
        self._backend = context.backend
        self._fence = context.fence
        self._now = context.runtime.now
        self._store = JobResultStore(context.backend, now=self._now)
        self._decisions = context.decisions

    def why_canceled(self, job_id: str) -> Failure:
        """Return why a job is canceled: on request, or because its application has ended."""
        stored = self._backend.get(keys.CANCEL + job_id)
        if stored is None:
            return Failure(LOST_MAIN, "its application has ended without it")
        try:
            reason = decode(CancelRequest, stored.value, stored.key).reason
        except CorruptRecord:
            reason = ""  # The request itself counts, not its reason.
        why = f"canceled on request: {reason}" if reason else "canceled on request"
        return Failure("cancel", why)

    def record(
        self,
        job_id: str,
        status: JobStatus,
        failure: Failure,
        stored: AttemptRecord | None,
        killed_at: float | None = None,
    ) -> None:
        """Record how a job ended, dirty. The first durable result of a job wins.

        Args:
            stored: its newest attempt.
            killed_at: when this leader has ended that attempt, in seconds since 1970, if it has.
        """
        spec, main = self._spec(job_id), None
        if spec is None:
            main = self._application(job_id)
        started = stored.first_started_at if stored else main.started_at if main else self._now()
        attempts, left_out = self._ended(status, stored, killed_at)
        result = JobResult(
            job_id=job_id,
            status=status,
            failure=failure,
            attempt=stored.attempt if stored else main.attempts if main else 1,
            epoch=self._fence.epoch,
            started_at=started,
            finished_at=self._now(),
            stages=self._stages(job_id),
            call=spec.call if spec else main.call if main else "",
            application=spec.application if spec else "",
            main=main,
            spec=spec,
            attempts=attempts,
            attempts_left_out=left_out,
            code=stored.code if stored else "",
        )
        about = {**about_attempt(stored), **about_code(result.code)}
        said = f"{status.value}: {failure.message}"
        also = applications.end_ops(self._backend, job_id)
        try:
            with self._decisions.recorded(
                job_id, HistoryKind.ENDED, said, about=about, repeatable=True
            ) as event:
                self._store.create_dirty(result, self._fence, also=(*also, *event))
        except (Conflict, ResultExists):
            # The job has just ended by itself, and the first durable result wins; or its
            # application has just changed, and the next look decides.
            pass

    def _ended(
        self, status: JobStatus, stored: AttemptRecord | None, killed_at: float | None
    ) -> tuple[tuple[AttemptSummary, ...], int]:
        """Return the job's attempts for its result; the last one ends with the job, if it has not
        ended before."""
        if stored is None:
            return (), 0
        if not stored.ended_at:
            how = "canceled" if status is JobStatus.CANCELED else "ended with its leader"
            stored = attrs.evolve(stored, ended_at=killed_at or self._now(), ended=how)
        return stored.summaries()

    def _application(self, name: str) -> ApplicationRecord | None:
        try:
            return applications.of_name(self._backend, name)
        except CorruptRecord:
            return None

    def _spec(self, job_id: str) -> JobSpec | None:
        """Return what was submitted, if that can be read: it must not keep a job from ending."""
        try:
            stored = self._backend.get(keys.JOBS + job_id)
            kept = restores.spec_of(stored)
            return None if kept is None else decode(JobSpec, kept, keys.JOBS + job_id)
        except CorruptRecord:
            return None

    def _stages(self, job_id: str) -> tuple[StageSummary, ...]:
        """Return the stages that finished before the job failed or was canceled."""
        found = sorted(readable_stages(self._backend, job_id), key=lambda record: record.order)
        return tuple(record.summary() for record in found)
