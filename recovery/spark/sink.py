"""The streaming sink ``jrs``: executors stage the rows, the driver publishes them under the fence.

Executors write Parquet files into the stage's staging folder, which is below the epoch's. When a
batch commits, its files become one folder ``batch=N``, which is renamed into the stage's output.
The rename is the fence: once a newer leader has renamed the epoch's folder, no path that an older
driver or executor knows exists. Publishing is idempotent: a repeated batch, which Spark runs on the
same input, finds its folder and discards its staged files.

Spark's Python workers get the sink by value (see `by_value`), since they may not have jrs. They
need pyspark and pyarrow.

``spark.read.parquet(stage.output)`` reads the output, with the batch as a column.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from ..files.sync import sync

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FORMAT = "jrs"


class _Staged(WriterCommitMessage):
    """The file of one task; no name if the task had no rows."""

    def __init__(self, name: str | None) -> None:
        self.name = name


class JrsSink(DataSource):
    """The data source that Spark registers; jrs sets its options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> _Writer:
        return _Writer(Path(self.options["staging"]), Path(self.options["out"]))


class _Writer(DataSourceStreamArrowWriter):
    def __init__(self, staging: Path, out: Path) -> None:
        self._staging = staging
        self._out = out

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Staged:
        """Write one task's rows, durably; runs in an executor."""
        # Not for each commit, which runs in a new process.
        import pyarrow.parquet as pq

        name = f"part-{uuid.uuid4().hex}.parquet"
        path = self._staging / name
        writer: pq.ParquetWriter | None = None
        try:
            for batch in iterator:
                if batch.num_rows == 0:
                    continue
                if writer is None:
                    writer = pq.ParquetWriter(path, batch.schema, compression="zstd")
                writer.write_batch(batch)
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            return _Staged(None)
        sync(path)
        return _Staged(name)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish a whole batch; runs on the driver's side."""
        names = _names(messages)
        if not names:
            return
        target = self._out / f"batch={batchId}"
        if target.exists():
            self._discard(names)
            return
        whole = self._staging / f"batch={batchId}"
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        for name in names:
            os.rename(self._staging / name, whole / name)
        sync(whole)
        try:
            os.rename(whole, target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            shutil.rmtree(whole)  # Another process has just published the same rows.
        sync(self._out)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._discard(_names(messages))

    def _discard(self, names: list[str]) -> None:
        for name in names:
            (self._staging / name).unlink(missing_ok=True)


def _names(messages: list[WriterCommitMessage | None]) -> list[str]:
    """Return the files that tasks have staged. A message that is not understood is an error: the
    rows that it stands for would be lost."""
    found = [_name_of(each) for each in messages if each is not None]
    return [name for name in found if name is not None]


def _name_of(message: WriterCommitMessage) -> str | None:
    if not isinstance(message, _Staged):
        raise TypeError(f"not a message of this sink: {type(message).__name__}")
    return message.name
