"""The resources of every job: its processes, staging, records and snapshots."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import Conflict
from jrs.contract.operations import Delete, Fence, Record
from jrs.records import keys
from jrs.store import heads

from ..files.job_folders import JobStorage
from ..processes import left_running
from ..rules.resource import Resource
from .half_published import HalfPublished
from .job_objects import JobObjects
from .publications import Publications
from .sink_logs import SinkLogs
from .snapshots import KeptForRetry, Snapshots


class Processes(Resource):
    """The job's attempts on this host. Nothing is deleted while one of them runs."""

    name = "processes"
    prioritised = True

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def clean(self, job_id: str) -> None:
        left_running.end(self._backend, job_id, Deadline.after(30.0))

    def describe(self, job_id: str) -> list[str]:
        return [f"process {pid}" for pid in left_running.find(self._backend, job_id)]


class Staging(Resource):
    """The job's epoch folders and temporary output. Its logs stay: retention removes them."""

    name = "staging"

    def __init__(self, storage: JobStorage) -> None:
        self._storage = storage

    def clean(self, job_id: str) -> None:
        self._storage.sweep(job_id)
        self._storage.remove_empty(job_id)

    def describe(self, job_id: str) -> list[str]:
        return [str(path) for path in self._storage.left_in_staging(job_id)]


class Records(Resource):
    """The job's records under a prefix of the map."""

    records_only = True

    def __init__(self, backend: Backend, prefix: str, *, last: bool = False) -> None:
        self.last = last
        self.name = f"{prefix.rstrip('/')} records"
        self._backend = backend
        self._prefix = prefix

    def clean(self, job_id: str) -> None:
        self.clean_fenced(job_id, None)

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        for record in list(self._records(job_id)):
            try:
                self._backend.commit(Delete(record.key), fence=fence)
            except Conflict:
                pass  # It is gone already.

    def describe(self, job_id: str) -> list[str]:
        return [record.key for record in self._records(job_id)]

    def _records(self, job_id: str) -> list[Record]:
        exact = self._backend.get(self._prefix + job_id)
        below = self._backend.scan(f"{self._prefix}{job_id}/")
        return [*([exact] if exact else ()), *below]


class Heads(Records):
    """The heads of the job's streams. The job's generation stays with the result, for readers."""

    prioritised = True  # An interrupted restore, which is removed later, changes them.

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, keys.HEADS)

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        heads.give_up_restore(self._backend, job_id, fence)
        super().clean_fenced(job_id, fence)


def default_resources(backend: Backend, storage: JobStorage) -> list[Resource]:
    """Return the resources of every job.

    The spec comes last by convention: a dirty result alone keeps the job from being started.
    """
    in_objects: list[Resource] = []
    if storage.objects is not None:
        # In this order: what is published are copies of the objects.
        in_objects = [Publications(backend, storage.objects), JobObjects(backend, storage.objects)]
    return [
        Processes(backend),
        KeptForRetry(backend, storage),
        *in_objects,
        HalfPublished(backend),
        Staging(storage),
        SinkLogs(storage),
        Snapshots(backend, storage),
        Records(backend, keys.STAGES),
        Records(backend, keys.ATTEMPTS),
        Records(backend, keys.FENCES),
        Records(backend, keys.STREAMS),
        Heads(backend),
        Records(backend, keys.PLANS),
        Records(backend, keys.INPUTS),
        Records(backend, keys.REFERENCES),
        Records(backend, keys.CANCEL),
        Records(backend, keys.STOPS),
        Records(backend, keys.RESTORES),
        Records(backend, keys.JOBS, last=True),
    ]
