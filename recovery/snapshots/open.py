"""Opening a snapshot to read it, in any storage, and checking it."""

from __future__ import annotations

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
from ..files.disk_errors import is_lost
from ..files.job_folders import JobStorage
from . import folders, manifest
from .blobs import Blobs
from .manifest import Locate


@attrs.frozen
class OpenSnapshot:
    """A snapshot that can be read. Its folder stays while it is open."""

    folder: Path
    manifest: Manifest
    locate: Locate


def place(own: JobStorage, record: SnapshotRecord) -> JobStorage:
    """Return the storage of a snapshot; `own` is the storage of its cluster."""
    return own if record.storage is None else JobStorage(Path(record.storage), own.root.name)


def places(own: JobStorage, record: SnapshotRecord) -> list[JobStorage]:
    """Return the storages that may hold parts of a snapshot, the one that it is listed in last."""
    last = place(own, record)
    return [last] if record.copy is None else [JobStorage(Path(record.copy), own.root.name), last]


@contextmanager
def opened(own: JobStorage, source: SnapshotRecord | Path) -> Iterator[OpenSnapshot]:
    """Open a snapshot, listed or exported, for reading; it is not deleted meanwhile.

    Raises:
        DamagedSnapshot, UnsupportedVersion: its manifest cannot be used.
        InvalidInput: a folder that is not self-contained.
        Unavailable: its storage is missing, or cannot be read.
    """
    folder = _folder(own, source)
    with ExitStack() as held:
        try:
            there = held.enter_context(folders.locked(folder, shared=True, wait=True))
            if not there and isinstance(source, SnapshotRecord):
                place(own, source).root.stat()
        except OSError as error:
            if is_lost(error) and not isinstance(error, FileNotFoundError):
                raise DamagedSnapshot(str(source), (f"{folder}: {error.strerror}",)) from error
            # A filesystem may not be mounted, so it is unknown what exists.
            raise Unavailable(
                f"{source} cannot be read: {error.filename or folder}: {error.strerror}; mount "
                "the missing storage, or create the folder again if it is lost for good"
            ) from error
        if not there:
            raise DamagedSnapshot(str(source), (f"{folder} is missing",))
        yield read(own, source)


def read(own: JobStorage, source: SnapshotRecord | Path) -> OpenSnapshot:
    """Do what `opened` does; the caller already has the snapshot's lock."""
    folder = _folder(own, source)
    if isinstance(source, Path):
        found = manifest.read(folder)
        if found.format is SnapshotFormat.CAS and not _is_among_its_blobs(own, folder, found):
            raise InvalidInput(f"{folder} needs the blobs of its cluster: export it first")
        _check_records(folder, found)
        return OpenSnapshot(folder, found, _locator(folder, found, own))
    found = manifest.read(folder, source.manifest)
    return OpenSnapshot(folder, found, _locator(folder, found, place(own, source)))


def check(
    what: str, found: OpenSnapshot, *, thorough: bool, progress: transfer.Progress = transfer.silent
) -> None:
    """Raise `DamagedSnapshot` if an opened snapshot differs from its manifest."""
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
    return folders.listed(place(own, source), source)


def _is_among_its_blobs(own: JobStorage, folder: Path, found: Manifest) -> bool:
    """Return whether the files of a snapshot that is not listed may be blobs of the cluster."""
    return folder.resolve().parent == folders.snapshots(own, found.job_id).resolve()


def _check_records(folder: Path, found: Manifest) -> None:
    """Raise `DamagedSnapshot` if a stage would be published from or to a folder that is not its
    own. Anyone may have written the snapshot."""
    for key, stored in found.stored(keys.STAGES):
        try:
            stage = decode(StageRecord, stored, key)
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
