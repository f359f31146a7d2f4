"""Deleting snapshots: which may be deleted, in which order, and the blobs that none names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    NoSuchSnapshot,
    SnapshotInUse,
    Unavailable,
)
from jrs.contract.operations import Delete, Fence, Record
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.snapshots import RestoreRecord, SnapshotFormat, SnapshotRecord
from jrs.store import restores
from jrs.store.historian import Historian
from jrs.store.result_store import JobResultStore

from ..files.job_folders import JobStorage
from . import copying, deletion_notes, folders, in_objects, manifest
from .deletion_notes import Doomed
from .index import SnapshotIndex, recorded_if_kept, replace_entry
from .open import places
from .unnamed_blobs import collect


@attrs.frozen
class Entries:
    """Entries of snapshots, and the restores that had begun once the entries had been read.

    A restore that begins later writes a new version of its entry: a deletion of the version that is
    here then raises `Conflict`.
    """

    stored: dict[str, Record | CorruptRecord]
    """By key; only those that exist."""
    begun: list[RestoreRecord]

    @classmethod
    def of(cls, backend: Backend, records: Iterable[SnapshotRecord]) -> Entries:
        """Read the entries, and search once for restores, whose search reads all specs.

        Raises:
            CorruptRecord: what restores have begun cannot be read.
        """
        names = [keys.snapshot(record.job_id, record.number) for record in records]
        found = zip(names, backend.get_many(names) if names else [], strict=True)
        stored = {name: one for name, one in found if one is not None}
        return cls(stored, list(restores.begun(backend)) if stored else [])


def delete(
    catalog: SnapshotIndex,
    job_id: str,
    which: int | str,
    fence: Fence | None = None,
    entries: Entries | None = None,
) -> None:
    """Delete a snapshot that its job does not need; see `SnapshotCatalog.delete` and `remove`."""
    try:
        record = catalog.get(job_id, which)
    except NoSuchSnapshot:
        noted = [one for one in deletion_notes.noted(catalog.storage) if one.job_id == job_id]
        known = folders.whole(catalog.storage, job_id) | {one.number for one in noted}
        number = next((each for each in known if which in (each, str(each))), None)
        if number is None:
            raise
        with _alone(catalog.storage, job_id, number, _any) as found:
            for folder in found:
                catalog.storage.discard(job_id, folder)
        collect(catalog.storage)
        for left in noted:
            if left.number == number:
                complete(catalog.backend, left)
        return
    _check_dispensable(catalog, record)
    remove(catalog.backend, catalog.storage, record, fence, entries)


def remove(
    backend: Backend,
    storage: JobStorage,
    record: SnapshotRecord,
    fence: Fence | None,
    entries: Entries | None = None,
) -> None:
    """Delete a snapshot: its record, then its files, then the blobs that only it named.

    Deleting the record is fenced, so a replaced leader removes nothing. A crash after that leaves
    an unlisted folder and a note, by which `fsck` names it and `gc` removes it; see `doomed`.

    Args:
        entries: those of several snapshots that are deleted one after the other.

    Raises:
        SnapshotInUse: an unfinished restore needs it, or a process reads, copies or writes it.
        CorruptRecord: what restores have begun cannot be read.
        Unavailable: one of its storages is not mounted, or it was moved and the disk of its
            cluster is full; its files would have no record.
        As `SnapshotCatalog.remove`.
    """
    backend.check_current(fence, f"{record} is not deleted")
    key = keys.snapshot(record.job_id, record.number)
    while True:
        if entries is None or key not in entries.stored:
            entries = Entries.of(backend, [record])
        stored = entries.stored.get(key)
        if isinstance(stored, CorruptRecord):
            raise stored
        if stored is not None:
            # It may have been moved since it was read.
            current = decode(SnapshotRecord, stored.value, key)
            if current.created_at != record.created_at:
                return  # It is gone, and its number is another snapshot's.
            record = current
            check_no_source(backend, record, entries.begun)
            copying.check_none(record)
        if storage.objects is not None:
            if _unlist(backend, record, stored, fence):
                in_objects.discard_manifest(storage.objects, record)
                return
            entries = None
            continue
        for place in places(storage, record):
            check_mounted(place, record)
        with ExitStack() as held:
            # Locked first: no process reads an unlisted snapshot, or moves it meanwhile.
            found = [
                (place, held.enter_context(_locked(storage, place, record)))
                for place in _distinct(places(storage, record))
            ]
            note = deletion_notes.note(backend, storage, record, deletion_notes.What.DELETION)
            if not _unlist(backend, record, stored, fence):
                entries = None
                continue
            for place, theirs in found:
                for folder in theirs:
                    place.discard(record.job_id, folder)
        break
    if record.format is SnapshotFormat.CAS:
        for place in places(storage, record):
            collect(place)
    deletion_notes.forget(note)


def _unlist(
    backend: Backend, record: SnapshotRecord, stored: Record | None, fence: Fence | None
) -> bool:
    """Delete the entry of a snapshot, if it has one; return whether it was still as it was read: a
    restore may have begun since, or another process may have moved or deleted it."""
    if stored is None:
        return True
    own, job_id = Delete(stored.key, stored.version), record.job_id
    said = f"snapshot {record.number} was deleted"
    try:
        with recorded_if_kept(Historian.of(backend, fence), job_id, said) as event:
            backend.commit(own, *event, fence=fence)
    except Conflict:
        return False
    return True


def complete(backend: Backend, left: Doomed) -> None:
    """Remove the files of a snapshot that a crash kept from being listed, or from being deleted;
    in other storages also the blobs that no snapshot names. Removes nothing of a listed snapshot,
    and keeps the note while the cluster's own storage has an unlisted folder of that number with
    another manifest, or with a damaged one. Idempotent.

    Raises:
        CorruptRecord: the note, or the entry of that number, is damaged.
        SnapshotInUse: it is being deleted, read or moved.
        Unavailable: a storage is not mounted, or the note cannot be read or removed.
    """
    for storage in left.storages():
        if not storage.root.is_dir():
            raise Unavailable(
                f"{storage.root} is missing and may contain files of snapshot {left.number} of job "
                f"{left.job_id!r}, which was deleted: mount it, or create an empty folder of that "
                "name if it is lost for good"
            )
        with _alone(storage, left.job_id, left.number, left.is_in) as found:
            if left.is_listed(backend):
                left.forget()  # The process died before it had deleted the entry, or behind it.
                return
            for folder in found:
                storage.discard(left.job_id, folder)
        if storage is not left.own:  # Nobody else looks there.
            collect(storage)
            storage.empty_trash()
    unlisted = backend.get(keys.snapshot(left.job_id, left.number)) is None
    if not (unlisted and left.number in folders.whole(left.own, left.job_id)):
        left.forget()


def check_mounted(storage: JobStorage, record: SnapshotRecord) -> None:
    """Raise `Unavailable` if files of a snapshot may be in a storage that is missing now."""
    if not storage.root.is_dir():
        raise Unavailable(
            f"{storage.root} is missing and may contain files of {record}: mount it, or create "
            "an empty folder of that name if it is lost for good; then try again"
        )


def discard(
    catalog: SnapshotIndex, place: JobStorage, record: SnapshotRecord, fence: Fence | None
) -> None:
    """Remove the folders of a listed snapshot from one of its storages. Idempotent.

    Args:
        record: its entry, as it was read.

    Raises:
        SnapshotInUse: a process is writing or reading one of them.
        NoSuchSnapshot: the snapshot was deleted meanwhile.
        WrongState: the entry was changed meanwhile, and may name this storage now.
        Unavailable: one of them cannot be removed now, or it is unknown whose it is.
    """
    with _locked(catalog.storage, place, record) as found:
        replace_entry(catalog, record, fence)  # Under the locks: a move lists its copy under them.
        for folder in found:
            place.discard(record.job_id, folder)


def is_own(own: JobStorage, place: JobStorage, record: SnapshotRecord) -> Callable[[Path], bool]:
    """Return what tells which folders of a snapshot's number in a storage are the snapshot's own.

    In the storage of its cluster these are all, also damaged ones. Several clusters may use another
    storage.
    """
    return _any if place.root == own.root else partial(manifest.is_of, record=record)


def _any(_: Path) -> bool:
    return True


def _locked(
    own: JobStorage, place: JobStorage, record: SnapshotRecord
) -> AbstractContextManager[list[Path]]:
    return _alone(place, record.job_id, record.number, is_own(own, place, record))


@contextmanager
def _alone(
    storage: JobStorage, job_id: str, number: int, is_ours: Callable[[Path], bool]
) -> Iterator[list[Path]]:
    """Lock a snapshot's folders in a storage, so that they can be removed.

    Args:
        is_ours: whether a folder of that number is this snapshot's. One in which a snapshot was
            built is nobody's any more, unless a process has locked it.

    Raises:
        SnapshotInUse: a process is writing or reading one of them.
    """
    building, found = folders.building(storage, job_id, number), []
    with ExitStack() as held:
        for folder in (building, *folders.of_number(storage, job_id, number)):
            if not folder.is_symlink():
                if not folder.is_dir() or (folder != building and not is_ours(folder)):
                    continue
                if not held.enter_context(folders.locked(folder)):
                    if folder.is_dir():
                        raise SnapshotInUse(f"{folder} is being written or read; try again later")
                    continue
            # Another cluster's may have taken its place before it was locked.
            if folder == building or is_ours(folder):
                found.append(folder)
        yield found


def _distinct(storages: Iterable[JobStorage]) -> list[JobStorage]:
    """Return storages without duplicates that have another name."""
    found: list[JobStorage] = []
    for storage in storages:
        if not any(storage.root.samefile(known.root) for known in found):
            found.append(storage)
    return found


def check_no_source(
    backend: Backend, record: SnapshotRecord, begun: Iterable[RestoreRecord]
) -> None:
    """Raise `SnapshotInUse` if one of the restores, which are not complete, needs the snapshot. One
    of a job that has ended is never completed."""
    results, source = JobResultStore(backend), (record.job_id, str(record.number))
    for restore in begun:
        if (restore.from_job, restore.source) == source:
            other = restore.job_id
            if results.has_entry(other):
                continue
            raise SnapshotInUse(
                f"{record} is the source of a restore of job {other!r}; finish that first: "
                f"jrs snapshot restore --finish {other}; or: jrs cancel {other}"
            )


# -- inside --------------------------------------------------------------------------------


def _check_dispensable(catalog: SnapshotIndex, record: SnapshotRecord) -> None:
    """Raise `SnapshotInUse` if a job could not be recovered without it."""
    backend, job_id = catalog.backend, record.job_id
    ended = any(backend.get(prefix + job_id) for prefix in (keys.RESULTS, keys.TOMBSTONES))
    lives = not ended and backend.get(keys.JOBS + job_id) is not None
    if not lives or not record.format.is_restorable or record.for_fork:
        return
    newer = [each for each in catalog.list(job_id) if each.number > record.number]
    if any(_replaces(each, record) and _is_whole(catalog, each, record) for each in newer):
        return
    if _is_whole(catalog, record, None):
        raise SnapshotInUse(
            f"{record} is the newest that its job could resume from, and the job has not ended; "
            "take another one first"
        )


def _replaces(newer: SnapshotRecord, record: SnapshotRecord) -> bool:
    """Return whether a job can resume from a newer snapshot wherever it can from an older one: one
    without output is refused once the job has published another batch."""
    lasts = newer.format.is_restorable and not newer.for_fork
    return lasts and (newer.output or not record.output)


def _is_whole(
    catalog: SnapshotIndex, record: SnapshotRecord, instead_of: SnapshotRecord | None
) -> bool:
    """Return whether a job could resume from a snapshot; `instead_of`: at least as well as from
    this older one, and the contents of the files are not read."""
    try:
        if instead_of is None:
            catalog.verify_usable(record.job_id, record.number)
        else:
            catalog.verify_instead_of(record, instead_of)
    except (CorruptRecord, NoSuchSnapshot):
        return False
    return True
