"""Where the output of finished stages is: in a job's folders, or in objects.

With objects, functions still write to a folder and read from one. What they have written is
uploaded before the stage's record names it. A folder with the output of an earlier attempt is made
when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from jrs.contract.errors import JobHeld, WrongState
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import StageRecord
from jrs.records.objects import BatchManifest, OutputManifest, StoredFile, StoredObject
from jrs.store import heads

from ..files import removal
from ..files.disk_errors import reading, unavailable
from ..files.safe_listing import exists, is_folder
from ..files.transfer import sync_tree
from ..storage.batches import files_of, in_batch
from ..storage.packed_copies import fetch, read_record
from .context import AttemptContext
from .held import held_if_unreadable


class StageOutputs(Protocol):
    """The output of one job's finished stages."""

    def keep(self, stage: str, staging: Path) -> StoredObject | None:
        """Keep what a stage has written, before its record exists; return what the record names.

        Raises:
            Fenced: a newer leader exists.
            Unavailable: a file cannot be read: a new attempt writes it again.
            FileNotFoundError, PermissionError: the job still changes its files, or does not permit
                them to be read.
        """

    def publish(self, record: StageRecord) -> None:
        """Put the output of a finished stage in its place, if that has not happened. Idempotent."""

    def folder(self, record: StageRecord) -> Path:
        """Return the folder with the output of a finished stage; it exists if there is any."""

    def of_stream(self, stage: str, *, finished: bool) -> Path:
        """Return the folder with the output of a stream."""


class OutputsInFolders:
    """Output in the job's folders: renamed from staging once it is recorded."""

    def __init__(self, context: AttemptContext) -> None:
        self._context = context

    def keep(self, stage: str, staging: Path) -> StoredObject | None:
        return None

    def publish(self, record: StageRecord) -> None:
        if record.manifest is not None:
            raise JobHeld(
                f"stage {record.name!r} has its output in objects, and the storage is a folder: "
                "name the storage that it was begun with"
            )
        self._context.storage.publish(record, self._context.epoch)

    def folder(self, record: StageRecord) -> Path:
        storage, job_id = self._context.storage, record.job_id
        return storage.published(job_id, record.name, temporary=record.temporary)

    def of_stream(self, stage: str, *, finished: bool) -> Path:
        return self._context.storage.published(self._context.job_id, stage, temporary=False)


