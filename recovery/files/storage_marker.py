"""The marker of a storage: what `StorageIdentity` keeps there, as files or as objects."""

from __future__ import annotations

import os
import re
import uuid
from typing import Protocol

from jrs.contract.errors import CorruptRecord

from ..storage.objects import Objects
from .job_folders import JobStorage, sync_folder, sync_tree

FOLDER = ".storage"
_EPOCH = re.compile(r"e([0-9]+)")


class Marker(Protocol):
    """The marker of one cluster's storage."""

    def read(self) -> bytes | None:
        """Return what the marker says; None if there is none.

        Raises:
            CorruptRecord: it cannot be read.
            Unavailable: the storage does not answer.
        """

    def write(self, content: bytes) -> None:
        """Write the marker; it appears whole. Durable.

        Raises:
            OSError, Unavailable: it may not be written.
        """

    def epochs(self) -> list[int]:
        """Return the epochs that are known to have led with the storage."""

    def add_epoch(self, epoch: int) -> None:
        """Remember an epoch, and forget those before it. Durable; raises as `write`."""


def marker_of(storage: JobStorage) -> Marker:
    """Return the marker of a storage."""
    return _Files(storage) if storage.objects is None else _Objects(storage.objects)


class _Files:
    def __init__(self, storage: JobStorage) -> None:
        self._storage = storage
        self._folder = storage.root / FOLDER

    def read(self) -> bytes | None:
        path = self._folder / "id"
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise CorruptRecord(f"{path} cannot be read: {error.strerror}") from None

    def write(self, content: bytes) -> None:
        self._storage.make_folder(self._folder)
        whole = self._folder / f".{uuid.uuid4().hex}"
        whole.write_bytes(content)
        sync_tree(self._folder)
        os.rename(whole, self._folder / "id")
        sync_folder(self._folder)

    def epochs(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return _epochs_in(names)

    def add_epoch(self, epoch: int) -> None:
        path = self._folder / f"e{epoch}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        sync_folder(self._folder)
        for older in self.epochs():
            if older < epoch:
                (self._folder / f"e{older}").unlink(missing_ok=True)


class _Objects:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def read(self) -> bytes | None:
        return self._objects.get(f"{FOLDER}/id")

    def write(self, content: bytes) -> None:
        self._objects.put(f"{FOLDER}/id", content)

    def epochs(self) -> list[int]:
        listed = self._objects.under(FOLDER)
        return _epochs_in([one.name.removeprefix(f"{FOLDER}/") for one in listed])

    def add_epoch(self, epoch: int) -> None:
        older = [one for one in self.epochs() if one < epoch]
        self._objects.put(f"{FOLDER}/e{epoch}", b"")
        self._objects.delete(f"{FOLDER}/e{one}" for one in older)


def _epochs_in(names: list[str]) -> list[int]:
    return [int(match[1]) for match in map(_EPOCH.fullmatch, names) if match]
