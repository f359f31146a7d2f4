"""Taking a snapshot: gather its files and put them next to the job, as a whole or not at all."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    InvalidInput,
    JrsError,
    Unavailable,
)
from jrs.contract.operations import Absent, Check, Create, Fence, Op
from jrs.contract.read_back import commit_and_read_back, may_have_happened
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.history import HistoryKind
from jrs.records.snapshots import (
    Manifest,
    SnapshotFile,
    SnapshotFormat,
    SnapshotRecord,
    TakenBy,
    check_snapshot_name,
)
from jrs.store import heads, restores
from jrs.store.history_texts import snapshot_taken
from jrs.store.stop_transitions import RestoreEvent

from ..files import epoch_folders, permissions, transfer
from ..files.disk_errors import writing
from ..files.job_folders import JobStorage
from . import contents, create_in_objects, deletion_notes, folders, in_objects, logical, manifest
from .blobs import Blobs
from .contents import Contents, Item
from .index import SnapshotIndex, none_listed_meanwhile, refuse_taken
from .open import OpenSnapshot, opened

_TRIES = 30


@attrs.frozen
class SnapshotRequest:
    """The options of a snapshot to take."""

    format: SnapshotFormat
    output: bool
    batches: Mapping[str, int]
    export: logical.ExportState | None
    """Set for the format ``logical``, which consists of exported state."""
    progress: transfer.Progress
    taken_by: TakenBy
    at_end: bool = False
    for_fork: str = ""


@attrs.frozen
class Capture:
    """The content of a snapshot's folder."""

    contents: Contents
    files: tuple[SnapshotFile, ...]
    new_bytes: int
    same_generation: Check | Absent
    """The condition that the job was not restored since."""


def create(
    catalog: SnapshotIndex,
    job_id: str,
    name: str | None,
    request: SnapshotRequest,
    fence: Fence | None,
) -> SnapshotRecord:
    """Take a snapshot and list it; see `SnapshotCatalog.create`."""
    backend, storage = catalog.backend, catalog.storage
    if storage.objects is not None:
        if request.batches:
            raise in_objects.refuse("pinning an older batch")
        how = request.format
        return create_in_objects.create(
            catalog, storage.objects, job_id, name, how, request.taken_by, fence,
            at_end=request.at_end, for_fork=request.for_fork,
        )  # fmt: skip
    backend.check_current(fence, f"no snapshot of job {job_id!r}")
    known = catalog.list(job_id)
    _check_possible(catalog, job_id, name, known)
    folders.remove_left_overs(storage, job_id)
    deletion_notes.forget_listed(storage, job_id, known)
    parent = _parent(storage, known) if request.format.is_restorable else None
    with ExitStack() as held:
        if request.format is SnapshotFormat.CAS:
            held.enter_context(Blobs(storage).acquire())
        number, folder = _begin(storage, job_id, known, held)
        noted, is_whole = None, False
        try:
            taken = take(backend, storage, job_id, folder, request, parent, catalog.sleep)
            if fence is None:  # All masters use the same path, so a master needs no check.
                contents.check_spelling(taken.contents.items, taken.contents.root)
            described = Manifest(
                job_id, number, request.format, catalog.now(), str(taken.contents.root), name,
                parent.manifest.number if parent else None,
            )  # fmt: skip
            with writing(f"the snapshot of job {job_id!r}"):
                record = _record(*finish(folder, taken, described), taken.new_bytes, request)
                noted = deletion_notes.note(backend, storage, record, deletion_notes.What.LISTING)
                whole = folders.snapshot(storage, job_id, number)
                os.rename(folder, whole)
                folder = whole
                storage.sync_names(folder)
            is_whole = True
            _list(catalog, record, taken.same_generation, fence)
        except BaseException as error:
            # One that may be listed keeps its files. If it is not, its note lets `gc` remove them.
            if not (is_whole and may_have_happened(error)):
                with suppress(JrsError):  # The next call tries again; the first error counts.
                    storage.discard(job_id, folder)
                    deletion_notes.forget(noted)
            raise
        deletion_notes.forget(noted)
    return record


def _list(
    catalog: SnapshotIndex,
    record: SnapshotRecord,
    same_generation: Check | Absent,
    fence: Fence | None,
) -> None:
    """Commit a snapshot's entry, unless the job was restored meanwhile, or another snapshot has
    taken the name."""
    own = Create(keys.snapshot(record.job_id, record.number), encode(record))
    said = snapshot_taken(record.number, record.name)
    historian = catalog.historian(fence)
    while True:
        mine: tuple[Op, ...] = ()
        if record.name is not None:
            mine = none_listed_meanwhile(catalog, record)
            refuse_taken(catalog.list(record.job_id), record.name)
        try:
            with (
                _restored_meanwhile(same_generation),
                historian.recorded(record.job_id, HistoryKind.SNAPSHOT, said) as event,
            ):
                conditions = (same_generation, *mine, *event)
                commit_and_read_back(catalog.backend, own, *conditions, fence=fence)
            return
        except Conflict as conflict:
            if conflict.op not in mine:
                raise


