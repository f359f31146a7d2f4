"""Snapshots where the storage has objects: a list of what the records name, and no copy.

The objects never change, and stay while a snapshot names them. So to take a snapshot costs one
small object and one commit, and to restore one only a commit: the next attempt fetches the
checkpoint that its head names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jrs.contract.errors import CorruptRecord, DamagedSnapshot, WrongState
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import StageRecord
from jrs.records.objects import BatchManifest, OutputManifest, StoredFile
from jrs.records.snapshots import Manifest, SnapshotRecord

from ..storage.objects import Objects
from ..storage.packed_copies import contents, read_record


def manifest_of(objects: Objects, record: SnapshotRecord) -> Manifest:
    """Return the manifest of a snapshot.

    Raises:
        DamagedSnapshot: it is missing, or was changed.
        Unavailable: from the store.
    """
    if record.objects is None:
        raise DamagedSnapshot(str(record), ("it was taken in a storage without objects",))
    try:
        return read_record(objects, Manifest, record.objects)
    except CorruptRecord as error:
        raise DamagedSnapshot(str(record), (str(error),)) from None


def check(
    objects: Objects,
    record: SnapshotRecord,
    *,
    thorough: bool,
    progress: Callable[[int, int], None],
) -> None:
    """Raise `DamagedSnapshot` if an object that a snapshot needs is missing, or was changed.

    Args:
        thorough: compare every byte; False compares sizes only.
    """
    found = manifest_of(objects, record)
    problems: list[str] = []
    files: dict[str, list[StoredFile]] = {}
    try:
        for one in files_in(objects, found):
            files.setdefault(one.object, []).append(one)
    except CorruptRecord as error:
        raise DamagedSnapshot(str(record), (str(error),)) from None
    for done, (name, inside) in enumerate(files.items()):
        progress(done, len(files))
        try:
            if thorough:
                contents(objects, inside)
            else:
                _check_size(objects, name, inside)
        except CorruptRecord as error:
            problems.append(str(error))
    progress(len(files), len(files))
    if problems:
        raise DamagedSnapshot(str(record), tuple(problems))


def files_in(objects: Objects, found: Manifest, *, rows: bool = True) -> Iterator[StoredFile]:
    """Yield the files of the checkpoints that a snapshot names, and of finished stages; and the
    rows of the newest batch of each stream."""
    for named in (*found.heads.values(), *found.plans.values()):
        newest = read_record(objects, BatchManifest, named)
        yield from newest.checkpoint
        if rows:
            yield from newest.files
    for key, stored in found.stored(keys.STAGES):
        stage = decode(StageRecord, stored, key)
        if stage.manifest is not None:
            yield from read_record(objects, OutputManifest, stage.manifest).files


def refuse(what: str) -> WrongState:
    """Return the error of what snapshots in objects cannot do."""
    return WrongState(
        f"{what} is not possible where the storage has objects: snapshots there can be created, "
        "listed, verified, deleted and restored"
    )


# -- inside --------------------------------------------------------------------------------


def _check_size(objects: Objects, name: str, inside: list[StoredFile]) -> None:
    found = objects.stat(name)
    if found is None:
        raise CorruptRecord(f"{objects.url}/{name} is missing")
    if found.size < max(one.offset + one.size for one in inside):
        raise CorruptRecord(f"{objects.url}/{name} is shorter than its files")
