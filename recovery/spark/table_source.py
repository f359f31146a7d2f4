"""Reading a cluster's tables with ``spark.read.format("jrs")``: see `jrs.recovery.inspect.tables`.

Executors get this module by value (see `by_value`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .source import _arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from jrs.contract.backend import Backend

    from ..inspect.table_jobs import Wanted
    from ..inspect.tables import Table

# Imported inside functions: attrs, jrs, ..inspect, since executors may lack them.
# Imported inside functions: pyarrow, since each commit of a stream is a new
# process, which gets this module with the sink.

TABLE = "table"
"""The option that names a table; without it, the output of a stage is read."""
_CHOICE = ("job", "prefix", "status", "since", "until")
_AFTER = "after"
"""The option of a stream of the history alone."""
_OPTIONS = ("backend", TABLE, "cluster", "read", "partitions", *_CHOICE)
_BY = ("executors", "driver")
_PARTITIONS, _MOST = "2", 32
"""How many partitions there are by default, and at most."""
_ROWS = 4096
"""Rows of one batch."""
_FIRST, _LAST = -62_135_596_800, 253_402_300_800
"""The first second that Python has a date for, and the first one after the last."""


class Part(InputPartition):
    """The bounds of the job ids that a worker reads, or rows that the driver has read."""


class TableReader(DataSourceReader):
    """Reads one table.

    It takes no filters of Spark: after a query with a filter that a source in Python has taken,
    Spark applies it to every later query of the same DataFrame (seen in 4.3.0).
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        given = [f"{field.name} {field.dataType.simpleString()}" for field in schema.fields]
        if given != columns_of(options).split(", "):
            raise ValueError("format('jrs'): a table has columns of its own: leave out .schema(…)")
        if _AFTER in options:
            raise ValueError("format('jrs'): 'after' is an option of readStream alone")
        self._options = dict(options)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Choose what is read at a time; runs where the query is planned."""
        from ..inspect.tables import ranges

        if self._options.get("read") == "driver":
            return [Part(packed(batch)) for batch in self._batches(self._wanted())]
        most = int(self._options.get("partitions", _PARTITIONS))
        with opened(self._options) as backend:
            parts = ranges(backend, _table(self._options), self._wanted(), most)
        return [Part((part.low, part.below)) for part in parts]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; runs in an executor."""
        if partition is None or partition.value is None:
            return  # What Spark passes where there are no partitions.
        if isinstance(partition.value, bytes):
            yield from unpacked(partition.value)
            return
        try:
            import attrs

            wanted = self._wanted()
        except ImportError:
            raise RuntimeError(
                f"executors need jrs to read the table {self._options[TABLE]!r}: install it there, "
                "or have the driver read it, with option('read', 'driver')"
            ) from None
        low, below = partition.value
        yield from self._batches(attrs.evolve(wanted, low=low, below=below))

    def _batches(self, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        with opened(self._options) as backend:
            yield from batches(self._schema, _table(self._options).rows(backend, wanted))

    def _wanted(self) -> Wanted:
        from ..inspect.table_jobs import Wanted

        return Wanted.chosen(self._options)


def opened(options: Mapping[str, str]) -> Backend:
    """Return the backend that the options name."""
    from jrs.store.opening import open_backend

    return open_backend(options["backend"], cluster=options.get("cluster", "default"), create=False)


def columns_of(options: Mapping[str, str]) -> str:
    """Return the columns of a table, as Spark writes a schema.

    Raises:
        ValueError: an option is missing, unknown or wrong.
    """
    from ..inspect.table_jobs import Wanted

    _check(options)
    table = _table(options)
    Wanted.chosen(options)
    if not table.in_ranges and (wrong := sorted({*_CHOICE[2:]} & {*options})):
        raise ValueError(f"format('jrs'): the table {options[TABLE]!r} has no option {wrong[0]!r}")
    return table.columns


def _table(options: Mapping[str, str]) -> Table:
    from ..inspect.tables import TABLES

    name = options[TABLE]
    if name not in TABLES:
        raise ValueError(f"format('jrs'): no table is called {name!r}, only {', '.join(TABLES)}")
    return TABLES[name]


def _check(options: Mapping[str, str]) -> None:
    """Raise `ValueError` unless these are the options of a table."""
    wrong = ""
    if unknown := sorted({name.lower() for name in options}.difference((*_OPTIONS, _AFTER))):
        wrong = f"a table has no option {unknown[0]!r}; its options are {', '.join(_OPTIONS)}"
    elif not options.get("backend"):
        wrong = "'backend' is missing, the URL of the cluster's backend"
    elif (by := options.get("read", _BY[0])) not in _BY:
        wrong = f"read={by!r} is not one of {', '.join(_BY)}"
    elif (given := options.get("partitions", _PARTITIONS)) not in map(str, range(1, _MOST + 1)):
        wrong = f"partitions={given!r} is not a number from 1 to {_MOST}"
    if wrong:
        raise ValueError(f"format('jrs'): {wrong}")


def batches(columns: StructType, rows: Iterator[Sequence[Any]]) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches with these columns."""
    import pyarrow as pa

    schema = _arrow(columns)
    while batch := list(islice(rows, _ROWS)):
        values = zip(schema, zip(*batch, strict=True), strict=True)
        arrays = [_array(field.type, some) for field, some in values]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return a column; times are given in seconds since 1970."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        values = [round(at * 1e6) if at and _FIRST <= at < _LAST else None for at in values]
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([_encodable(value) for value in values], kind)


def _encodable(value: Any) -> Any:
    """Return a text, or a list of texts, without what UTF-8 cannot have: half a character."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value if value is None else [_encodable(each) for each in value]


def packed(batch: pa.RecordBatch) -> bytes:
    """Return rows as they travel to an executor; `unpacked` yields them there."""
    import pyarrow as pa

    stored = pa.BufferOutputStream()
    with pa.ipc.new_stream(stored, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(stored.getvalue())


def unpacked(packed: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows that the driver has read."""
    import pyarrow as pa

    with pa.ipc.open_stream(packed) as stream:
        yield from stream
