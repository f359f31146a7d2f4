"""Where the rows of a stream's batches go, once its sink has staged them: into folders, or objects.

Both keep the rows under a name that nobody else uses until the head names them. In folders they are
renamed into the stage's output then; objects stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import attrs

from jrs.contract.errors import JobHeld, Unavailable
from jrs.records.heads import StreamHead
from jrs.records.objects import BatchManifest, StoredFile, StoredObject

from ..checkpoint_format.plan_files import PlanFiles
from ..files import batch_folders, copied_from
from ..storage.packed_copies import read_record
from .checkpoint_upload import CheckpointUpload
from .context import AttemptContext


class BatchRows(Protocol):
    """The rows of one stage's batches."""

    def published(self) -> Iterable[int]:
        """Return the batches that were published before the stage had a head."""

    def staged(self, head: StreamHead, moved: StreamHead, files: Sequence[str]) -> StreamHead:
        """Return the head that names a batch whose rows are staged. Idempotent.

        Args:
            head: as it is.
            moved: as it is to be, without the place of the rows.
            files: the names of the staged files.
        """

    def skipped(self, head: StreamHead, moved: StreamHead) -> StreamHead:
        """Return the head that names a batch which no sink has seen, and which is complete."""

    def before_commit(self, moved: StreamHead) -> None:
        """Do what has to be durable before the head names a batch."""

    def publish(self, head: StreamHead, *, is_noted: bool = False) -> None:
        """Have the rows of the batch that the head names in the output. Idempotent.

        Args:
            is_noted: Spark has noted the batch: a user may have moved its rows away since.
        """

    def publish_at_once(self, batch: int, files: Sequence[str]) -> None:
        """Publish a batch of a cluster without heads, unless that has happened."""

    def has_rows(self, head: StreamHead) -> bool:
        """Return whether the batch that the head names has rows, as far as the head says."""

    def sweep(self) -> None:
        """Remove what was staged and does not count."""


class RowsInFolders:
    """Rows below the stage's output: a folder ``batch=N`` for each batch that has some.

    Args:
        folder: of the stage in its epoch, with ``ck`` and ``staging``.
        output: where the stage's batches are published.
    """

    def __init__(self, context: AttemptContext, stage: str, folder: Path, output: Path) -> None:
        self._context = context
        self._stage = stage
        self._staging = folder / "staging"
        self._output = output
        self._plans = PlanFiles(folder / "ck")
        self._staged: tuple[int, tuple[str, ...], str] | None = None
        """The batch that was last put into a folder, its files, and the name of the folder."""

    def published(self) -> Iterable[int]:
        return batch_folders.published(self._output)

    def staged(self, head: StreamHead, moved: StreamHead, files: Sequence[str]) -> StreamHead:
        return attrs.evolve(moved, folder=self.stage_files(moved.batch, files) if files else "")

    def skipped(self, head: StreamHead, moved: StreamHead) -> StreamHead:
        return attrs.evolve(moved, folder="")

    def before_commit(self, moved: StreamHead) -> None:
        # Spark syncs no plan, and what is planned again has to be what was committed.
        with self._context.fenced_if_gone():
            self._plans.make_durable(moved.batch)

    def publish(self, head: StreamHead, *, is_noted: bool = False) -> None:
        if head.folder:
            self.publish_staged(head.batch, head.folder, is_noted=is_noted)

    def publish_at_once(self, batch: int, files: Sequence[str]) -> None:
        if not (self._output / f"batch={batch}").is_dir():
            self.publish_staged(batch, self.stage_files(batch, files))

    def has_rows(self, head: StreamHead) -> bool:
        return bool(head.folder)

    def sweep(self) -> None:
        with suppress(OSError):
            batch_folders.sweep(self._staging)

    def stage_files(self, batch: int, files: Sequence[str]) -> str:
        """Put the files into a folder, once, and return its name."""
        if self._staged is None or self._staged[:2] != (batch, tuple(files)):
            name = f"batch={batch}.{self._context.runtime.token()}"
            self._staged = batch, tuple(files), name
        name = self._staged[2]
        try:
            with self._context.fenced_if_gone():
                batch_folders.stage(self._staging, files, name)
        except FileNotFoundError:
            raise  # Rows that are missing do not come back, however often the call is repeated.
        except OSError as error:
            raise Unavailable(
                f"the rows of batch {batch} of stage {self._stage!r} cannot be staged: {error}"
            ) from error
        return name

    def publish_staged(self, batch: int, folder: str, *, is_noted: bool = False) -> None:
        """Rename a staged folder into the output, if that has not happened yet."""
        try:
            staged = self._staging / folder
            if batch_folders.publish(staged, self._output, self._stage, batch) or is_noted:
                return
        except Unavailable:
            self._context.check()
            with suppress(OSError):  # If it was removed, the next try finds it.
                self._context.storage.make_folder(self._output)
            raise
        self._context.check()  # A newer leader has taken the folders.
        raise JobHeld(
            f"stage {self._stage!r}: the rows of batch {batch} are missing from {self._output}: "
            "restore the job from a snapshot; if you have removed them, make an empty folder "
            f"batch={batch} there"
        )


