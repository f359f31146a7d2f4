"""JobCatalog: the jobs of a cluster: submit, cancel, sign and view."""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    DuplicateJob,
    InvalidInput,
    NoSuchJob,
    WrongState,
)
from jrs.contract.operations import Absent, Create, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.records.checks import check_job_id
from jrs.records.codec import T, decode, encode
from jrs.records.model import (
    AttemptRecord,
    CancelRequest,
    CleanupJournal,
    JobResultEntry,
    JobSpec,
    JobStatus,
    StageRecord,
    StopRecord,
    StopState,
)
from jrs.records.signing import SpecKey
from jrs.store import restores
from jrs.store.protocols import RestoreEvent
from jrs.store.result_store import JobResultStore


@attrs.frozen
class JobView:
    """All stored data of one job, for people and for tools."""

    job_id: str
    status: JobStatus | None
    """None if it is unknown: a record is unreadable, or the result was expired."""
    spec: JobSpec | None
    entry: JobResultEntry | None
    attempt: AttemptRecord | None
    stages: tuple[StageRecord, ...]
    cancel: CancelRequest | None
    stop: StopRecord | None
    cleanup: CleanupJournal | None
    problems: tuple[str, ...]
    """Unreadable records. They hold this job and no other."""


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
            InvalidInput: `spec` is not a `JobSpec`.
            DuplicateJob: the id is taken; `.state` says by what. Nothing was changed.
            Unavailable, OutcomeUnknown: as `Backend.commit`.
        """
        if not isinstance(spec, JobSpec):
            raise InvalidInput(f"not a JobSpec: {shown(spec)}")
        self._check_free(spec.job_id)
        spec = attrs.evolve(spec, submitted_at=self._now())
        stored = encode(spec)
        if self._spec_key is not None:
            stored = self._spec_key.sign(stored, spec.job_id)
        try:
            commit_and_read_back(
                self._backend,
                Create(keys.JOBS + spec.job_id, stored),
                Absent(keys.RESULTS + spec.job_id),
                Absent(keys.TOMBSTONES + spec.job_id),
            )
        except Conflict:
            # Taken since the check. Even if it is free again, this spec was not stored.
            self._check_free(spec.job_id)
            raise
        return spec

    def sign(self, job_id: str) -> None:
        """Sign the stored spec of a job. Durable, idempotent.

        Raises:
            NoSuchJob: the job was not submitted, or has ended.
            InvalidInput: no key was given.
            WrongState: the job is being restored, or was changed at the same moment.
            CorruptRecord: the spec cannot be read.
        """
        check_job_id(job_id)
        if self._spec_key is None:
            raise InvalidInput("no key to sign with: give --spec-key FILE")
        stored = self._backend.get(keys.JOBS + job_id)
        if stored is None:
            raise NoSuchJob(f"there is no job {job_id!r} to sign")
        restores.check_possible(self._backend, job_id, RestoreEvent.SIGN)
        decode(JobSpec, stored.value, stored.key)
        signed = self._spec_key.sign(stored.value, stored.key)
        try:
            self._backend.commit(
                Update(stored.key, signed, stored.version), restores.none_of(job_id)
            )
        except Conflict:
            raise WrongState(f"job {job_id!r} has just been changed; check it again") from None

    def cancel(self, job_id: str, reason: str = "") -> None:
        """Request that the leader cancels the job. Durable, idempotent.

        Raises:
            NoSuchJob: no such job was submitted.
            WrongState: the job has already ended.
        """
        check_job_id(job_id)
        entry = self._results.get(job_id)
        if entry is not None:
            raise WrongState(f"job {job_id!r} has ended already; there is nothing to cancel")
        request = encode(CancelRequest(job_id, self._now(), reason))
        spec = self._backend.get(keys.JOBS + job_id)
        if spec is None:
            raise NoSuchJob(f"there is no job {job_id!r}")
        try:
            self._backend.commit(
                Create(keys.CANCEL + job_id, request),
                Absent(keys.RESULTS + job_id),
                Absent(keys.TOMBSTONES + job_id),
            )
        except Conflict:
            pass  # Already requested, or the job has just ended.

    def view(self, job_id: str) -> JobView:
        """Return all stored data of the job.

        Raises:
            NoSuchJob: the cluster has no data of the job.
        """
        check_job_id(job_id)
        problems: list[str] = []
        entry = self._results.get(job_id)
        if entry is not None and entry.problem:
            problems.append(entry.problem)
        spec = self._read(JobSpec, keys.JOBS + job_id, problems)
        attempt = self._read(AttemptRecord, keys.ATTEMPTS + job_id, problems)
        stop = self._read(StopRecord, keys.STOPS + job_id, problems)
        if spec is None and entry is None and attempt is None and not problems:
            raise NoSuchJob(f"there is no job {job_id!r}")
        return JobView(
            job_id=job_id,
            status=_status(entry, attempt, stop, problems),
            spec=spec,
            entry=entry,
            attempt=attempt,
            stages=self._stages(job_id, problems),
            cancel=self._read(CancelRequest, keys.CANCEL + job_id, problems),
            stop=stop,
            cleanup=self._read(CleanupJournal, keys.CLEANUP + job_id, problems),
            problems=tuple(problems),
        )

    def ids(self) -> Iterator[str]:
        """Yield the id of every job that has a spec or a result, in order, each once."""
        specs, results = self._ids_in(keys.JOBS), self._ids_in(keys.RESULTS)
        left, right = next(specs, None), next(results, None)
        while left is not None or right is not None:
            if right is None or (left is not None and left <= right):
                assert left is not None
                yield left
                if left == right:
                    right = next(results, None)
                left = next(specs, None)
            else:
                yield right
                right = next(results, None)

    def expired_ids(self) -> Iterator[str]:
        """Yield the id of every job whose result was expired, in order."""
        return self._ids_in(keys.TOMBSTONES)

    def _ids_in(self, prefix: str) -> Iterator[str]:
        return (keys.job_of(record.key) for record in self._backend.scan(prefix))

    def _check_free(self, job_id: str) -> None:
        """Raise `DuplicateJob` if the id is taken, to save the commit, which decides."""
        entry = self._results.get(job_id)
        if entry is not None:
            raise DuplicateJob(job_id, entry.state.value)
        if self._backend.get(keys.JOBS + job_id) is not None:
            raise DuplicateJob(job_id, "submitted")

    def _stages(self, job_id: str, problems: list[str]) -> tuple[StageRecord, ...]:
        found = []
        for record in self._backend.scan(keys.stages(job_id)):
            try:
                found.append(decode(StageRecord, record.value, record.key))
            except CorruptRecord as error:
                problems.append(str(error))
        return tuple(sorted(found, key=lambda stage: stage.order))

    def _read(self, kind: type[T], key: str, problems: list[str]) -> T | None:
        try:
            record = self._backend.get(key)
            return None if record is None else decode(kind, record.value, key)
        except CorruptRecord as error:
            problems.append(str(error))
            return None


def _status(
    entry: JobResultEntry | None,
    attempt: AttemptRecord | None,
    stop: StopRecord | None,
    problems: list[str],
) -> JobStatus | None:
    if entry is not None:
        return entry.result.status if entry.result else None
    if problems:
        return None
    if stop is not None and stop.state is StopState.DONE:
        return JobStatus.SUSPENDED
    return JobStatus.CREATED if attempt is None else JobStatus.RUNNING
