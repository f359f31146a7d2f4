"""The folders of a job: staging under the epoch, output in its stable place, trash.

::

    <storage>/<cluster>/<job>/e<epoch>/<stage>.<attempt>/   staging of the running attempt
    <storage>/<cluster>/<job>/e<epoch>/.scratch.<attempt>/  its temporary files
    <storage>/<cluster>/<job>/e<epoch>/streams/<stage>/     a stream's checkpoint (ck) and staging
    <storage>/<cluster>/<job>/in/<stage>/                   links to the files of a closed input
    <storage>/<cluster>/<job>/out/<stage>/                  published output; never removed here
    <storage>/<cluster>/<job>/tmp/<stage>/                  published, removed when the job ends
    <storage>/<cluster>/<job>/copies/                       of output in objects, if that is there
    <storage>/<cluster>/<job>/logs/                         stdout and stderr of the attempts
    <storage>/<cluster>/.trash/                             folders that are being deleted
    <storage>/<cluster>/.storage/                           the marker; see `storage_identity`

The epoch folder is a fence of its own: a new leader replaces it first, and publishing renames out
of it (see `epoch_folders`). So a process that no longer leads publishes nothing, whatever it does.
"""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import Fenced, InvalidInput, Unavailable
from jrs.contract.storage_place import StoragePlace, place_of
from jrs.host.filesystems import STORAGE
from jrs.records.checks import check_job_id
from jrs.records.model import StageRecord

from ..storage.objects import Objects
from . import epoch_folders, permissions, removal, written_root
from .disk_errors import GONE, unavailable
from .safe_listing import exists, is_folder, names_in
from .transfer import open_for_writing, sync_folder, sync_tree

_DAMAGED = "damaged"