class RowsInObjects:
    """Rows in objects, and with them the checkpoint.

    Args:
        folder: as in `RowsInFolders`.
    """

    def __init__(self, context: AttemptContext, stage: str, folder: Path) -> None:
        self._context = context
        self._stage = stage
        self._folder = folder
        self._checkpoint: CheckpointUpload | None = None
        self._read: tuple[StoredObject, BatchManifest] | None = None
        """The manifest that was read last, or written."""
        self._moved: tuple[StreamHead, tuple[str, ...], StreamHead] | None = None
        """A head, the files of the batch after it, and the head that names them."""
        self._written: tuple[StreamHead, tuple[str, ...], dict[str, StoredFile]] | None = None
        """A head, and what of the files of the batch after it was uploaded. No sweep removes it."""

    def published(self) -> Iterable[int]:
        return ()

    def staged(self, head: StreamHead, moved: StreamHead, files: Sequence[str]) -> StreamHead:
        if self._moved is None or self._moved[:2] != (head, tuple(files)):
            if self._written is None or self._written[:2] != (head, tuple(files)):
                self._written = head, tuple(files), {}
            staged = {name: self._folder / "staging" / name for name in files}
            with self._context.fenced_if_gone():
                checkpoint = self._upload(head).put_planned(moved.batch)
                rows = self._context.uploads.writer.put_files(
                    f"{self._stage}/rows", staged, known=self._written[2]
                )
            self._moved = head, tuple(files), self._named(head, moved, rows, checkpoint)
        return self._moved[2]

    def skipped(self, head: StreamHead, moved: StreamHead) -> StreamHead:
        def upload() -> StreamHead:
            with self._context.fenced_if_gone():
                checkpoint = self._upload(head).put_complete(moved.batch)
            return self._named(head, moved, (), checkpoint)

        return self._context.until_stored(upload)  # No commit of the sink, which would wait.

    def before_commit(self, moved: StreamHead) -> None:
        if moved.manifest is not None:
            copied_from.note(self._folder, moved.generation, moved.manifest.name)

    def publish(self, head: StreamHead, *, is_noted: bool = False) -> None:
        pass  # What the head names is the output.

    def publish_at_once(self, batch: int, files: Sequence[str]) -> None:
        pass  # Objects need heads: see `usable_storage`.

    def has_rows(self, head: StreamHead) -> bool:
        return head.manifest is not None and bool(self._manifest(head.manifest).files)

    def sweep(self) -> None:
        with suppress(OSError):
            batch_folders.sweep(self._folder / "staging")

    # -- inside ----------------------------------------------------------------------------

    def _named(
        self,
        head: StreamHead,
        moved: StreamHead,
        rows: tuple[StoredFile, ...],
        checkpoint: tuple[StoredFile, ...],
    ) -> StreamHead:
        """Write the manifest of a batch; return the head that names it."""
        before = None if head.manifest is None else (self._manifest(head.manifest), head.manifest)
        alone = BatchManifest(
            moved.job_id, moved.stage, moved.generation, moved.batch, rows, checkpoint
        )
        self._read = self._context.uploads.put_batch(alone, before)
        return attrs.evolve(moved, manifest=self._read[0])

    def _upload(self, head: StreamHead) -> CheckpointUpload:
        if self._checkpoint is None:
            known = () if head.manifest is None else self._manifest(head.manifest).checkpoint
            place = self._context.uploads.writer
            self._checkpoint = CheckpointUpload(place, self._stage, self._folder / "ck", known)
        return self._checkpoint

    def _manifest(self, named: StoredObject) -> BatchManifest:
        if self._read is None or self._read[0] != named:
            objects = self._context.uploads.objects
            self._read = named, read_record(objects, BatchManifest, named)
        return self._read[1]


def rows_of(context: AttemptContext, stage: str, folder: Path, output: Path) -> BatchRows:
    """Return where the rows of a stage's batches go in the attempt's storage."""
    if context.storage.objects is not None:
        return RowsInObjects(context, stage, folder)
    return RowsInFolders(context, stage, folder, output)
