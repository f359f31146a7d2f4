"""Converting a snapshot to another format: copy, verify, list the copy, delete the original.

::

    build     <job>/snapshots/.<n>.tmp/          nothing is changed yet
    rename    to <n>-<digest of its manifest>/
    commit    the record names that manifest and format: from here on it is the snapshot
    delete    the folder of the former format, and the blobs that no snapshot names any more

A crash leaves one folder too many, before the commit or after it. A repeat removes it.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack, suppress
from pathlib import Path

import attrs

from jrs.contract.errors import (
    DamagedSnapshot,
    InvalidInput,
    JrsError,
    NoSuchSnapshot,
    SnapshotInUse,
    WrongState,
)
from jrs.contract.operations import Fence
from jrs.contract.read_back import may_have_happened
from jrs.records.snapshots import Manifest, SnapshotFile, SnapshotFormat, SnapshotRecord
from jrs.store import cluster_format

from ..files import epoch_folders, permissions, transfer
from ..files.disk_errors import writing
from ..files.job_folders import JobStorage
from . import contents, delete, folders, manifest
from .blobs import Blobs
from .index import SnapshotIndex, SnapshotRef, replace_entry
from .open import OpenSnapshot, opened, place
from .unnamed_blobs import collect

SINCE_FORMAT = 5
"""The first cluster format whose versions find the folder of a converted snapshot."""


def convert(
    catalog: SnapshotIndex,
    job_id: str,
    which: SnapshotRef,
    to: SnapshotFormat,
    fence: Fence | None,
    progress: transfer.Progress,
) -> SnapshotRecord:
    """Convert a snapshot; see `SnapshotCatalog.convert`."""
    if why := cluster_format.too_old(catalog.backend, SINCE_FORMAT, "a converted snapshot"):
        raise WrongState(why)
    record = catalog.get(job_id, which)
    if not to.is_restorable or not record.format.is_restorable:
        raise InvalidInput(
            f"{record} is {record.format.value} and cannot be converted to {to.value}: a logical "
            "snapshot has rows to read and no state; take one: jrs snapshot create --format logical"
        )
    if record.copy is not None:
        raise WrongState(
            f"a move of {record} was interrupted; finish it first: jrs snapshot move {job_id} "
            f"{record.number} {record.copy}"
        )
    if to is not record.format:
        record = _converted(catalog, record, to, fence, progress)
    _remove_former(catalog.storage, record)
    collect(place(catalog.storage, record))
    return record


# -- inside --------------------------------------------------------------------------------


def _converted(
    catalog: SnapshotIndex,
    record: SnapshotRecord,
    to: SnapshotFormat,
    fence: Fence | None,
    progress: transfer.Progress,
) -> SnapshotRecord:
    job_id, number = record.job_id, record.number
    storage = place(catalog.storage, record)
    with opened(catalog.storage, record) as found, ExitStack() as held:
        if to is SnapshotFormat.CAS:
            held.enter_context(Blobs(storage).acquire())
        folder, is_whole = _begin(storage, record, held), False
        try:
            with writing(f"the conversion of {record}"):
                described, new_bytes = _fill(storage, folder, found, to, progress)
                digest = manifest.write(folder, described)
                transfer.sync_folders(folder)
                whole = folders.converted(storage, job_id, number, digest)
                if whole.is_dir():
                    storage.discard(job_id, whole)  # A crash has left it before its commit.
                os.rename(folder, whole)
                folder = whole
                storage.sync_names(folder)
            text = f"snapshot {number} was converted from {record.format} to {to}"
            changes = {"format": to, "manifest": digest, "new_bytes": new_bytes, "parent": None}
            is_whole = True
            changed = replace_entry(catalog, record, fence, text, **changes)
        except BaseException as error:
            if is_whole and may_have_happened(error):
                raise  # It may be listed, so its files have to stay.
            with suppress(JrsError):  # A repeat tries again; the first error counts.
                if not _is_listed(catalog, record, folder):
                    storage.discard(job_id, folder)
            if isinstance(error, FileNotFoundError):
                missing = f"{error.filename} is missing"
                raise DamagedSnapshot(str(record), (missing,)) from error
            raise
    return changed


def _begin(storage: JobStorage, record: SnapshotRecord, held: ExitStack) -> Path:
    """Return the locked, empty folder to build in."""
    folder = folders.building(storage, record.job_id, record.number)
    with folders.locked(folder) as mine:
        if mine:
            storage.discard(record.job_id, folder)  # A process that died has left it.
    with writing(f"the conversion of {record}"), suppress(FileExistsError):
        permissions.make(folder)
        if held.enter_context(folders.locked(folder)):
            return folder
    raise SnapshotInUse(f"{record} is being converted by another process; try again later")


def _fill(
    storage: JobStorage,
    folder: Path,
    found: OpenSnapshot,
    to: SnapshotFormat,
    progress: transfer.Progress,
) -> tuple[Manifest, int]:
    """Put all files into the new folder or among the blobs; return its manifest and the number of
    new bytes."""
    listed, blobs, files_at = found.manifest.files, Blobs(storage), folder / folders.FILES
    if to is not SnapshotFormat.CAS:
        permissions.make(files_at)
        transfer.parents(files_at / file.path for file in listed)
    epoch = epoch_folders.in_place(storage.folder(found.manifest.job_id))
    files, new_bytes = [], 0
    for done, file in enumerate(listed):
        progress(done, len(listed))
        source, target, inode, new = found.locate(file), files_at / file.path, 0, file.size
        if to is SnapshotFormat.CAS:
            digest, new = blobs.add(source, file.size, None)
        else:
            own = None if epoch is None else epoch / file.path
            linked = to is SnapshotFormat.LINK and _links_own(file, own, target)
            if linked:
                digest, inode, new = transfer.digest(target), target.stat().st_ino, 0
            else:
                digest = transfer.copy(source, target)
                os.utime(target, ns=(file.mtime_ns, file.mtime_ns))
        if digest != file.sha256:
            raise DamagedSnapshot(str(found.folder), (f"{source} has changed",))
        files.append(attrs.evolve(file, inode=inode))
        new_bytes += new
    if to is SnapshotFormat.CAS:
        transfer.sync(blobs.folder)
    progress(len(listed), len(listed))
    described = attrs.evolve(found.manifest, format=to, parent=None, files=tuple(files))
    return described, new_bytes


def _links_own(file: SnapshotFile, own: Path | None, target: Path) -> bool:
    """Link the file that the job itself still has, if it is the same one and nobody writes into it;
    return whether that was done."""
    if own is None or not contents.never_changes(file):
        return False
    with suppress(OSError):
        now = os.lstat(own)
        if (now.st_size, now.st_mtime_ns) == (file.size, file.mtime_ns):
            os.link(own, target, follow_symlinks=False)
            if transfer.digest(target) == file.sha256:
                transfer.sync(target)
                return True
            target.unlink()
    return False


def _is_listed(catalog: SnapshotIndex, record: SnapshotRecord, folder: Path) -> bool:
    """Return whether a snapshot's record names a folder: another process may have been faster."""
    try:
        now = catalog.get(record.job_id, record.number)
    except NoSuchSnapshot:
        return False
    return folders.listed(place(catalog.storage, now), now) == folder


def _remove_former(own: JobStorage, record: SnapshotRecord) -> None:
    """Remove what is left of a snapshot's former formats.

    Args:
        own: the storage of the cluster.

    Raises:
        SnapshotInUse: a process reads it; the conversion is done all the same, and a repeat
            removes it.
    """
    storage = place(own, record)
    if not is_whole(storage, record):
        return  # It is damaged, and the former form may be whole.
    is_own = delete.is_own(own, storage, record)
    current = folders.listed(storage, record)
    for folder in folders.of_number(storage, record.job_id, record.number):
        if folder == current or not folder.is_dir() or not is_own(folder):
            continue
        with folders.locked(folder) as mine:
            if not mine and folder.is_dir():
                raise SnapshotInUse(
                    f"{record} is converted, but its former folder {folder} is being read; repeat "
                    "the command later to remove it"
                )
            storage.discard(record.job_id, folder)


def is_whole(storage: JobStorage, record: SnapshotRecord) -> bool:
    """Return whether a storage has the folder of a listed snapshot, with the manifest that the
    catalogue names."""
    path = folders.listed(storage, record) / folders.MANIFEST
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return False
    return found == record.manifest
