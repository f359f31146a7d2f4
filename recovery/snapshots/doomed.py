"""Doomed: snapshots whose files go unless the catalogue lists them.

A snapshot is renamed into place before it is listed, and a deletion removes the entry first. If the
process dies in between, no entry names the files. But files without an entry may be all that is
left: the backend may have been lost, or restored from a backup. So a process notes what it is about
to do in the cluster's own storage, and only what a note names is removed without being asked for::

    <cluster>/.doomed/<job>@<number>-<digest>    the paths of other storages with files, as JSON

A note counts while the catalogue does not have the snapshot.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.snapshots import SnapshotRecord

from ..files import transfer
from ..files.job_folders import JobStorage
from . import folders
from .open import places

_FOLDER = ".doomed"
_NOTE = re.compile(r"([^@]+)@([0-9]{1,10})-([0-9a-f]{64})")


@attrs.frozen
class Doomed:
    """A snapshot that is being listed or deleted, and its note."""

    note: Path
    job_id: str
    number: int
    manifest: str
    """The sha256 of its manifest."""
    storages: tuple[JobStorage, ...]
    """Those that may have files of it, the cluster's own first."""

    def is_listed(self, backend: Backend) -> bool:
        """Return whether the snapshot is in the catalogue."""
        key = keys.snapshot(self.job_id, self.number)
        stored = backend.get(key)
        if stored is None:
            return False
        return decode(SnapshotRecord, stored.value, key).manifest == self.manifest

    def is_in(self, folder: Path) -> bool:
        """Return whether a folder is of this snapshot, and of no other cluster's."""
        try:
            found = (folder / folders.MANIFEST).read_bytes()
        except OSError:
            return False
        return hashlib.sha256(found).hexdigest() == self.manifest

    def folders_in(self, storage: JobStorage) -> list[Path]:
        """Return the folders of this snapshot in a storage."""
        return [
            path for path in folders.of_number(storage, self.job_id, self.number)
            if self.is_in(path)
        ]  # fmt: skip

    def forget(self) -> None:
        """Remove the note: the files are gone, or the snapshot stays."""
        self.note.unlink(missing_ok=True)


def note(own: JobStorage, record: SnapshotRecord) -> Doomed | None:
    """Note that the files of a snapshot go unless it is listed; None if it has none. Durable.

    Raises:
        OSError: the note cannot be written, and nothing else would find files in other storages.
    """
    if record.objects is not None or not own.root.is_dir():
        return None
    others = [str(one.root.parent) for one in places(own, record) if one.root != own.root]
    folder = own.root / _FOLDER
    path = folder / f"{record.job_id}@{record.number}-{record.manifest}"
    try:
        own.make_folder(folder)
        transfer.write(path, json.dumps(others).encode())
        transfer.sync(folder)
    except OSError:
        if others:
            raise
        return None  # Snapshots are also deleted because the disk is full.
    return _read(own, path)


def forget(left: Doomed | None) -> None:
    """Forget a note, if there is one."""
    if left is not None:
        left.forget()


def noted(own: JobStorage) -> Iterator[Doomed]:
    """Yield what is noted."""
    folder = own.root / _FOLDER
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    for name in names:
        if _NOTE.fullmatch(name) and (found := _read(own, folder / name)) is not None:
            yield found


def forget_listed(own: JobStorage, known: Iterable[SnapshotRecord]) -> None:
    """Forget the notes of snapshots whose process died once they were listed. A note of files in
    other storages stays: it may be of a deletion."""
    listed = {(one.job_id, one.number, one.manifest) for one in known}
    for left in noted(own):
        is_listed = (left.job_id, left.number, left.manifest) in listed
        if is_listed and len(left.storages) == 1:
            left.forget()


def half_written(own: JobStorage) -> list[Path]:
    """Return what was written of notes and not completed."""
    return sorted((own.root / _FOLDER).glob(".*"))


# -- inside --------------------------------------------------------------------------------


def _read(own: JobStorage, path: Path) -> Doomed | None:
    """Return a note; None if another process has just removed it."""
    match = _NOTE.fullmatch(path.name)
    assert match is not None
    try:
        roots = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    others = (JobStorage(Path(root), own.root.name) for root in roots)
    return Doomed(path, match[1], int(match[2]), match[3], (own, *others))