class OutputsInObjects:
    """Output in objects. Its copies on this host have the digest of their manifest in their name,
    so that each is whole, and none is that of another output."""

    def __init__(self, context: AttemptContext) -> None:
        self._context = context
        self._copies = context.storage.copies(context.job_id)

    def keep(self, stage: str, staging: Path) -> StoredObject | None:
        context = self._context
        # A file that the disk has lost does not come back: only a new attempt writes it again.
        with (
            unavailable(f"the output of stage {stage!r} cannot be read", PermissionError),
            context.fenced_if_gone(),
        ):
            return context.until_stored(lambda: context.uploads.put_output(stage, staging))

    def publish(self, record: StageRecord) -> None:
        storage, context = self._context.storage, self._context
        is_ours = (record.epoch, record.attempt) == (context.epoch, context.attempt)
        if record.manifest is None or record.published is None or not is_ours:
            return
        staged = storage.epoch_folder(record.job_id, context.epoch) / record.published
        target = self._copy_of(record.name, record.manifest)
        if is_folder(staged) and not exists(target):
            try:
                storage.make_folder(target.parent)
                removal.rename(staged, target)
            except OSError:
                context.check()  # It may be gone, with its epoch's folder.
                # The objects are what counts: `folder` fetches a copy.

    def folder(self, record: StageRecord) -> Path:
        if record.manifest is None and record.published is not None:
            raise JobHeld(
                f"stage {record.name!r} has its output in a folder, and the storage has objects: "
                "name the storage that it was begun with"
            )
        if record.manifest is None:
            return self._copies / record.name
        target = self._copy_of(record.name, record.manifest)
        if not is_folder(target):
            self._fetch(target, self._files(record.manifest))
        return target

    def of_stream(self, stage: str, *, finished: bool) -> Path:
        if not finished:
            raise WrongState(
                f"stage {stage!r} has not finished, and its output is in objects: wait for it "
                "with result(), or read what it has committed with "
                "spark.read.format('jrs')"
            )
        context = self._context
        with held_if_unreadable():
            found = heads.stored(context.backend, context.job_id, stage)
        head = None if found is None else found[0]
        if head is None or head.manifest is None:
            return self._copies / stage
        target = self._copy_of(stage, head.manifest)
        if not is_folder(target):
            self._fetch(target, self._rows(head.manifest))
        return target

    def files(self, stage: str) -> list[StoredFile] | None:
        """Return the files of a finished stage, or of a stream; None if it has no output.

        Raises:
            JobHeld: an object is missing, or was changed.
            Fenced: a newer leader exists.
        """
        context = self._context
        with held_if_unreadable():
            found = heads.stored(context.backend, context.job_id, stage)
            if found is not None:
                return None if found[0].manifest is None else self._rows(found[0].manifest)
            key = keys.stage(context.job_id, stage)
            stored = context.backend.get(key)
            record = None if stored is None else decode(StageRecord, stored.value, key)
        if record is None or record.manifest is None:
            return None
        return list(self._files(record.manifest))

    # -- inside ----------------------------------------------------------------------------

    def _copy_of(self, stage: str, named: StoredObject) -> Path:
        return self._copies / f"{stage}.{named.sha256[:16]}"

    def _files(self, named: StoredObject) -> tuple[StoredFile, ...]:
        objects = self._context.uploads.objects
        with held_if_unreadable():
            return self._context.until_stored(
                lambda: read_record(objects, OutputManifest, named).files
            )

    def _rows(self, named: StoredObject) -> list[StoredFile]:
        objects = self._context.uploads.objects

        def read() -> list[StoredFile]:
            newest = read_record(objects, BatchManifest, named)
            return [in_batch(batch, one) for batch, one in files_of(objects, newest)]

        with held_if_unreadable():
            return self._context.until_stored(read)

    def _fetch(self, target: Path, files: Iterable[StoredFile]) -> None:
        context, wanted = self._context, list(files)
        ours = f".{context.epoch}.{context.attempt}."
        building = target.with_name(f"{ours}{context.runtime.token()}")
        self._discard_unfinished(ours)

        def copy() -> None:
            with unavailable(f"{target} cannot be fetched"):
                context.storage.discard(context.job_id, building)
                context.storage.make_folder(building)
                fetch(context.uploads.objects, wanted, building)

        with held_if_unreadable():
            context.until_stored(copy)
        with unavailable(f"{target} cannot be fetched"), context.fenced_if_gone():
            sync_tree(building)
            context.storage.put_in_place(context.job_id, building, target)

    def _discard_unfinished(self, ours: str) -> None:
        """Remove the copies that earlier attempts have not finished: they were ended, perhaps since
        the disk was full. This attempt's, whose names begin with `ours`, may be other threads'."""
        for path in self._copies.glob(".*"):
            if not path.name.startswith(ours):
                self._context.storage.discard(self._context.job_id, path)


def outputs_of(context: AttemptContext) -> StageOutputs:
    """Return the output of the finished stages of an attempt's job."""
    in_objects = context.storage.objects is not None
    return OutputsInObjects(context) if in_objects else OutputsInFolders(context)


def has_rows(context: AttemptContext, stage: str, newest: int) -> bool:
    """Return whether a stream has output in its own place.

    Args:
        newest: the newest batch that the sink of jrs has committed; -1 if there is none.

    Raises:
        Unavailable: its place cannot be listed now.
    """
    if context.storage.objects is not None:
        return newest >= 0
    place = context.storage.published(context.job_id, stage, temporary=False)
    with reading(f"listing {place}"):
        return is_folder(place) and any(place.iterdir())
