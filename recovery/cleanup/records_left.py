"""Records that jobs need only while they run, of jobs that have ended: after a forced cleanup. And
events that were recorded while their job's result was expired."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from jrs.contract.backend import Backend
from jrs.contract.operations import Absent
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.history import HistoryKind
from jrs.records.model import Tombstone
from jrs.store import history

from ..files.job_folders import JobStorage
from .half_published import HalfPublished
from .job_records import delete_records
from .publications import Publications

_PAGE = 256


def records_left(backend: Backend) -> dict[str, list[str]]:
    """Return the keys of these records by job, also of jobs that never were. A job whose own
    records cannot be read has perhaps not ended, and is left out.

    Raises:
        Unavailable: the backend did not answer.
    """
    left: dict[str, list[str]] = {}
    over: dict[str, bool] = {}
    for prefix in keys.WHILE_IT_RUNS:
        found = backend.scan(prefix)
        while page := [record.key for record in islice(found, _PAGE)]:
            new = [one for one in dict.fromkeys(map(keys.job_of, page)) if one not in over]
            over.update(_are_over(backend, new))
            for key in page:
                if over[keys.job_of(key)]:
                    left.setdefault(keys.job_of(key), []).append(key)
    for key in _told_of_expired(backend):
        left.setdefault(keys.job_of(key), []).append(key)
    return left


def _told_of_expired(backend: Backend) -> Iterator[str]:
    """Yield the keys of the events of jobs whose results were expired."""
    found = backend.scan(keys.HISTORY)
    while page := [record.key for record in islice(found, _PAGE)]:
        jobs = list(dict.fromkeys(map(keys.job_of, page)))
        tombstones = backend.get_many([keys.TOMBSTONES + job_id for job_id in jobs])
        expired = {one for one, stone in zip(jobs, tombstones, strict=True) if stone is not None}
        yield from (key for key in page if keys.job_of(key) in expired)


def _are_over(backend: Backend, job_ids: list[str]) -> dict[str, bool]:
    asked = [(job_id, key) for job_id in job_ids for key in _unfinished(job_id)]
    found = backend.get_many([key for _, key in asked])
    there = {job_id for (job_id, _), one in zip(asked, found, strict=True) if one is not None}
    return {job_id: job_id not in there for job_id in job_ids}


def _unfinished(job_id: str) -> list[str]:
    """Return the keys of which a job has one until it is cleaned up."""
    return [prefix + job_id for prefix in (*keys.UNFINISHED, keys.DIRTY)]


def over_since(backend: Backend, job_id: str) -> float | None:
    """Return when a job's result was expired or, if it is kept, was marked clean, in seconds since
    1970; None if that is unknown.

    Raises:
        CorruptRecord: a record cannot be read.
        Unavailable: the backend did not answer.
    """
    if backend.get(keys.RESULTS + job_id) is None:
        tombstone = backend.get(keys.TOMBSTONES + job_id)
        return (
            decode(Tombstone, tombstone.value, tombstone.key).expired_at
            if tombstone is not None
            else None
        )
    events = history.read(backend, job_id)
    return max((event.at for event in events if event.kind == HistoryKind.CLEAN), default=None)


def remove(backend: Backend, job_id: str, names: list[str]) -> None:
    """Remove records of a job by their keys, unless the job has not ended. Durable, idempotent.

    Raises:
        Conflict: the job has not ended, or is not cleaned up.
        CorruptRecord: a key may be damaged.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    delete_records(backend, names, None, tuple(map(Absent, _unfinished(job_id))))


def half_published(backend: Backend, storage: JobStorage | None, job_id: str) -> list[str]:
    """Return what a job has begun to publish; only its records name that."""
    begun = HalfPublished(backend).describe(job_id)
    if storage is not None and storage.objects is not None:
        begun += Publications(backend, storage.objects).describe(job_id)
    return begun
