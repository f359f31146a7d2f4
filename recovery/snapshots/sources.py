"""The source of a restore: it stays until the restore is complete, or the restore uses it up.

A restore that uses its source up, a claim, deletes the snapshot, and may give the job its files. So
no other restore may need the snapshot, and of several claims one is completed. The entry of the
snapshot decides: a restore that begins writes a new version of it, a claim that is completed
deletes it, and both read it before they search for the restores that have begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import JrsError, NoSuchSnapshot
from jrs.contract.operations import Delete, Fence, Record, Update
from jrs.records.lineage import Lineage
from jrs.records.snapshots import SnapshotFile, SnapshotFormat, SnapshotRecord
from jrs.store import restores

from ..files import transfer
from . import contents, copying, delete, deletion_notes
from .index import SnapshotIndex, current_entry, deleted


@attrs.frozen
class RestoreRequest:
    """The source of a restore, and its options."""

    source: SnapshotRecord | Path
    as_job: str | None
    claim: bool
    fork: bool
    fence: Fence | None
    is_stopped: Callable[[str], bool] | None
    progress: transfer.Progress
    left: Record | None = None
    """The record of the interrupted restore to carry out, if it must be that one."""
    lineage: Lineage | None = None
    """How a new job descends from the job of the snapshot."""
    accept_published: bool = False
    """Whether what the job has done since, outside of its folders, may stay."""
    changes: Mapping[str, Any] = attrs.field(factory=dict)
    """The fields of the spec that a new job has otherwise, as plain JSON."""


def kept(backend: Backend, request: RestoreRequest, job_id: str) -> list[Update]:
    """Return what keeps the source from the reservation on: the same entry in a new version. It
    fails what has searched for restores before: a deletion, a claim, and another reservation.
    An exported snapshot has no entry. Reads all specs, unless the restore is repeated.

    Raises:
        NoSuchSnapshot: the source is gone.
        SnapshotInUse: another restore needs it, and one of both uses it up.
        UnsupportedVersion: this is a claim, and a newer jrs has begun a restore of any snapshot.
        CorruptRecord: this is a claim, and a restore that has begun may be lost; or the entry
            cannot be read.
    """
    source = request.source
    if isinstance(source, Path):
        return []
    found = current_entry(backend, source)
    if found is None:
        raise deleted(source)
    entry, current = found
    repeats = request.left is not None
    if request.claim:
        copying.check_none(current, besides=job_id)
    if request.claim or not repeats:
        _check_others(backend, source, job_id, claim=request.claim, begins=not repeats)
    return [Update(entry.key, entry.value, entry.version)]


def used_up(
    catalog: SnapshotIndex, request: RestoreRequest, job_id: str
) -> tuple[list[Delete], SnapshotRecord | None]:
    """Return what deletes the entry of the source, if the restore uses it up, and that entry: the
    source may have been moved since the restore began.

    Raises:
        NoSuchSnapshot: the source is gone: another claim was completed first.
        As `kept`: a version that does not look for claims, or cannot read this one, has begun a
            restore meanwhile.
    """
    source, backend = request.source, catalog.backend
    if not request.claim or isinstance(source, Path):
        return [], None
    found = current_entry(backend, source)
    if found is None:
        raise NoSuchSnapshot(
            f"{source} was just used up or deleted; if job {job_id!r} is still held, restore it "
            f"from another snapshot, or: jrs cancel {job_id}"
        )
    entry, current = found
    copying.check_none(current, besides=job_id)
    _check_others(backend, source, job_id, claim=True, begins=False)
    deletion_notes.note(backend, catalog.storage, current, deletion_notes.What.DELETION)
    return [Delete(entry.key, entry.version)], current


def use_up(
    catalog: SnapshotIndex, request: RestoreRequest, job_id: str, deleted: SnapshotRecord | None
) -> None:
    """Remove the source of a restored job, if it was claimed, or taken for the job's fork; or what
    can be removed now. The leader and `gc` remove the rest: the job is restored all the same.

    Args:
        deleted: the entry of a claimed snapshot, which the restore has deleted.
    """
    source = deleted or request.source
    if isinstance(source, SnapshotRecord):
        if request.claim or source.for_fork == job_id:
            with suppress(JrsError):
                delete.remove(catalog.backend, catalog.storage, source, request.fence)
    elif request.claim:
        transfer.remove(source)


def may_be_shared(file: SnapshotFile, how: SnapshotFormat, request: RestoreRequest) -> bool:
    """Return whether the job may get the snapshot's own file, because it never writes into it."""
    if how is SnapshotFormat.FULL:
        return request.claim  # The snapshot is used up, and no other snapshot has the file.
    return contents.never_changes(file)


# -- inside --------------------------------------------------------------------------------


def _check_others(
    backend: Backend, source: SnapshotRecord, job_id: str, *, claim: bool, begins: bool
) -> None:
    """Raise `SnapshotInUse` if the restore of another job has begun from the source, and it or this
    one uses the source up. Of two claims that have begun, as by older versions, the first to be
    completed wins."""
    # Without a claim nothing is deleted. One that cannot be read looks again before it deletes.
    begun = (one for one in restores.begun(backend, whole=claim) if one.job_id != job_id)
    others = (one for one in begun if (begins if one.claim else claim))
    delete.check_no_source(backend, source, others)
