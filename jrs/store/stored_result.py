"""What is stored of a result, and what a reader makes of a stored record."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.checks import MAX_PAYLOAD, check_json
from jrs.records.codec import decode, encode
from jrs.records.model import JobResult, JobResultEntry, ResultState


def stored_form(result: JobResult, limit: int) -> bytes:
    """Return the stored form of a result, without its optional parts if it is over `limit` bytes.

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
    return data


def _forms(result: JobResult) -> Iterator[JobResult]:
    """Yield a result, first whole and then with fewer and fewer optional parts."""
    yield result
    left_out = result.stages_left_out + len(result.stages)
    result = attrs.evolve(result, stages=(), stages_left_out=left_out)
    yield result
    if result.failure is not None:
        yield attrs.evolve(result, failure=attrs.evolve(result.failure, detail=""))


def entry_of(record: Record, state: ResultState) -> JobResultEntry:
    """Return the entry in a record; an unreadable record makes an entry with a `problem`."""
    job_id = keys.job_of(record.key)
    try:
        result = decode(JobResult, record.value, record.key)
        if result.job_id != job_id:
            raise CorruptRecord(f"{record.key}: holds the result of {result.job_id!r}")
    except CorruptRecord as error:
        return JobResultEntry(job_id, state, None, str(error))
    return JobResultEntry(job_id, state, result)
