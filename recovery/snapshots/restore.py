"""Restoring a job from a snapshot: build next to the job, then swap while every master holds it.

::

    build     <job>/.restore/{epoch,out,tmp,in}      nothing is changed yet
    reserve   a `RestoreRecord` is stored, with the spec: no master starts the job
    swap      the old folders to the trash, the built ones to their place
    commit    the records; the restore, and a claimed snapshot's entry, go with them

A crash before the reservation leaves a folder that the next restore removes. After a later crash
the job is held until the restore is repeated; `jrs explain` and `jrs fsck` report that. The
snapshot stays whole until then. `jrs.store.stop_transitions` has the transitions.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import (
    DamagedSnapshot,
    DuplicateJob,
    InvalidInput,
    JobIsRunning,
    WrongState,
)
from jrs.contract.operations import Fence
from jrs.records import keys
from jrs.records.checks import check_job_id
from jrs.records.codec import decode
from jrs.records.lineage import LineageKind
from jrs.records.model import JobSpec, StopRecord, StopState
from jrs.records.snapshots import (
    Manifest,
    RestoreRecord,
    SnapshotRecord,
    SnapshotStage,
)
from jrs.store import object_order, restores
from jrs.store.result_store import JobResultStore
from jrs.store.stored_result import check_certain

from ..checkpoint_format import relocation
from ..files import epoch_folders, permissions, transfer, written_root
from ..files.disk_errors import writing
from ..files.job_folders import JobStorage
from ..storage.objects import Objects
from ..storage.publication import is_there
from . import (
    copying,
    earlier_life,
    folders,
    from_stage,
    in_objects,
    left_out,
    outside_effects,
    reserve_and_swap,
    restored_records,
    sources,
)
from .adopt import adopt
from .index import SnapshotIndex, damaged_or_deleted
from .open import OpenSnapshot, check, opened
from .restored_records import SPEC
from .sources import RestoreRequest


@attrs.frozen
class Restored:
    """The outcome: `job_id`, with its `stages`, is at the snapshot `number` of job `from_job`."""

    job_id: str
    folder: Path
    """The job's epoch folder, which the next leader takes over."""
    stages: tuple[SnapshotStage, ...]
    number: int
    from_job: str


def is_stopped(backend: Backend, job_id: str) -> bool:
    """Return whether nothing of a job runs: it is suspended, has no spec, or never had an attempt.

    Raises:
        CorruptRecord: the stored stop cannot be read.
    """
    stop = backend.get(keys.STOPS + job_id)
    if stop is not None:
        return decode(StopRecord, stop.value, stop.key).state is StopState.DONE
    return backend.get(keys.JOBS + job_id) is None or backend.get(keys.ATTEMPTS + job_id) is None


def finish(
    catalog: SnapshotIndex,
    job_id: str,
    fence: Fence | None,
    stopped: Callable[[str], bool] | None,
) -> Restored:
    """Carry out, from its beginning, the restore that a crash has left."""
    stored = restores.stored(catalog.backend, job_id)
    if stored is None:
        raise WrongState(f"job {job_id!r} has no unfinished restore")
    left = decode(RestoreRecord, stored.value, stored.key)
    source: SnapshotRecord | Path = Path(left.source)
    if left.source.isdigit():
        source = catalog.get(left.from_job, int(left.source))
    request = RestoreRequest(
        source, job_id, left.claim, left.fork, fence, stopped, transfer.silent, stored,
        accept_published=True,
    )  # fmt: skip
    return restore(catalog, request)


def restore(catalog: SnapshotIndex, request: RestoreRequest) -> Restored:
    """Restore a job from a snapshot; see `SnapshotCatalog.restore`."""
    storage = catalog.storage
    if storage.objects is not None:
        return _restore_objects(catalog, storage.objects, request)
    with opened(storage, request.source) as found:
        whole, job_id = found, check_job_id(request.as_job or found.manifest.job_id)
        _check_restorable(found, job_id)
        if request.left is None:  # A leader carries out a restore that was begun.
            restored_records.check_spec(catalog, found.manifest, job_id, request.changes)
        # Lock first: what is found under the lock still holds at the reservation and the swap.
        with _building(storage, job_id) as built:
            guards = reserve_and_swap.suspended_guards(catalog.backend, job_id)
            before = _check_startable(catalog, found.manifest, job_id, request)
            kept = sources.kept(catalog.backend, request, job_id)
            _check_accepted(catalog, found.manifest, job_id, request)
            if stage := _from_stage(before, found.manifest, job_id, request):
                found = from_stage.without(whole, stage)
            check(str(request.source), whole, thorough=True, progress=request.progress)
            if SPEC not in found.manifest.records and restores.spec_of(before.spec) is None:
                raise InvalidInput(
                    f"{found.folder} was taken of a job without a spec: there is nothing to start"
                )
            if not found.manifest.output:
                left_out.check(storage, found.manifest)
            with _writing(f"the restore of job {job_id!r}", found):
                stages = _build(storage, found, job_id, built, request)
            epoch = epoch_folders.in_place(storage.folder(job_id))
            content = found.manifest
            reserved = reserve_and_swap.reserve(
                catalog, content, job_id, before, guards, kept, request
            )
            with reserve_and_swap.completed_by_a_repeat(job_id):
                folder = reserve_and_swap.swap(catalog, content, job_id, built, epoch, reserved)
                deleted = reserve_and_swap.commit(
                    catalog, content, job_id, guards, reserved, request
                )
    sources.use_up(catalog, request, job_id, deleted)
    return Restored(job_id, folder, stages, found.manifest.number, found.manifest.job_id)


