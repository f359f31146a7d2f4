"""JobSnapshots: the snapshots of one job, and what is done with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from jrs.client.connection import Connection
from jrs.contract.inputs import check_is, member_of, member_or_none
from jrs.records.checks import check_folder
from jrs.records.snapshots import Manifest, RestoreRecord, SnapshotFormat, SnapshotRecord
from jrs.recovery.files.transfer import Progress, silent
from jrs.recovery.snapshots.catalog import RecoverySource
from jrs.recovery.snapshots.restore import Restored


class JobSnapshots:
    """The snapshots of one job; see `JobHandle.snapshots`.

    A snapshot is given by its number or its name. What takes long calls `progress` with the number
    of files that are done and the number of all files.

    Calls that write or remove files raise `WrongState`, and change nothing, if the store is older
    than the storage, as after a restore from a backup, or the storage than the store.
    """

    def __init__(self, connection: Connection, id: str) -> None:
        self._connection = connection
        self._id = id

    # -- reading -----------------------------------------------------------------------------

    def list(self) -> list[SnapshotRecord]:
        """Return the job's snapshots, oldest first.

        Raises:
            CorruptRecord: a record cannot be read.
        """
        return self._connection.snapshots().list(self._id)

    def get(self, which: int | str) -> SnapshotRecord:
        """Return a snapshot.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
        """
        return self._connection.snapshots().get(self._id, which)

    def manifest(self, which: int | str) -> Manifest:
        """Return the contents of a snapshot: its stages, its records, and its files by digest.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
            DamagedSnapshot: its manifest is missing or damaged.
        """
        return self._connection.snapshots().manifest(self._id, which)

    def verify(self, which: int | str, *, progress: Progress = silent) -> SnapshotRecord:
        """Return a snapshot if every byte of it is as it was.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
            DamagedSnapshot: it is not what it was; `.problems` names each file.
            Unavailable: its storage is missing.
        """
        return self._connection.snapshots().verify(self._id, which, progress=progress)

    def newest_usable(self, *, progress: Progress = silent) -> RecoverySource:
        """Return the newest snapshot that can be restored, verified, and those skipped before it.

        `progress` is called for the files of each snapshot that is looked at.

        Raises:
            Unavailable: a snapshot that may be whole cannot be read now.
        """
        return self._connection.snapshots().newest_usable(self._id, progress=progress)

    def pending_restore(self) -> RestoreRecord | None:
        """Return the restore of the job that is under way, or was cut off."""
        return self._connection.snapshots().pending_restore(self._id)

    # -- changing ----------------------------------------------------------------------------

    def create(
        self,
        name: str | None = None,
        *,
        format: SnapshotFormat | str | None = None,
        output: bool = True,
        batches: Mapping[str, int] | None = None,
        progress: Progress = silent,
    ) -> SnapshotRecord:
        """Take a snapshot of the job's newest consistent state, running or not.

        Durable and listed when it returns; each call takes another one. It is the user's: jrs never
        deletes it by itself.

        Args:
            format: by default, the format that the job's spec names.
            output: whether to include the published output. Without it, the snapshot can only be
                restored where that output still is as it was.
            batches: older batches to pin, by stage, out of those that Spark still retains.

        Raises:
            NoSuchJob: the job has neither records nor files.
            InvalidInput: the name is taken, a batch is not retained, or no storage is known.
            CorruptRecord: the job could not be restarted from what is stored.
            Unavailable: the disk is full, or the backend is away; nothing is listed.
            OutcomeUnknown: it may be listed: check.
        """
        wanted = member_or_none(SnapshotFormat, format, "format")
        if batches is not None:
            check_is(batches, "batches", Mapping)
        return self._connection.snapshots_to_change().create(
            self._id, name=name, format=wanted, output=output, batches=batches, progress=progress
        )

    def delete(self, which: int | str) -> None:
        """Delete a snapshot.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
            SnapshotInUse: the job would continue from it, or it is being read.
        """
        self._connection.snapshots_to_change().delete(self._id, which)

    def convert(
        self, which: int | str, to: SnapshotFormat | str, *, progress: Progress = silent
    ) -> SnapshotRecord:
        """Convert a snapshot to another format: link, full or cas. Durable, idempotent.

        It keeps its number, its name and its contents. Repeat the call after any error.

        Raises:
            NoSuchSnapshot, DamagedSnapshot: nothing was changed.
            InvalidInput: one of the formats is logical.
            WrongState: the cluster's format is older than 5, a move of it was interrupted, or
                another process has just moved or converted it.
            SnapshotInUse: another process converts it, or still reads the former files.
            Unavailable: the disk is full, or its storage is not mounted; nothing was changed.

        Example::

            job.snapshots.convert("before-upgrade", jrs.SnapshotFormat.FULL)
        """
        form = member_of(SnapshotFormat, to, "to")
        return self._connection.snapshots_to_change().convert(
            self._id, which, form, progress=progress
        )

    def move(
        self, which: int | str, to: str | Path, *, progress: Progress = silent
    ) -> SnapshotRecord:
        """Move a snapshot to another storage, on any filesystem. It stays listed.

        Raises:
            NoSuchSnapshot, DamagedSnapshot: it stays where it is.
            SnapshotInUse: a process reads or writes it. If it is listed at its new place already, a
                repeat deletes the original.
            WrongState: another process has just moved or converted it.
            InvalidInput: it is in that storage already.
            Unavailable: the disk is full, or the storage that it was in is not mounted.
        """
        to = check_folder(to)
        return self._connection.snapshots_to_change().move(self._id, which, to, progress=progress)

    def export(
        self, which: int | str, folder: str | Path, *, progress: Progress = silent
    ) -> Manifest:
        """Copy a snapshot to a new, self-contained folder, which any cluster can restore.

        Raises:
            NoSuchSnapshot, DamagedSnapshot: the folder is not created.
            InvalidInput: the folder exists, or its parent does not.
            Unavailable: the disk is full; the folder is not created.
        """
        folder = check_folder(folder).absolute()
        return self._connection.snapshots().export(self._id, which, folder, progress=progress)

    def restore(
        self,
        which: int | str | Path,
        *,
        as_id: str | None = None,
        claim: bool = False,
        accept_published: bool = False,
        progress: Progress = silent,
    ) -> Restored:
        """Put the suspended job back to a snapshot, or make a new job of it.

        Args:
            which: a number, a name, or the path of an exported snapshot.
            as_id: the id of a new job.
            claim: use the snapshot up; by default it stays.
            accept_published: put the job back even if it has called functions of `foreachBatch`
                since, has written with a sink that knows its batches, or has published at places of
                yours: no restore takes that back.

        Raises:
            NoSuchSnapshot, DamagedSnapshot: it cannot be restored.
            JobIsRunning: suspend the job first.
            WrongState: the job has since published, or has written by `foreachBatch` or to a sink
                that knows its batches (see `accept_published`); or files of an earlier job of the
                new id exist. The error names them.
            DuplicateJob: the job has ended, or the new id is taken.
            SnapshotInUse: another restore of the job is under way; or a restore of another job from
                this snapshot is under way, and one of the two is a claim.
            UnsupportedVersion: with `claim`, a newer jrs has begun a restore, and it is unknown
                from which snapshot. With this error and with `SnapshotInUse`, if the other restore
                began meanwhile, the job is held until this restore is repeated; the message says
                so.
            OutcomeUnknown: the job may be held until the restore is repeated.
        """
        return self._connection.snapshots_to_change().restore(
            self._source(which), as_job=as_id or self._id, claim=claim,
            accept_published=accept_published, progress=progress,
        )  # fmt: skip

    def finish_restore(self) -> Restored:
        """Carry out a restore of the job that was cut off, from its beginning.

        Raises:
            WrongState: there is none.
            As `restore`.
        """
        return self._connection.snapshots_to_change().finish_restore(self._id)

    def fork(self, which: int | str | Path, as_id: str, *, progress: Progress = silent) -> Restored:
        """Start a new job from a snapshot of this one; its queries get new ids.

        Raises:
            NoSuchSnapshot, DamagedSnapshot: it cannot be restored.
            DuplicateJob: the new id is taken.
            SnapshotInUse: another restore to the new id is under way; or a claim of the snapshot is
                not complete.
            WrongState: files of an earlier life are in the place of the new job.
            OutcomeUnknown: the new job may be held until this is repeated.
        """
        return self._connection.snapshots_to_change().restore(
            self._source(which), as_job=as_id, fork=True, progress=progress
        )

    def _source(self, which: int | str | Path) -> SnapshotRecord | Path:
        if isinstance(which, Path):
            return behind_links(which)
        return self._connection.snapshots().get(self._id, which)


def behind_links(folder: Path) -> Path:
    """Return the path of a folder that a user names, without links: locks of jrs follow none."""
    return Path(os.path.realpath(folder))
