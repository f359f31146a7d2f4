"""The marker of a storage: what `StorageIdentity` keeps there, as files or as objects."""

from __future__ import annotations

import abc
import os
import re
import uuid
from typing import Protocol

from jrs.contract.errors import CorruptRecord

from ..storage.objects import Objects
from .disk_errors import GONE, is_lost
from .job_folders import JobStorage
from .transfer import sync_folder, sync_tree

FOLDER = ".storage"
EPOCH = "e"
"""Begins the name of a number: an epoch that has led with the storage."""
COUNT = "n"
"""Begins the name of a number: how often the ends of jobs were counted."""
_NUMBER = re.compile(r"([a-z])([0-9]+)")


class Marker(Protocol):
    """The marker of one cluster's storage."""

    def read(self) -> bytes | None:
        """Return what the marker says; None if there is none.

        Raises:
            CorruptRecord: it is damaged.
            OSError, Unavailable: it cannot be read now.
        """

    def write(self, content: bytes) -> None:
        """Write the marker; it appears whole. Durable.

        Raises:
            OSError, Unavailable: it may not be written.
        """

    def newest(self, kind: str) -> int:
        """Return the largest number of a kind, `EPOCH` or `COUNT`; 0 if there is none.

        Raises:
            OSError, Unavailable: the storage cannot be looked at now.
        """

    def add(self, kind: str, number: int) -> None:
        """Remember a number, and forget the smaller ones of its kind. Durable; raises as `write`.

        A larger one stays: a process that was replaced may add late.
        """


def marker_of(storage: JobStorage) -> Marker:
    """Return the marker of a storage."""
    return _Files(storage) if storage.objects is None else _Objects(storage.objects)


class _Numbers(abc.ABC):
    """The numbers of a marker, by their kind."""

    def newest(self, kind: str) -> int:
        return max(self._numbers(kind), default=0)

    @abc.abstractmethod
    def _numbers(self, kind: str) -> list[int]:
        """Return those of a kind, in no order."""


class _Files(_Numbers):
    def __init__(self, storage: JobStorage) -> None:
        self._storage = storage
        self._folder = storage.root / FOLDER

    def read(self) -> bytes | None:
        path = self._folder / "id"
        try:
            return path.read_bytes()
        except GONE:
            return None
        except OSError as error:
            if not is_lost(error):
                raise
            raise CorruptRecord(f"{path} cannot be read: {error.strerror}") from None

    def write(self, content: bytes) -> None:
        self._storage.make_folder(self._folder)
        whole = self._folder / f".{uuid.uuid4().hex}"
        whole.write_bytes(content)
        sync_tree(self._folder)
        os.rename(whole, self._folder / "id")
        sync_folder(self._folder)

    def add(self, kind: str, number: int) -> None:
        path = self._folder / f"{kind}{number}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        sync_folder(self._folder)
        for other in self._numbers(kind):
            if other < number:
                (self._folder / f"{kind}{other}").unlink(missing_ok=True)

    def _numbers(self, kind: str) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except GONE:
            return []
        return _numbers_in(names, kind)


class _Objects(_Numbers):
    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def read(self) -> bytes | None:
        return self._objects.get(f"{FOLDER}/id")

    def write(self, content: bytes) -> None:
        self._objects.put(f"{FOLDER}/id", content)

    def add(self, kind: str, number: int) -> None:
        smaller = [one for one in self._numbers(kind) if one < number]
        self._objects.put(f"{FOLDER}/{kind}{number}", b"")
        self._objects.delete(f"{FOLDER}/{kind}{one}" for one in smaller)

    def _numbers(self, kind: str) -> list[int]:
        listed = self._objects.under(FOLDER)
        return _numbers_in([one.name.removeprefix(f"{FOLDER}/") for one in listed], kind)


def _numbers_in(names: list[str], kind: str) -> list[int]:
    matches = filter(None, map(_NUMBER.fullmatch, names))
    return [int(match[2]) for match in matches if match[1] == kind]
