"""The resources of every job: its processes, staging, records and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import Conflict, CorruptRecord
from jrs.contract.operations import Delete, Fence, Op
from jrs.records import keys
from jrs.store import heads

from ..files.job_folders import JobStorage
from ..processes import left_running
from ..rules.resource import FencedResource, Resource
from .half_published import HalfPublished
from .job_objects import JobObjects
from .publications import Publications
from .sink_leftovers import SinkLogs
from .snapshots import KeptForRetry, Snapshots

_ONE_FOR_EACH_STAGE = (keys.HEADS, keys.STAGES, keys.STREAMS, keys.PLANS, keys.INPUTS)
_ONE_EACH = (
    keys.ATTEMPTS,
    keys.FENCES,
    keys.REFERENCES,
    keys.CANCEL,
    keys.STOPS,
    keys.RESTORES,
)


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


class _Records(FencedResource):
    """Records of the job; `describe` returns their keys. They are deleted in few commits."""

    records_only = True

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        delete_records(self._backend, self.describe(job_id), fence)

    def _stored(self, wanted: Sequence[str]) -> list[str]:
        """Return the keys that have a record.

        Raises:
            CorruptRecord: the record of a key cannot be read.
        """
        found = self._backend.get_many(wanted)
        for one in found:
            if isinstance(one, CorruptRecord):
                raise one
        return [key for key, one in zip(wanted, found, strict=True) if one is not None]


def delete_records(
    backend: Backend, names: Iterable[str], fence: Fence | None, conditions: Sequence[Op] = ()
) -> None:
    """Delete records by their keys; those that are gone are no error. Durable.

    Args:
        conditions: operations of each commit.

    Raises:
        Conflict: a condition does not hold.
        CorruptRecord: a key may be damaged.
        Fenced: a newer leader exists.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    left, most = list(names), backend.capabilities.max_ops - len(conditions)
    while left:
        try:
            backend.commit(*conditions, *map(Delete, left[:most]), fence=fence)
        except Conflict as conflict:
            if conflict.op in conditions:
                raise
            left.remove(conflict.op.key)  # It is gone already.
        else:
            del left[:most]


class Records(_Records):
    """The records with which the job would be recovered: all but its spec."""

    name = "recovery records"
    """In every version, names of records end like this: see `KeptForRetry`."""

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        # An interrupted restore, which ends here, may have taken batches back.
        heads.give_up_restore(self._backend, job_id, fence)
        super().clean_fenced(job_id, fence)

    def describe(self, job_id: str) -> list[str]:
        below = (
            record.key
            for prefix in _ONE_FOR_EACH_STAGE
            for record in self._backend.scan(f"{prefix}{job_id}/")
        )
        return [*below, *self._stored([prefix + job_id for prefix in _ONE_EACH])]


class Spec(_Records):
    """The job's spec. It goes last: a dirty result alone keeps the job from being started."""

    name = "jobs records"
    last = True

    def describe(self, job_id: str) -> list[str]:
        return self._stored([keys.JOBS + job_id])


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
        Records(backend),
        Spec(backend),
    ]
