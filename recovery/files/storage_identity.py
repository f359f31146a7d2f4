"""The identity of a storage: a cluster's records and its jobs' files belong together.

The cluster records the storage that its leaders use, by a random id. The storage holds a marker
with the same id, and the epochs that led with it::

    <storage>/<cluster>/.storage/id       a `StorageMarker`
    <storage>/<cluster>/.storage/e57      epoch 57 has led with this storage; the newest is kept
    <storage>/<cluster>/.storage/n12      the ends of jobs were counted 12 times; the newest is kept

So another folder is noticed, and so is a copy: a store that was restored from an older backup is
behind the epochs in its storage, and an older copy of the storage is behind its store. Within an
epoch the count tells: while jobs end, the leader counts now and then, first in the record, then in
the marker. So the marker's count is never ahead of a store that lost nothing, and behind it by one
at most, after a crash in between.

Both halves are written by the leader, under its fence: first the record, which is not ``marked``
yet, then the marker, then the record again. A crash in between leaves nothing to guess: only the id
of the record ever becomes a marker's. Epochs and counts are files of their own, because a leader
that was replaced may still write its own, and the newest one counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, WrongState
from jrs.contract.operations import Fence, create_or_update
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.storage_place import WORK, StoragePlace
from jrs.contract.texts import counted
from jrs.records import keys
from jrs.records.cluster import StorageMarker, StorageRecord
from jrs.records.codec import decode, encode
from jrs.store.cluster_format import is_at_least, too_old
from jrs.store.masters import newest_epoch

from .disk_errors import reading
from .job_folders import JobStorage
from .storage_marker import COUNT, EPOCH, marker_of

_FORMAT = 5


class StorageIdentity:
    """The identity of one storage, seen from one cluster."""

    def __init__(self, backend: Backend, storage: JobStorage) -> None:
        self._backend = backend
        self._marked = marker_of(storage)
        self._path = str(storage.place)
        self._adoption = f"jrs storage --adopt --storage {self._path}"
        self._work = str(storage.place.root) if storage.place.url else ""

    def check(self, *, to_lead: bool = False) -> None:
        """Check that this is the storage that the cluster has recorded, if it has recorded one.

        Args:
            to_lead: check as well that this host has the folder that is recorded for the copies of
                objects: Spark records the paths of what it reads, and finds only those again.

        Raises:
            InvalidInput: it is another one; the message names both.
            CorruptRecord: the record, or the marker, is damaged.
            OSError: the marker cannot be read now.
        """
        self._check_is(record := self.recorded())
        if to_lead:
            self._check_work(record)

    def check_epoch(self, epoch: int | None = None) -> None:
        """Check that neither the store nor the storage is older than the other.

        Args:
            epoch: of the caller's own leadership; None: of the newest leadership in the store.

        Raises:
            WrongState: one of them is; the message has both epochs and what to do.
            CorruptRecord: the record cannot be read.
        """
        for problem in self._out_of_step(epoch):
            raise WrongState(problem)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong, one line each. Raises `Unavailable` if that cannot be told now."""
        with reading(f"looking at {self._path}"):
            try:
                self.check()
            except InvalidInput as error:
                yield str(error)
            except CorruptRecord as error:
                yield str(error)
                return
            yield from self._out_of_step(None)

    def record_use(self, fence: Fence, master: str, now: float) -> None:
        """Record, as the leader, that the cluster uses this storage; write its marker and epoch.

        Durable, idempotent, and safe to interrupt anywhere. Does nothing in a cluster of an older
        format that has recorded no storage.

        Raises:
            InvalidInput: the cluster uses another storage, or this one is another cluster's.
            WrongState: the store, or the storage, is older than the other.
            CorruptRecord: the record, or the marker, cannot be read.
            Fenced: a newer leader exists.
            Unavailable, OutcomeUnknown: from the backend; repeat the call.
        """
        record = self.recorded()
        if record is None and not is_at_least(self._backend, _FORMAT):
            return
        self.check_epoch(fence.epoch)
        if record is None:
            if (marker := self._marker()) is not None:
                raise InvalidInput(
                    f"{self._path} is the storage of cluster {marker.cluster!r} at "
                    f"{marker.backend}, and {self._here()} has recorded no storage yet: name "
                    f"another folder, or, if this is the same cluster: {self._adoption}"
                )
            record = StorageRecord(
                uuid.uuid4().hex, self._path, recorded_at=now, recorded_by=master
            )
            self._put(record, fence)
        self._check_is(record)
        self._check_work(record)
        if not record.marked and self._marker() is None:
            self._mark(record)
        self._marked.add(EPOCH, fence.epoch)
        here = attrs.evolve(record, path=self._path, work=self._work)
        self._put(attrs.evolve(here, marked=True, epoch=fence.epoch), fence)

    def count(self, fence: Fence) -> None:
        """Count, as the leader, that jobs have ended since it counted last.

        Durable, and safe to interrupt anywhere. Does nothing if the cluster has recorded no
        storage.

        Raises:
            CorruptRecord: the record cannot be read.
            OSError: the marker cannot be written; the next call mends that.
            Fenced: a newer leader exists.
            Unavailable, OutcomeUnknown: from the backend or the storage; repeat the call.
        """
        record = self.recorded()
        if record is None or not record.marked:
            return
        if self._marked.newest(COUNT) < record.count:
            self._marked.add(COUNT, record.count)  # The last call was interrupted in between.
        count = record.count + 1
        self._put(attrs.evolve(record, count=count), fence)
        self._marked.add(COUNT, count)

    def adopt(self, by: str, now: float) -> StorageRecord:
        """Make this the storage of the cluster, whatever was recorded; return the new record.

        For operators, while no master runs. Durable; idempotent.

        Raises:
            WrongState: the store is older than this storage; the message says what to do.
            InvalidInput: the cluster has an older format, or the marker cannot be written.
            Conflict: another process changed the record at the same moment.
        """
        if why := too_old(self._backend, _FORMAT, "the record of a storage"):
            raise InvalidInput(why)
        used, epoch = self.epoch(), self._newest_epoch()
        if (problem := self._older_store(used, epoch)) is not None:
            raise WrongState(problem)
        before, count = self.recorded(), self._marked.newest(COUNT)
        count = count if before is None else max(count, before.count)
        marker, work = self._marker(), self._kept_work()
        id = uuid.uuid4().hex if marker is None else marker.id
        record = StorageRecord(id, self._path, work=work, recorded_at=now, recorded_by=by)
        if marker is None:
            try:
                self._mark(record)
            except OSError as error:
                raise InvalidInput(f"{self._path} cannot be written: {error.strerror}") from None
        for kind, number in ((EPOCH, epoch), (COUNT, count)):
            if number:
                self._marked.add(kind, number)
        record = attrs.evolve(record, marked=True, epoch=epoch, count=count)
        self._put(record, None)
        return record

    def is_ahead(self) -> bool:
        """Return whether the marker has counted more ends than the record: the store is older.
        Raises as `check`."""
        return self._ahead() is not None

    def accept_count(self) -> None:
        """Take the marker's count over into the record, for an operator who accepts the older
        store. Durable, idempotent. Raises as `is_ahead`, and as `Backend.commit`."""
        record, ahead = self.recorded(), self._ahead()
        if record is not None and ahead is not None:
            self._put(attrs.evolve(record, count=ahead[0]), None)

    def recorded(self) -> StorageRecord | None:
        """Return what `recorded_storage` does."""
        return recorded_storage(self._backend)

    def marked(self) -> StorageRecord | None:
        """Return the record that fits the storage's marker; None if it has no marker.

        Raises:
            CorruptRecord: the marker cannot be read.
        """
        marker = self._marker()
        if marker is None:
            return None
        count = self._marked.newest(COUNT)
        return StorageRecord(marker.id, self._path, marked=True, epoch=self.epoch(), count=count)

    def epoch(self) -> int:
        """Return the newest epoch that has led with this storage, as far as its marker tells."""
        return self._marked.newest(EPOCH)

    # -- inside ----------------------------------------------------------------------------

    def _check_is(self, record: StorageRecord | None) -> None:
        if record is None:
            return
        marker = self._marker()
        if marker is None and record.marked:
            raise InvalidInput(
                f"{self._path} is not the storage of {self._here()}: it has no marker. The "
                f"cluster's storage is {record.id[:8]} at {record.path}: name that with --storage "
                f"or JRS_STORAGE; if it was moved here without its marker: {self._adoption}"
            )
        if marker is not None and marker.id != record.id:
            raise InvalidInput(
                f"{self._path} is not the storage of {self._here()}, but storage {marker.id[:8]} "
                f"of cluster {marker.cluster!r} at {marker.backend}. The cluster's storage is "
                f"{record.id[:8]} at {record.path}: name that with --storage or JRS_STORAGE"
            )

    def _check_work(self, record: StorageRecord | None) -> None:
        if record is not None and record.work and record.work != self._work:
            raise InvalidInput(
                f"the hosts of {self._here()} keep copies of its objects in {record.work}, and "
                f"this one would in {self._work}: set {WORK}={Path(record.work).parent} here"
            )

    def _kept_work(self) -> str:
        """Return the recorded folder of the hosts, while jobs have not ended whose checkpoints
        name it."""
        with suppress(CorruptRecord):
            if self._work and next(self._backend.scan(keys.JOBS, limit=1), None) is not None:
                return "" if (record := self.recorded()) is None else record.work
        return ""

    def _out_of_step(self, epoch: int | None) -> Iterator[str]:
        # A leader that takes over meanwhile must not look like a restored backup. It counts in the
        # store, then in the marker, then in the record; so they are read the other way round.
        record = self.recorded()
        used, count = self.epoch(), self._marked.newest(COUNT)
        newest = self._newest_epoch()
        if newest == epoch:
            newest -= 1  # The backend has just issued it to the caller.
        if (problem := self._older_store(used, newest)) is not None:
            yield problem
        if record is None or not record.marked:
            return
        if 0 < used < record.epoch:
            was = (f"it was used up to epoch {used}", f"up to epoch {record.epoch}")
        elif 0 < count < record.count - 1:  # A crash may have left it behind by one.
            was = (f"it has counted the ends of jobs {_times(count)}", _times(record.count))
        else:
            return
        yield (
            f"{self._path} is an older copy of the storage of {self._here()}: {was[0]}, and the "
            f"cluster's storage {was[1]}, at {record.path}. Name the newer copy; or, to go without "
            f"what is missing here: stop all masters, then: {self._adoption}"
        )

    def _older_store(self, used: int, newest: int) -> str | None:
        if used > newest:
            was = f"is at epoch {newest}, but its storage {self._path} was used up to epoch {used}"
        elif (ahead := self._ahead()) is not None:
            was = (
                f"has counted the ends of jobs {_times(ahead[1])}, but its storage {self._path} "
                f"{_times(ahead[0])}"
            )
        else:
            return None
        return (
            f"{self._here()} {was}: the store is older than the files. It may have been restored "
            "from a backup, so that jobs that have ended since would run again: restore the newer "
            "backup of the store; or, to accept that loss: stop all masters, then: "
            "jrs fsck --repair"
        )

    def _ahead(self) -> tuple[int, int] | None:
        """Return the counts of the marker and of the record if the marker's is larger."""
        count = self._marked.newest(COUNT)
        record = self.recorded()  # After the marker: the leader counts in the record first.
        if record is None or count <= record.count:
            return None
        marker = self._marker()
        return (count, record.count) if marker is not None and marker.id == record.id else None

    def _newest_epoch(self) -> int:
        """Return the newest epoch of the store; 0 if it has none that can be read."""
        return 0 if (newest := newest_epoch(self._backend)) is None else newest.epoch

    def _here(self) -> str:
        return f"cluster {self._backend.cluster!r} at {self._backend.url}"

    def _marker(self) -> StorageMarker | None:
        data = self._marked.read()
        return None if data is None else decode(StorageMarker, data, f"{self._path}/…/id")

    def _mark(self, record: StorageRecord) -> None:
        """Write the marker; it appears whole."""
        here = self._backend
        self._marked.write(encode(StorageMarker(record.id, here.cluster, here.url)))

    def _put(self, record: StorageRecord, fence: Fence | None) -> None:
        stored = self._backend.get(keys.STORAGE)
        value = encode(record)
        if stored is not None and stored.value == value:
            return
        operation = create_or_update(keys.STORAGE, value, stored and stored.version)
        commit_and_read_back(self._backend, operation, fence=fence)


def _times(count: int) -> str:
    return counted(count, "time", "times")


def recorded_storage(backend: Backend) -> StorageRecord | None:
    """Return the storage that the cluster has recorded; None if it has recorded none. Raises
    `CorruptRecord` if the record is damaged."""
    stored = backend.get(keys.STORAGE)
    return None if stored is None else decode(StorageRecord, stored.value, stored.key)


def storage_of(backend: Backend, place: StoragePlace) -> JobStorage:
    """Return the storage of a cluster at a place.

    Objects may have been moved to another bucket or prefix. The hosts keep using the recorded
    folder for the copies, which is called by the first place: Spark has recorded paths there.
    """
    if place.url:
        with suppress(CorruptRecord):  # It waits for an operator; see `Master`.
            record = recorded_storage(backend)
            if record is not None and Path(record.work).parent == place.root.parent:
                place = attrs.evolve(place, root=Path(record.work))
    return JobStorage(place, backend.cluster)
