"""Moving a snapshot to another storage, and exporting a snapshot to a folder of its own."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs

from jrs.contract.errors import (
    DamagedSnapshot,
    InvalidInput,
    JrsError,
    SnapshotInUse,
    Unavailable,
    WrongState,
)
from jrs.contract.operations import Fence
from jrs.contract.read_back import may_have_happened
from jrs.records.snapshots import Manifest, SnapshotFile, SnapshotFormat, SnapshotRecord

from ..files import permissions, transfer
from ..files.disk_errors import writing
from ..files.job_folders import JobStorage
from . import delete, folders, manifest
from .blobs import Blobs
from .index import SnapshotIndex, replace_entry
from .open import OpenSnapshot, check, opened, place, read
from .unnamed_blobs import collect


def move(
    catalog: SnapshotIndex,
    job_id: str,
    which: int | str,
    to_root: Path,
    fence: Fence | None,
    progress: transfer.Progress,
) -> SnapshotRecord:
    """Copy, verify, swap the entry of the catalogue, delete the old files."""
    record = catalog.get(job_id, which)
    own = catalog.storage
    source = place(own, record)
    left = None if record.copy is None else JobStorage(Path(record.copy), own.root.name)
    target = JobStorage(to_root.absolute(), own.root.name)
    for known in (own, source, left):
        if known is not None and _is_same(known, target):
            target = known  # Each storage has one spelling in the catalogue.
            break
    if _is_same(target, source):
        if left is None:
            raise InvalidInput(f"{record} is in {to_root} already")
        return _end(catalog, record, fence)  # All but the last step of a move was done.
    if left is not None and not _is_same(left, target):
        record = _end(catalog, record, fence)
    elif left is not None:
        delete.check_mounted(target, record)  # Or a second copy hides the first.
        if (swapped := _swap_if_whole(catalog, record, target, fence)) is not None:
            return _drop_copy(catalog, swapped, fence)
    record = _copy(catalog, record, target, fence, progress)
    if record.format is SnapshotFormat.CAS:
        collect(target)  # An interrupted move may have left blobs half-written.
    return _drop_copy(catalog, record, fence)


def export(
    catalog: SnapshotIndex, job_id: str, which: int | str, path: Path, progress: transfer.Progress
) -> Manifest:
    """Copy a snapshot to a new folder that needs nothing else."""
    record = catalog.get(job_id, which)
    if path.exists() or path.is_symlink():
        raise InvalidInput(f"{path} exists already: name a folder that does not exist yet")
    if not path.parent.is_dir():
        raise InvalidInput(f"{path.parent} is not a folder: nowhere to put {path.name}")
    building = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    with opened(catalog.storage, record) as found:
        try:
            with _copying(f"the export to {path}", str(record)):
                permissions.make(building)
                _copy_files(found, building / folders.FILES, progress)
                how = found.manifest.format
                files = tuple(attrs.evolve(file, inode=0) for file in found.manifest.files)
                described = attrs.evolve(
                    found.manifest,
                    format=SnapshotFormat.FULL if how.is_restorable else how,
                    parent=None,
                    files=files,
                )
                manifest.write(building, described)
                transfer.sync_folders(building)
                os.rename(building, path)
                transfer.sync(path.parent)
        except BaseException:
            transfer.remove(building)
            raise
    return described


# -- inside --------------------------------------------------------------------------------


@contextmanager
def _copying(what: str, source: str) -> Iterator[None]:
    """Distinguish a file that is missing in the source from an error of the filesystem."""
    try:
        with writing(what):
            yield
    except FileNotFoundError as error:
        raise DamagedSnapshot(source, (f"{error.filename} is missing",)) from error


def _copy_files(found: OpenSnapshot, files_at: Path, progress: transfer.Progress) -> None:
    """Copy every file of a snapshot, and compare each with its digest in the same pass."""
    permissions.make(files_at)
    listed = found.manifest.files
    transfer.parents(files_at / file.path for file in listed)
    for done, file in enumerate(listed):
        progress(done, len(listed))
        target = files_at / file.path
        _check_digest(found, file, transfer.copy(found.locate(file), target))
        os.utime(target, ns=(file.mtime_ns, file.mtime_ns))
    progress(len(listed), len(listed))


def _check_digest(found: OpenSnapshot, file: SnapshotFile, digest: str) -> None:
    if digest != file.sha256:
        raise DamagedSnapshot(str(found.folder), (f"{found.locate(file)} has changed",))


def _copy(
    catalog: SnapshotIndex,
    record: SnapshotRecord,
    target: JobStorage,
    fence: Fence | None,
    progress: transfer.Progress,
) -> SnapshotRecord:
    """Copy a snapshot to another storage and list it there; the entry then names both places."""
    # A held folder is not discarded, by whatever path the target may lead to it.
    own = catalog.storage
    with opened(own, record) as found, ExitStack() as held:
        check(str(record), found, thorough=False)
        _check_free(target, record)
        # An interrupted move may have copied files there.
        delete.discard(catalog, target, record, fence)
        with writing(f"the move of {record}"):
            # A listed storage that is missing counts as one that is not mounted.
            target.make()
        # The copy's place is listed first: it is known whatever happens.
        record = replace_entry(catalog, record, fence, copy=str(target.root.parent))
        is_whole = False
        try:
            _copy_to(catalog, record, found, target, held, progress)
            is_whole = True
            return _swap(catalog, record, target, fence)
        except BaseException as error:
            # One that may be listed keeps its files. The entry names both places, so that a repeat
            # completes the move.
            if not (is_whole and may_have_happened(error)):
                held.close()
                with suppress(JrsError):  # A repeat tries again; the first error counts.
                    _drop_copy(catalog, record, fence)
            raise


def _copy_to(
    catalog: SnapshotIndex,
    record: SnapshotRecord,
    found: OpenSnapshot,
    target: JobStorage,
    held: ExitStack,
    progress: transfer.Progress,
) -> None:
    """Copy an opened snapshot and verify the copy; keep its locks until it is listed."""
    building = folders.building(target, record.job_id, record.number)
    with _copying(f"the move of {record}", str(record)):
        permissions.make(building, parents=True)
        if not held.enter_context(folders.locked(building)):
            raise SnapshotInUse(f"{building} is being written by another process")
        _check_free(target, record)  # Another cluster may have moved its own there since.
        if found.manifest.format is SnapshotFormat.CAS:
            blobs = Blobs(target)
            held.enter_context(blobs.acquire())
            for done, file in enumerate(found.manifest.files):
                progress(done, len(found.manifest.files))
                # Without its digest, because the store's copy of it may be damaged.
                digest, _ = blobs.add(found.locate(file), file.size, None)
                _check_digest(found, file, digest)
            transfer.sync(blobs.folder)
        else:
            _copy_files(found, building / folders.FILES, progress)
        shutil.copyfile(found.folder / folders.MANIFEST, building / folders.MANIFEST)
        transfer.sync(building / folders.MANIFEST)
        transfer.sync_folders(building)
        whole = folders.snapshot(target, record.job_id, record.number)
        os.rename(building, whole)
        target.sync_names(whole)
    there = attrs.evolve(record, storage=str(target.root.parent))
    check(str(record), read(catalog.storage, there), thorough=True)


def _is_same(one: JobStorage, other: JobStorage) -> bool:
    """Return whether two storages are the same, also by a link, by ``..`` or by a second mount."""
    try:
        return one.root.samefile(other.root)
    except OSError:  # One of them does not exist, or not yet.
        return one.root.resolve() == other.root.resolve()


def _check_free(target: JobStorage, record: SnapshotRecord) -> None:
    """Raise `InvalidInput` if a snapshot of another cluster occupies the place."""
    for folder in folders.of_number(target, record.job_id, record.number):
        if os.path.lexists(folder) and not manifest.is_of(folder, record):
            raise InvalidInput(f"{folder} is another snapshot: move {record} elsewhere")


def _swap_if_whole(
    catalog: SnapshotIndex, record: SnapshotRecord, target: JobStorage, fence: Fence | None
) -> SnapshotRecord | None:
    """List the copy of an interrupted move if it is whole; it may be the only whole one. Else
    return None."""
    there = attrs.evolve(record, storage=str(target.root.parent))
    with ExitStack() as held:
        try:
            check(str(record), held.enter_context(opened(catalog.storage, there)), thorough=True)
        except DamagedSnapshot:
            return None
        # It is still held: no process discards it before it is listed.
        return _swap(catalog, record, target, fence)


def _swap(
    catalog: SnapshotIndex, record: SnapshotRecord, target: JobStorage, fence: Fence | None
) -> SnapshotRecord:
    """List a snapshot at its copy's place; its old place is the copy from now on."""
    own = catalog.storage
    storage = None if target.root == own.root else str(target.root.parent)
    source = str(place(own, record).root.parent)
    said = f"snapshot {record.number} was moved to {target.root.parent}"
    return replace_entry(catalog, record, fence, said, storage=storage, copy=source)


