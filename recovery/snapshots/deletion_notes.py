"""Doomed: snapshots whose files go unless the catalogue lists them.

A snapshot is renamed into place before it is listed, and a deletion removes the entry first. If the
process dies in between, no entry names the files. But files without an entry may be all that is
left: the backend may have been lost, or restored from a backup. So a process notes what it is about
to do in the cluster's own storage, and only what a note names is removed without being asked for::

    <cluster>/.doomed/<job>@<number>-<digest>.<what>-<life>

The note of a deletion has the paths of other storages with files, as JSON. A note counts while the
catalogue does not have the snapshot, and only for the life of the job in which it was made: a job
that was submitted again has another one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import JobSpec, Tombstone
from jrs.records.snapshots import SnapshotRecord
from jrs.store.result_store import JobResultStore

from ..files import transfer
from ..files.disk_errors import reading, writing
from ..files.job_folders import JobStorage
from ..files.safe_listing import names_in
from . import folders
from .open import places

_FOLDER = ".doomed"
_NOTE = re.compile(r"([^@]+)@([0-9]{1,10})-([0-9a-f]{64})\.(listing|deletion)-([0-9]+|unknown)")


class What(Enum):
    """What a process is about to do."""

    LISTING = "listing"
    DELETION = "deletion"


@attrs.frozen
class Doomed:
    """A snapshot that is being listed or deleted, and its note."""

    note: Path
    job_id: str
    number: int
    manifest: str
    """The sha256 of its manifest."""
    what: What
    life: str
    own: JobStorage

    def is_listed(self, backend: Backend) -> bool:
        """Return whether the snapshot is in the catalogue."""
        key = keys.snapshot(self.job_id, self.number)
        stored = backend.get(key)
        if stored is None:
            return False
        return decode(SnapshotRecord, stored.value, key).manifest == self.manifest

    def is_older(self, until: float) -> bool:
        """Return whether it was noted before a moment, in seconds since 1970."""
        try:
            return self.note.stat().st_mtime <= until
        except FileNotFoundError:
            return False  # Another process has just completed it.

    def counts(self, backend: Backend) -> bool:
        """Return whether the files may go: the job is the one that the note was made of."""
        return self.life == _life(backend, self.job_id) != _UNKNOWN

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

    def storages(self) -> tuple[JobStorage, ...]:
        """Return the storages that may have files of it, the cluster's own first.

        Raises:
            CorruptRecord: the note is damaged.
            Unavailable: it cannot be read now.
        """
        with reading(f"reading {self.note}"):
            try:
                roots = json.loads(self.note.read_bytes() or b"[]")
            except FileNotFoundError:
                roots = []  # Another process has just completed it.
            except ValueError as error:
                raise CorruptRecord(f"{self.note}: not a note of jrs: {error}") from None
        others = (JobStorage(Path(root), self.own.root.name) for root in roots)
        return (self.own, *others)

    def forget(self) -> None:
        """Remove the note: the files are gone, or the snapshot stays. Not durable: a note that
        comes back is forgotten by the next snapshot, or by `gc`.

        Raises:
            Unavailable: it cannot be removed.
        """
        with writing(f"removing {self.note}"):
            self.note.unlink(missing_ok=True)


def note(backend: Backend, own: JobStorage, record: SnapshotRecord, what: What) -> Doomed | None:
    """Note that the files of a snapshot go unless it is listed; None if it has none. Durable, but
    for a deletion without files elsewhere: without its note `gc` only names them.

    Raises:
        Unavailable: the note cannot be written, and nothing else would find files in other
            storages; or from the backend.
    """
    if record.objects is not None or not own.root.is_dir():
        return None
    others = [str(one.root.parent) for one in places(own, record) if one.root != own.root]
    folder = own.root / _FOLDER
    name = f"{record.job_id}@{record.number}-{record.manifest}"
    path = folder / f"{name}.{what.value}-{_life(backend, record.job_id)}"
    try:
        if not folder.is_dir():
            own.make_folder(folder)
        if others:
            transfer.write(path, json.dumps(others).encode())
        else:
            path.touch(mode=0o600)
        if others or what is What.LISTING:
            transfer.sync(folder)
    except OSError as error:
        if others:
            raise Unavailable(
                f"noting that {record} has files in {', '.join(others)} failed: {error}"
            ) from error
        return None  # Snapshots are also deleted because the disk is full.
    return _read(own, path.name)


def forget(left: Doomed | None) -> None:
    """Forget a note, if there is one, and that is possible."""
    if left is not None:
        with suppress(Unavailable):
            left.forget()


def noted(own: JobStorage) -> Iterator[Doomed]:
    """Yield what is noted.

    Raises:
        Unavailable: the notes cannot be listed now.
    """
    for name in names_in(own.root / _FOLDER):
        if (found := _read(own, name)) is not None:
            yield found


def forget_listed(own: JobStorage, job_id: str, known: Iterable[SnapshotRecord]) -> None:
    """Forget the notes of snapshots of a job whose process died once they were listed. A note that
    cannot be removed stays."""
    listed = {(one.number, one.manifest) for one in known}
    with suppress(Unavailable):
        for left in noted(own):
            is_listed = left.job_id == job_id and (left.number, left.manifest) in listed
            if is_listed and left.what is What.LISTING:
                forget(left)


def half_written(own: JobStorage) -> list[Path]:
    """Return what was written of notes and not completed."""
    return sorted((own.root / _FOLDER).glob(".*"))


# -- inside --------------------------------------------------------------------------------

_UNKNOWN = "unknown"


def _read(own: JobStorage, name: str) -> Doomed | None:
    """Return a note by its name; None if it is none."""
    found = _NOTE.fullmatch(name)
    if found is None:
        return None
    path, what = own.root / _FOLDER / name, What(found[4])
    return Doomed(path, found[1], int(found[2]), found[3], what, found[5], own)


def _life(backend: Backend, job_id: str) -> str:
    """Return what tells the lives of a job apart: when it was submitted, in milliseconds since
    1970, or 0 if its records do not say that."""
    try:
        if (stored := backend.get(keys.JOBS + job_id)) is not None:
            return _milliseconds(decode(JobSpec, stored.value, stored.key).submitted_at)
        entry = JobResultStore(backend).get(job_id)
        if entry is not None and entry.result is not None:
            return _milliseconds(entry.result.spec.submitted_at if entry.result.spec else 0.0)
        if (tombstone := backend.get(keys.TOMBSTONES + job_id)) is not None:
            return _milliseconds(decode(Tombstone, tombstone.value, tombstone.key).submitted_at)
    except CorruptRecord:
        pass
    return _UNKNOWN


def _milliseconds(seconds: float) -> str:
    return str(max(0, int(seconds * 1000)))
