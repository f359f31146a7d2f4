"""How far each stream of a job is, read from its checkpoint while it runs.

Whoever reads has no part in the job: a folder that is renamed in this moment is looked at again the
next time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from jrs.contract.errors import JobHeld
from jrs.recovery.checkpoint_format.final_batch import END_OF_TIME, offsets
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.spark.rescaling import partitions


@attrs.frozen
class Progress:
    """How far a stream is. It shrinks only if its job goes on from a snapshot."""

    planned: int = 0
    """Batches that have begun."""
    committed: int = 0
    """Batches that have ended."""
    files: tuple[int, ...] = ()
    """How often each source was read from: for one file at a time, the files."""
    watermark: float | None = None
    """In seconds since 1970; None before there is one, and at the end of time."""
    flushing: bool = False
    """Whether the newest batch is the one at the end of time."""
    rows: int = 0
    """Rows that are published."""

    def read(self, source: int) -> int:
        """Return how many files were read of a source that gives one at a time."""
        return self.files[source] if source < len(self.files) else 0


class ProgressOf:
    """Looks at the streams of one job."""

    def __init__(self, storage: JobStorage, job_id: str, streams: Sequence[str]) -> None:
        self._folder = storage.folder(job_id)
        self._seen = dict.fromkeys(streams, Progress())
        self._rows: dict[Path, int] = {}
        """Of each batch that was published: it does not change."""

    def look(self) -> Mapping[str, Progress]:
        """Return how far each stream is by now."""
        for name, before in list(self._seen.items()):
            rows = self._published(name)
            now = self._checkpoint(name) or before
            self._seen[name] = attrs.evolve(now, rows=max(rows, before.rows))
        return dict(self._seen)

    def partitions(self, name: str) -> int | None:
        """Return over how many partitions a stream's state is spread; None if that is not to be
        seen now."""
        for checkpoint in self._folder.glob(f"e*/streams/{name}/ck"):
            try:
                return partitions(checkpoint)
            except (JobHeld, OSError, KeyError):
                continue
        return None

    def _checkpoint(self, name: str) -> Progress | None:
        for checkpoint in self._folder.glob(f"e*/streams/{name}/ck"):
            try:
                committed = _newest(checkpoint / "commits")
                planned = _newest(checkpoint / "offsets")
                if planned < 0:
                    continue
                _, meta, sources = offsets(checkpoint, planned)
            except (JobHeld, OSError):
                continue
            watermark = meta["batchWatermarkMs"]
            flushing = watermark == END_OF_TIME
            return Progress(
                planned + 1,
                committed + 1,
                tuple(map(_files, sources)),
                None if flushing or watermark == 0 else watermark / 1000,
                flushing,
            )
        return None

    def _published(self, name: str) -> int:
        import pyarrow.parquet as pq

        total = 0
        for batch in (self._folder / "out" / name).glob("batch=*"):
            if batch not in self._rows:
                found = [pq.ParquetFile(path).metadata.num_rows for path in batch.iterdir()]
                self._rows[batch] = sum(found)
            total += self._rows[batch]
        return total


def _newest(folder: Path) -> int:
    return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=-1)


def _files(source: str) -> int:
    """Return how often a file source was read from, as its line of the offset log has it."""
    try:
        return int(json.loads(source)["logOffset"]) + 1
    except (ValueError, KeyError, TypeError):
        return 0
