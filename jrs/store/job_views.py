"""What is stored of jobs, for people and for tools: of one job, or of many together.

The records of some jobs are read by one `get_many`, and their stages by scans that pass from job to
job, so that a page of jobs costs a few requests and not a few for each of its jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.codec import T, decode
from jrs.records.model import (
    AttemptRecord,
    AttemptSummary,
    CancelRequest,
    CleanupJournal,
    JobResultEntry,
    JobSpec,
    JobStatus,
    StageRecord,
    StopRecord,
    StopState,
)
from jrs.store.stored_result import ENTRY, Stored, entry_in

_READ = (
    *(keys.JOBS, keys.APPLICATIONS, keys.ATTEMPTS, keys.STOPS, keys.CANCEL, keys.CLEANUP),
    keys.LEFT,
    *ENTRY,
)
"""What is read of a job, in this order. What its end removes goes before its result, so that a job
without a result had not ended when the rest was read. A result is created with its marker, which is
removed once, so that a result whose marker is missing afterwards is clean. A tombstone, which takes
the place of a result, goes last."""
_FEWEST, _MOST = 16, 128
"""Jobs that are read together, at first and at most."""
_BYTES = 2 << 20
"""Bytes of records that are read together, as far as those before tell."""
_FEW_STAGES, _MANY_STAGES = 16, 512
"""Records of stages in one request."""


@attrs.frozen
class JobView:
    """All stored data of one job, for people and for tools."""

    job_id: str
    """The id of the job."""
    status: JobStatus | None
    """None if it is unknown, because a record is unreadable."""
    spec: JobSpec | None
    """What was submitted; None once the job is cleaned up, or if it cannot be read."""
    entry: JobResultEntry | None
    """Its result; None while it has none."""
    attempt: AttemptRecord | None
    """Its newest attempt; None before the first, and once the job is cleaned up."""
    stages: tuple[StageRecord, ...]
    """Its finished stages, while it has records of them."""
    cancel: CancelRequest | None
    """The request to cancel it; None if there is none."""
    stop: StopRecord | None
    """Its stop: a suspend, a drain or a hold; None if there is none."""
    cleanup: CleanupJournal | None
    """The progress of its cleanup; of a clean job, if the cleanup continued without something."""
    application: ApplicationRecord | None
    """What it runs and how often that began, if it is an application; None for a job."""
    problems: tuple[str, ...]
    """Unreadable records. They hold this job and no other."""

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended. One whose result cannot be read is held instead."""
        return self.entry is not None and self.entry.problem is None

    @property
    def submitted(self) -> JobSpec | None:
        """What was submitted: the spec, or the copy that the result has kept of it."""
        result = self.entry.result if self.entry is not None else None
        return self.spec or (result.spec if result is not None else None)

    @property
    def attempts(self) -> tuple[AttemptSummary, ...]:
        """The job's attempts, the newest last, as far as they are known."""
        result = self.entry.result if self.entry is not None else None
        if result is not None and result.attempts:
            return result.attempts
        return self.attempt.summaries()[0] if self.attempt is not None else ()

    @property
    def attempts_left_out(self) -> int:
        """The number of older attempts that no record keeps."""
        result = self.entry.result if self.entry is not None else None
        if result is not None and result.attempts:
            return result.attempts_left_out
        return self.attempt.summaries()[1] if self.attempt is not None else 0


