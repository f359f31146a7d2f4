"""Retrying a job that did not finish: a new job that takes over what the old one had finished.

A retry is a restore under a new id of what the old job's cleanup has kept, with another spec. The
new spec has the lineage, and the commit that reserves the new id records the new job with the old
one. So a retry that is repeated after a crash finds what was begun, and continues it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    CorruptRecord,
    DamagedSnapshot,
    DuplicateJob,
    InvalidInput,
    JobIsRunning,
    NoSuchJob,
    NoSuchSnapshot,
    Unavailable,
    WrongState,
)
from jrs.records import keys, submission
from jrs.records.checks import check_job_id, check_json
from jrs.records.codec import decode
from jrs.records.field_types import Json
from jrs.records.lineage import Descendant, Lineage, LineageKind
from jrs.records.model import JobSpec, JobStatus, ResultState, Tombstone
from jrs.records.snapshots import SnapshotRecord, as_stored
from jrs.store import cluster_format, restores
from jrs.store.result_store import JobResultStore

from ..files import transfer
from . import earlier_life, folders, restore
from .index import SnapshotIndex, damaged_or_deleted
from .restored_records import SPEC
from .sources import RestoreRequest

SINCE_FORMAT = 5
"""The first cluster format in which no process forgets from which stage a retry begins."""

_NUMBERED = re.compile(r"(.+)\.([0-9]{1,9})")


@attrs.frozen(kw_only=True)
class RetryRequest:
    """What is to be different in a retry."""

    as_job: str | None = None
    """The id of the new job; None: the next that is free of JOB.2, JOB.3, …"""
    from_stage: str = ""
    entry_point: str | None = None
    arguments: Mapping[str, Json] | None = None
    """All arguments; None: those of the old job."""
    changed: Mapping[str, Json] = attrs.field(factory=dict)
    """Arguments that are different."""
    check: Callable[[JobSpec], None] = lambda spec: None
    """Raises if the new spec cannot work; called before anything is written."""
    timeout: float = 60.0
    """Seconds to wait until the old job's cleanup has kept what the retry takes over."""
    progress: transfer.Progress = transfer.silent
    skipped: Callable[[SnapshotRecord, str], None] = lambda record, why: None
    """Called for each damaged snapshot that is passed over for an older one, with the reason."""

    def submission(self, job_id: str) -> str:
        """Return the digest by which the same retry of a job is known."""
        return submission.of_retry(
            job_id, self.as_job, self.from_stage, self.entry_point, self.arguments, self.changed
        )


def retry(catalog: SnapshotIndex, job_id: str, request: RetryRequest) -> str:
    """Retry a job; return the new job's id. See `JobHandle.retry`."""
    backend = catalog.backend
    if why := cluster_format.too_old(backend, SINCE_FORMAT, "a retry"):
        raise WrongState(why)
    if request.as_job is not None:
        check_job_id(request.as_job)
    _check_ended(backend, check_job_id(job_id), request)
    _wait_until_kept(catalog, job_id, request.timeout)
    for record in filter(_is_enough, reversed(catalog.list(job_id))):
        try:
            # If it was just deleted, the user may not want the older state that is left.
            with damaged_or_deleted(backend, record):
                return _retry_from(catalog, record, request)
        except DamagedSnapshot as error:
            request.skipped(record, str(error))
    raise WrongState(
        f"nothing is kept of job {job_id!r} that a retry could take over; submit it again under "
        "another id (what is kept of each end: jrs submit --snapshots-at-end STATUS=keep)"
    )


def descendants(backend: Backend, job_id: str) -> Iterator[Descendant]:
    """Yield the jobs that were made from a job, in the order of their ids."""
    for stored in backend.scan(keys.descendants(job_id)):
        yield decode(Descendant, stored.value, stored.key)


# -- inside --------------------------------------------------------------------------------


def _check_ended(backend: Backend, job_id: str, request: RetryRequest) -> None:
    """Raise unless the job has ended in a way that permits the retry."""
    entry = JobResultStore(backend).get(job_id)
    if entry is None:
        if backend.get(keys.JOBS + job_id) is None:
            raise NoSuchJob(f"there is no job {job_id!r}")
        raise WrongState(
            f"job {job_id!r} has not ended: only a job that FAILED or was CANCELED is retried"
        )
    if entry.problem:
        raise CorruptRecord(entry.problem)
    if entry.state is ResultState.EXPIRED:
        tombstone = backend.get(keys.TOMBSTONES + job_id)
        status = (
            decode(Tombstone, tombstone.value, tombstone.key).status
            if tombstone
            else JobStatus.FAILED
        )
    else:
        assert entry.result is not None
        status = entry.result.status
    if status is JobStatus.FINISHED and not request.from_stage:
        raise WrongState(
            f"job {job_id!r} has FINISHED: submit it under another id to run it again. If it was "
            "submitted with --snapshots-at-end finished=keep, a retry runs the later stages again: "
            f"jrs retry {job_id} --from-stage STAGE"
        )


