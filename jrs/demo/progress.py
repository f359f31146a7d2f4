"""The progress of each stream of a job, read from its checkpoint while it runs.

The reader takes no part in the job: if the job renames a folder meanwhile, the next look finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from jrs.contract.errors import JobHeld
from jrs.recovery.checkpoint_format.position import position, read_plan
from jrs.recovery.checkpoint_format.unreadable import UnreadableCheckpoint
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.spark.rescaling import partitions


@attrs.frozen
class Progress:
    """The progress of a stream. It shrinks only if its job resumes from a snapshot."""

    planned: int = 0
    """Batches that have begun."""
    committed: int = 0
    """Batches that have ended."""
    files: tuple[int, ...] = ()
    """The number of reads from each source: of files, if each read takes one file."""
    watermark: float | None = None
    """In seconds since 1970; None before the first watermark, and at the end of time."""
    flushing: bool = False
    """Whether the newest batch is the one at the end of time."""
    rows: int = 0
    """Rows that are published."""

    def read(self, source: int) -> int:
        """Return the number of files that were read from a source that gives one at a time."""
        return self.files[source] if source < len(self.files) else 0


class ProgressOf:
    """Looks at the streams of one job."""

    def __init__(self, storage: JobStorage, job_id: str, streams: Sequence[str]) -> None:
        self._folder = storage.folder(job_id)
        self._seen = dict.fromkeys(streams, Progress())
        self._rows: dict[Path, int] = {}
        """Rows of each published batch, which never change."""

    def look(self) -> Mapping[str, Progress]:
        """Return the current progress of each stream."""
        for name, before in list(self._seen.items()):
            rows = self._published(name)
            now = self._checkpoint(name) or before
            self._seen[name] = attrs.evolve(now, rows=max(rows, before.rows))
        return dict(self._seen)

    def partitions(self, name: str) -> int | None:
        """Return the number of partitions of a stream's state; None if it cannot be read now."""
        for checkpoint in self._folder.glob(f"e*/streams/{name}/ck"):
            try:
                return partitions(checkpoint)
            except (JobHeld, OSError):
                continue
        return None

    def _checkpoint(self, name: str) -> Progress | None:
        for checkpoint in self._folder.glob(f"e*/streams/{name}/ck"):
            try:
                at = position(checkpoint)
                if at.planned < 0:
                    continue
                plan = read_plan(checkpoint, at.planned)
            except (UnreadableCheckpoint, OSError):
                continue
            watermark = None if at.at_the_end else plan.watermark
            return Progress(
                at.planned + 1,
                at.committed + 1,
                # The log of a file source has one entry for each read.
                tuple((-1 if each.log_end is None else each.log_end) + 1 for each in plan.sources),
                watermark / 1000 if watermark else None,
                at.at_the_end,
            )
        return None

    def _published(self, name: str) -> int:
        # The story imports this module before it has checked what is installed.
        import pyarrow.parquet as pq

        total = 0
        for batch in (self._folder / "out" / name).glob("batch=*"):
            if batch not in self._rows:
                found = [pq.ParquetFile(path).metadata.num_rows for path in batch.iterdir()]
                self._rows[batch] = sum(found)
            total += self._rows[batch]
        return total