def _restore_objects(catalog: SnapshotIndex, objects: Objects, request: RestoreRequest) -> Restored:
    """Restore a job whose files are objects: its heads name those of the snapshot, or copies."""
    source = request.source
    if isinstance(source, Path):
        raise in_objects.refuse("a restore from a folder")
    job_id = check_job_id(request.as_job or source.job_id)
    # First: what is read from here on no sweep removes, or this restore fails.
    mine = object_order.next_op(catalog.backend, job_id)
    with ExitStack() as held:
        work = held.enter_context(_building(catalog.storage, job_id))
        with damaged_or_deleted(catalog.backend, source):
            found = in_objects.manifest_of(objects, source)
            if request.left is None:
                restored_records.check_spec(catalog, found, job_id, request.changes)
            guards = reserve_and_swap.suspended_guards(catalog.backend, job_id)
            before = _check_startable(catalog, found, job_id, request)
            kept = sources.kept(catalog.backend, request, job_id)
            _check_accepted(catalog, found, job_id, request)
            if stage := _from_stage(before, found, job_id, request):
                found = from_stage.without_stage(found, stage, partial(is_there, objects))
            place = ""
            if job_id != found.job_id:
                place = held.enter_context(copying.noted(catalog, source, job_id, request.fence))
            in_objects.check(
                objects, source, thorough=False, earlier=False, progress=request.progress
            )
            if place:
                # Before the reservation: what a death leaves of it only the note names.
                with writing(f"the restore of job {job_id!r}"):
                    found = adopt(
                        objects, found, job_id, place, catalog.storage.folder(job_id), work,
                        fork=request.fork, sleep=catalog.sleep,
                    )  # fmt: skip
        reserved = reserve_and_swap.reserve(catalog, found, job_id, before, guards, kept, request)
        with reserve_and_swap.completed_by_a_repeat(job_id):
            deleted = reserve_and_swap.commit(
                catalog, found, job_id, guards, reserved, request, [mine]
            )
    sources.use_up(catalog, request, job_id, deleted)
    folder = catalog.storage.folder(job_id)
    return Restored(job_id, folder, found.stages, found.number, found.job_id)


# -- checks --------------------------------------------------------------------------------


def _check_restorable(found: OpenSnapshot, job_id: str) -> None:
    if not found.manifest.format.is_restorable:
        raise InvalidInput(f"{found.folder} is logical: it has rows to read, but no state")
    if not found.manifest.output and job_id != found.manifest.job_id:
        raise InvalidInput(
            f"{found.folder} was taken without the job's output, which job {job_id!r} would not "
            "have; restore it as the job that it was taken of"
        )


def check_free(catalog: SnapshotIndex, job_id: str) -> None:
    """Raise `DuplicateJob` if the id cannot be a new job's, `WrongState` if an earlier life of a
    job of that id has left files: a restore would remove them."""
    check_unknown(catalog.backend, job_id)
    if found := earlier_life.found(catalog.backend, catalog.storage, job_id):
        check_unknown(catalog.backend, job_id)  # They may be of one that has begun meanwhile.
        raise WrongState(
            f"job {job_id!r} cannot be a new job: {found}. Name another id, or move these away"
        )


def check_unknown(backend: Backend, job_id: str) -> None:
    """Raise `DuplicateJob` if the cluster has, or had, a job of that id."""
    _check_not_ended(backend, check_job_id(job_id))
    if backend.get(keys.JOBS + job_id) is not None:
        raise DuplicateJob(job_id, "submitted")


def is_unknown(backend: Backend, job_id: str) -> bool:
    """Return whether the cluster neither has nor had a job of that id."""
    names = (keys.JOBS, keys.RESULTS, keys.TOMBSTONES)
    return all(backend.get(name + job_id) is None for name in names)


def _check_not_ended(backend: Backend, job_id: str) -> None:
    entry = JobResultStore(backend).get(job_id)
    check_certain(entry)
    if entry is not None:
        raise DuplicateJob(job_id, entry.state.value)