def take(
    backend: Backend,
    storage: JobStorage,
    job_id: str,
    folder: Path,
    request: SnapshotRequest,
    parent: OpenSnapshot | None,
    sleep: Callable[[float], None] = time.sleep,
) -> Capture:
    """Fill `folder` with one consistent state of the job, which may run meanwhile.

    Raises:
        InvalidInput: a requested part does not exist, or cannot be part of a snapshot.
        CorruptRecord: the job's checkpoints cannot be restarted from: something is lost.
        Unavailable: the disk is full, or the job changes too fast.
    """
    problem: FileNotFoundError | None = None
    seen = set()
    for attempt in range(_TRIES):
        if attempt:
            transfer.remove(folder / folders.FILES)
            sleep(0.01 * attempt)
        same_generation = heads.same_generation(backend, job_id)
        spec = backend.get(keys.JOBS + job_id)
        if not restores.is_possible(backend, job_id, RestoreEvent.SNAPSHOT):
            raise Unavailable(f"job {job_id!r} is being restored: no snapshot is taken of it")
        records = contents.read_records(backend, job_id)
        try:
            with writing(f"the snapshot of job {job_id!r}"), contents.as_missing():
                found = contents.gather(
                    storage, job_id, records, output=request.output, batches=request.batches
                )
                seen.add(found.stages)
                files, new = _fill(folder, found, request, parent, Blobs(storage))
        except FileNotFoundError as error:
            problem = error
            continue
        same = contents.read_records(backend, job_id) == records
        if same and backend.get(keys.JOBS + job_id) == spec:  # Each restore writes it.
            return Capture(found, files, new, same_generation)
        problem = None
    if isinstance(problem, epoch_folders.BeingTakenOver):
        raise Unavailable(f"job {job_id!r} is being taken over by a leader; try again")
    if problem is not None and len(seen) <= 1:
        raise CorruptRecord(
            f"job {job_id!r} cannot be restarted from its stored state: {problem.filename} is "
            "missing; take a snapshot of an older batch, or restore one"
        )
    raise contents.changes_too_fast(job_id)


# -- inside --------------------------------------------------------------------------------


def _check_possible(
    catalog: SnapshotIndex, job_id: str, name: str | None, known: Sequence[SnapshotRecord]
) -> None:
    """Raise if the name is taken, or if there is nothing to take a snapshot of."""
    refuse_taken(known, name if name is None else check_snapshot_name(name))
    has_files = epoch_folders.in_place(catalog.storage.folder(job_id)) is not None
    if not has_files and not contents.read_records(catalog.backend, job_id):
        raise contents.nothing_left(catalog.backend, job_id)


def _begin(
    storage: JobStorage, job_id: str, known: Sequence[SnapshotRecord], held: ExitStack
) -> tuple[int, Path]:
    """Reserve the next number; return it and its locked, empty folder."""
    number = max((record.number for record in known), default=0)
    number = max(number, *folders.whole(storage, job_id), 0)
    parent = folders.snapshots(storage, job_id)
    with writing(f"the snapshot of job {job_id!r}"):
        permissions.make(parent, parents=True, exist_ok=True)
        while True:
            number += 1
            folder = folders.building(storage, job_id, number)
            try:
                permissions.make(folder)
            except FileExistsError:
                continue
            mine = held.enter_context(folders.locked(folder))
            # A faster process may have removed it as a leftover, or have used the number up.
            if mine and not folders.snapshot(storage, job_id, number).exists():
                return number, folder
            if mine:
                folder.rmdir()


def _parent(storage: JobStorage, known: Sequence[SnapshotRecord]) -> OpenSnapshot | None:
    """Return the newest snapshot to take unchanged files, or their digests, from. It is not locked
    any more: it may be deleted meanwhile."""
    for record in reversed(known):
        if record.format.is_restorable:
            try:
                with opened(storage, record) as found:
                    return found
            except (CorruptRecord, Unavailable):
                continue  # It would only have saved time.
    return None


@contextmanager
def _restored_meanwhile(same_generation: Check | Absent) -> Iterator[None]:
    """Raise `Unavailable` where the condition of a commit tells that the job was restored."""
    try:
        yield
    except Conflict as error:
        if error.op != same_generation:
            raise
        raise contents.restored_meanwhile() from None