def of_jobs(backend: Backend, job_ids: Iterable[str]) -> Iterator[JobView]:
    """Yield all stored data of each job, in the order of the ids, without jobs of which the cluster
    has no data.

    Some jobs are read together: few at first, so that the first ones cost little, and then more, as
    long as their records are small. What changes meanwhile may not be seen.

    Raises:
        Unavailable: the backend did not answer.
    """
    ids, done, size = iter(job_ids), 0, _FEWEST
    while some := list(islice(ids, size)):
        views, weight = _read(backend, some)
        yield from views
        done += len(some)
        size = max(1, min(done, _MOST, _BYTES * len(some) // max(weight, 1)))


def _read(backend: Backend, job_ids: Sequence[str]) -> tuple[list[JobView], int]:
    """Return the views of some jobs that are known, and the bytes of what was read."""
    read = backend.get_many([prefix + job_id for job_id in job_ids for prefix in _READ])
    found = iter(read)
    stored = {job_id: dict(zip(_READ, islice(found, len(_READ)), strict=True))
              for job_id in job_ids}  # fmt: skip
    stages = _stages(backend, [job_id for job_id in stored if _may_have_stages(stored[job_id])])
    views = [_view(job_id, stored[job_id], stages.get(job_id, ())) for job_id in job_ids]
    staged = (record for of_job in stages.values() for record in of_job)
    weight = sum(len(one.value) for one in (*read, *staged) if isinstance(one, Record))
    return [view for view in views if view is not None], weight


def _may_have_stages(stored: Mapping[str, Stored]) -> bool:
    """Return whether records of stages may exist: they are removed before a job is clean, unless
    its cleanup has left something."""
    ended = isinstance(stored[keys.RESULTS], Record) or stored[keys.TOMBSTONES] is not None
    if ended and stored[keys.DIRTY] is None and stored[keys.LEFT] is None:
        return False
    return any(record is not None for record in stored.values())


def _stages(backend: Backend, job_ids: Sequence[str]) -> dict[str, list[Record]]:
    """Return the records of the stages of some jobs, by job id.

    A scan may pass jobs that are not wanted. It reads few records until most of them are wanted.
    """
    found: dict[str, list[Record]] = {job_id: [] for job_id in job_ids}
    if len(job_ids) == 1:
        return {job_id: list(backend.scan(keys.stages(job_id))) for job_id in job_ids}
    left = sorted(map(keys.stages, job_ids), reverse=True)
    after, limit = "", _FEW_STAGES
    while left:
        after = max(after, left[-1])
        page = list(backend.scan(keys.STAGES, after=after, limit=limit))
        wanted = 0
        for record in page:
            if (of_job := found.get(keys.job_of(record.key))) is not None:
                of_job.append(record)
                wanted += 1
        if len(page) < limit:
            break
        after = page[-1].key
        while left and left[-1] < after and not after.startswith(left[-1]):
            left.pop()
        limit = min(4 * limit, _MANY_STAGES) if 2 * wanted >= len(page) else _FEW_STAGES
    return found


def _view(job_id: str, stored: Mapping[str, Stored], staged: Iterable[Record]) -> JobView | None:
    """Return what the records of a job tell; None if there are none."""
    entry = entry_in(job_id, *(stored[prefix] for prefix in ENTRY))
    problems = [entry.problem] if entry is not None and entry.problem else []

    def read(kind: type[T], prefix: str) -> T | None:
        record = stored[prefix]
        try:
            if isinstance(record, CorruptRecord):
                raise record
            return None if record is None else decode(kind, record.value, record.key)
        except CorruptRecord as error:
            problems.append(str(error))
            return None

    spec = read(JobSpec, keys.JOBS)
    application = entry.result.main if entry is not None and entry.result else None
    if spec is None and entry is None:
        application = read(ApplicationRecord, keys.APPLICATIONS)
    attempt, stop = read(AttemptRecord, keys.ATTEMPTS), read(StopRecord, keys.STOPS)
    if not any((spec, entry, attempt, application, problems)):
        return None
    status = _status(entry, application, attempt, stop, unreadable=bool(problems))
    return JobView(
        job_id=job_id,
        status=status,
        spec=spec,
        entry=entry,
        attempt=attempt,
        stages=_in_order(staged, problems),
        cancel=read(CancelRequest, keys.CANCEL),
        stop=stop,
        cleanup=read(CleanupJournal, keys.CLEANUP) or read(CleanupJournal, keys.LEFT),
        application=application,
        problems=tuple(problems),
    )


def _in_order(staged: Iterable[Record], problems: list[str]) -> tuple[StageRecord, ...]:
    found = []
    for record in staged:
        try:
            found.append(decode(StageRecord, record.value, record.key))
        except CorruptRecord as error:
            problems.append(str(error))
    return tuple(sorted(found, key=lambda stage: stage.order))


def _status(
    entry: JobResultEntry | None,
    application: ApplicationRecord | None,
    attempt: AttemptRecord | None,
    stop: StopRecord | None,
    *,
    unreadable: bool,
) -> JobStatus | None:
    if entry is not None:
        return entry.status
    if unreadable:
        return None
    if stop is not None and stop.state is StopState.DONE:
        return JobStatus.SUSPENDED
    runs = application is not None or (attempt is not None and not attempt.could_not_start)
    return JobStatus.RUNNING if runs else JobStatus.CREATED