def _wait_until_kept(catalog: SnapshotIndex, job_id: str, timeout: float) -> None:
    """Wait until the job's cleanup has listed the snapshot of its end, or has ended."""
    results, deadline = JobResultStore(catalog.backend), Deadline.after(timeout)
    with catalog.backend.watch(keys.DIRTY + job_id) as watch:
        while results.has_dirty(job_id) and not any(one.at_end for one in catalog.list(job_id)):
            if deadline.expired:
                raise WrongState(
                    f"job {job_id!r} has just ended, and its cleanup has not kept yet what a retry "
                    f"takes over: try again later; what is left: jrs explain {job_id}"
                )
            watch.wait(min(0.5, deadline.remaining()))


def _before(catalog: SnapshotIndex, record: SnapshotRecord, request: RetryRequest) -> JobSpec:
    """Return the spec with which a job ended: that in the snapshot of its end, else that in an
    older one, with what an upgrade or a rescaling has changed since.

    Raises:
        InvalidInput: it is signed, and what an upgrade has changed is not.
    """
    kept = _kept_spec(catalog, record)
    last = None if record.at_end else _last_spec(catalog, record.job_id, kept.signature != "")
    if last is None:
        return kept
    if kept.signature and not last.signature:
        if last.entry_point != kept.entry_point and request.entry_point is None:
            raise InvalidInput(
                f"job {kept.job_id!r} was upgraded from {kept.entry_point} to {last.entry_point} "
                f"after snapshot {record.number}, and only the former is signed: name what is to "
                "run, with --entry"
            )
        return kept  # Nothing else that only a result says may be signed.
    # No other field ever changes; a copy in a result may lack the partitions.
    partitions = kept.partitions if last.partitions is None else last.partitions
    return attrs.evolve(kept, entry_point=last.entry_point, partitions=partitions)


def _last_spec(catalog: SnapshotIndex, job_id: str, signed: bool) -> JobSpec | None:
    """Return the newest spec of a job that has ended, as far as that can be told: that in the
    snapshot of its end, else the copy in its result, which is that of its last attempt, else that
    in its newest readable snapshot; None if there is none.

    Args:
        signed: of the specs in snapshots, only those count that the key has signed.
    """
    known = list(reversed(catalog.list(job_id)))
    at_end = (_readable_spec(catalog, one, signed) for one in known if one.at_end)
    if last := next(filter(None, at_end), None):
        return last
    entry = JobResultStore(catalog.backend).get(job_id)
    if entry is not None and entry.result is not None and entry.result.spec is not None:
        return entry.result.spec
    others = (_readable_spec(catalog, one, signed) for one in known if not one.at_end)
    return next(filter(None, others), None)


def _readable_spec(catalog: SnapshotIndex, record: SnapshotRecord, signed: bool) -> JobSpec | None:
    """Return the spec in a snapshot; None if it cannot be read, or is not signed as it has to be.

    Raises:
        Unavailable: it cannot be read now, and a retry could start from this snapshot.
    """
    try:
        stored = _stored_spec(catalog, record)
    except (CorruptRecord, NoSuchSnapshot):
        return None
    except Unavailable:
        if _is_enough(record):
            raise
        return None
    key = catalog.spec_key
    if signed and (key is None or not key.has_signed(stored, SPEC)):
        return None
    return decode(JobSpec, stored, SPEC)


def _is_enough(record: SnapshotRecord) -> bool:
    """Return whether a retry can start from a snapshot of that kind."""
    return record.format.is_restorable and record.output


def _kept_spec(catalog: SnapshotIndex, record: SnapshotRecord) -> JobSpec:
    return decode(JobSpec, _stored_spec(catalog, record), SPEC)


def _stored_spec(catalog: SnapshotIndex, record: SnapshotRecord) -> bytes:
    records = catalog.manifest(record.job_id, record.number).records
    if SPEC not in records:
        raise DamagedSnapshot(str(record), ("it has no spec: there is nothing to start",))
    return as_stored(records[SPEC])


def _retry_from(catalog: SnapshotIndex, record: SnapshotRecord, request: RetryRequest) -> str:
    before = _before(catalog, record, request)
    lineage = Lineage(record.job_id, LineageKind.RETRY, record.number, request.from_stage)
    spec = _spec(before, lineage, request)
    request.check(spec)
    changes: dict[str, Any] = {
        "entry_point": spec.entry_point,
        "arguments": spec.arguments,
        "partitions": spec.partitions,
        "submission": request.submission(record.job_id),
    }
    ids, deadline = _ids(catalog, before, request), Deadline.after(request.timeout)
    new_id = next(ids)
    while True:
        under_way = _under_way(catalog, spec, request)
        if under_way is not None:
            return under_way
        try:
            restore.check_unknown(catalog.backend, new_id)
            restore.restore(
                catalog,
                RestoreRequest(
                    record, new_id, False, False, None, None, request.progress,
                    lineage=lineage, changes=changes,
                ),
            )  # fmt: skip
            return new_id
        except folders.BeingRestored:
            # It may be the same retry by another process: the next id would be a second one.
            if deadline.expired:
                raise
            catalog.sleep(0.05)
        except (DuplicateJob, JobIsRunning):
            if request.as_job is None:
                new_id = next(ids)
            elif _under_way(catalog, spec, request) is None:
                raise


