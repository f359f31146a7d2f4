"""What is wrong with the objects of a cluster: what records name and the store does not have."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.records.model import ResultState
from jrs.records.objects import OutputIndex, StoredObject
from jrs.store.result_store import JobResultStore

from ..cleanup.job_objects import index_in
from ..files.job_folders import JobStorage
from ..storage.objects import Objects
from ..storage.roots import Named, index_of


def missing(backend: Backend, storage: JobStorage) -> Iterator[str]:
    """Yield a line for each manifest that a record names and that is missing or has another size,
    and for each list of the output of a job that has ended; nothing where the storage has no
    objects.

    One request for each manifest; what it names is checked when it is read.

    Raises:
        Unavailable: from the backend or the store.
    """
    if storage.objects is None:
        return
    for job_id in storage.jobs():
        try:
            index = index_in(storage.objects, job_id)
            if index is None and _has_lost_index(backend, storage.objects, job_id):
                yield (
                    f"{storage.objects.url}/{index_of(job_id)} is missing; without it, nothing "
                    f"names the output of job {job_id!r}, which has ended"
                )
            for named in _named(backend, storage.objects, job_id, index):
                found = storage.objects.stat(named.name)
                if found is None or found.size != named.size:
                    how = "is missing" if found is None else "was changed"
                    yield f"{storage.objects.url}/{named.name} {how}; job {job_id!r} needs it"
        except CorruptRecord as error:
            yield f"job {job_id!r}: {error}"


def _named(
    backend: Backend, objects: Objects, job_id: str, index: OutputIndex | None
) -> Iterator[StoredObject]:
    found = Named.by_records(backend, objects, job_id)
    for each in (found, *(() if index is None else (Named.by_index(index),))):
        yield from each.manifests()


def _has_lost_index(backend: Backend, objects: Objects, job_id: str) -> bool:
    """Return whether a job without a list of its output has had one. Retention empties the list
    first, and removes it behind all other objects."""
    entry = JobResultStore(backend).get(job_id)
    if entry is None or entry.state is not ResultState.CLEAN or entry.result is None:
        return False
    has_output = any(stage.has_output for stage in entry.result.stages)
    return has_output and next(iter(objects.under(job_id)), None) is not None
