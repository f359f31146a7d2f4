"""Swapping a restored job into place: the reservation, the swap and the commit.

From the reservation to the commit a `RestoreRecord` is stored; see `jrs.store.restores`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    JobIsRunning,
    OutcomeUnknown,
    SnapshotInUse,
    Unavailable,
)
from jrs.contract.operations import (
    Absent,
    Check,
    Create,
    Delete,
    Fence,
    Op,
    Record,
    Update,
    create_or_update,
    unchanged,
)
from jrs.contract.read_back import commit_and_read_back, still_unknown
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.lineage import Descendant, Lineage
from jrs.records.model import EpochRecord
from jrs.records.snapshots import Manifest, RestoreRecord, SnapshotRecord, as_text
from jrs.store import attempt_fence, cluster_format, restores
from jrs.store.history_texts import restore_begun, restored_from
from jrs.store.result_store import JobResultStore

from ..files import epoch_folders
from ..files.safe_listing import names_in
from . import restored_records, sources
from .index import SnapshotIndex
from .sources import RestoreRequest

_ALSO_IN_THE_LAST = 5
"""The operations of the last commit besides those for the records and the conditions: on the
restore, on the spec and on the entry of its source, and two of the event."""

_DESCENDANTS_FORMAT = 5
"""The first cluster format that records which jobs were made from a job."""

_TOPS = ("epoch", "out", "tmp", "in")
_EPOCH = re.compile(r"e[0-9]+")


@attrs.frozen
class Before:
    """What is stored of a job that a restore is to reserve."""

    spec: Record | None = None
    restore: Record | None = None
    """An earlier restore that was interrupted; it may be the record in the spec's place."""


def suspended_guards(backend: Backend, job_id: str) -> list[Op]:
    """Return the conditions that the job is not started, stopped or ended from now on."""
    found: list[Op] = [Absent(keys.RESULTS + job_id), Absent(keys.TOMBSTONES + job_id)]
    for guarded in (keys.ATTEMPTS + job_id, keys.STOPS + job_id):
        record = backend.get(guarded)
        found.append(unchanged(guarded, record))
    return found


def reserve(
    catalog: SnapshotIndex,
    found: Manifest,
    job_id: str,
    before: Before,
    guards: list[Op],
    kept: list[Update],
    request: RestoreRequest,
) -> Record:
    """Store the restore, if the job is still as it was found; return the stored record.

    The job keeps its spec, which may have been upgraded since the snapshot. A snapshot that is
    deleted at the same moment is gone, or is kept by the restore: only one of the two is committed.

    Args:
        kept: what keeps the source, as `sources.kept` returned it before the job was built.

    Raises:
        As `sources.kept`: nothing was changed.
        JobIsRunning: the job has changed.
        Unavailable, Fenced, OutcomeUnknown: from the backend.
    """
    backend, key = catalog.backend, restores.key_for(catalog.backend, job_id)
    source, known = request.source, restores.spec_of(before.spec)
    begun = RestoreRecord(
        job_id,
        str(source.resolve()) if isinstance(source, Path) else str(source.number),
        found.job_id,
        catalog.now(),
        request.claim,
        request.fork,
    )
    if key.startswith(keys.JOBS):
        replaced = before.spec
        with_spec: list[Op] = [restores.none_of(job_id)]
        begun = attrs.evolve(begun, spec=None if known is None else as_text(known))
    else:
        replaced = None if before.restore == before.spec else before.restore
        spec = known or _spec_in(catalog, found, job_id, request)
        # Written even if it is the same: a process that has read it before has to read it again.
        with_spec = [
            create_or_update(keys.JOBS + job_id, spec, before.spec and before.spec.version)
        ]
    value = encode(begun)
    own = create_or_update(key, value, replaced and replaced.version)
    shut_out = attempt_fence.shut_out_ops(backend, job_id)
    also = [*with_spec, *_descendant_ops(catalog, request.lineage, job_id), *guards, *shut_out]
    historian = catalog.historian(request.fence)
    said = restore_begun(begun.source, begun.from_job)
    while True:
        try:
            with historian.recorded(job_id, HistoryKind.RESTORE, said) as event:
                commit_and_read_back(backend, own, *also, *kept, *event, fence=request.fence)
            break
        except Conflict as conflict:
            if conflict.op in kept:
                # It was deleted, or its entry was written otherwise.
                kept = sources.kept(backend, request, job_id)
                continue
            raise JobIsRunning(
                f"job {job_id!r} was just started, resumed or submitted; nothing was changed"
            ) from None
    reserved = backend.get(key)
    if reserved is None or reserved.value != value:
        raise JobIsRunning(f"job {job_id!r} is being restored by another process")
    return reserved


