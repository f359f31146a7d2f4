"""Restoring an epoch that is damaged, lost or behind its storage: one above every recorded one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, UnsupportedVersion
from jrs.contract.operations import Delete
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.records.cluster import MAX_EPOCH, MigrationRecord
from jrs.records.codec import decode, decode_any, encode
from jrs.records.model import EpochRecord
from jrs.records.stored import Stored

from ..files.disk_errors import reading
from ..files.job_folders import JobStorage
from ..files.storage_identity import StorageIdentity

_NAMES = ("epoch", "leading")
"""The names of fields that hold an epoch."""


def restore_epoch(backend: Backend, storage: JobStorage | None) -> int | None:
    """Write an epoch above all recorded ones, if the current one is damaged, lost, or older than
    the newest one that led with the storage, or if the store is older than the storage.

    Returns:
        The epoch that was written; None if there was nothing to restore. Durable, idempotent.

    Raises:
        UnsupportedVersion: a newer jrs wrote it, which is no damage, or another record, which may
            hold a later epoch.
        CorruptRecord: a record, or the name of a folder, holds an epoch above `MAX_EPOCH`.
        Unavailable, OutcomeUnknown: as `Backend.commit`.
    """
    # Before the store's: a leader that takes over meanwhile counts there first.
    identity = None if storage is None else StorageIdentity(backend, storage)
    used, ahead = 0, False
    if identity is not None:
        with reading("looking at the storage"):
            used = identity.epoch()
        with suppress(CorruptRecord):  # `restore_cluster_records` restores it from the marker.
            ahead = identity.is_ahead()
    try:
        found = backend.get(keys.EPOCH)
        newest = None if found is None else decode(EpochRecord, found.value, keys.EPOCH).epoch
        if newest is not None and used <= newest and not ahead:
            return None
        damaged = False
    except UnsupportedVersion:
        raise
    except CorruptRecord:
        damaged = True
    highest, where = max(_recorded(backend, storage), default=(0, ""))
    if not damaged and not highest:
        return None  # No master has led yet.
    if highest >= MAX_EPOCH:
        raise CorruptRecord(
            f"{where}: holds epoch {shown(highest)}, and there is none above {MAX_EPOCH}; the "
            "cluster's epoch cannot be restored above it, and nothing was changed"
        )
    epoch = highest + 1
    value = encode(EpochRecord(epoch, "fsck", f"{epoch}-restored"))
    backend.overwrite(keys.EPOCH, value)
    if identity is not None and ahead:
        identity.accept_count()  # Last: if it is interrupted, a repeated call does all of it.
    return epoch


def restore_cluster_records(backend: Backend, storage: JobStorage | None) -> list[str]:
    """Replace those records of the whole cluster that cannot be read; return their keys.

    The storage is recorded again from its own marker. A pause or a switchover whose record is lost
    is over, and a lost history of the cluster begins again. A closing whose record is lost is over,
    too, unless the cluster may have been moved: as long as its migrations name another backend, it
    stays closed, and nothing is replaced. Durable, idempotent.

    Raises:
        Unavailable, OutcomeUnknown: as `Backend.commit`.
    """
    restored = []
    # The closing first: what can be written without a fence depends on it.
    others = (keys.STORAGE, keys.PAUSE, keys.SWITCHOVER, keys.CLUSTER_HISTORY)
    for key in (keys.CLOSED, keys.MIGRATION, *others):
        try:
            backend.get(key)
            continue
        except CorruptRecord:
            pass
        if key == keys.CLOSED and _may_have_left(backend):
            break
        record = None
        if key == keys.STORAGE and storage is not None:
            record = StorageIdentity(backend, storage).marked()
        backend.overwrite(key, b"" if record is None else encode(record))
        if record is None:
            backend.commit(Delete(key))
        restored.append(key)
    return restored


def _may_have_left(backend: Backend) -> bool:
    """Return whether a record says that a migration of the cluster has begun."""
    try:
        stored = backend.get(keys.MIGRATION)
        own = None if stored is None else decode(MigrationRecord, stored.value, stored.key)
    except CorruptRecord:
        return False
    return own is not None and bool(own.leaves_by)


def _recorded(backend: Backend, storage: JobStorage | None) -> Iterator[tuple[int, str]]:
    """Yield each recorded epoch, and where it is recorded."""
    for epoch in backend.epochs():
        yield epoch, f"the files of {backend.url}"
    for record in backend.scan(""):
        try:
            value = decode_any(record.value, record.key)
        except UnsupportedVersion:
            raise
        except CorruptRecord:
            continue
        for epoch in _within(value):
            yield epoch, record.key
    if storage is not None:
        yield StorageIdentity(backend, storage).epoch(), f"the marker of {storage.root}"
        for job_id in storage.jobs():
            for epoch in storage.epochs(job_id):
                yield epoch, str(storage.folder(job_id))


def _within(value: object) -> Iterator[int]:
    """Yield the epochs in a record. What users gave, such as arguments, is plain JSON in it."""
    if isinstance(value, tuple):
        for item in value:
            yield from _within(item)
    elif isinstance(value, Stored):
        fields = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
        # The fields of a newer version; below them may be what users gave.
        for name, inner in {**(value.unknown or {}), **fields}.items():
            if name in _NAMES and isinstance(inner, int):
                yield inner
            else:
                yield from _within(inner)