def _end(catalog: SnapshotIndex, record: SnapshotRecord, fence: Fence | None) -> SnapshotRecord:
    """Do the last step of an interrupted move, once the remaining snapshot is known to be whole."""
    go_on = (
        f"the files that a move left in {record.copy} were not touched; continue from there: "
        f"jrs snapshot move {record.job_id} {record.number} {record.copy}"
    )
    with ExitStack() as held:
        try:
            # Held, so that a copy that is the same folder by another path is not discarded.
            check(str(record), held.enter_context(opened(catalog.storage, record)), thorough=True)
        except DamagedSnapshot as error:
            problem = f"{error.problems[0]}; {go_on}"
            raise DamagedSnapshot(str(record), (problem, *error.problems[1:])) from error
        except Unavailable as error:
            raise Unavailable(f"{error}; {go_on}") from error
        return _drop_copy(catalog, record, fence)


def _drop_copy(
    catalog: SnapshotIndex, record: SnapshotRecord, fence: Fence | None
) -> SnapshotRecord:
    """Delete the copy of a whole snapshot, and remove it from the snapshot's entry.

    Raises:
        NoSuchSnapshot: the snapshot was deleted meanwhile.
        WrongState: another process has changed the entry since, and perhaps listed the copy.
    """
    if record.copy is None:
        return record
    try:
        _remove_copy(catalog, record, record.copy, fence)
        return replace_entry(catalog, record, fence, copy=None)
    except WrongState:
        now = catalog.get(record.job_id, record.number)
        if now != attrs.evolve(record, copy=None):
            raise
        return now  # A move that began meanwhile has done this last step.


def _remove_copy(
    catalog: SnapshotIndex, record: SnapshotRecord, copy: str, fence: Fence | None
) -> None:
    left = JobStorage(Path(copy), catalog.storage.root.name)
    delete.check_mounted(left, record)
    delete.discard(catalog, left, record, fence)
    if record.format is SnapshotFormat.CAS:
        collect(left)
    if left.root != catalog.storage.root:
        left.empty_trash()  # A move that was interrupted here may have left it; nothing else looks.
    for folder in (folders.snapshots(left, record.job_id), left.folder(record.job_id)):
        try:
            folder.rmdir()
        except OSError:
            break  # The folder is not empty.
