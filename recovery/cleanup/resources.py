"""The resources of every job: its processes, staging, records and snapshots."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline

from ..files.job_folders import JobStorage
from ..processes import left_running
from ..rules.resource import Resource
from .half_published import HalfPublished
from .job_objects import JobObjects
from .job_records import RecoveryRecords, Spec
from .publications import Publications
from .sink_leftovers import SinkLogs
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


def default_resources(backend: Backend, storage: JobStorage) -> list[Resource]:
    """Return the resources of every job."""
    publications: list[Resource] = []
    in_objects: list[Resource] = []
    if storage.objects is not None:
        publications = [Publications(backend, storage.objects)]
        in_objects = [JobObjects(backend, storage.objects)]
    return [
        Processes(backend),
        KeptForRetry(backend, storage),
        # Both before the objects: what is published are copies of these, and snapshots name them.
        *publications,
        Snapshots(backend, storage),
        *in_objects,
        HalfPublished(backend),
        Staging(storage),
        SinkLogs(storage),
        RecoveryRecords(backend),
        Spec(backend),
    ]
