"""Looking after a cluster, from a client: checks, repairs, what may go, its storage and format."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jrs.client.connection import Connection
from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, NoSuchResult, ResultIsDirty, Unavailable, WrongState
from jrs.contract.formats import NEWEST_FORMAT
from jrs.contract.texts import counted
from jrs.records import keys
from jrs.records.checks import check_job_id
from jrs.records.cluster import StorageRecord
from jrs.records.history import HistoryKind
from jrs.recovery.cleanup.garbage import GarbageReport, collect_garbage
from jrs.recovery.files.disk_errors import check_answers
from jrs.recovery.files.known_storage import known_storage
from jrs.recovery.files.storage_identity import recorded_storage
from jrs.recovery.inspect.fsck import FsckReport, fsck
from jrs.recovery.inspect.restore_epoch import restore_cluster_records, restore_epoch
from jrs.store import applications, cluster_history
from jrs.store.cluster_format import ClusterFormat, format_of, raise_format
from jrs.store.result_store import JobResultStore


class ClusterUpkeep:
    """The calls of a `Client` that look after the cluster; its base class."""

    _connection: Connection
    backend: Backend
    results: JobResultStore

    def fsck(self) -> FsckReport:
        """Check the whole cluster for damage, unreadable records and left-overs. Changes nothing.

        Where the storage of the jobs is known, their files are checked, too. What cannot be read of
        it now counts as damage.
        """
        connection = self._connection
        try:
            storage = connection.storage_to_check()
        except Unavailable:
            check_answers(self.backend)
            storage = known_storage(self.backend, connection.named_storage, check=False)
        return fsck(self.backend, storage)

    def expire(self, *ids: str) -> list[str]:
        """Delete the clean results of jobs; return their ids, each once, in order.

        The ids stay used forever: a tombstone is left. Durable, idempotent. Of several results, one
        that must not be deleted any more when its turn comes stays, and its id is not returned. To
        delete all old results, use `results.expire`.

        Raises:
            NoSuchResult: one of the jobs has not ended. Nothing was changed.
            ResultIsDirty: the cleanup of one of the jobs has not ended. Nothing was changed.
            WrongState: the application of one of the jobs has not ended. Nothing was changed.
            CorruptRecord: the disk has perhaps lost the result of one. Nothing was changed.
            AccessDenied: the backend forbids it. Those before are gone, also after other errors
                that concern the whole cluster; repeat the call.
        """
        return list(self.expiring(*ids))

    def expiring(self, *ids: str) -> Iterator[str]:
        """Do what `expire` does; yield each id once its result is gone.

        Raises:
            As `expire`: what it says of unchanged results, at once.
        """
        wanted = sorted({check_job_id(id) for id in ids})
        for id in wanted:
            if not self.results.has_entry(id):
                raise NoSuchResult(f"job {id!r} has no result to delete")
            if self.results.has_dirty(id):
                raise ResultIsDirty(f"the result of job {id!r} is dirty: its cleanup has not ended")
            entry = self.results.get(id)
            if entry is not None and entry.result is not None:
                applications.check_unneeded(self.backend, entry.result)
        return cluster_history.recording_expired(self.backend, self._deleting(wanted))

    def _deleting(self, wanted: list[str]) -> Iterator[str]:
        for id in wanted:
            try:
                self.results.delete(id)
            except (NoSuchResult, ResultIsDirty, WrongState, Conflict):
                # It has changed since it was checked. Others may be gone already.
                if len(wanted) == 1:
                    raise
            else:
                yield id

    def gc(self, *, older_than: float = 86400.0, dry_run: bool = False) -> GarbageReport:
        """Remove what nothing needs any more; return what was removed.

        It removes the outputs of jobs whose result was expired; what crashes have left of
        snapshots, restores and deletions; files and records that ended jobs have left; and blobs
        that no snapshot names. It keeps what an unfinished job reads, and what a listed snapshot
        needs. It also keeps the folders of unknown jobs, and names them. Idempotent; safe while
        masters run.

        Args:
            older_than: seconds for which something has to have been garbage.
            dry_run: find it only.

        Raises:
            InvalidInput: no storage is known, or `older_than` is not a number of seconds.
            WrongState: the store is older than the storage, or the storage than the store.
            Unavailable: the backend does not answer.

        Example::

            for garbage in client.gc(dry_run=True).removed:
                print(garbage.path, garbage.size, garbage.why)
        """
        return collect_garbage(self._connection.snapshots_to_change(), older_than, dry_run=dry_run)

    def accept_damage(self) -> list[str]:
        """Discard damaged parts of the backend's log, and the commits that depend on them.

        Permanent. Return the text of the discarded parts, as far as it can still be read. Stop all
        masters and clients of the cluster first: they may have read what is damaged now.

        Raises:
            WrongState: a master leads, and may have read what is damaged now: stop all masters.
                Nothing was changed.
            Unavailable: the backend does not answer; repeat the call.
        """
        accepted = list(self.backend.accept_damage())
        if accepted:
            said = f"damage was accepted: {counted(len(accepted), 'part', 'parts')} of the log"
            cluster_history.record(self.backend, HistoryKind.UPKEEP, said)
        return accepted

    def restore_epoch(self) -> int | None:
        """Restore a damaged or lost epoch, and the cluster's other damaged records (its storage, a
        pause, a switchover), so that masters can lead again.

        Return the epoch that was written; None if there was nothing to restore. Durable,
        idempotent.
        """
        storage = self._connection.storage_to_check()
        epoch = restore_epoch(self.backend, storage)
        restored = restore_cluster_records(self.backend, storage)
        if epoch is not None:
            restored.insert(0, keys.EPOCH)
        if restored:
            said = f"records were restored: {', '.join(restored)}"
            cluster_history.record(self.backend, HistoryKind.UPKEEP, said)
        return epoch

    def storage(self) -> StorageRecord | None:
        """Return the storage that the cluster has recorded; None if it has recorded none yet.

        Raises:
            CorruptRecord: the record cannot be read.
        """
        return recorded_storage(self.backend)

    def adopt_storage(self) -> StorageRecord:
        """Make the client's storage the cluster's, whatever was recorded; return the new record.

        For storage that was moved without its marker, or for an older copy of which you accept what
        is missing. Durable, idempotent.

        Raises:
            WrongState: a master runs, or the store is older than the storage. Nothing was changed.
            InvalidInput: no storage is known, or the cluster's format is older than 5.
        """
        adopted = self._connection.adopt_storage()
        said = f"the storage was adopted: {adopted.path}"
        cluster_history.record(self.backend, HistoryKind.UPKEEP, said)
        return adopted

    def cluster_format(self) -> ClusterFormat:
        """Return the format of the cluster's records; see docs/upgrading.md.

        Raises:
            CorruptRecord: its record cannot be read.
        """
        return ClusterFormat(format_of(self.backend))

    def raise_cluster_format(
        self, *, progress: Callable[[int], None] = lambda done: None
    ) -> ClusterFormat:
        """Raise the cluster's format to the newest; return what it was. Permanent, idempotent.

        Args:
            progress: called now and then with the number of results that have been looked at.

        Raises:
            WrongState: a running master does not know the newest format. Nothing was changed.
            OutcomeUnknown: repeat the call.
        """
        before = raise_format(self.backend, progress=progress)
        if before < NEWEST_FORMAT:
            said = f"the format was raised from {before} to {NEWEST_FORMAT}"
            cluster_history.record(self.backend, HistoryKind.UPKEEP, said)
        return ClusterFormat(before)
