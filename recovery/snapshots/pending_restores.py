"""Restores that are under way, or were cut off: what is in the place of a job's spec."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, UnsupportedVersion
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.snapshots import RestoreRecord


def read(spec: Record) -> RestoreRecord | None:
    """Return the restore that has taken the place of a spec, if one has.

    Raises:
        CorruptRecord: one has, and cannot be read.
    """
    return decode(RestoreRecord, spec.value, spec.key) if is_one(spec) else None


def is_one(spec: Record) -> bool:
    """Return whether a restore has taken the place of a spec, readable or not."""
    return spec.value.startswith(b'{"jrs":"restore/')


def of_job(backend: Backend, job_id: str) -> RestoreRecord | None:
    """Return the restore of a job that is under way, or was cut off."""
    stored = backend.get(keys.JOBS + job_id)
    return None if stored is None else read(stored)


def begun_from(backend: Backend, job_id: str) -> Iterator[RestoreRecord]:
    """Yield the restores from a job's snapshots that are under way, or were cut off.

    Raises:
        UnsupportedVersion: a newer jrs has begun one, and nobody knows from what.
    """
    for stored in backend.scan(keys.JOBS):
        try:
            restore = read(stored)
        except UnsupportedVersion:
            raise
        except CorruptRecord:
            continue  # Nobody can finish it, whatever it is from.
        if restore is not None and restore.from_job == job_id:
            yield restore
