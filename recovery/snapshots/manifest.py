"""The manifest of a snapshot: writing it, reading it, and finding differences from it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from jrs.contract.errors import (
    CorruptRecord,
    DamagedSnapshot,
    InvalidInput,
    Unavailable,
    UnsupportedVersion,
)
from jrs.records.codec import decode, encode
from jrs.records.snapshots import Manifest, SnapshotFile, SnapshotFormat, SnapshotRecord

from ..files import transfer
from ..files.disk_errors import is_lost
from ..files.safe_listing import walk
from .folders import FILES, MANIFEST

_BEGINNING = re.compile(
    rb'\{"jrs":"manifest/1","crc":"[0-9a-f]{8}","body":'
    rb'\{"job_id":"[^"]{1,128}","number":[0-9]{1,18},"format":"([a-z]+)",'
)
_OWN_FILES = frozenset(SnapshotFormat) - {SnapshotFormat.CAS}
_LONGEST = 512
"""Bytes that a beginning takes at most."""

Locate = Callable[[SnapshotFile], Path]
"""Returns the path of a file's bytes: in the snapshot's own folder, or among the blobs."""


def write(folder: Path, manifest: Manifest) -> str:
    """Write the manifest of a snapshot, synced except for its name; return its sha256."""
    data = encode(manifest)
    transfer.write(folder / MANIFEST, data)
    return hashlib.sha256(data).hexdigest()


def read(folder: Path, digest: str | None = None) -> Manifest:
    """Return the manifest of the snapshot in `folder`, checked except for the files it names.

    `digest` is the sha256 that the catalogue has.

    Raises:
        DamagedSnapshot: it is missing or changed, or names what no snapshot may contain.
        UnsupportedVersion: a newer jrs has written it.
        Unavailable: it could not be read for another reason than damage.
    """
    path = folder / MANIFEST
    data = _data(folder)
    manifest = _decoded(folder, data)
    if digest is not None and hashlib.sha256(data).hexdigest() != digest:
        problem = f"{path} is not the manifest in the catalogue"
        raise DamagedSnapshot(str(folder), (problem,))
    return manifest


def has_no_blobs(folder: Path) -> bool:
    """Return whether the beginning of a manifest says that the snapshot has its files in its own
    folder. If it cannot be read, or begins otherwise, only reading all of it tells."""
    try:
        with open(transfer.open_regular(folder / MANIFEST), "rb") as file:
            found = _BEGINNING.match(file.read(_LONGEST))
    except OSError:
        return False
    return found is not None and found[1].decode() in _OWN_FILES


def is_of(folder: Path, record: SnapshotRecord) -> bool:
    """Return whether a folder holds a listed snapshot, in its present format or in a former one.

    Another cluster may have a snapshot of the same job and number in a storage that both use. A
    folder whose manifest is missing or damaged may be that one.

    Raises:
        Unavailable: the manifest could not be read for another reason than damage.
    """
    try:
        data = _data(folder)
        if hashlib.sha256(data).hexdigest() == record.manifest:
            return True
        found = _decoded(folder, data)
    except CorruptRecord:
        return False
    # A conversion keeps these. The ids of the queries are unique, and so is the time in practice.
    return (found.job_id, found.number, found.created_at, found.stages) == (
        record.job_id, record.number, record.created_at, record.stages
    )  # fmt: skip


def problems(
    folder: Path,
    manifest: Manifest,
    locate: Locate,
    *,
    thorough: bool = True,
    progress: transfer.Progress = transfer.silent,
) -> Iterator[str]:
    """Yield a line for each file that is missing, changed, a link, or not in the manifest.

    Thorough reads every byte; otherwise only names and sizes are compared.

    Raises:
        Unavailable: a file could not be read for another reason than damage.
    """
    if manifest.format is not SnapshotFormat.CAS:
        try:
            yield from _too_many(folder, {file.path for file in manifest.files})
        except OSError as error:
            yield _lost(folder, error)
    for done, file in enumerate(manifest.files):
        progress(done, len(manifest.files))
        path = locate(file)
        try:
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                yield f"{path} is a link"
            elif not stat.S_ISREG(found.st_mode):
                yield f"{path} is not a file"
            elif found.st_size != file.size:
                yield f"{path} has {found.st_size:,} bytes instead of {file.size:,}"
            elif thorough and transfer.digest(path) != file.sha256:
                yield f"{path} has changed: its sha256 differs"
        except (FileNotFoundError, NotADirectoryError):
            yield f"{path} is missing"
        except OSError as error:
            yield _lost(path, error)
    progress(len(manifest.files), len(manifest.files))


def _data(folder: Path) -> bytes:
    path = folder / MANIFEST
    try:
        with open(transfer.open_regular(path), "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise DamagedSnapshot(str(folder), (f"{path} is missing",)) from None
    except OSError as error:
        problem = _lost(path, error)
        raise DamagedSnapshot(str(folder), (problem,)) from error


def _decoded(folder: Path, data: bytes) -> Manifest:
    try:
        manifest = decode(Manifest, data, str(folder / MANIFEST))
        manifest.check()
    except UnsupportedVersion:
        raise
    except (CorruptRecord, InvalidInput) as error:
        raise DamagedSnapshot(str(folder), (str(error),)) from error
    return manifest


def _lost(path: Path, error: OSError) -> str:
    """Return what is wrong with a file that cannot be read; raise `Unavailable` if it may be
    whole, so that a retry can help."""
    problem = f"{path} cannot be read: {error.strerror}"
    if not is_lost(error):
        raise Unavailable(problem) from error
    return problem


def _too_many(folder: Path, listed: set[str]) -> Iterator[str]:
    for name in sorted(os.listdir(folder)):
        if name not in (MANIFEST, FILES):
            yield f"{folder / name} is not in the manifest"
    if (folder / FILES).is_symlink():
        yield f"{folder / FILES} is a link"
        return
    try:
        for where, _, others in walk(folder / FILES, missing_ok=True):
            for name in others:
                if (where / name).relative_to(folder / FILES).as_posix() not in listed:
                    yield f"{where / name} is not in the manifest"
    except OSError as error:
        yield _lost(folder / FILES, error)
