"""Pending restores: the records that interrupted or running restores leave in a spec's place."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, UnsupportedVersion
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.snapshots import RestoreRecord


def read(spec: Record) -> RestoreRecord | None:
    """Return the restore that has taken the place of a spec; None if none has.

    Raises:
        CorruptRecord: a restore has, and its record cannot be read.
    """
    return decode(RestoreRecord, spec.value, spec.key) if is_one(spec) else None


def is_one(spec: Record) -> bool:
    """Return whether a restore has taken the place of a spec, readable or not."""
    return spec.value.startswith(b'{"jrs":"restore/')


def of_job(backend: Backend, job_id: str) -> RestoreRecord | None:
    """Return the job's restore that is in progress or was interrupted; None if there is none."""
    stored = backend.get(keys.JOBS + job_id)
    return None if stored is None else read(stored)


def begun_from(backend: Backend, job_id: str) -> Iterator[RestoreRecord]:
    """Yield the restores from a job's snapshots that are in progress or were interrupted.

    Raises:
        UnsupportedVersion: a newer jrs has begun a restore, and its source is unknown.
    """
    for stored in backend.scan(keys.JOBS):
        try:
            restore = read(stored)
        except UnsupportedVersion:
            raise
        except CorruptRecord:
            continue  # No process can finish it, whatever its source is.
        if restore is not None and restore.from_job == job_id:
            yield restore
