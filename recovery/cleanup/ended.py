"""What the cleanup of a job depends on: its spec, and how it ended."""

from __future__ import annotations

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.records import keys
from jrs.records.model import JobResult, JobSpec
from jrs.store import restores
from jrs.store.stored_result import ENTRY, entry_in


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
    spec, *stored = backend.get_many([prefix + job_id for prefix in (keys.JOBS, *ENTRY)])
    if isinstance(spec, CorruptRecord):
        raise spec
    entry, found = entry_in(job_id, *stored), restores.readable_spec(spec)
    if entry is None or entry.result is None or found is None:
        return None
    return EndedJob(*found, entry.result)
