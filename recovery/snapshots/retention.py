"""Retention: which snapshots are kept while a job goes on, and which when it has ended."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, SnapshotInUse, Unavailable
from jrs.contract.operations import Fence
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import JobSpec, JobStatus
from jrs.records.policies import Keep, SnapshotPolicy
from jrs.records.snapshots import SnapshotRecord
from jrs.store.result_store import JobResultStore

from ..cleanup.job_cleanup import Resource
from ..files.job_folders import JobStorage
from . import create, delete, folders, pending_restores, swap
from .catalog import SnapshotCatalog


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
    away: Unavailable | None = None
    for record in doomed:
        try:
            delete.delete(catalog, job_id, record.number, fence)
        except SnapshotInUse:
            continue
        except Unavailable as error:
            away = error  # The storage of this one may not be mounted: the others go all the same.
            continue
        gone.append(record)
    if away is not None:
        raise away
    return gone


class Snapshots(Resource):
    """The job's snapshots: deleted, or kept and listed, by how the job ended and what its spec says
    of that."""

    name = "snapshots"
    prioritised = True
    """The spec says what is to be kept, and goes afterwards."""

    def __init__(self, backend: Backend, storage: JobStorage) -> None:
        self._backend = backend
        self._catalog = SnapshotCatalog(backend, storage)
        self._results = JobResultStore(backend)

    def clean(self, job_id: str) -> None:
        self.clean_fenced(job_id, None)

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        catalog, storage = self._catalog, self._catalog.storage
        create.remove_left_overs(storage, job_id)
        if not self._deletes(job_id):
            return
        # A job that is held by its own restore has ended here, and needs nothing any more.
        begun = {
            restore.source: restore.job_id
            for restore in pending_restores.begun_from(self._backend, job_id)
            if restore.job_id != job_id
        }
        kept = []
        for record in catalog.list(job_id):
            if (other := begun.get(str(record.number))) is None:
                delete.remove(catalog.backend, storage, record, fence)
            else:
                kept.append(
                    f"{record} is what job {other!r} is being restored from; finish that: "
                    f"jrs snapshot restore --finish {other}; or: jrs cancel {other}"
                )
        if kept:
            raise SnapshotInUse("; ".join(kept))
        # What is not listed stays, and fsck names it: it may be all there is of an earlier life.
        if left := folders.unfinished(storage, job_id):
            raise Unavailable(f"a snapshot of {job_id!r} is being taken: {min(left)}")
        for folder in (folders.snapshots(storage, job_id), storage.folder(job_id)):
            try:
                folder.rmdir()
            except OSError:
                break  # Not empty: its output, what is not listed, or what others have to remove.

    def describe(self, job_id: str) -> list[str]:
        if not self._deletes(job_id):
            return []
        return [str(record) for record in self._catalog.list(job_id)]

    def _deletes(self, job_id: str) -> bool:
        entry = self._results.get(job_id)
        spec = self._backend.get(keys.JOBS + job_id)
        if entry is None or entry.result is None or spec is None:
            return False  # How it ended can not be told; or what goes with the spec is gone.
        text = spec.value
        if pending_restores.is_one(spec):  # Canceled while a restore held it.
            try:
                text = swap.kept_spec(spec) or b""
            except CorruptRecord:
                text = b""
            if not text:
                return False
        try:
            policy = decode(JobSpec, text, spec.key).snapshots
        except CorruptRecord:
            return False  # As if it had none: what is to be kept cannot be told.
        at_end = {
            JobStatus.FINISHED: policy.on_finished,
            JobStatus.FAILED: policy.on_failed,
            JobStatus.CANCELED: policy.on_canceled,
        }
        return at_end[entry.result.status] is Keep.DELETE
