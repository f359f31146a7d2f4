"""Orphans: what crashes leave of snapshots and restores, and what to do about each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, Unavailable
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.snapshots import RestoreRecord, SnapshotFormat, SnapshotRecord
from jrs.store import restores

from ..files.job_folders import JobStorage
from . import deletion_notes, folders, for_forks
from .blobs import Blobs
from .deletion_notes import Doomed
from .open import place, read
from .unnamed_blobs import unnamed


def find_orphans(
    backend: Backend,
    storage: JobStorage,
    alone: Callable[[Iterator[str]], Iterator[str]] = iter,
) -> Iterator[str]:
    """Yield a line for each part of a snapshot that has no owner. Work in progress has one.

    Changes nothing.

    Args:
        alone: goes through each check, of one job or one kind; it may end that check alone.

    Raises:
        Unavailable, OSError: from the backend, or a folder cannot be read now.
    """
    records = []
    for stored in backend.scan(keys.SNAPSHOTS):
        try:
            records.append(decode(SnapshotRecord, stored.value, stored.key))
        except CorruptRecord:
            continue  # It is reported as damage.
    of_jobs: dict[str, list[SnapshotRecord]] = {}
    for record in records:
        yield from alone(_of_record(storage, record))
        of_jobs.setdefault(record.job_id, []).append(record)
    notes = [left for left in deletion_notes.noted(storage) if left.counts(backend)]
    for job_id in storage.jobs():
        own = (left for left in notes if left.job_id == job_id)
        yield from alone(_of_folder(storage, job_id, of_jobs.get(job_id, []), own))
    yield from alone(_of_deletions(backend, storage))
    yield from alone(_of_restores(backend, storage))
    yield from alone(_of_forks(backend, storage, records))
    yield from _of_blobs(storage)
    for root in sorted({each.storage for each in records if each.storage is not None}):
        moved = JobStorage(Path(root), storage.root.name)
        if any(r.format is SnapshotFormat.CAS and r.storage == root for r in records):
            yield from _of_blobs(moved)


# -- inside --------------------------------------------------------------------------------


def _of_record(storage: JobStorage, record: SnapshotRecord) -> Iterator[str]:
    if record.objects is not None:
        return  # It has no folder; `jrs snapshot verify` reads its objects.
    holds = place(storage, record)
    folder = folders.listed(holds, record)
    if not holds.root.is_dir():
        yield f"{record}: its storage {holds.root} is missing: mount it"
    elif not folder.is_dir():
        yield (
            f"{record}: its folder {folder} is gone; "
            f"jrs snapshot delete {record.job_id} {record.number}"
        )
    if record.copy is not None:
        yield (
            f"{record}: a move was interrupted, {record.copy} may have a part of it; repeat "
            "the move, or "
            f"jrs snapshot delete {record.job_id} {record.number}"
        )


def _of_folder(
    storage: JobStorage, job_id: str, records: Iterable[SnapshotRecord], notes: Iterable[Doomed]
) -> Iterator[str]:
    noted = {folder for left in notes for folder in left.folders_in(storage)}
    here = {
        record.number: folders.listed(storage, record)
        for record in records
        if record.storage is None or str(storage.root.parent) in (record.storage, record.copy)
    }
    for number in sorted(folders.unfinished(storage, job_id)):
        path = folders.building(storage, job_id, number)
        if _is_abandoned(path):
            yield f"{path}: an unfinished snapshot; the next snapshot removes it"
    for number in sorted(folders.whole(storage, job_id)):
        for path in folders.of_number(storage, job_id, number):
            if path == here.get(number) or not _is_abandoned(path):
                continue
            if number in here:
                yield f"{path}: left over by a conversion of the snapshot; jrs gc removes it"
            elif path in noted:
                yield (
                    f"{path}: a snapshot that is not listed; "
                    f"jrs snapshot delete {job_id} {number}, or jrs gc removes it"
                )
            else:
                yield not_listed(storage, job_id, number, path)


def not_listed(storage: JobStorage, job_id: str, number: int, path: Path) -> str:
    """Return what to do with the folder of a snapshot that no record and no note explains."""
    remedy = f"jrs snapshot delete {job_id} {number}"
    try:
        found = read(storage, path).manifest
    except (CorruptRecord, InvalidInput, Unavailable) as error:
        return f"{path}: a snapshot that is not listed: {remedy}, as it cannot be restored: {error}"
    if found.format.is_restorable and found.output:
        remedy = f"jrs snapshot restore --from {path} --as NEW, or {remedy}"
    return f"{path}: a snapshot that is not listed: {remedy}"


def _of_deletions(backend: Backend, storage: JobStorage) -> Iterator[str]:
    for left in deletion_notes.noted(storage):
        try:
            others = () if left.is_listed(backend) else left.storages()[1:]
        except (CorruptRecord, Unavailable) as error:
            yield f"{left.note}: cannot be checked: {error}"
            continue
        remedy = f"jrs snapshot delete {left.job_id} {left.number}"
        if left.counts(backend):
            remedy = "jrs gc"
        for other in others:
            path = folders.snapshots(other, left.job_id)
            yield (
                f"{path}: a deletion of snapshot {left.number} was interrupted; {remedy} completes "
                "it"
            )


def _of_restores(backend: Backend, storage: JobStorage) -> Iterator[str]:
    for stored in restores.scan(backend):
        try:
            restore = decode(RestoreRecord, stored.value, stored.key)
        except CorruptRecord:
            continue  # It cannot be finished, and is reported as unreadable.
        path = folders.restoring(storage, restore.job_id)
        if not path.is_dir() or _is_abandoned(path):
            yield (
                f"{stored.key}: a restore was interrupted, the job is held; "
                f"jrs snapshot restore --finish {restore.job_id}"
            )
    for job_id in storage.jobs():
        path = folders.restoring(storage, job_id)
        if path.is_dir() and _is_abandoned(path):
            yield f"{path}: left over by a restore; the job's next snapshot removes it"


def _of_forks(
    backend: Backend, storage: JobStorage, records: list[SnapshotRecord]
) -> Iterator[str]:
    for record in for_forks.needless(backend, records, math.inf):
        # Objects have no lock that tells whether the fork is at work.
        if record.objects is None and _is_abandoned(folders.listed(storage, record)):
            yield (
                f"{record}: left over by a fork to {record.for_fork!r} that died; jrs gc removes it"
            )


def _of_blobs(storage: JobStorage) -> Iterator[str]:
    folder = Blobs(storage).folder
    try:
        with unnamed(storage) as held:
            found = held or ()  # None: snapshots are being taken.
    except (CorruptRecord, Unavailable) as error:
        yield f"{folder}: cannot be checked: {error}"
        return
    if found:
        first = ", ".join(path.name for path in found[:3])
        yield f"{folder}: {len(found)} blobs that no snapshot names ({first}…); jrs gc removes them"


def _is_abandoned(path: Path) -> bool:
    with folders.locked(path) as mine:
        return mine
