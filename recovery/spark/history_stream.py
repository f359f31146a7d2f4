"""Reading the history of all jobs with ``spark.readStream.format("jrs")``, from its feed.

An offset is a cursor of the feed, so a query that restarts from its checkpoint reads the events of
a batch again, and no others. The first batch begins with all that is kept, for which there is no
cursor: so an offset also names the oldest event that a query which was started then has to have.
A sweep may come before the first batch is read, so that it need not have the very oldest ones.
Events are read where the query is planned: executors get the rows, and this module by value (see
`by_value`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from .table_source import TABLE, Part, batches, opened, packed, unpacked

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from jrs.contract.backend import Backend

    from ..inspect.history import HistoryEntry

# Imported inside functions: jrs, ..inspect, since executors may lack them.

_OPTIONS = ("backend", TABLE, "cluster", "job", "prefix", "after")


class HistoryStream(DataSourceStreamReader):
    """Reads each event of all jobs and of the cluster once, in order."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        if options[TABLE] != "history":
            raise ValueError(
                f"format('jrs'): of the tables, only history is a stream, not {options[TABLE]!r}"
            )
        if unknown := sorted({name.lower() for name in options}.difference(_OPTIONS)):
            raise ValueError(f"format('jrs'): a stream of the history has no option {unknown[0]!r}")
        self._options = dict(options)
        self._schema = schema
        self._backend: Backend | None = None
        self._oldest = self._newest = ""
        """The cursors behind the oldest event that the first batch has to have, and behind the
        newest that was seen; empty while there is none."""

    def initialOffset(self) -> dict[str, Any]:
        """Return the cursor that the option ``after`` names; else that of all that is kept."""
        return {"cursor": self._options.get("after", "")}

    # Spark 4.2 and later also know a form with arguments; 4.1 knows this one alone.
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the cursor behind all that is committed, and `oldest` if there is one."""
        from jrs.store import feed

        backend = self._opened()
        if not self._newest:
            self._oldest, newest = feed.ends(backend)
            self._newest = newest or self._options.get("after", "")
        else:
            more = True
            while more:
                page = feed.read(backend, self._newest)
                self._newest, more = page.cursor, page.more
        # Spark takes any difference for new data: a cluster without events has one offset.
        return {"cursor": self._newest} | ({"oldest": self._oldest} if self._oldest else {})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Read the events of a batch; runs where the query is planned.

        Raises:
            NotFound: some of them are not kept any more.
        """
        from jrs.contract.errors import NotFound

        # An older version has named no oldest event.
        oldest = end.get("oldest", "")
        try:
            found = self._batches(start["cursor"], end["cursor"], oldest)
            return [Part(packed(batch)) for batch in found]
        except NotFound as error:
            raise NotFound(
                "events that the query has not read are not kept any more: start it with a new "
                "checkpoint and without the option after, and expect that events are missing"
            ) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; runs in an executor."""
        if partition.value is not None:
            yield from unpacked(partition.value)

    def stop(self) -> None:
        """End the stream."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None

    def _batches(self, start: str, end: str, oldest: str) -> Iterator[pa.RecordBatch]:
        from ..inspect.history import between, row_of

        wanted = filter(self._is_wanted, between(self._opened(), start, end, oldest))
        yield from batches(self._schema, map(row_of, wanted))

    def _is_wanted(self, entry: HistoryEntry) -> bool:
        job_id, prefix = self._options.get("job"), self._options.get("prefix", "")
        return job_id in (None, entry.job_id) and entry.job_id.startswith(prefix)

    def _opened(self) -> Backend:
        if self._backend is None:
            self._backend = opened(self._options)
        return self._backend
