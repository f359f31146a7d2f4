"""What is stored of a result, and what a reader makes of a stored record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, WrongState
from jrs.contract.operations import Record
from jrs.contract.texts import when
from jrs.records import keys
from jrs.records.checks import MAX_PAYLOAD, check_json
from jrs.records.codec import decode, encode
from jrs.records.model import JobResult, JobResultEntry, JobSpec, JobStatus, ResultState, Tombstone


def stored_form(result: JobResult, limit: int) -> tuple[JobResult, bytes]:
    """Return what is stored of a result, and its bytes: without its optional parts if it is over
    `limit` bytes.

    The backend refuses the form if it is still over the limit then.

    Raises:
        TooLarge: the payload is over `MAX_PAYLOAD`.
    """
    for form in _forms(result):
        data = encode(form)
        if len(data) > MAX_PAYLOAD:
            check_json(result.payload, f"the result of job {result.job_id!r}")
        if len(data) <= limit:
            break
    return form, data


def _forms(result: JobResult) -> Iterator[JobResult]:
    """Yield a result, first whole and then with fewer and fewer optional parts."""
    yield result
    if result.spec is not None:
        cut = bool(result.spec.arguments) or result.arguments_left_out
        result = attrs.evolve(result, spec=bare(result.spec), arguments_left_out=cut)
        yield result
    left_out = result.attempts_left_out + len(result.attempts)
    result = attrs.evolve(result, attempts=(), attempts_left_out=left_out)
    yield result
    left_out = result.stages_left_out + len(result.stages)
    result = attrs.evolve(result, stages=(), stages_left_out=left_out)
    yield result
    if result.failure is not None:
        result = attrs.evolve(result, failure=attrs.evolve(result.failure, detail=""))
        yield result
    yield attrs.evolve(result, spec=None)


def bare(spec: JobSpec) -> JobSpec:
    """Return what the smaller forms of a result keep of a spec."""
    return JobSpec(
        spec.job_id,
        spec.entry_point,
        submitted_at=spec.submitted_at,
        submitted_by=spec.submitted_by,
        tags=spec.tags,
        submission=spec.submission,
    )


ENTRY = (keys.RESULTS, keys.DIRTY, keys.TOMBSTONES)
"""The prefixes of the records that make an entry, in the order in which they are read: a result and
its marker are created together, and the marker is only ever removed later, so a result without a
marker is clean. A tombstone takes the place of a result."""

Stored = Record | CorruptRecord | None


def stored_entry(backend: Backend, job_id: str) -> JobResultEntry | None:
    """Return the entry of a job, by one request; None if the job has no result.

    Raises:
        CorruptRecord: it cannot be read whether the result is dirty.
        Unavailable: the backend did not answer.
    """
    record, marker, tombstone = backend.get_many([prefix + job_id for prefix in ENTRY])
    if isinstance(record, Record) and isinstance(marker, CorruptRecord):
        raise marker
    return entry_in(job_id, record, marker, tombstone)


def entry_in(
    job_id: str, record: Stored, marker: Stored, tombstone: Stored
) -> JobResultEntry | None:
    """Return the entry that the records of `ENTRY` make: a dirty one if the marker cannot be read,
    and one with a `problem` if the result or the tombstone in its place cannot. The disk may have
    lost that record, or it never was there; so the job is neither expired nor without a result. It
    has ended for certain if the result's marker is there."""
    found = tombstone if record is None else record
    if isinstance(found, CorruptRecord):
        lost = not isinstance(marker, Record)
        return JobResultEntry(job_id, ResultState.DIRTY, None, str(found), uncertain=lost)
    if found is None:
        return None
    if found is tombstone:
        return expired_entry_of(found)
    return entry_of(found, ResultState.CLEAN if marker is None else ResultState.DIRTY)


def check_certain(entry: JobResultEntry | None) -> None:
    """Raise `CorruptRecord` unless it is known whether the job of an entry has ended."""
    if entry is not None and entry.uncertain:
        raise CorruptRecord(f"job {entry.job_id!r} may have ended, or not: {entry.problem}")


def entry_of(record: Record, state: ResultState) -> JobResultEntry:
    """Return the entry in a record; an unreadable record makes an entry with a `problem`."""
    job_id = keys.job_of(record.key)
    try:
        return JobResultEntry(job_id, state, result_in(record))
    except CorruptRecord as error:
        return JobResultEntry(job_id, state, None, str(error))


def result_in(
    record: Record, read: Callable[[type[JobResult], bytes, str], JobResult] = decode
) -> JobResult:
    """Return the result in a record.

    Args:
        read: `decode`, or `decode_once` for a leader.

    Raises:
        CorruptRecord: it cannot be read, or is of another job.
    """
    result = read(JobResult, record.value, record.key)
    if result.job_id != keys.job_of(record.key):
        raise CorruptRecord(f"{record.key}: holds the result of {result.job_id!r}")
    return result


def expired_entry_of(record: Record) -> JobResultEntry:
    """Return the entry of an expired result, with its tombstone if that can be read."""
    try:
        tombstone = decode(Tombstone, record.value, record.key)
    except CorruptRecord:
        tombstone = None  # It still keeps the job from running again; fsck names it.
    return JobResultEntry(keys.job_of(record.key), ResultState.EXPIRED, None, tombstone=tombstone)


def refuse_ended(entry: JobResultEntry | None, what: str) -> None:
    """Raise `WrongState`, which says how the job of an entry ended, if there is one.

    Args:
        what: what cannot be done any more.

    Raises:
        CorruptRecord: it is not known whether the job has ended.
    """
    if entry is not None:
        said = how_it_ended(entry)
        raise WrongState(f"job {entry.job_id!r} {said}; there is nothing to {what}")


def how_it_ended(entry: JobResultEntry) -> str:
    """Return how and when the job of an entry ended, for a message: "has FINISHED at …".

    Raises:
        CorruptRecord: it is not known whether the job has ended.
    """
    check_certain(entry)
    status = entry.status
    if status is None:
        return "has ended, and its result cannot be read"
    how = f"has {status.value}" if status is JobStatus.FINISHED else f"is {status.value}"
    at = f" since {when(entry.finished_at)}" if entry.finished_at else ""
    if status is JobStatus.FINISHED:
        at = at.replace(" since ", " at ")
    gone = ", and its result was expired" if entry.state is ResultState.EXPIRED else ""
    return how + at + gone
