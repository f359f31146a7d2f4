"""Doomed: snapshots in other storages that are being deleted.

A deletion removes the entry first. If the process dies behind that, no entry names what is left. In
the cluster's own storage it is found all the same; but other clusters may use another storage, too,
and nothing there is removed on a guess. So the deletion is noted in the cluster's own storage::

    <cluster>/.doomed/<job>@<number>-<digest>    the paths of the other storages, as JSON

A note counts once the catalogue no longer has the snapshot.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
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
    """A snapshot that may have files in other storages, and its note."""

    note: Path
    job_id: str
    number: int
    manifest: str
    """The sha256 of its manifest."""
    storages: tuple[JobStorage, ...]

    def is_listed(self, backend: Backend) -> bool:
        """Return whether the snapshot is in the catalogue: its deletion has not come that far."""
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

    def forget(self) -> None:
        """Remove the note: the files are gone, or the snapshot stays."""
        self.note.unlink(missing_ok=True)


def note(own: JobStorage, record: SnapshotRecord) -> Doomed | None:
    """Note that a snapshot is being deleted; None if it has no files in another storage. Durable.

    Raises:
        OSError: the note cannot be written.
    """
    others = [str(one.root.parent) for one in places(own, record) if one.root != own.root]
    if not others or not own.root.is_dir():
        return None
    folder = own.root / _FOLDER
    own.make_folder(folder)
    path = folder / f"{record.job_id}@{record.number}-{record.manifest}"
    transfer.write(path, json.dumps(others).encode())
    transfer.sync(folder)
    return _read(own, path)


def noted(own: JobStorage) -> Iterator[Doomed]:
    """Yield what is noted."""
    folder = own.root / _FOLDER
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    for name in names:
        if _NOTE.fullmatch(name) and (found := _read(own, folder / name)) is not None:
            yield found


def half_written(own: JobStorage, until: float) -> list[Path]:
    """Return what was written of notes until a time, in seconds since 1970, and not completed."""
    found = []
    for path in sorted((own.root / _FOLDER).glob(".*")):
        with suppress(FileNotFoundError):  # It has just been completed.
            if path.stat().st_mtime <= until:
                found.append(path)
    return found


# -- inside --------------------------------------------------------------------------------


def _read(own: JobStorage, path: Path) -> Doomed | None:
    """Return a note; None if another process has just removed it."""
    match = _NOTE.fullmatch(path.name)
    assert match is not None
    try:
        roots = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    storages = tuple(JobStorage(Path(root), own.root.name) for root in roots)
    return Doomed(path, match[1], int(match[2]), match[3], storages)
