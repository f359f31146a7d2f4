"""What is wrong with the objects of a cluster: what records name and the store does not have."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.records.objects import StoredObject

from ..cleanup.job_objects import index_in
from ..files.job_folders import JobStorage
from ..storage.objects import Objects
from ..storage.roots import Named


def missing(backend: Backend, storage: JobStorage) -> Iterator[str]:
    """Yield a line for each manifest that a record names and that is missing or has another size;
    nothing where the storage has no objects.

    One request for each manifest; what it names is checked when it is read.

    Raises:
        Unavailable: from the backend or the store.
    """
    if storage.objects is None:
        return
    for job_id in storage.jobs():
        try:
            for named in _named(backend, storage.objects, job_id):
                found = storage.objects.stat(named.name)
                if found is None or found.size != named.size:
                    how = "is missing" if found is None else "was changed"
                    yield f"{storage.objects.url}/{named.name} {how}; job {job_id!r} needs it"
        except CorruptRecord as error:
            yield f"job {job_id!r}: {error}"


def _named(backend: Backend, objects: Objects, job_id: str) -> Iterator[StoredObject]:
    found = Named.by_records(backend, objects, job_id)
    index = index_in(objects, job_id)
    for each in (found, *(() if index is None else (Named.by_index(index),))):
        yield from each.manifests()
