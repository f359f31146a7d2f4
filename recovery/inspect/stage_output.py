"""The output of one stage, as a reader finds it: in a folder, or in objects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import attrs

from jrs.contract.backend import Backend
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.heads import StreamHead
from jrs.records.objects import BatchManifest, OutputManifest, StoredObject
from jrs.records.stages import StageRecord

from ..checkpoint_format.sink_log import SINK_LOG, sink_logs
from ..cleanup.job_objects import index_in
from ..files import batch_folders
from ..files.disk_errors import unavailable
from ..files.safe_listing import everything_below, exists, is_file, is_folder
from ..files.visible_files import is_hidden
from ..storage.batches import files_of, in_batch
from ..storage.objects import Objects
from ..storage.packed_copies import read_record

_FEW = 256
"""Numbers of batches that are looked for one by one. The names of all cost about as much."""


@attrs.frozen
class OutputObject:
    """A file of a stage's output that is an object.

    Attributes:
        url: such as ``s3://bucket/…``.
        name: the file's path in the output, such as ``batch=3/part-….parquet``.
        size: in bytes.
        options: how its store is reached, such as ``region=…``, as the storage's URL says.
    """

    url: str
    name: str
    size: int
    options: str = ""


Files = Sequence[Path] | Sequence[OutputObject]


class StageOutput(Protocol):
    """The output of one stage."""

    where: str
    """Where it is, or would be."""

    def exists(self) -> bool:
        """Return whether there is any."""

    def has_sink_log(self, *, anywhere: bool) -> bool:
        """Return whether a sink of Spark's has written it: at its top, or anywhere below."""

    def has_batches(self) -> bool:
        """Return whether there are batches of the sink of jrs."""

    def newest(self, head: StreamHead | None) -> int:
        """Return the newest batch whose files will not change; -1 if there is none."""

    def rows(self, behind: int, newest: int) -> Files:
        """Return the files of the batches after `behind`, up to `newest`, in their order."""

    def files(self) -> Files:
        """Return all files, without those that Spark takes for hidden."""


class OutputInFolder:
    """Output in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = str(folder)

    def exists(self) -> bool:
        return is_folder(self._folder)

    def has_sink_log(self, *, anywhere: bool) -> bool:
        if not anywhere:
            return exists(self._folder / SINK_LOG)
        with unavailable(f"listing {self._folder} failed"):
            return bool(sink_logs(self._folder))

    def has_batches(self) -> bool:
        return self._newest_published() >= 0

    def newest(self, head: StreamHead | None) -> int:
        if head is None:
            return self._newest_published()
        if not (head.folder or head.plan) or batch_folders.parts(self._batch(head.batch)):
            return head.batch
        # Its rows are about to be published; or it has none, and may be planned again with some.
        return head.batch - 1

    def rows(self, behind: int, newest: int) -> list[Path]:
        new = range(behind + 1, newest + 1)
        # A reader that polls asks for the few that are new, of a million that were published. One
        # that comes late may ask for a million numbers, of which few have rows.
        few = behind >= 0 and len(new) <= _FEW
        named = new if few else batch_folders.numbered(self._folder)
        folders = [self._batch(batch) for batch in named if batch in new]
        return [folder / name for folder in folders for name in batch_folders.parts(folder)]

    def files(self) -> list[Path]:
        return _files(self._folder)

    # -- inside ----------------------------------------------------------------------------

    def _newest_published(self) -> int:
        return next(batch_folders.published(self._folder), -1)

    def _batch(self, number: int) -> Path:
        return self._folder / f"batch={number}"


class OutputInObjects:
    """Output in objects, as the records name it, or what the job has left when it ended."""

    def __init__(
        self, backend: Backend, objects: Objects, job_id: str, stage: str, head: StreamHead | None
    ) -> None:
        self._objects = objects
        self.where = f"{objects.url}/{job_id}/"
        self._stream: StoredObject | None = None
        self._stage: StoredObject | None = None
        stored = backend.get(keys.stage(job_id, stage))
        if head is not None:
            self._stream = head.manifest
        if stored is not None:
            self._stage = decode(StageRecord, stored.value, stored.key).manifest
        if head is None and self._stage is None:
            # A cleanup, which removes the records one by one, has written the list before.
            index = index_in(objects, job_id)
            if index is not None:
                self._stream = index.streams.get(stage)
                self._stage = index.stages.get(stage)
        self._read: BatchManifest | None = None

    def exists(self) -> bool:
        return self._stage is not None or self._stream is not None

    def has_sink_log(self, *, anywhere: bool) -> bool:
        return anywhere and any(SINK_LOG in Path(one.name).parts for one in self._all())

    def has_batches(self) -> bool:
        return self._stream is not None

    def newest(self, head: StreamHead | None) -> int:
        if self._stream is None:
            return -1
        newest = self._newest(self._stream)
        # A batch without rows may be planned again with some.
        may_change = head is not None and head.plan and not newest.files
        return newest.batch - 1 if may_change else newest.batch

    def rows(self, behind: int, newest: int) -> list[OutputObject]:
        if self._stream is None:
            return []
        found = files_of(self._objects, self._newest(self._stream), behind=behind)
        named = [in_batch(batch, one) for batch, one in found if batch <= newest]
        return [self._described(one.object, one.path, one.size) for one in named]

    def files(self) -> list[OutputObject]:
        return [one for one in self._all() if not is_hidden(Path(one.name))]

    # -- inside ----------------------------------------------------------------------------

    def _newest(self, named: StoredObject) -> BatchManifest:
        if self._read is None:
            self._read = read_record(self._objects, BatchManifest, named)
        return self._read

    def _all(self) -> list[OutputObject]:
        if self._stage is None:
            return []
        files = read_record(self._objects, OutputManifest, self._stage).files
        return [self._described(one.object, one.path, one.size) for one in files]

    def _described(self, name: str, path: str, size: int) -> OutputObject:
        return OutputObject(f"{self._objects.url}/{name}", path, size, self._objects.options)


def _files(folder: Path) -> list[Path]:
    """Return the files below a folder, in order, without those that Spark takes for hidden."""
    if not is_folder(folder):
        return []
    with unavailable(f"listing {folder} failed"):
        found = sorted(path for path in everything_below(folder) if is_file(path))
    return [path for path in found if not is_hidden(path.relative_to(folder))]
