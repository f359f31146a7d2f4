"""Garbage: files and records of jobs that nothing needs any more, found and removed on request.

Files are only removed by renaming them into the trash first, so that a crash at any point is
harmless. What a process works on is locked, and stays. A master cannot be in the way: none runs
or cleans up a job that has ended and is clean, and no id is used twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    InvalidInput,
    OutcomeUnknown,
    SnapshotInUse,
    Unavailable,
)
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import Tombstone
from jrs.records.snapshots import SnapshotRecord

from ..files.disk_errors import check_answers
from ..files.removal import frees
from ..files.safe_listing import is_folder
from ..processes import left_running
from ..snapshots import convert, copying, delete, deletion_notes, folders, for_forks
from ..snapshots.blobs import Blobs
from ..snapshots.index import SnapshotIndex
from ..snapshots.orphans import not_listed
from ..snapshots.references import jobs_in_use
from ..snapshots.unnamed_blobs import unnamed
from ..storage.objects import Objects
from . import records_left
from .half_published import HalfPublished
from .object_garbage import ObjectGarbage


@attrs.frozen
class Garbage:
    """A file, a folder or a record that nothing needs any more."""

    path: str
    """Of a record: its key."""
    size: int
    """The bytes that its removal frees: files with another hard link do not count, nor do records.
    """
    why: str
    """Why nothing needs it, for people."""


@attrs.frozen
class GarbageReport:
    """What a collection has removed, or would remove."""

    removed: tuple[Garbage, ...]
    """What was removed, or would be."""
    left: tuple[str, ...]
    """What looks like garbage and stays, and why; one line each."""


class GarbageCollector:
    """Finds and removes garbage of one cluster.

    Args:
        older_than: seconds for which something has to have been garbage.
    """

    def __init__(self, catalog: SnapshotIndex, older_than: float, *, dry_run: bool) -> None:
        if type(older_than) not in (int, float) or not older_than >= 0:
            raise InvalidInput(f"older_than must be a number of seconds, not {shown(older_than)}")
        self._catalog = catalog
        self._backend = catalog.backend
        self._storage = catalog.storage
        self._until = catalog.now() - older_than
        self._forked_until = min(self._until, catalog.now() - for_forks.PATIENCE)
        self._dry_run = dry_run
        self._removed: list[Garbage] = []
        self._left: list[str] = []
        self._noted: set[Path] = set()
        """Folders of snapshots that a note lets go, also of those that are not old enough."""

    def run(self) -> GarbageReport:
        """Remove what is garbage, or find it only. Idempotent."""
        copied: set[str] | None = None
        if self._storage.objects is not None:
            # First: a job whose note is gone by now is known to exist.
            with self._named(self._storage.root):
                copied = copying.noted_jobs(
                    self._backend, self._forked_until, dry_run=self._dry_run
                )
        known: dict[str, _Known] = {}
        for job_id in self._storage.jobs():
            with self._named(self._storage.folder(job_id)):
                known[job_id] = _Known.of(self._backend, job_id)
        with self._named(self._storage.root):
            self._doomed()
        self._forks()
        for job_id, job in known.items():
            with self._named(self._storage.folder(job_id)):
                self._folder(job_id, job)
        if self._storage.objects is not None:
            for job_id, job in known.items():
                if job.exists or (copied is not None and job_id not in copied):
                    self._objects(job_id, job, self._storage.objects)
        with self._named(self._storage.root):
            self._outputs(known)
        self._records()
        for job_id, job in known.items():
            if job.has_ended and not self._dry_run:
                self._remove_empty(job_id)
        with self._named(folder := Blobs(self._storage).folder):
            self._blobs(folder)
        with self._named(trash := self._storage.root / ".trash"):
            self._trash(trash)
        return GarbageReport(tuple(self._removed), tuple(self._left))

    # -- what is garbage ---------------------------------------------------------------------

    @contextmanager
    def _named(self, folder: Path) -> Iterator[None]:
        """Name a folder if its records, or what is in it, cannot be read: nothing else stays."""
        try:
            yield
        except (CorruptRecord, Unavailable, OSError) as error:
            check_answers(self._backend)
            self._left.append(f"{folder}: {error}")

    def _folder(self, job_id: str, job: _Known) -> None:
        """Remove what is left over in the folder of a job."""
        self._unfinished(job_id)
        if not job.exists:
            if (path := self._storage.folder(job_id)).is_dir():
                self._left.append(f"{path}: the folder of an unknown job")
            return
        self._snapshots(job_id)
        if job.has_ended:
            for path in self._storage.left_in_staging(job_id):
                self._discard(job_id, path, "left over by a job that has ended")

    def _unfinished(self, job_id: str) -> None:
        """Remove what processes have left that died while they took or restored a snapshot."""
        numbers = sorted(folders.unfinished(self._storage, job_id))
        paths = [folders.building(self._storage, job_id, number) for number in numbers]
        for path in (*paths, folders.restoring(self._storage, job_id)):
            with folders.locked(path) as mine:
                if mine:
                    self._discard(job_id, path, "left over by an unfinished snapshot or restore")

    def _snapshots(self, job_id: str) -> None:
        """Remove what conversions have left of listed snapshots; name what is not listed. That may
        be of an earlier life, or be missing in a backend that was restored from a backup."""
        for number in sorted(folders.whole(self._storage, job_id)):
            for path in folders.of_number(self._storage, job_id, number):
                if path.is_dir() and not self._is_of_use(job_id, number, path):
                    self._not_listed(job_id, number, path)

    def _is_of_use(self, job_id: str, number: int, path: Path) -> bool:
        """Return whether a folder is that of a listed snapshot, or may be. It may be listed, or
        become a former one, until it is locked."""
        stored = self._backend.get(keys.snapshot(job_id, number))
        if stored is None:
            return False
        record = decode(SnapshotRecord, stored.value, stored.key)
        if not convert.is_whole(self._storage, record):
            return True  # It is in another storage, or damaged: any folder may be of use.
        return path == folders.listed(self._storage, record)

    def _not_listed(self, job_id: str, number: int, path: Path) -> None:
        with folders.locked(path) as mine:
            if not mine:
                return  # It is being taken or read.
            if self._is_of_use(job_id, number, path):
                return  # It was listed before it was locked.
            if self._backend.get(keys.snapshot(job_id, number)) is not None:
                self._discard(job_id, path, "left over by a conversion of the snapshot")
            elif path not in self._noted:
                self._left.append(not_listed(self._storage, job_id, number, path))

    def _doomed(self) -> None:
        """Remove snapshots that a crash kept from being listed, or from being deleted; not those of
        an earlier life of the job, which a backend that was lost had perhaps listed."""
        why = "a snapshot that a process had not listed yet, or was deleting, when it died"
        for left in deletion_notes.noted(self._storage):
            if not left.counts(self._backend):
                continue
            try:
                listed = left.is_listed(self._backend)
                found = [] if listed else left.folders_in(self._storage)
                self._noted.update(found)
                if not left.is_older(self._until):
                    continue
                sizes = [(path, frees(path)) for path in found]
                if not self._dry_run:
                    delete.complete(self._backend, left)
            except (CorruptRecord, SnapshotInUse, Unavailable) as error:
                self._left.append(str(error))
                continue
            self._removed += [Garbage(str(path), size, why) for path, size in sizes]
            if not listed and (self._dry_run or not left.note.exists()):
                self._removed.append(Garbage(str(left.note), 0, "the note of such a snapshot"))
        for path in deletion_notes.half_written(self._storage):
            if _is_older(path, self._until):
                self._unlink(path, "left over by a note that was not completed")

    def _forks(self) -> None:
        """Remove the snapshots of forks that died before they had stored their restores."""
        forks = list[SnapshotRecord]()
        for stored in self._backend.scan(keys.SNAPSHOTS):
            with suppress(CorruptRecord):  # `jrs fsck` names it.
                record = decode(SnapshotRecord, stored.value, stored.key)
                if record.for_fork:
                    forks.append(record)
        try:
            needless = for_forks.needless(self._backend, forks, self._forked_until)
            entries = delete.Entries.of(self._backend, needless)
        except (CorruptRecord, Unavailable) as error:
            self._left.append(f"the snapshots of forks: {error}")
            return
        for record in needless:
            try:
                size = frees(folders.listed(self._storage, record))
                if not self._dry_run:
                    delete.remove(self._backend, self._storage, record, None, entries)
                why = f"left over by a fork to {record.for_fork!r} that died"
                self._removed.append(Garbage(str(record), size, why))
            except (CorruptRecord, OSError, OutcomeUnknown, SnapshotInUse, Unavailable) as error:
                self._left.append(f"{record}: {error}")

    def _records(self) -> None:
        """Remove what a forced cleanup has left in the backend. No id is used twice, so no job can
        come to need it; but processes of the job that still run are found by it."""
        for job_id, names in records_left.records_left(self._backend).items():
            try:
                # If it is unknown how the job ended, `jrs fsck` names them.
                since = records_left.over_since(self._backend, job_id)
                if since is not None and since <= self._until:
                    self._records_of(job_id, names)
            except (CorruptRecord, Unavailable) as error:
                self._left.append(f"{names[0]}: {error}")
            except Conflict:
                self._left.append(f"{names[0]}: the job has not ended")

    def _records_of(self, job_id: str, names: list[str]) -> None:
        if running := left_running.find(self._backend, job_id):
            self._left.append(f"{names[0]}: processes of the job still run: {running}")
            return
        begun = records_left.half_published(self._backend, self._storage, job_id)
        if begun or (begun := HalfPublished(self._backend).away(job_id)):
            self._left.append(f"{names[0]}: the job may have half published {begun[0]}")
            return
        if not self._dry_run:
            records_left.remove(self._backend, job_id, names)
        why = "a record that a job has left that has ended"
        self._removed += [Garbage(name, 0, why) for name in names]

    def _outputs(self, known: dict[str, _Known]) -> None:
        outputs = dict[str, Path]()
        for job_id, job in known.items():
            if job.expired_at is None or job.expired_at > self._until:
                continue
            with self._named(path := self._storage.folder(job_id) / "out"):
                if is_folder(path):
                    outputs[job_id] = path
        if not outputs:
            return
        try:
            # Read now: a job may have begun to read an output since the collection began.
            used = jobs_in_use(self._catalog)
        except (CorruptRecord, Unavailable) as error:
            self._left.append(f"the outputs of {len(outputs)} expired jobs: {error}")
            return
        for job_id, path in outputs.items():
            if job_id in used:
                self._left.append(f"{path}: a job or a snapshot still needs it")
                continue
            with self._named(path):
                self._discard(job_id, path, "the output of an expired job", aged=True)

    def _objects(self, job_id: str, job: _Known, objects: Objects) -> None:
        """Remove what no record names; of a job that was expired, all but its snapshots; of one
        that never came to exist, the copies that were made for it."""
        expired = job.expired_at is not None and job.expired_at <= self._until
        garbage = ObjectGarbage(self._backend, objects)
        why = "the output of an expired job" if expired else "no record names it"
        try:
            if not job.exists:
                found = garbage.sweep_copies(job_id, self._forked_until, dry_run=self._dry_run)
                why = "copied for a job that did not come to exist"
            elif expired:
                found = garbage.sweep_output(job_id, dry_run=self._dry_run)
            else:
                found = garbage.sweep_unnamed(
                    job_id, self._until, ended=job.has_ended, dry_run=self._dry_run
                )
        except Conflict:
            self._left.append(f"{objects.url}/{job_id}: a snapshot is taken of it now")
            return
        except (CorruptRecord, Unavailable) as error:
            self._left.append(f"{objects.url}/{job_id}: {error}")
            return
        self._removed += [Garbage(f"{objects.url}/{one.name}", one.size, why) for one in found]

    def _blobs(self, folder: Path) -> None:
        with unnamed(self._storage) as found:
            if found is None:
                self._left.append(f"{folder}: snapshots are being taken")
            for path in found or ():
                self._unlink(path, "a blob that no snapshot names")

    def _trash(self, trash: Path) -> None:
        if trash.is_symlink() or not is_folder(trash):
            return
        why = "left over by a deletion that was interrupted"
        found = [Garbage(str(path), frees(path), why) for path in sorted(trash.iterdir())]
        if not self._dry_run:
            self._left += self._storage.empty_trash()
            found = [one for one in found if not os.path.lexists(one.path)]
        self._removed += found

    # -- removing ----------------------------------------------------------------------------

    def _discard(self, job_id: str, path: Path, why: str, *, aged: bool = False) -> None:
        """Remove a path if it is old enough; `aged`: that is known already."""
        with suppress(FileNotFoundError):
            if aged or os.lstat(path).st_mtime <= self._until:
                self._remove(path, why, partial(self._storage.discard, job_id, path))

    def _unlink(self, path: Path, why: str) -> None:
        self._remove(path, why, partial(path.unlink, missing_ok=True))

    def _remove(self, path: Path, why: str, remove: Callable[[], None]) -> None:
        found = Garbage(str(path), frees(path), why)
        if not self._dry_run:
            try:
                remove()
            except (OSError, Unavailable, SnapshotInUse) as error:
                self._left.append(f"{path}: {error}")
                return
        self._removed.append(found)

    def _remove_empty(self, job_id: str) -> None:
        for folder in (folders.snapshots(self._storage, job_id), self._storage.folder(job_id)):
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return  # It is not empty.


@attrs.frozen
class _Known:
    """What the cluster knows of a job."""

    exists: bool
    has_ended: bool
    """Whether it has ended and is cleaned up."""
    expired_at: float | None

    @classmethod
    def of(cls, backend: Backend, job_id: str) -> _Known:
        names = (keys.JOBS, keys.DIRTY, keys.RESULTS, keys.TOMBSTONES)
        spec, dirty, result, tombstone = (backend.get(name + job_id) for name in names)
        expired_at = None
        if tombstone is not None and spec is None and result is None:
            expired_at = decode(Tombstone, tombstone.value, tombstone.key).expired_at
        exists = any(one is not None for one in (spec, dirty, result, tombstone))
        ended = exists and spec is None and dirty is None
        return cls(exists, ended, expired_at)


def collect_garbage(catalog: SnapshotIndex, older_than: float, *, dry_run: bool) -> GarbageReport:
    """Remove the garbage of a cluster; see `Client.gc`."""
    return GarbageCollector(catalog, older_than, dry_run=dry_run).run()


def _is_older(path: Path, until: float) -> bool:
    try:
        return os.lstat(path).st_mtime <= until
    except FileNotFoundError:
        return False  # Another process has just removed it.
