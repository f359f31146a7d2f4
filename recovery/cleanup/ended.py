"""What the cleanup of a job depends on: its spec, and how it ended."""

from __future__ import annotations

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.codec import decode_once
from jrs.records.model import JobResult, JobSpec
from jrs.store import restores
from jrs.store.stored_result import result_in


@attrs.frozen
class EndedJob:
    """A job that has ended, as far as it can be read."""

    spec: JobSpec
    stored_spec: bytes
    """The spec, as it is stored: signatures are of these bytes."""
    result: JobResult


def ended_job(backend: Backend, job_id: str) -> EndedJob | None:
    """Return an ended job, by one request; None if its spec or its result is gone, or is not what
    this version can read.

    Raises:
        CorruptRecord: the disk has lost its spec.
        Unavailable: the backend did not answer.
    """
    spec, stored = backend.get_many([keys.JOBS + job_id, keys.RESULTS + job_id])
    if isinstance(spec, CorruptRecord):
        raise spec
    found = restores.readable_spec(spec)
    if found is None or not isinstance(stored, Record):
        return None
    try:
        return EndedJob(*found, result_in(stored, decode_once))
    except CorruptRecord:
        return None