class JobStorage:
    """The folders of one cluster's jobs. All methods are idempotent."""

    def __init__(self, place: StoragePlace | Path, cluster: str) -> None:
        if isinstance(place, Path):
            place = StoragePlace(place)
        self.place = place
        self.root = place.root / cluster
        self.objects = Objects(place.url, cluster) if place.url else None
        """The objects of the jobs; None if their files are in these folders."""

    def make(self) -> None:
        """Create the folder of all jobs, with the folders above it. Durable.

        Raises:
            OSError: it cannot be created.
        """
        permissions.make(self.root, parents=True, exist_ok=True)
        for above in self.root.parents:
            # Some of them may belong to another user and not be readable.
            with suppress(OSError):
                sync_folder(above)

    def make_folder(self, path: Path) -> None:
        """Create a folder of a job and the folders above it. Durable."""
        permissions.make(path, parents=True, exist_ok=True)
        self.sync_names(path)

    def sync_names(self, path: Path) -> None:
        """Sync the names of a path and of the folders above it, before a record depends on them."""
        for above in path.parents:
            sync_folder(above)
            if above == self.root.parent:
                return

    def folder(self, job_id: str) -> Path:
        """Return the job's folder; it need not exist."""
        return self.root / check_job_id(job_id)

    def epoch_folder(self, job_id: str, epoch: int) -> Path:
        """Return the path of an epoch's folder of a job; it need not exist."""
        return self.folder(job_id) / epoch_folders.name_of(epoch)

    def stream_folder(self, job_id: str, epoch: int, stage: str) -> Path:
        """Return the path of a streaming stage's folder; it need not exist."""
        return self.epoch_folder(job_id, epoch) / "streams" / stage

    def logs(self, job_id: str) -> Path:
        """Return the folder of the attempts' logs; create it if it does not exist."""
        path = self.folder(job_id) / "logs"
        permissions.make(path.parent, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def take_over(
        self,
        job_id: str,
        epoch: int,
        *,
        staged: Collection[str] | None = None,
        link_checkpoint: epoch_folders.Link | None = None,
    ) -> Path:
        """Put the job's newest epoch folder in place as `epoch`'s, or create it; return it.

        Durable. From then on no older epoch can publish. Folders of other older epochs, and what
        earlier take-overs have not completed, are discarded. See `epoch_folders` for the arguments,
        and for what it raises.
        """
        folder = self.folder(job_id)
        permissions.make(folder, parents=True, exist_ok=True)
        # What died or failed there first: it may take the space that this one needs.
        self._discard_all(job_id, epoch_folders.unfinished(folder, up_to=epoch))
        target = epoch_folders.take_over(folder, epoch, staged, link_checkpoint)
        self.sync_names(target)
        left = epoch_folders.left(folder, up_to=epoch)
        self._discard_all(job_id, (one for one in left if one != target and not one.is_file()))
        return target

    def _discard_all(self, job_id: str, paths: Iterable[Path]) -> None:
        for path in paths:
            with suppress(Unavailable):  # It is in the trash, which is emptied again.
                self.discard(job_id, path)

    def staging(self, job_id: str, epoch: int, stage: str, attempt: int) -> Path:
        """Return an empty staging folder for a stage that has no record. Those of the stage's
        earlier tries go to the trash: they were ended, and nothing names what they have written.

        Raises:
            Fenced: a newer leader has renamed the epoch's folder.
            Unavailable: the disk is full, or a similar error; the call may be repeated.
        """
        path = self.epoch_folder(job_id, epoch) / f"{stage}.{attempt}"
        try:
            with unavailable(f"{path} cannot be made"):
                for earlier in epoch_folders.staging_of(path.parent, stage):
                    self.discard(job_id, earlier)
                permissions.make(path)
        except GONE:
            raise Fenced(f"{path.parent} is gone: epoch {epoch} was replaced") from None
        return path

    def scratch(self, job_id: str, epoch: int, attempt: int) -> Path:
        """Return the attempt's folder for temporary files, created; dead attempts' go to the trash.

        Raises:
            Fenced: a newer leader has renamed the epoch's folder.
            Unavailable: as `staging`.
        """
        folder = self.epoch_folder(job_id, epoch)
        path = folder / f".scratch.{attempt}"
        try:
            with unavailable(f"{path} cannot be made"):
                for older in folder.glob(".scratch.*"):
                    if older != path:
                        self.discard(job_id, older)
                permissions.make(path, exist_ok=True)
        except GONE:
            raise Fenced(f"{folder} is gone: epoch {epoch} was replaced") from None
        return path

    def checkpoint(self, job_id: str, epoch: int, stage: str) -> Path:
        """Return the path of a streaming stage's checkpoint; it need not exist."""
        return self.stream_folder(job_id, epoch, stage) / "ck"

    def stream(self, job_id: str, epoch: int, stage: str) -> Path:
        """Return the folder of a streaming stage: ``ck``, an empty ``staging``, the root's note.

        Raises:
            Fenced: a newer leader has renamed the epoch's folder.
            Unavailable: as `staging`.
        """
        folder = self.epoch_folder(job_id, epoch)
        path = self.stream_folder(job_id, epoch, stage)
        try:
            with unavailable(f"{path} cannot be made"):
                self.discard(job_id, path / "staging")
                for part in (path.parent, path, path / "ck", path / "staging"):
                    # Never with parents: that would create the epoch's folder again.
                    permissions.make(part, exist_ok=True)
                    sync_folder(part.parent)
                if written_root.noted(path) is None:
                    written_root.note(path, self.root)
        except GONE:
            raise Fenced(f"{folder} is gone: epoch {epoch} was replaced") from None
        return path

    def report_damage(self, job_id: str, epoch: int, stage: str, why: str) -> None:
        """Record next to a stream's checkpoint that it cannot be loaded, and why. Raises
        `Unavailable` as `staging`."""
        folder = self.stream_folder(job_id, epoch, stage)
        with unavailable(f"the damage of {folder} cannot be recorded"):
            (folder / _DAMAGED).write_text(why, encoding="utf-8")
            sync_tree(folder)

    def damage(self, job_id: str, epoch: int, stage: str) -> str:
        """Return the damage recorded for a stream's checkpoint; empty if there is none."""
        path = self.stream_folder(job_id, epoch, stage) / _DAMAGED
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""

    def forget_damage(self, job_id: str, epoch: int, stage: str) -> None:
        """Remove the damage recorded for a stream's checkpoint."""
        path = self.stream_folder(job_id, epoch, stage) / _DAMAGED
        path.unlink(missing_ok=True)

    def make_durable(self, staging: Path) -> bool:
        """Sync a whole staging folder, before its stage is recorded; return whether it is not
        empty.

        Raises:
            InvalidInput: a file of it is still open for writing in this process.
            Fenced: a newer leader has renamed the epoch's folder.
            Unavailable: the disk is full, or a similar error; the stage is not finished.
            OSError: the job does not permit its files to be read, or still changes them.
        """
        if open_for_writing(staging):
            gc.collect()  # What only a cycle of garbage holds is written out and closed by that.
        if left := open_for_writing(staging):
            raise InvalidInput(
                f"{left[0]} is still open for writing, so that it may not be whole: close it "
                "before the function of the stage returns"
            )
        try:
            with unavailable(f"{staging} cannot be synced", PermissionError):
                sync_tree(staging)
                sync_folder(staging.parent)
                return any(staging.iterdir())
        except GONE:
            if is_folder(staging):
                raise  # Another process is still writing to it: the stage is not finished.
            raise Fenced(f"{staging} is gone: its epoch was replaced") from None

    def published(self, job_id: str, stage: str, *, temporary: bool) -> Path:
        """Return the path of a stage's published output."""
        return self.folder(job_id) / ("tmp" if temporary else "out") / stage

    def copies(self, job_id: str) -> Path:
        """Return the folder of the copies of objects, which hold the job's output."""
        return self.folder(job_id) / "copies"

    def publish(self, record: StageRecord, epoch: int) -> None:
        """Move a finished stage's staging folder into place, if that has not happened yet.

        The stage's record is the commit, and this call only carries it out. The next leader
        completes what a crash interrupted.

        Raises:
            Fenced: a newer leader has renamed the epoch's folder.
            Unavailable: the disk is full, or a similar error; the call may be repeated.
        """
        if record.published is None:
            return
        staged = self.epoch_folder(record.job_id, epoch) / record.published
        target = self.published(record.job_id, record.name, temporary=record.temporary)
        if not is_folder(staged):
            if exists(target):
                return
            raise Fenced(f"{staged} is gone and {target} is missing: epoch {epoch} was replaced")
        try:
            with unavailable(f"{target} cannot be published"):
                self.make_folder(target.parent)
                if exists(target):
                    # No finished stage of this job wrote it, or its record would have been found.
                    self.discard(record.job_id, target)
                removal.rename(staged, target)
                sync_folder(target.parent)
                sync_folder(staged.parent)
        except GONE:
            raise Fenced(f"{staged} is gone: epoch {epoch} was replaced") from None

    def put_in_place(self, job_id: str, whole: Path, path: Path) -> None:
        """Rename a folder to its place, unless another thread, or an earlier attempt, has put one
        of the same content there: then discard it.

        Raises:
            OSError, Unavailable: that is not possible now; the call may be repeated.
        """
        try:
            os.rename(whole, path)
        except OSError:
            if not path.is_dir():
                raise
            self.discard(job_id, whole)

    def left_in_staging(self, job_id: str) -> list[Path]:
        """Return the job's epoch and temporary folders, which cleanup removes."""
        folder = self.folder(job_id)
        others = [name for name in ("tmp", "in", "copies") if exists(folder / name)]
        return [*epoch_folders.left(folder), *(folder / name for name in others)]

    def sweep(self, job_id: str) -> None:
        """Remove the job's staging and temporary output; its published output stays."""
        for path in self.left_in_staging(job_id):
            self.discard(job_id, path)

    def remove_empty(self, job_id: str) -> None:
        """Remove the job's folder if nothing is in it: no output, logs or snapshots."""
        try:
            self.folder(job_id).rmdir()
        except OSError:
            pass  # It contains something, or is gone.

    def discard_output(self, job_id: str, path: Path) -> None:
        """Remove a path from the job's published output.

        Raises:
            InvalidInput: `path` is not below that output.
        """
        if not path.is_relative_to(self.folder(job_id) / "out"):
            raise InvalidInput(f"{path} is not output of job {job_id!r}: not deleted")
        self.discard(job_id, path)

    def empty_trash(self) -> list[str]:
        """Delete what a crash left between rename and delete; return what stays, and why."""
        trash = self.root / ".trash"
        if trash.is_symlink() or not trash.is_dir():
            return []
        stays = []
        for path in trash.iterdir():
            try:
                with suppress(FileNotFoundError):  # Another process deletes it, too.
                    removal.remove(path)
            except OSError as error:
                stays.append(f"{error.filename or path} cannot be deleted: {error.strerror}")
        return stays

    def jobs(self) -> Iterator[str]:
        """Yield the ids of the jobs that have a folder, or objects; others are not jrs's. Raises
        `Unavailable` if that cannot be told now."""
        found = set(filter(_is_job_id, () if self.objects is None else self.objects.folders()))
        named = filter(_is_job_id, names_in(self.root))
        yield from sorted(found.union(name for name in named if is_folder(self.root / name)))

    def epochs(self, job_id: str) -> Iterator[int]:
        """Yield the epochs for which the job has a folder, in place or withdrawn, in no order."""
        yield from epoch_folders.of_job(self.folder(job_id))

    def discard(self, job_id: str, path: Path) -> None:
        """Rename to trash, then delete: a half-deleted folder never has its old name."""
        root = self.root.resolve()
        if not path.parent.resolve().is_relative_to(root / job_id):
            raise InvalidInput(f"{path} leads out of the job's own folder: not deleted")
        trash = self.root / ".trash"
        if trash.resolve() != root / ".trash":
            raise InvalidInput(f"{trash} leads out of {root}: nothing is deleted")
        doomed = trash / uuid.uuid4().hex  # Its own name may have the maximum length.
        try:
            permissions.make(trash, parents=True, exist_ok=True)
            removal.rename(path, doomed)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unavailable(f"{path} cannot be removed: {error.strerror}") from error
        try:
            removal.remove(doomed)
        except FileNotFoundError:
            pass  # Another master empties the trash.
        except OSError as error:
            raise Unavailable(
                f"{error.filename or doomed} cannot be deleted: {error.strerror}"
            ) from error


def _is_job_id(name: str) -> bool:
    try:
        check_job_id(name)
    except InvalidInput:
        return False
    return True


def storage_place(backend: Backend | None, named: str | Path | None) -> StoragePlace | None:
    """Return the storage: `named`, else what `JRS_STORAGE` names, else the folder next to the
    backend's data; None if none of these is known.

    Raises:
        InvalidInput: it is no path, or a URL that jrs does not know.
    """
    default = None if backend is None else backend.default_storage
    found = (os.environ.get(STORAGE) or default) if named in (None, "") else named
    return None if found is None else place_of(found)
