"""Unnamed blobs: those that no snapshot of a storage names any more.

The manifests are read before the store is held: no ``cas`` snapshot can be taken while it is.
Then only those are read that have come since.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jrs.contract.errors import CorruptRecord, DamagedSnapshot, Unavailable
from jrs.records.snapshots import SnapshotFormat

from ..files.job_folders import JobStorage
from . import folders, manifest
from .blobs import Blobs


def collect(storage: JobStorage) -> None:
    """Delete the blobs that no snapshot of the storage names, and what a crash left half-written.

    Does nothing while snapshots are being taken, or if a manifest cannot be read: nothing is
    deleted on a guess.
    """
    try:
        with unnamed(storage) as found:
            for path in found or ():
                path.unlink(missing_ok=True)
    except (CorruptRecord, Unavailable):
        return


@contextmanager
def unnamed(storage: JobStorage) -> Iterator[list[Path] | None]:
    """Hold the store alone and yield the blobs that no snapshot of the storage names, listed or
    not, and those that are half-written; yields None while snapshots are being taken.

    Raises:
        CorruptRecord: a manifest is damaged, so it may name any blob.
        Unavailable: the same, of one that cannot be read now.
    """
    blobs, named = Blobs(storage), _Named(storage)
    # First the blobs: one that is written from now on is not among them.
    known = list(blobs.all())
    if blobs.folder.is_dir():
        named.read()
    with blobs.alone() as mine:
        if not mine:
            yield [] if not blobs.folder.is_dir() else None
            return
        named.read()
        paths = [blobs.path(digest) for digest in known if digest not in named.digests]
        yield paths + list(blobs.folder.glob(".*"))


class _Named:
    """The digests that the ``cas`` snapshots of a storage name."""

    def __init__(self, storage: JobStorage) -> None:
        self.digests = set[str]()
        self._storage = storage
        self._known: dict[Path, tuple[int, int, int]] = {}

    def read(self) -> None:
        """Read the manifests that are not known yet; raises as `unnamed`."""
        for job_id in self._storage.jobs():
            for number in folders.whole(self._storage, job_id):
                for folder in folders.of_number(self._storage, job_id, number):
                    self._add(folder)

    def _add(self, folder: Path) -> None:
        try:
            found = os.stat(folder / folders.MANIFEST)
            same = found.st_ino, found.st_size, found.st_mtime_ns
        except OSError:
            same = None  # Reading it says what is wrong.
        if same is not None and self._known.get(folder) == same:
            return
        if same is not None and manifest.has_no_blobs(folder):
            self._known[folder] = same
            return  # Decoding it takes long: it may name a million files.
        try:
            read = manifest.read(folder)
        except DamagedSnapshot:
            if folder.is_dir():
                raise
            return  # It does not exist, or was just deleted.
        if read.format is SnapshotFormat.CAS:
            self.digests.update(file.sha256 for file in read.files)
        if same is not None:
            self._known[folder] = same