def _check_startable(
    catalog: SnapshotIndex, found: Manifest, job_id: str, request: RestoreRequest
) -> reserve_and_swap.Before:
    """Return what is stored of the job, or raise."""
    backend = catalog.backend
    _check_not_ended(backend, job_id)
    before = reserve_and_swap.Before(
        backend.get(keys.JOBS + job_id), restores.stored(backend, job_id)
    )
    if request.left is not None and before.restore != request.left:
        raise WrongState(
            f"job {job_id!r} has no such unfinished restore: another process has finished it, or "
            "has begun another one"
        )
    if before == reserve_and_swap.Before():
        if job_id != found.job_id:
            check_free(catalog, job_id)
        return before
    begun = restores.of_job(backend, job_id)
    if job_id != found.job_id and (begun is None or begun.from_job != found.job_id):
        raise DuplicateJob(job_id, "submitted")
    if request.is_stopped is not None:
        stopped = request.is_stopped(job_id)
    else:
        stopped = begun is not None or is_stopped(backend, job_id)
    if not stopped:
        raise JobIsRunning(f"job {job_id!r} is not suspended; first: jrs suspend {job_id}")
    return before


def _check_accepted(
    catalog: SnapshotIndex, found: Manifest, job_id: str, request: RestoreRequest
) -> None:
    """Raise `WrongState` if what the job has done since the snapshot stays, and may do harm."""
    in_place = job_id == found.job_id
    # A fork's queries have ids of their own. The old job of a retry has ended, and cannot be asked.
    retried = request.lineage is not None and request.lineage.how is LineageKind.RETRY
    if not request.accept_published and (in_place or not (request.fork or retried)):
        outside_effects.check_accepted(catalog.backend, catalog.storage, found, in_place=in_place)


def _from_stage(
    before: reserve_and_swap.Before, found: Manifest, job_id: str, request: RestoreRequest
) -> str:
    """Return the stage from which a new job runs again; empty if it continues. A restore that is
    repeated has stored it with the new job's spec."""
    spec = restores.spec_of(before.spec)
    lineage = request.lineage if spec is None else decode(JobSpec, spec, SPEC).lineage
    if lineage is None or not lineage.job_id == found.job_id != job_id:
        return ""
    return lineage.from_stage


# -- the steps -----------------------------------------------------------------------------


@contextmanager
def _building(storage: JobStorage, job_id: str) -> Iterator[Path]:
    """Yield an empty, locked folder to build in; it is removed afterwards."""
    folder = storage.folder(job_id)
    built = folders.restoring(storage, job_id)
    with writing(f"the restore of job {job_id!r}"):
        permissions.make(built, parents=True, exist_ok=True)
    with folders.locked(built) as mine:
        if not mine:
            raise folders.BeingRestored(f"another restore of job {job_id!r} is in progress")
        try:
            for left in list(built.iterdir()):
                storage.discard(job_id, left)
            yield built
        finally:
            shutil.rmtree(built, ignore_errors=True)
            try:
                folder.rmdir()
            except OSError:
                pass  # It contains the job.


@contextmanager
def _writing(what: str, found: OpenSnapshot) -> Iterator[None]:
    try:
        with writing(what):
            yield
    except FileNotFoundError as error:
        raise DamagedSnapshot(str(found.folder), (f"{error.filename} is missing",)) from error


def _build(
    storage: JobStorage, found: OpenSnapshot, job_id: str, built: Path, request: RestoreRequest
) -> tuple[SnapshotStage, ...]:
    """Build the restored job; return its stages."""
    old, new = found.manifest.root, str(storage.folder(job_id))
    files = {file: built / _place(file.path) for file in found.manifest.files}
    transfer.parents(files.values())
    permissions.make(built / "epoch", exist_ok=True)
    for done, (file, target) in enumerate(files.items()):
        request.progress(done, len(files))
        source = found.locate(file)
        if sources.may_be_shared(file, found.manifest.format, request):
            transfer.link_or_copy(source, target)
        elif transfer.copy(source, target) != file.sha256:
            raise DamagedSnapshot(str(found.folder), (f"{source} has changed",))
        if target.stat().st_mtime_ns != file.mtime_ns:
            # A blob has the time of the first file with its content, and may share it with others.
            if target.stat().st_nlink > 1:
                target.unlink()
                transfer.copy(source, target)
            os.utime(target, ns=(file.mtime_ns, file.mtime_ns))
        if relocation.has_paths(file.path) and old != new:
            relocation.relocate(target, old, new)
    for path, leads_to in found.manifest.links.items():
        link = built / path
        permissions.make(link.parent, parents=True, exist_ok=True)
        link.symlink_to(relocation.moved_link(leads_to, old, new))
    stages = found.manifest.stages
    for stage in stages:
        stream = built / "epoch" / "streams" / stage.name
        if stream.is_dir():
            written_root.note(stream, storage.root)
    if request.fork:
        stages = tuple(_forked(built, stage) for stage in stages)
    transfer.sync_folders(built)
    request.progress(len(files), len(files))
    return stages


def _forked(built: Path, stage: SnapshotStage) -> SnapshotStage:
    if stage.batch is None:
        return stage
    metadata = built / "epoch" / "streams" / stage.name / "ck" / "metadata"
    return attrs.evolve(stage, query=relocation.give_new_id(metadata))


def _place(path: str) -> str:
    return f"epoch/{path}" if path.startswith("streams/") else path
