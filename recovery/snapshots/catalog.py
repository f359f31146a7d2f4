"""SnapshotCatalog: the snapshots of a cluster's jobs, owned by the system.

The catalogue is in the backend, the files are next to the job. A snapshot is built under another
name, synced, renamed, and only then listed; a deletion removes its entry first. So every listed
snapshot is whole, and what a crash leaves is unlisted; `fsck` names it.

The rule of this file: a snapshot's folder is written, read and removed under its lock only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from jrs.contract.errors import CorruptRecord, InvalidInput, JrsError, NoSuchSnapshot
from jrs.contract.operations import Fence
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.records.checks import check_job_id
from jrs.records.codec import decode
from jrs.records.lineage import Lineage, LineageKind
from jrs.records.model import JobSpec
from jrs.records.policies import SnapshotPolicy
from jrs.records.signing import check_key
from jrs.records.snapshots import (
    Manifest,
    RestoreRecord,
    SnapshotFormat,
    SnapshotRecord,
    TakenBy,
)
from jrs.store import restores

from ..files import transfer
from . import convert, create, delete, folders, in_objects, left_out, logical, move, restore
from .index import SnapshotIndex, SnapshotRef
from .open import places
from .restore import Restored
from .sources import RestoreRequest


@attrs.frozen
class RecoverySource:
    """The snapshot from which a job can be recovered."""

    record: SnapshotRecord | None
    """The newest whole snapshot; None if there is none."""
    skipped: tuple[tuple[SnapshotRecord, str], ...]
    """Newer snapshots that are not whole, and why."""


class SnapshotCatalog(SnapshotIndex):
    """The snapshots of one cluster's jobs. Safe for use by many threads and processes at once.

    Args:
        storage: where the jobs keep their files.
        now: the clock of time stamps.
        sleep: waits between two checks of a job that changes.
        spec_key: signs the spec of a job that is restored under another id, if it was signed
            before; see `jrs.records.signing`.
        historian: as in `SnapshotIndex`.
    """

    export_state: Callable[..., None] | None = None
    """Writes the state of a stream at a batch for the format ``logical``; called as ``f(checkpoint,
    batch, folder, spark=…)``. It needs Spark, which is above this room: see the subclass in
    `jrs.recovery.snapshot_catalog`."""

    # -- taking and reading ----------------------------------------------------------------

    def create(
        self,
        job_id: str,
        *,
        name: str | None = None,
        format: SnapshotFormat | None = None,
        taken_by: TakenBy = TakenBy.USER,
        at_end: bool = False,
        for_fork: str = "",
        fence: Fence | None = None,
        output: bool = True,
        batches: Mapping[str, int] | None = None,
        spark: Any = None,
        progress: transfer.Progress = transfer.silent,
    ) -> SnapshotRecord:
        """Take a snapshot of the newest consistent state of a job, running, suspended or dead.

        Durable and listed on return; not idempotent: each call takes another snapshot. Needs no
        Spark, except for the format ``logical``, which starts a session if `spark` is None.

        Args:
            format: by default, `format_of` the job.
            taken_by: jrs deletes by itself only what the system has taken.
            at_end: whether the cleanup of the ended job takes it.
            for_fork: the new job of the fork that takes it for itself.
            output: whether to include the job's published output. Without it, the snapshot can only
                be restored where that output still is as it was.
            batches: older batches to pin, by stage, out of those that Spark still retains.

        Raises:
            NoSuchJob: the job has neither records nor files.
            InvalidInput: the name is taken, or a batch is not retained.
            CorruptRecord: the job could not be restarted from its stored state.
            Fenced: a newer leader exists; nothing is listed.
            Unavailable: the disk is full, or the backend does not answer; nothing is listed.
            OutcomeUnknown: the snapshot may be listed: check. If it is not, `fsck` names its
                folder.
        """
        if format is None:
            format = self.format_of(job_id)
        if not isinstance(format, SnapshotFormat):
            raise InvalidInput(f"not a SnapshotFormat: {shown(format)}")
        export: logical.ExportState | None = None
        if format is SnapshotFormat.LOGICAL:
            if self.export_state is None:
                raise InvalidInput("a logical snapshot needs a catalog that can export state")
            export = partial(self.export_state, spark=spark)
        request = create.SnapshotRequest(
            format, output, batches or {}, export, progress, taken_by, at_end, for_fork
        )
        return create.create(self, check_job_id(job_id), name, request, fence)

    def format_of(self, job_id: str) -> SnapshotFormat:
        """Return the format that the job's spec names for its snapshots; else ``link``, which is
        the only one where the storage has objects."""
        if self.storage.objects is not None:
            return SnapshotFormat.LINK
        key = keys.JOBS + check_job_id(job_id)
        spec = restores.spec_of(self.backend.get(key))
        return (
            SnapshotPolicy().format if spec is None else decode(JobSpec, spec, key).snapshots.format
        )

    def newest_usable(
        self, job_id: str, *, progress: transfer.Progress = transfer.silent
    ) -> RecoverySource:
        """Return the newest snapshot that can be restored, verified, and those skipped before it.

        Where the storage has objects, rows of earlier batches are not verified: the job resumes
        without them, and would read them from no older snapshot, either.

        Raises:
            Unavailable: a snapshot that may be whole cannot be read now; an older one is no
                substitute.
        """
        skipped: list[tuple[SnapshotRecord, str]] = []
        for record in reversed(self.list(job_id)):
            if not record.format.is_restorable:
                continue
            try:
                found = self.verify_usable(job_id, record.number, progress)
                if not found.output:
                    left_out.check(self.storage, self.manifest(job_id, record.number))
                return RecoverySource(found, tuple(skipped))
            except (CorruptRecord, NoSuchSnapshot, InvalidInput) as error:
                skipped.append((record, str(error)))
        return RecoverySource(None, tuple(skipped))

    # -- deleting --------------------------------------------------------------------------

    def delete(self, job_id: str, which: SnapshotRef, *, fence: Fence | None = None) -> None:
        """Delete a snapshot; any order is safe, since no snapshot depends on another.

        Its entry is removed first. To delete an unlisted folder that a crash left, name its number.

        Raises:
            NoSuchSnapshot: it is not listed and has no folder.
            SnapshotInUse: a job that has not ended could not be recovered without it, or it is
                being read, moved or restored.
            Unavailable: the storage that it was moved to is not mounted; it stays listed.
            Fenced: a newer leader exists.
        """
        delete.delete(self, job_id, which, fence)

    def remove(self, record: SnapshotRecord, *, fence: Fence | None = None) -> None:
        """Delete a snapshot even if its job needs it for recovery. Idempotent.

        Raises:
            SnapshotInUse: it is being read, moved or restored.
            Unavailable: the storage that it was moved to is not mounted; it stays listed.
            Fenced: a newer leader exists.
        """
        delete.remove(self.backend, self.storage, record, fence)

    # -- elsewhere -------------------------------------------------------------------------

    def move(
        self,
        job_id: str,
        which: SnapshotRef,
        to_root: Path,
        *,
        fence: Fence | None = None,
        progress: transfer.Progress = transfer.silent,
    ) -> SnapshotRecord:
        """Move a snapshot to another storage: copy, verify, list the copy, delete the original.

        The original stays listed until the copy is listed. A repeat after a crash continues the
        move.

        Raises:
            NoSuchSnapshot, DamagedSnapshot, Fenced: it stays where it is.
            SnapshotInUse: a process reads or writes it. If it is listed at its new place already, a
                repeat deletes the original.
            WrongState: another process has just moved or converted it.
            InvalidInput: it is in that storage already.
            Unavailable: the disk is full, and the copy was removed; or the storage that it was
                moved from is not mounted: it is listed where it is, and `fsck` names what is left.
        """
        self._refuse("moving a snapshot")
        return move.move(self, job_id, which, to_root, fence, progress)

    def convert(
        self,
        job_id: str,
        which: SnapshotRef,
        to: SnapshotFormat,
        *,
        fence: Fence | None = None,
        progress: transfer.Progress = transfer.silent,
    ) -> SnapshotRecord:
        """Convert a snapshot to another format: ``link``, ``full`` or ``cas``. Durable, idempotent.

        It keeps its number, its name and its contents. The former files are deleted once the new
        ones are listed. A repeat after a crash completes the conversion.

        Raises:
            NoSuchSnapshot, DamagedSnapshot: nothing was changed.
            InvalidInput: one of the formats is ``logical``.
            WrongState: the cluster's format is older than 5, a move of it was interrupted, or
                another process has just moved or converted it.
            SnapshotInUse: another process converts it, or still reads the former files.
            Unavailable: the disk is full, or its storage is not mounted; nothing was changed.
            Fenced: a newer leader exists.
            OutcomeUnknown: repeat the call.
        """
        self._refuse("converting a snapshot")
        return convert.convert(self, job_id, which, to, fence, progress)

    def export(
        self,
        job_id: str,
        which: SnapshotRef,
        path: Path,
        *,
        progress: transfer.Progress = transfer.silent,
    ) -> Manifest:
        """Copy a snapshot to a self-contained folder that any cluster can restore.

        Raises:
            NoSuchSnapshot, DamagedSnapshot: the folder is not created.
            InvalidInput: the folder exists, or its parent does not.
            Unavailable: the disk is full; the folder is not created.
        """
        self._refuse("exporting a snapshot")
        return move.export(self, job_id, which, path, progress)

    def restore(
        self,
        source: SnapshotRecord | Path,
        *,
        as_job: str | None = None,
        claim: bool = False,
        fork: bool = False,
        accept_published: bool = False,
        fence: Fence | None = None,
        is_stopped: Callable[[str], bool] | None = None,
        progress: transfer.Progress = transfer.silent,
    ) -> Restored:
        """Restore a job from a snapshot, listed or exported, of this or another cluster.

        The job keeps its id and its status (as a rule, suspended), or is a new job. The restore is
        complete when the spec exists; until then, every master holds the job. A repeat after a
        crash begins again and is harmless.

        Args:
            as_job: the id of a new job.
            claim: use the snapshot up; by default it stays, and shares no file that is written.
            fork: its queries get new ids, so that both jobs can run side by side.
            accept_published: what the job has done since, outside of its folders, may stay: the
                calls of its functions of `foreachBatch`, what it has written with sinks that know
                its batches, and what it has published.
            is_stopped: returns whether nothing of a job runs; by default, whether the job is
                suspended, has no spec, or never had an attempt. A leader that recovers returns
                True.

        Raises:
            JobIsRunning: suspend it first.
            WrongState: the job has done something outside of its folders since; or files of an
                earlier life are in the place of the new job.
            DuplicateJob: the job has ended, or the new id is taken.
            DamagedSnapshot: nothing was changed.
            InvalidInput: a ``logical`` snapshot, a snapshot without a spec, a snapshot without the
                output that it would need, the folder of a listed snapshot with `claim`, or a new
                job of what only an application can run.
            SnapshotInUse: another restore of the job is in progress; or the restore of another job
                has begun from the snapshot, and one of both uses it up.
            NoSuchSnapshot: it was just deleted; nothing was changed. Or another claim was completed
                first: the job stays held.
            UnsupportedVersion: with `claim`: a newer jrs has begun a restore, and it is unknown
                from which snapshot. If that was meanwhile, the job is held; as by `SnapshotInUse`.
            Unavailable: the disk is full, or the backend does not answer; nothing was changed, or
                the job is held until the restore is repeated: the message says which.
            Fenced: a newer leader exists.
            OutcomeUnknown: the job may be held until the restore is repeated.
        """
        if not isinstance(source, (SnapshotRecord, Path)):
            raise InvalidInput(f"neither a SnapshotRecord nor a folder: {shown(source)}")
        if claim and isinstance(source, Path):
            self._check_unlisted(source)
        lineage = None
        if isinstance(source, SnapshotRecord) and as_job not in (None, source.job_id):
            how = LineageKind.FORK if fork else LineageKind.RESTORE
            lineage = Lineage(source.job_id, how, source.number)
        request = RestoreRequest(
            source, as_job, claim, fork, fence, is_stopped, progress, lineage=lineage,
            accept_published=accept_published,
        )  # fmt: skip
        return restore.restore(self, request)

    def fork(
        self,
        job_id: str,
        as_job: str,
        *,
        fence: Fence | None = None,
        progress: transfer.Progress = transfer.silent,
    ) -> Restored:
        """Make a new job from a job's newest state; the old job may be running and continues.

        The new job's queries have ids of their own. The intermediate snapshot is used up, whichever
        process completes the fork; `gc` removes one whose fork died before its restore was stored.
        A repeat after a crash completes the fork, from the state that the old job had then.

        Raises:
            NoSuchJob: the job has neither records nor files.
            DuplicateJob: the new id is taken.
            WrongState: files of an earlier life are in the place of the new job.
            CorruptRecord: the job could not be restarted from its stored state.
            InvalidInput: only its application can run the job.
            SnapshotInUse: another fork to the new id is in progress.
            Unavailable, Fenced, OutcomeUnknown: as `create` and `restore`.
        """
        begun = self.pending_restore(as_job)
        if begun is not None and begun.fork and begun.from_job == job_id:
            return self.finish_restore(as_job, fence=fence)
        restore.check_free(self, as_job)
        if (spec := restores.spec_of(self.backend.get(keys.JOBS + job_id))) is not None:
            check_key(spec, self.spec_key, job_id)  # Before anything is copied.
        taken = self.create(
            job_id, taken_by=TakenBy.SYSTEM, for_fork=as_job, fence=fence, progress=progress
        )
        try:
            return self.restore(taken, as_job=as_job, fork=True, fence=fence, progress=progress)
        except BaseException:
            # Whatever its outcome: once the entry is gone, no reservation is committed any more.
            with suppress(JrsError):
                self.remove(taken, fence=fence)
            raise

    def pending_restore(self, job_id: str) -> RestoreRecord | None:
        """Return the job's restore that is in progress or was interrupted, if any."""
        return restores.of_job(self.backend, check_job_id(job_id))

    def finish_restore(
        self, job_id: str, *, fence: Fence | None = None,
        is_stopped: Callable[[str], bool] | None = None,
    ) -> Restored:  # fmt: skip
        """Carry out an interrupted restore, from its beginning.

        Raises:
            WrongState: there is none.
            As `restore`.
        """
        return restore.finish(self, check_job_id(job_id), fence, is_stopped)

    # -- inside ----------------------------------------------------------------------------

    def _refuse(self, what: str) -> None:
        """Raise `WrongState` where the storage has objects."""
        if self.storage.objects is not None:
            raise in_objects.refuse(what)

    def _check_unlisted(self, folder: Path) -> None:
        """Raise `InvalidInput` for a listed snapshot's folder: name its number to use it up."""
        for stored in self.backend.scan(keys.SNAPSHOTS):
            record = decode(SnapshotRecord, stored.value, stored.key)
            for place in places(self.storage, record):
                known = folders.listed(place, record)
                if known.is_dir() and folder.is_dir() and known.samefile(folder):
                    raise InvalidInput(
                        f"{folder} is listed as {record}; to use it up: jrs snapshot "
                        f"restore {record.job_id} {record.number} --claim"
                    )