def _spec(before: JobSpec, lineage: Lineage, request: RetryRequest) -> JobSpec:
    """Return the spec of the retry, with the old job's id."""
    arguments = before.arguments if request.arguments is None else request.arguments
    spec = attrs.evolve(
        before,
        entry_point=request.entry_point or before.entry_point,
        arguments=check_json({**arguments, **request.changed}, "the arguments"),
        lineage=lineage,
    )
    if spec.only_in_driver:
        raise InvalidInput(
            f"only its application can run job {before.job_id!r} ({spec.entry_point}), by "
            "driver.run with another job id; or name an entry point that masters can import, with "
            "--entry"
        )
    return spec


def _ids(catalog: SnapshotIndex, before: JobSpec, request: RetryRequest) -> Iterator[str]:
    """Yield the ids that the new job may get. An id that is taken, or where an earlier life has
    left files, is passed over, unless the request names it: a restore would remove these."""
    if request.as_job is not None:
        yield request.as_job
        return
    base, first = before.job_id, 2
    numbered = _NUMBERED.fullmatch(base)
    if numbered and before.lineage is not None and before.lineage.how is LineageKind.RETRY:
        base, first = numbered[1], int(numbered[2]) + 1  # A retry of JOB.2 is JOB.3.
    for number in count(first):
        try:
            new_id = check_job_id(f"{base}.{number}")
        except InvalidInput:
            raise InvalidInput(
                f"{base}.{number} is too long for a job id: name another one with --as"
            ) from None
        if restore.is_unknown(catalog.backend, new_id) and not earlier_life.found(
            catalog.backend, catalog.storage, new_id
        ):
            yield new_id


def _under_way(catalog: SnapshotIndex, spec: JobSpec, request: RetryRequest) -> str | None:
    """Return the job by which the same retry is under way already; complete it if it was
    interrupted.

    Raises:
        WrongState: another retry of the job is under way, and the request names no id; or the
            snapshot that the interrupted one restores was damaged or deleted since.
    """
    others = dict(_begun(catalog.backend, spec.job_id, request))
    asked = request.submission(spec.job_id) if request.as_job is not None else ""
    same = next((new_id for new_id, other in others.items() if _is_same(other, spec, asked)), None)
    if same is None:
        if others and request.as_job is None:
            raise WrongState(
                f"job {spec.job_id!r} is being retried already, in another way, as "
                f"{min(others)!r}; wait for that; or name an id for one more retry, with --as"
            )
        return None
    if restores.stored(catalog.backend, same) is not None:
        try:
            restore.finish(catalog, same, None, None)
        except (folders.BeingRestored, WrongState):
            pass  # Another process is working on it, or has just completed it.
        except (DamagedSnapshot, NoSuchSnapshot) as error:
            # Of that snapshot, whichever the caller would begin from.
            raise WrongState(
                f"the retry of job {spec.job_id!r} was interrupted, and job {same!r} is held until "
                f"its restore is completed, which is not possible: {error}. To begin from an older "
                f"snapshot: jrs cancel {same}, then retry job {spec.job_id!r} again"
            ) from error
    return same


def _begun(backend: Backend, job_id: str, request: RetryRequest) -> Iterator[tuple[str, JobSpec]]:
    """Yield the retries of a job that have not ended, by the id that the request names."""
    results = JobResultStore(backend)
    for other in descendants(backend, job_id):
        new_id = other.descendant
        if other.how is LineageKind.RETRY and request.as_job in (None, new_id):
            key = keys.JOBS + new_id
            stored = restores.spec_of(backend.get(key))
            if stored is not None and not results.has_entry(new_id):
                yield new_id, decode(JobSpec, stored, key)


def _is_same(one: JobSpec, other: JobSpec, asked: str) -> bool:
    """Return whether a retry that is under way does the same as another one.

    Args:
        asked: the digest of the other one, which decides, as it does once the first one has ended;
            empty: the same in other words is the same.
    """
    if asked and submission.is_of_retry(one.submission):
        return one.submission == asked
    return (
        one.entry_point == other.entry_point
        and one.arguments == other.arguments
        and (one.lineage and one.lineage.from_stage) == (other.lineage and other.lineage.from_stage)
    )