def _record(
    found: Manifest, digest: str, new_bytes: int, request: SnapshotRequest
) -> SnapshotRecord:
    return SnapshotRecord(
        job_id=found.job_id,
        number=found.number,
        format=found.format,
        created_at=found.created_at,
        manifest=digest,
        files=len(found.files),
        bytes=sum(file.size for file in found.files),
        new_bytes=new_bytes,
        name=found.name,
        parent=found.parent,
        output=found.output,
        stages=found.stages,
        taken_by=request.taken_by,
        at_end=request.at_end,
        for_fork=request.for_fork,
    )


def _fill(
    folder: Path,
    found: Contents,
    request: SnapshotRequest,
    parent: OpenSnapshot | None,
    blobs: Blobs,
) -> tuple[tuple[SnapshotFile, ...], int]:
    if request.export is not None:
        exported = logical.export_stages(folder, found, request.export, request.progress)
        return exported, sum(file.size for file in exported)
    known = {file.path: file for file in parent.manifest.files} if parent else {}
    copies = None
    if parent is not None and parent.manifest.format is SnapshotFormat.LINK:
        copies = parent.folder / folders.FILES  # A backup shares no files.
    files_at = folder / folders.FILES
    if request.format is not SnapshotFormat.CAS:
        permissions.make(files_at)
        transfer.parents(files_at / item.path for item in found.items)
    files: list[SnapshotFile] = []
    new_bytes = 0
    for done, item in enumerate(found.items):
        request.progress(done, len(found.items))
        copy = copies / item.path if copies else None
        file, new = _put(
            item, files_at / item.path, request.format, known.get(item.path), copy, blobs
        )
        files.append(file)
        new_bytes += new
    if request.format is SnapshotFormat.CAS:
        transfer.sync(blobs.folder)
    request.progress(len(found.items), len(found.items))
    return tuple(files), new_bytes


def _put(
    item: Item,
    target: Path,
    how: SnapshotFormat,
    known: SnapshotFile | None,
    copy: Path | None,
    blobs: Blobs,
) -> tuple[SnapshotFile, int]:
    """Put one file into the snapshot; return its entry and the number of its new bytes."""
    found = os.lstat(item.source)
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput(f"{item.source} is not a file: it cannot be part of a snapshot")
    digest = known.sha256 if known is not None and _unchanged(known, found, how) else None
    size, inode, new = found.st_size, 0, found.st_size
    if how is SnapshotFormat.CAS:
        digest, new = blobs.add(item.source, size, digest)
    elif how is SnapshotFormat.LINK and item.final:
        if transfer.link_or_copy(item.source, target):
            inode = found.st_ino
        if known is None or digest is None or not known.inode:
            # Only a link in an earlier snapshot has synced this file: not its copy, nor its blob.
            transfer.sync(target)
        if digest is None:
            digest = transfer.digest(target)
        else:
            new = 0
        size = os.lstat(target).st_size
    elif how is SnapshotFormat.LINK and digest and _links_copy(copy, item.source, target):
        new = 0
    else:
        digest, size = transfer.copy(item.source, target), os.lstat(target).st_size
    return SnapshotFile(item.path, size, digest, found.st_mtime_ns, inode), new


def _links_copy(copy: Path | None, source: Path, target: Path) -> bool:
    """Link the previous snapshot's copy of an unchanged file; return whether that was possible. It
    is not if the copy is the job's own file, which a restore may have linked there."""
    try:
        if copy is None or os.path.samefile(copy, source):
            return False
        os.link(copy, target, follow_symlinks=False)
    except OSError:
        return False  # It is on another filesystem, or was deleted meanwhile.
    return True


def _unchanged(known: SnapshotFile, found: os.stat_result, how: SnapshotFormat) -> bool:
    same = known.size == found.st_size and known.mtime_ns == found.st_mtime_ns
    if how is SnapshotFormat.LINK and known.inode:
        return same and known.inode == found.st_ino
    return same


def finish(folder: Path, taken: Capture, described: Manifest) -> tuple[Manifest, str]:
    """Write the manifest of the capture and sync everything; return it and its sha256."""
    whole = attrs.evolve(
        described,
        output=taken.contents.left_out is None,
        left_out=taken.contents.left_out,
        stages=taken.contents.stages,
        records=taken.contents.records,
        files=taken.files,
        links=taken.contents.links,
    )
    try:
        whole.check()
    except JrsError as error:
        raise InvalidInput(f"job {described.job_id!r} cannot be in a snapshot: {error}") from error
    digest = manifest.write(folder, whole)
    transfer.sync_folders(folder)
    return whole, digest
