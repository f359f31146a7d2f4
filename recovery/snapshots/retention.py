"""Retention: which snapshots are kept while a job goes on, and which when it has ended."""

from __future__ import annotations

import enum
import math

import attrs

from jrs.backend import Backend, Fence
from jrs.errors import InvalidInput, SnapshotInUse, Unavailable
from jrs.model import JobStatus
from jrs.recovery.cleanup import Resource
from jrs.recovery.snapshots import deleting, folders, taking
from jrs.recovery.snapshots.catalog import SnapshotCatalog
from jrs.recovery.storage import JobStorage
from jrs.snapshots import SnapshotRecord
from jrs.store import JobResultStore


class Keep(enum.Enum):
    """What becomes of a job's snapshots when it ends."""

    KEEP = "keep"
    """They stay listed, until somebody deletes them."""
    DELETE = "delete"


def _count(instance: object, attribute: object, value: int | None) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise InvalidInput(f"keep must be a whole number of at least 1, or None, not {value!r}")


def _age(instance: object, attribute: object, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise InvalidInput(f"max_age must be a number of seconds, or None, not {value!r}")


@attrs.frozen
class SnapshotPolicy:
    """How long snapshots are kept.

    While the job goes on, those that somebody has named are kept, and so is the newest one that it
    could go on from, whatever its age.
    """

    keep: int | None = attrs.field(default=None, validator=_count)
    """The most to keep; None for any number."""
    max_age: float | None = attrs.field(default=None, validator=_age)
    """Seconds after which one is deleted; None for never."""
    on_finished: Keep = attrs.field(default=Keep.DELETE, converter=Keep)
    on_failed: Keep = attrs.field(default=Keep.KEEP, converter=Keep)
    on_canceled: Keep = attrs.field(default=Keep.KEEP, converter=Keep)

    def at_end(self, status: JobStatus) -> Keep:
        """Return what becomes of the snapshots of a job that ended with `status`."""
        return {
            JobStatus.FINISHED: self.on_finished,
            JobStatus.FAILED: self.on_failed,
            JobStatus.CANCELED: self.on_canceled,
        }[status]


def retain(
    catalog: SnapshotCatalog, job_id: str, policy: SnapshotPolicy, *, fence: Fence | None = None
) -> list[SnapshotRecord]:
    """Delete what the policy does not keep of a job that goes on; return what was deleted.

    Idempotent. What is in use is left for the next time.

    Raises:
        Fenced: a newer leader exists.
        Unavailable: from the backend or the disk; repeat it.
    """
    known = [each for each in catalog.list(job_id) if each.name is None]
    doomed = known[: -policy.keep] if policy.keep is not None else []
    if policy.max_age is not None:
        eldest = catalog.now() - policy.max_age
        doomed += [each for each in known if each.created_at < eldest and each not in doomed]
    gone = []
    for record in doomed:
        try:
            deleting.delete(catalog, job_id, record.number, fence)
        except SnapshotInUse:
            continue
        gone.append(record)
    return gone


class Snapshots(Resource):
    """The job's snapshots: deleted, or kept and listed, by how the job ended."""

    name = "snapshots"

    def __init__(
        self, backend: Backend, storage: JobStorage, policy: SnapshotPolicy | None = None
    ) -> None:
        self._catalog = SnapshotCatalog(backend, storage)
        self._results = JobResultStore(backend)
        self._policy = policy or SnapshotPolicy()

    def clean(self, job_id: str) -> None:
        catalog, storage = self._catalog, self._catalog.storage
        taking.remove_left_overs(storage, job_id)
        if not self._deletes(job_id):
            return
        for record in catalog.list(job_id):
            deleting.remove(catalog.backend, storage, record, None)
        for number in folders.whole(storage, job_id):
            deleting.discard(storage, job_id, number)  # Not listed: a crash has left it.
            deleting.collect(storage)
        if left := folders.unfinished(storage, job_id):
            raise Unavailable(f"a snapshot of {job_id!r} is being taken: {min(left)}")
        for folder in (folders.snapshots(storage, job_id), storage.folder(job_id)):
            try:
                folder.rmdir()
            except OSError:
                break  # Its output is in it, or what other resources have to remove.

    def describe(self, job_id: str) -> list[str]:
        if not self._deletes(job_id):
            return []
        listed = [str(record) for record in self._catalog.list(job_id)]
        storage = self._catalog.storage
        numbers = {record.number for record in self._catalog.list(job_id)}
        others = sorted(folders.whole(storage, job_id) - numbers)
        return listed + [str(folders.snapshot(storage, job_id, number)) for number in others]

    def _deletes(self, job_id: str) -> bool:
        entry = self._results.get(job_id)
        if entry is None or entry.result is None:
            return False  # How it ended can not be told.
        return self._policy.at_end(entry.result.status) is Keep.DELETE
