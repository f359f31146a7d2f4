"""Which storage a client of a cluster uses, if its user names none."""

from __future__ import annotations

from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, Unavailable
from jrs.contract.storage_place import StoragePlace, place_of
from jrs.records.cluster import StorageRecord

from .disk_errors import reading
from .job_folders import JobStorage, storage_place
from .safe_listing import is_folder
from .storage_identity import StorageIdentity, recorded_storage, storage_of
from .storage_marker import FOLDER


def known_storage(
    backend: Backend, named: str | Path | None, *, check: bool = True
) -> JobStorage | None:
    """Return the storage of a cluster for a client, checked by identity; None if none is known.

    It is `named`, else what ``JRS_STORAGE`` names, else the folder next to the backend's data if
    it `is_recorded`, else the recorded one if it is on this host or is of objects, else the folder
    next to the backend's data.

    Raises:
        InvalidInput: the named one is not the cluster's; the message names both.
        CorruptRecord: the record, or the marker, is damaged.
        Unavailable: the storage cannot be looked at now.
    """
    place = storage_place(backend, named)
    if named is None and (place is None or place.root == backend.default_storage):
        record = recorded_storage(backend)
        if record is not None and not (place is not None and is_recorded(backend, place, record)):
            there = place_of(record.path)
            if there.url or _is_here(there, backend):
                place = there
    if place is None:
        return None
    storage = storage_of(backend, place)
    if check:
        with reading(f"looking at {place}"):
            StorageIdentity(backend, storage).check()
    return storage


def needed_storage(backend: Backend, named: str | Path | None) -> JobStorage:
    """Return what `known_storage` does; raise as it, and `InvalidInput` if none is known."""
    if (storage := known_storage(backend, named)) is None:
        raise InvalidInput(
            "no storage: give the folder of the jobs' files, with --storage DIR, JRS_STORAGE or "
            "jrs.connect(…, storage=DIR)"
        )
    return storage


def is_recorded(backend: Backend, place: StoragePlace, record: StorageRecord) -> bool:
    """Return whether the storage at a place has the recorded id, and no epoch of the record is
    missing in it.

    So a copy of a store uses the storage that was copied with it, and not the recorded path, which
    may be that of the original. A storage that was left behind by a move is older than the record.
    One that cannot be read now counts as another one.
    """
    try:
        found = StorageIdentity(backend, storage_of(backend, place)).marked()
    except (CorruptRecord, Unavailable, OSError):
        return False
    return found is not None and found.id == record.id and found.epoch >= record.epoch


def _is_here(place: StoragePlace, backend: Backend) -> bool:
    try:
        return is_folder(place.root / backend.cluster / FOLDER)
    except Unavailable:  # There is one: what its caller does with it says why.
        return True