def _with_spec(job_id: str, stored: Record | None, spec: bytes) -> Op:
    """Return what keeps the spec in its place, or puts it there if an operator has removed it."""
    if stored is None:
        return Create(keys.JOBS + job_id, spec)
    if stored.value != spec:
        raise _changed(job_id)  # Another restore has taken its place, in the former form.
    return Check(stored.key, stored.version)


def _descendant_ops(catalog: SnapshotIndex, lineage: Lineage | None, job_id: str) -> list[Op]:
    """Return what records a new job with the job that it descends from. An older version knows no
    such record, and nothing depends on it."""
    if lineage is None or not cluster_format.is_at_least(catalog.backend, _DESCENDANTS_FORMAT):
        return []
    key = keys.descendant(lineage.job_id, job_id)
    if catalog.backend.get(key) is not None:
        return []  # This restore was interrupted before.
    return [Create(key, encode(Descendant(lineage.job_id, job_id, lineage.how, catalog.now())))]


def _spec_in(
    catalog: SnapshotIndex, found: Manifest, job_id: str, request: RestoreRequest
) -> bytes:
    return restored_records.spec(
        catalog, found, job_id, lineage=request.lineage, changes=request.changes
    )


@contextmanager
def completed_by_a_repeat(job_id: str) -> Iterator[None]:
    """Name the remedy in an error of what follows the reservation: the job is held from there on.

    Raises:
        Unavailable: in the place of an error of the filesystem or the backend.
        SnapshotInUse, CorruptRecord: as they were raised, with the remedy.
    """
    then = (
        f"job {job_id!r} is held until you repeat the restore: "
        f"jrs snapshot restore --finish {job_id}"
    )
    try:
        yield
    except (OSError, Unavailable) as error:
        raise Unavailable(f"{error}; {then}") from error
    except (SnapshotInUse, CorruptRecord) as error:
        error.args = (f"{error}; {then}",)
        raise


def swap(
    catalog: SnapshotIndex,
    found: Manifest,
    job_id: str,
    built: Path,
    epoch: Path | None,
    reserved: Record,
) -> Path:
    """Move the built folders into place, and the old ones to the trash. Return the epoch's folder,
    which the backend's newest leader can take over.

    Args:
        epoch: the job's epoch folder, as it was at the reservation.

    Raises:
        JobIsRunning: another process has carried the restore out, or has moved the epoch's folder.
        Unavailable, OSError: something cannot be moved into place.
    """
    storage = catalog.storage
    folder = storage.folder(job_id)
    newest = _newest_epoch(catalog.backend)
    target = epoch
    if target is None or _number(target) > newest:
        known = [int(name[1:]) for name in names_in(folder) if _EPOCH.fullmatch(name)]
        known += storage.epochs(job_id)
        target = folder / epoch_folders.name_of(min(max(known, default=-1) + 1, newest))
    # Folders of future epochs are of an earlier life: no leader could take them over.
    ahead = [path for each, path in sorted(epoch_folders.of_job(folder).items()) if each > newest]
    tops = [top for top in _TOPS if (built / top).exists()]
    if "epoch" not in tops or epoch_folders.in_place(storage.folder(job_id)) != epoch:
        raise _changed(job_id)
    for top in _TOPS:
        if top in ("out", "tmp") and not found.output:
            continue
        place = target if top == "epoch" else folder / top
        for old in [*ahead, place] if top == "epoch" else [place]:
            if not old.exists():
                continue
            # Locks may not work between hosts, and this process may have slept since.
            if catalog.backend.get(reserved.key) != reserved:
                raise JobIsRunning(
                    f"another process carried out the restore of job {job_id!r}, or began it "
                    f"again; check: jrs explain {job_id}"
                )
            storage.discard(job_id, old)
        if top in tops:
            os.rename(built / top, place)
    if epoch_folders.in_place(storage.folder(job_id)) != target:
        raise _changed(job_id)
    storage.sync_names(target)
    return target


