"""Blobs: files named by their content, which the ``cas`` snapshots of a cluster share.

A blob is deleted only when no manifest names it. Taking a snapshot holds the store shared, from its
first blob until the catalogue lists it; collecting holds it exclusively. So a collector sees every
manifest that counts, and the next collector removes what a crash left.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from ..files import permissions, transfer
from ..files.job_folders import JobStorage
from . import folders


class Blobs:
    """The blobs of one storage."""

    def __init__(self, storage: JobStorage) -> None:
        self.folder = storage.root / ".blobs"
        self._storage = storage

    def acquire(self) -> AbstractContextManager[bool]:
        """Keep collectors away; create the store. Waits for a collector that is running.

        Raises:
            Unavailable: the collector does not end.
        """
        self._storage.make_folder(self.folder)
        return folders.locked(self.folder, shared=True, wait=True)

    def path(self, digest: str) -> Path:
        """Return the path of a blob; it need not exist."""
        return self.folder / digest[:2] / digest

    def add(self, source: Path, size: int, digest: str | None) -> tuple[str, int]:
        """Copy a file into the store, synced; return its digest and the number of new bytes.

        If the store has a blob of the known digest, the file is not read. Call while holding the
        store.

        Raises:
            FileNotFoundError: the source is gone.
        """
        if digest is not None and self._has(digest, size):
            return digest, 0
        temporary = self.folder / f".{uuid.uuid4().hex}"
        try:
            found = transfer.copy(source, temporary)
            new = 0 if self._has(found, size) else size
            target = self.path(found)
            permissions.make(target.parent, exist_ok=True)
            # The existing blob may be truncated or damaged; this copy was just hashed.
            os.replace(temporary, target)
            transfer.sync(target.parent)
            return found, new
        finally:
            temporary.unlink(missing_ok=True)

    def alone(self) -> AbstractContextManager[bool]:
        """Hold the store exclusively; yields False while snapshots are being taken."""
        return folders.locked(self.folder)

    def all(self) -> Iterator[str]:
        """Yield the digest of every blob."""
        if self.folder.is_dir():
            for folder in sorted(self.folder.iterdir()):
                if not folder.name.startswith(".") and folder.is_dir():
                    yield from sorted(os.listdir(folder))

    def _has(self, digest: str, size: int) -> bool:
        try:
            return self.path(digest).stat().st_size == size
        except FileNotFoundError:
            return False
