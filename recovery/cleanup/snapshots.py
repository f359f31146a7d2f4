"""Snapshots: the snapshots of a job as a resource, deleted or kept when the job has ended."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.errors import SnapshotInUse, Unavailable
from jrs.contract.operations import Fence
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import JobSpec, JobStatus
from jrs.records.policies import Keep
from jrs.store import restores
from jrs.store.result_store import JobResultStore

from ..files.job_folders import JobStorage
from ..rules.resource import Resource
from ..snapshots import create, delete, folders
from ..snapshots.catalog import SnapshotCatalog


class Snapshots(Resource):
    """The job's snapshots: deleted or kept, as its spec says for the way the job ended."""

    name = "snapshots"
    prioritised = True
    """The spec says what to keep; it is removed afterwards."""

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
        # A job that is held by its own restore has ended here and needs nothing more.
        begun = {
            restore.source: restore.job_id
            for restore in restores.begun_from(self._backend, job_id)
            if restore.job_id != job_id
        }
        kept = []
        for record in catalog.list(job_id):
            if (other := begun.get(str(record.number))) is None:
                delete.remove(catalog.backend, storage, record, fence)
            else:
                kept.append(
                    f"{record} is the source of a restore of job {other!r}; finish the restore: "
                    f"jrs snapshot restore --finish {other}; or: jrs cancel {other}"
                )
        if kept:
            raise SnapshotInUse("; ".join(kept))
        # An unlisted folder stays, and fsck names it: an earlier life may have left only that.
        if left := folders.unfinished(storage, job_id):
            raise Unavailable(f"a snapshot of {job_id!r} is being taken: {min(left)}")
        for folder in (folders.snapshots(storage, job_id), storage.folder(job_id)):
            try:
                folder.rmdir()
            except OSError:
                break  # Not empty: output, an unlisted folder, or others' files.

    def describe(self, job_id: str) -> list[str]:
        if not self._deletes(job_id):
            return []
        return [str(record) for record in self._catalog.list(job_id)]

    def _deletes(self, job_id: str) -> bool:
        entry = self._results.get(job_id)
        spec = restores.spec_of(self._backend.get(keys.JOBS + job_id))
        if entry is None or entry.result is None or spec is None:
            return False  # It is unknown how it ended, or what to keep: as if it had no policy.
        policy = decode(JobSpec, spec, keys.JOBS + job_id).snapshots
        at_end = {
            JobStatus.FINISHED: policy.on_finished,
            JobStatus.FAILED: policy.on_failed,
            JobStatus.CANCELED: policy.on_canceled,
        }
        return at_end[entry.result.status] is Keep.DELETE