def _newest_epoch(backend: Backend) -> int:
    record = backend.get(keys.EPOCH)
    return 0 if record is None else decode(EpochRecord, record.value, record.key).epoch


def _number(epoch: Path) -> int:
    return int(epoch.name[1:])


def _changed(job_id: str) -> JobIsRunning:
    return JobIsRunning(
        f"job {job_id!r} changed during its restore and is held until you repeat the restore: "
        f"jrs snapshot restore --finish {job_id}"
    )


def commit(
    catalog: SnapshotIndex,
    found: Manifest,
    job_id: str,
    guards: list[Op],
    reserved: Record,
    request: RestoreRequest,
    also: Sequence[Op] = (),
) -> SnapshotRecord | None:
    """Store the records and, with the last of them, remove the restore. Return the entry of the
    source that this has deleted, if it is a claim.

    Args:
        also: more operations of the last commit.

    Raises:
        JobIsRunning: the job has changed.
        As `sources.used_up`: the job stays held.
    """
    backend = catalog.backend
    stored = backend.get(keys.JOBS + job_id)
    spec = restores.spec_of(stored) or _spec_in(catalog, found, job_id, request)
    from_elsewhere = isinstance(request.source, Path)
    ops = restored_records.ops(catalog, found, job_id, spec, from_elsewhere=from_elsewhere)
    room = backend.capabilities.max_ops - len(guards) - len(also) - _ALSO_IN_THE_LAST
    while len(ops) > room:
        some, ops = ops[:room], ops[room:]
        backend.commit(*some, Check(reserved.key, reserved.version), fence=request.fence)
    historian = catalog.historian(request.fence)
    of = found.job_id if job_id != found.job_id else ""
    said = restored_from(found.number, of, used_up=request.claim)
    while True:
        used_up, source = sources.used_up(catalog, request, job_id)
        last = [*ops, *guards, *also, *used_up]
        try:
            with historian.recorded(job_id, HistoryKind.RESTORE, said) as event:
                if reserved.key.startswith(keys.JOBS):
                    own = Update(reserved.key, spec, reserved.version)
                    last += [restores.none_of(job_id), *event]
                    commit_and_read_back(backend, own, *last, fence=request.fence)
                else:
                    last += [_with_spec(job_id, stored, spec), *event]
                    _commit_and_remove(backend, reserved, last, request.fence)
            return source
        except Conflict as conflict:
            if conflict.op not in used_up:
                raise _changed(job_id) from conflict
            # The entry was written otherwise, as by a move: read again.


def _commit_and_remove(
    backend: Backend, reserved: Record, ops: list[Op], fence: Fence | None
) -> None:
    try:
        backend.commit(Delete(reserved.key, reserved.version), *ops, fence=fence)
    except OutcomeUnknown as unknown:
        with still_unknown(unknown):
            gone = [reserved.key, *(op.key for op in ops if isinstance(op, Delete))]
            left = [key for key in gone if backend.get(key) is not None]
            ended = JobResultStore(backend).has_entry(keys.job_of(reserved.key))
        if left or ended:
            raise  # It may still happen; or the job's cleanup has removed the restore.
