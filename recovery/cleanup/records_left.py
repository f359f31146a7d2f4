"""Records that jobs need only while they run, of jobs that have ended: after a forced cleanup."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.records import keys

from ..files.job_folders import JobStorage
from .half_published import HalfPublished
from .publications import Publications


def records_left(backend: Backend) -> dict[str, list[str]]:
    """Return the keys of these records by job, also of jobs that never were.

    Raises:
        Unavailable: the backend did not answer.
    """
    left: dict[str, list[str]] = {}
    for prefix in keys.WHILE_IT_RUNS:
        for record in backend.scan(prefix):
            job_id = keys.job_of(record.key)
            if not any(backend.get(one + job_id) for one in (*keys.UNFINISHED, keys.DIRTY)):
                left.setdefault(job_id, []).append(record.key)
    return left


def half_published(backend: Backend, storage: JobStorage | None, job_id: str) -> list[str]:
    """Return what a job has begun to publish; only its records name that."""
    begun = HalfPublished(backend).describe(job_id)
    if storage is not None and storage.objects is not None:
        begun += Publications(backend, storage.objects).describe(job_id)
    return begun
