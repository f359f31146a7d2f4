"""Opening a snapshot to read it, wherever it is, and checking it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from jrs.contract.errors import CorruptRecord, DamagedSnapshot, InvalidInput, Unavailable
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import StageRecord
from jrs.records.snapshots import Manifest, SnapshotFile, SnapshotFormat, SnapshotRecord

from ..files import transfer
from ..files.job_folders import JobStorage
from . import folders, manifest
from .blobs import Blobs
from .manifest import Locate


@attrs.frozen
class OpenSnapshot:
    """A snapshot that can be read, whose folder stays while it is."""

    folder: Path
    manifest: Manifest
    locate: Locate


def place(own: JobStorage, record: SnapshotRecord) -> JobStorage:
    """Return the storage that a snapshot of the cluster whose storage is `own` is in."""
    return own if record.storage is None else JobStorage(Path(record.storage), own.root.name)


def places(own: JobStorage, record: SnapshotRecord) -> list[JobStorage]:
    """Return the storages that may hold a part of it, the one that it is in last."""
    last = place(own, record)
    return [last] if record.copy is None else [JobStorage(Path(record.copy), own.root.name), last]


@contextmanager
def opened(own: JobStorage, source: SnapshotRecord | Path) -> Iterator[OpenSnapshot]:
    """Open a snapshot, listed or exported, to read it; it is not deleted meanwhile.

    Raises:
        DamagedSnapshot, UnsupportedVersion: its manifest cannot be used.
        InvalidInput: a folder that is not self-contained.
        Unavailable: the storage that it is in is not there, or cannot be asked.
    """
    folder = _folder(own, source)
    with ExitStack() as held:
        try:
            there = held.enter_context(folders.locked(folder, shared=True, wait=True))
            if not there and isinstance(source, SnapshotRecord):
                place(own, source).root.stat()
        except OSError as error:
            if error.errno == errno.EIO:
                raise DamagedSnapshot(str(source), (f"{folder}: {error.strerror}",)) from error
            # Nobody knows what is there: that may be a filesystem that is not mounted.
            raise Unavailable(
                f"{source} cannot be read: {error.filename or folder}: {error.strerror}; mount "
                "what is to be there, or make the folder again if it is lost for good"
            ) from error
        if not there:
            raise DamagedSnapshot(str(source), (f"{folder} is missing",))
        yield read(own, source)


def read(own: JobStorage, source: SnapshotRecord | Path) -> OpenSnapshot:
    """Do what `opened` does for who holds the snapshot's lock already."""
    folder = _folder(own, source)
    if isinstance(source, Path):
        found = manifest.read(folder)
        if found.format is SnapshotFormat.CAS:
            raise InvalidInput(f"{folder} needs the blobs of its cluster: export it first")
        _check_records(folder, found)
        return OpenSnapshot(folder, found, _locator(folder, found, own))
    found = manifest.read(folder, source.manifest)
    return OpenSnapshot(folder, found, _locator(folder, found, place(own, source)))


def check(
    what: str, found: OpenSnapshot, *, thorough: bool, progress: transfer.Progress = transfer.silent
) -> None:
    """Raise `DamagedSnapshot` if anything of an opened snapshot is not as its manifest says."""
    problems = tuple(
        manifest.problems(
            found.folder, found.manifest, found.locate, thorough=thorough, progress=progress
        )
    )
    if problems:
        raise DamagedSnapshot(what, problems)


# -- inside --------------------------------------------------------------------------------


def _folder(own: JobStorage, source: SnapshotRecord | Path) -> Path:
    if isinstance(source, Path):
        return source
    return folders.snapshot(place(own, source), source.job_id, source.number)


def _check_records(folder: Path, found: Manifest) -> None:
    """Raise `DamagedSnapshot` if a stage of a snapshot that anybody may have written would be
    published from or to a folder that is not its own."""
    for key, text in found.records.items():
        if not key.startswith(keys.STAGES):
            continue
        try:
            stage = decode(StageRecord, text.encode("ascii", "surrogateescape"), key)
        except CorruptRecord as error:
            raise DamagedSnapshot(str(folder), (str(error),)) from error
        staged = stage.published or stage.name
        if stage.name != key.removeprefix(keys.STAGES) or "/" in staged or staged in (".", ".."):
            raise DamagedSnapshot(str(folder), (f"{key} names another folder than its own",))


def _locator(folder: Path, found: Manifest, storage: JobStorage) -> Locate:
    """Return where the bytes of the snapshot's files are."""
    if found.format is SnapshotFormat.CAS:
        blobs = Blobs(storage)
        return lambda file: blobs.path(file.sha256)

    def inside(file: SnapshotFile) -> Path:
        return folder / folders.FILES / file.path

    return inside
