"""The snapshots of an ended job as resources: one of its end is taken, or its snapshots go."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, SnapshotInUse, Unavailable
from jrs.contract.operations import Fence
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import CleanupJournal
from jrs.records.policies import Keep
from jrs.records.snapshots import SnapshotRecord, TakenBy
from jrs.store import restores

from ..files.job_folders import JobStorage
from ..rules.resource import FencedResource, GivenUp
from ..snapshots import delete, folders
from ..snapshots.catalog import SnapshotCatalog
from .ended import ended_job


class KeptForRetry(FencedResource):
    """What a retry of the job would take over: a snapshot of its end, taken before anything is
    removed, unless the job's spec says that nothing is kept.

    Once another resource is removed, the job's state is not whole any more. By then the snapshot is
    listed, or the journal says that the cleanup continues without it.
    """

    name = "what a retry needs"
    prioritised = True
    most_tries = 8
    """With the default policy, two minutes: a full disk may have room by then."""

    def __init__(self, backend: Backend, storage: JobStorage) -> None:
        self._backend = backend
        self._catalog = SnapshotCatalog(backend, storage)

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        if keep_at_end(self._backend, job_id) is not Keep.KEEP or self._removal_has_begun(job_id):
            return
        if any(record.at_end for record in self._catalog.list(job_id)):
            return
        if restores.stored(self._backend, job_id) is not None:
            return  # The job was canceled in the middle of a restore: its source is what is whole.
        try:
            self._catalog.create(job_id, taken_by=TakenBy.SYSTEM, at_end=True, fence=fence)
        except (CorruptRecord, InvalidInput) as error:
            prefixes = (keys.stages(job_id), keys.streams(job_id))
            if any(map(self._backend.damaged_under, prefixes)):
                raise  # A copy of the damaged file brings back what it may have lost.
            raise GivenUp(f"the job cannot be retried from its end: {error}") from error

    def _removal_has_begun(self, job_id: str) -> bool:
        stored = self._backend.get(keys.CLEANUP + job_id)
        done = () if stored is None else decode(CleanupJournal, stored.value, stored.key).done
        return any(name.endswith(" records") for name in done)


class Snapshots(FencedResource):
    """The snapshots that jrs took of the job by itself: deleted or kept, as the job's spec says for
    the way it ended. What a user has taken stays."""

    name = "snapshots"
    prioritised = True
    """The spec says what to keep; it is removed afterwards."""

    def __init__(self, backend: Backend, storage: JobStorage) -> None:
        self._backend = backend
        self._catalog = SnapshotCatalog(backend, storage)

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        catalog, storage = self._catalog, self._catalog.storage
        folders.remove_left_overs(storage, job_id)
        if not self._deletes(job_id):
            return
        kept, doomed = [], self._systems(job_id)
        entries = delete.Entries.of(catalog.backend, doomed)
        for record in doomed:
            try:
                delete.remove(catalog.backend, storage, record, fence, entries)
            except SnapshotInUse as error:
                kept.append(str(error))
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
        return [str(record) for record in self._systems(job_id)]

    def _systems(self, job_id: str) -> list[SnapshotRecord]:
        return [record for record in self._catalog.list(job_id) if record.is_systems]

    def _deletes(self, job_id: str) -> bool:
        return keep_at_end(self._backend, job_id) is Keep.DELETE


def keep_at_end(backend: Backend, job_id: str) -> Keep | None:
    """Return what a job's spec says for the way it ended; None if either is unknown: then nothing
    is deleted, and nothing is taken."""
    job = ended_job(backend, job_id)
    return None if job is None else job.spec.keeps_after(job.result.status)
