"""Restores that are under way, or were cut off: what is in the place of a job's spec."""

from __future__ import annotations

from jrs import keys
from jrs.backend import Backend, Record
from jrs.codec import decode
from jrs.snapshots import RestoreRecord


def read(spec: Record) -> RestoreRecord | None:
    """Return the restore that has taken the place of a spec, if one has.

    Raises:
        CorruptRecord: one has, and can not be read.
    """
    return decode(RestoreRecord, spec.value, spec.key) if is_one(spec) else None


def is_one(spec: Record) -> bool:
    """Return whether a restore has taken the place of a spec, readable or not."""
    return spec.value.startswith(b'{"jrs":"restore/')


def of_job(backend: Backend, job_id: str) -> RestoreRecord | None:
    """Return the restore of a job that is under way, or was cut off."""
    stored = backend.get(keys.JOBS + job_id)
    return None if stored is None else read(stored)
