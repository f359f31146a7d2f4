"""Whether jobs can keep their files in a storage: checked before a master leads."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, Unavailable
from jrs.host.filesystems import check_storage
from jrs.store import heads
from jrs.store.cluster_format import too_old

from ..files import epoch_folders
from ..files.job_folders import JobStorage, storage_place
from ..files.storage_identity import StorageIdentity, storage_of
from ..storage.objects import Objects
from ..storage.probe import probe


def ready(backend: Backend, storage: str | Path | None) -> tuple[JobStorage, StorageIdentity]:
    """Return the storage, made if it was missing, and its identity.

    Raises:
        InvalidInput: it cannot be used, or is not that of the cluster.
    """
    folders = find(backend, storage)
    identity = StorageIdentity(backend, folders)
    with suppress(CorruptRecord, OSError):  # It waits for an operator; see `Master`.
        identity.check()
    make(backend, folders)
    return folders, identity


def find(backend: Backend, storage: str | Path | None) -> JobStorage:
    """Return the storage that is named, or the one that belongs to the backend.

    Raises:
        InvalidInput: there is none, or its objects cannot be used.
    """
    place = storage_place(backend, storage)
    if place is None:
        raise InvalidInput(
            "storage is missing: name a folder that all masters share: --storage FOLDER "
            "(or storage=…, or JRS_STORAGE)"
        )
    folders = storage_of(backend, place)
    if folders.objects is not None:
        _check_objects(backend, folders.objects)
    return folders


def make(backend: Backend, folders: JobStorage) -> None:
    """Make the folders, if they are missing.

    Raises:
        InvalidInput: jobs cannot keep their files there, or not on this filesystem.
    """
    root = folders.place.root
    check_storage(root, renewed=_are_folders_renewed(backend))
    try:
        folders.make()
    except OSError as error:
        raise InvalidInput(
            f"jobs cannot keep their files in {root}: {error.strerror}; name another folder"
        ) from None
    if not os.access(folders.root, os.W_OK | os.X_OK):
        raise InvalidInput(f"jobs cannot keep their files in {root}: no permission")


def _check_objects(backend: Backend, objects: Objects) -> None:
    if why := too_old(backend, heads.SINCE_FORMAT, "a storage of objects"):
        raise InvalidInput(why)
    try:
        probe(objects)
    except Unavailable as error:
        raise InvalidInput(str(error)) from None


def _are_folders_renewed(backend: Backend) -> bool:
    try:
        return epoch_folders.are_renewed(backend)
    except CorruptRecord:
        return False  # It waits for an operator; see `Master`.
