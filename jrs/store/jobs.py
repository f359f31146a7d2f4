"""JobCatalog: the jobs of a cluster: submit, cancel, sign and view."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    DuplicateJob,
    InvalidInput,
    WrongState,
)
from jrs.contract.masks import masked
from jrs.contract.operations import Absent, Create, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.texts import shown, with_reason
from jrs.records import keys, submission, traceparent
from jrs.records.checks import NAME, check_entry_point, check_job_id, check_system_text
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.model import (
    CancelRequest,
    JobSpec,
    JobStatus,
    StageRecord,
)
from jrs.records.signing import SpecKey
from jrs.records.time_limits import check_limit
from jrs.store import job_views, restores, stored_result
from jrs.store.cluster_format import too_old
from jrs.store.historian import Historian, submitter
from jrs.store.job_views import JobView
from jrs.store.result_store import JobResultStore
from jrs.store.similar_job_ids import no_such_job
from jrs.store.stop_transitions import RestoreEvent
from jrs.store.tracing import current_traceparent

_SPEC_2_FORMAT = 5
"""The first cluster format that has specs in version 2, which an older version must not ignore."""


class JobCatalog:
    """The jobs of one cluster. Needs no leader: a submission is durable when it is acknowledged.

    Args:
        spec_key: the key that signs submitted specs; see `jrs.records.signing`.
    """

    def __init__(
        self, backend: Backend, *, now: Clock = time.time, spec_key: SpecKey | None = None
    ) -> None:
        self._backend = backend
        self._spec_key = spec_key
        self._now = now
        self._results = JobResultStore(backend, now=now)

    def submit(self, spec: JobSpec) -> JobSpec:
        """Store the spec, durably, for the leader to start; return it with its submission time.

        Raises:
            InvalidInput: `spec` is not a `JobSpec`, its entry point has not the form of one, no
                operating system has a form for a text of it, or no time is left for `on_result`, or
                between two snapshots.
            WrongState: the cluster's format is too old for its settings or time limits.
            DuplicateJob: the id is taken; `.state` says by what. Nothing was changed.
            CorruptRecord: the disk has perhaps lost a record of a job with that id.
            Unavailable, OutcomeUnknown: as `Backend.commit`.
        """
        if not isinstance(spec, JobSpec):
            raise InvalidInput(f"not a JobSpec: {shown(spec)}")
        # Not by the spec itself: results keep such specs of older versions, and have to be read.
        check_entry_point(spec.entry_point)
        for what, text in spec.settings.system_texts:
            check_system_text(text, what)
        if spec.snapshots.every is not None:
            check_limit("the time between two snapshots", spec.snapshots.every)
        if spec.on_result is not None:
            check_limit("the timeout of on_result", spec.on_result.timeout)
        if spec.least_reader() > 1:
            what = f"job {spec.job_id!r}, with its settings, time limits or on_result,"
            if why := too_old(self._backend, _SPEC_2_FORMAT, what):
                raise WrongState(why)
        self._check_free(spec.job_id)
        by = spec.submitted_by or submitter()
        trace = traceparent.valid(spec.traceparent) or current_traceparent()
        spec = attrs.evolve(
            spec,
            submitted_at=self._now(),
            submitted_by=by,
            traceparent=trace,
            submission=submission.of_spec(spec),
        )
        stored = encode(spec)
        if self._spec_key is not None:
            stored = self._spec_key.sign(stored, spec.job_id)
        historian = Historian(self._backend, by, now=self._now)
        try:
            with historian.recorded(spec.job_id, HistoryKind.SUBMITTED, "submitted") as event:
                commit_and_read_back(
                    self._backend,
                    Create(keys.JOBS + spec.job_id, stored),
                    Absent(keys.RESULTS + spec.job_id),
                    Absent(keys.TOMBSTONES + spec.job_id),
                    Absent(keys.APPLICATIONS + spec.job_id),
                    *event,
                )
        except Conflict:
            # Taken since the check. Even if it is free again, this spec was not stored.
            self._check_free(spec.job_id)
            raise
        return spec

    def sign(self, job_id: str) -> None:
        """Sign the stored spec of a job. Durable, idempotent.

        Raises:
            NoSuchJob: the job was not submitted.
            InvalidInput: no key was given.
            WrongState: the job has ended, is being restored, or was changed at the same moment.
            CorruptRecord: the spec cannot be read, or the disk has perhaps lost the result.
        """
        check_job_id(job_id)
        if self._spec_key is None:
            raise InvalidInput("no key to sign with: give --spec-key FILE")
        stored = self._backend.get(keys.JOBS + job_id)
        if stored is None:
            self.refuse_ended(job_id, "sign")
            raise no_such_job(self._backend, job_id, " to sign")
        restores.check_possible(self._backend, job_id, RestoreEvent.SIGN)
        decode(JobSpec, stored.value, stored.key)
        signed = self._spec_key.sign(stored.value, stored.key)
        own, free = Update(stored.key, signed, stored.version), restores.none_of(job_id)
        historian = Historian.of(self._backend, None, self._now)
        try:
            with historian.recorded(job_id, HistoryKind.CHANGED, "its spec was signed") as event:
                self._backend.commit(own, free, *event)
        except Conflict:
            raise WrongState(f"job {job_id!r} has just been changed; check it again") from None

    def cancel(self, job_id: str, reason: str = "") -> bool:
        """Request that the leader cancels the job or application, also if its spec cannot be read.
        Durable, idempotent. Return False, and change nothing, if it is CANCELED already.

        Raises:
            NoSuchJob: no such job was submitted.
            WrongState: the job has ended otherwise.
            CorruptRecord: the disk has perhaps lost the job's result.
        """
        check_job_id(job_id)
        entry = self._results.get(job_id)
        if entry is not None and entry.status is JobStatus.CANCELED:
            return False
        stored_result.refuse_ended(entry, "cancel")
        request = encode(CancelRequest(job_id, self._now(), masked(reason)))
        # What the disk has perhaps lost counts as there: a cancel ends such a job.
        if not any(self._backend.get_many([prefix + job_id for prefix in keys.UNFINISHED])):
            raise no_such_job(self._backend, job_id)
        said = with_reason("a cancel was requested", reason)
        historian = Historian.of(self._backend, None, self._now)
        try:
            with historian.recorded(job_id, HistoryKind.CANCEL, said) as event:
                self._backend.commit(
                    Create(keys.CANCEL + job_id, request),
                    Absent(keys.RESULTS + job_id),
                    Absent(keys.TOMBSTONES + job_id),
                    *event,
                )
        except Conflict:
            pass  # Already requested, or the job has just ended.
        return True

    def refuse_ended(self, job_id: str, what: str) -> None:
        """Raise `WrongState`, which says how the job ended, if it has.

        Args:
            what: what cannot be done any more.

        Raises:
            CorruptRecord: the disk has perhaps lost the job's result.
        """
        stored_result.refuse_ended(self._results.get(job_id), what)

    def view(self, job_id: str) -> JobView:
        """Return all stored data of the job.

        Raises:
            NoSuchJob: the cluster has no data of the job.
        """
        check_job_id(job_id)
        view = next(job_views.of_jobs(self._backend, (job_id,)), None)
        if view is None:
            raise no_such_job(self._backend, job_id)
        return view

    def views(self, job_ids: Iterable[str]) -> Iterator[JobView]:
        """Yield all stored data of each of these jobs, without those of which the cluster has none.

        Jobs are read in batches, by a few requests for each batch: what is yielded may be as old as
        the first job of its batch.

        Raises:
            Unavailable: the backend did not answer.
        """
        return job_views.of_jobs(self._backend, job_ids)

    def ids(self, *, prefix: str = "", after: str = "") -> Iterator[str]:
        """Return the id of every job and application that has a spec, a record or a result, in
        order, each once.

        Args:
            prefix: only ids that begin with this.
            after: only ids that come after this one.
        """
        return self._ids_in((*keys.UNFINISHED, keys.RESULTS), prefix, after)

    def unfinished_ids(self, *, prefix: str = "", after: str = "") -> Iterator[str]:
        """Yield the id of every job that has a spec, and of every application that has a record,
        in order: all that have not ended, and those that are being cleaned up."""
        return self._ids_in(keys.UNFINISHED, prefix, after)

    def begun_ids(self) -> Iterator[str]:
        """Yield the id of every application, and of every job that has an attempt, or a request to
        stop: all that run, and all that are suspended or held by one; also of those that are being
        cleaned up."""
        return self._ids_in((keys.STOPS, keys.ATTEMPTS, keys.APPLICATIONS), "", "")

    def expired_ids(self, *, prefix: str = "", after: str = "") -> Iterator[str]:
        """Yield the id of every job whose result was expired, in order."""
        return self._ids_in((keys.TOMBSTONES,), prefix, after)

    def _ids_in(self, kinds: Iterable[str], prefix: str, after: str) -> Iterator[str]:
        """Return the ids of the keys below any of `kinds`, in order, each once."""
        if prefix and not NAME.fullmatch(prefix):
            return iter(())  # No job id begins so.
        behind = check_job_id(after) if after > prefix else ""
        found = (
            self._backend.scan(kind + prefix, after=kind + behind if behind else None)
            for kind in kinds
        )
        ids = ((keys.job_of(record.key) for record in records) for records in found)
        return (job_id for job_id, _ in groupby(heapq.merge(*ids)))

    def _check_free(self, job_id: str) -> None:
        """Raise `DuplicateJob` if the id is taken, to save the commit, which decides."""
        entry = self._results.get(job_id)
        stored_result.check_certain(entry)
        if entry is not None:
            raise DuplicateJob(job_id, entry.state.value)
        if any(self._backend.get(prefix + job_id) for prefix in keys.UNFINISHED):
            raise DuplicateJob(job_id, "submitted")


def readable_stages(backend: Backend, job_id: str) -> Iterator[StageRecord]:
    """Yield the records of a job's finished stages, without those that cannot be read: they must
    not keep a job from ending, or from being cleaned up.

    Raises:
        Unavailable: the backend did not answer.
    """
    for stored in backend.scan(keys.stages(job_id)):
        with suppress(CorruptRecord):
            yield decode(StageRecord, stored.value, stored.key)
