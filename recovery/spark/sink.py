"""The streaming sink ``jrs``: executors stage the rows, the attempt commits them under its fence.

Executors write Parquet files into the stage's staging folder, which is below the epoch's. When a
batch commits, the sink passes their names to the attempt (see `sink_server`), which commits the
batch and publishes it as a folder ``batch=N`` of the stage's output. The sink itself deletes and
renames nothing: an error that it gets may come from a commit that has taken effect.

Spark's Python workers get the sink by value (see `by_value`), since they may not have jrs. They
need pyspark and pyarrow.

``spark.read.parquet(stage.output)`` reads the output, with the batch as a column.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from ..files.sync import sync
from .history_stream import HistoryStream
from .source import OutputReader, Part, check_columns, parts_of, schema_of
from .table_source import TABLE, TableReader, columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FORMAT = "jrs"
_ONLY_STREAMS = "format('jrs') writes only a stage of job.stream(…)"
_PATIENCE = 600.0
"""Seconds without a word from the attempt, which says now and then that a commit takes its time: it
is gone, or hangs."""


class _Staged(WriterCommitMessage):
    """The file of one task; no name if the task had no rows."""

    def __init__(self, name: str | None) -> None:
        self.name = name


class JrsSink(DataSource):
    """The data source that Spark registers: the sink of streams, whose options jrs sets; the output
    of stages; the tables of a cluster; and its history as a stream."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    _parts: list[Part] | None = None
    """The files that were chosen. Spark keeps them from `schema` on for all scans of a table."""

    def schema(self) -> Any:
        if TABLE in self.options:
            return columns_of(self.options)
        self._parts = parts_of(self.options)
        return schema_of(self._parts)

    def reader(self, schema: Any) -> OutputReader | TableReader:
        if TABLE in self.options:
            return TableReader(self.options, schema)
        if self._parts is not None:
            return OutputReader(self._parts, schema)
        parts = parts_of(self.options)
        check_columns(parts, schema, self.options["stage"])
        return OutputReader(parts, schema)

    def streamReader(self, schema: Any) -> HistoryStream:
        if TABLE not in self.options:
            raise ValueError("format('jrs'): only the table 'history' can be read as a stream")
        return HistoryStream(self.options, schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> _Writer:
        where = self.options
        if "address" not in where:
            raise ValueError(_ONLY_STREAMS)
        return _Writer(Path(where["staging"]), where["stage"], where["run"], where["address"])

    def writer(self, schema: Any, overwrite: bool) -> NoReturn:
        raise ValueError(_ONLY_STREAMS)


class _Writer(DataSourceStreamArrowWriter):
    def __init__(self, staging: Path, stage: str, run: str, address: str) -> None:
        self._staging = staging
        self._stage = stage
        self._run = run
        self._address = address

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
        """Have the attempt commit a whole batch; runs on the driver's side."""
        request = {
            "stage": self._stage,
            "run": self._run,
            "batch": batchId,
            "files": _names(messages),
        }
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
            attempt.settimeout(_PATIENCE)
            attempt.connect("\0" + self._address[1:])
            with attempt.makefile("rwb") as stream:
                stream.write(json.dumps(request).encode() + b"\n")
                stream.flush()
                said = map(json.loads, stream)
                answer = next((one for one in said if "wait" not in one), None)
        if answer is None:
            raise RuntimeError(f"batch {batchId} was not committed: the attempt does not answer")
        if (error := answer["error"]) is not None:
            raise RuntimeError(f"batch {batchId} was not committed: {error}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: Spark also calls this after a commit that raised, and may have committed."""


def _names(messages: list[WriterCommitMessage | None]) -> list[str]:
    """Return the files that tasks have staged. A message that is not understood is an error: the
    rows that it stands for would be lost."""
    found = [_name_of(each) for each in messages if each is not None]
    return [name for name in found if name is not None]


def _name_of(message: WriterCommitMessage) -> str | None:
    if not isinstance(message, _Staged):
        raise TypeError(f"not a message of this sink: {type(message).__name__}")
    return message.name
