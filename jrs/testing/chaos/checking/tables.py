"""Histories as tables: Parquet files, whose operations are each in one row group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jrs.testing.chaos.checking.generate import Row
from jrs.testing.chaos.recorded import COLUMNS, OPERATIONS

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 200_000
"""How many rows a row group has, about."""


def to_parquet(folder: Path, target: Path) -> Path:
    """Write the history in a folder, which may be larger than memory, to a table; return its
    folder."""
    write_rows(_whole(folder), target)
    return target


def write_rows(rows: Iterable[Row], target: Path) -> None:
    """Write rows to files of a table; the events of an operation stand together."""
    target.mkdir(parents=True, exist_ok=True)
    waiting = iter(rows)
    for number, some in enumerate(iter(lambda: list(_operations(waiting)), [])):
        _write([batch_of(some)], target, number)


def write_histories(histories: Iterable[tuple[str, list[Row]]], target: Path) -> None:
    """Write a table of many histories, each with its name."""
    target.mkdir(parents=True, exist_ok=True)
    waiting, number, size = [], 0, 0
    for name, rows in histories:
        waiting.append(batch_of(rows, name))
        size += len(rows)
        if size >= ROWS:
            _write(waiting, target, number)
            waiting, number, size = [], number + 1, 0
    if waiting:
        _write(waiting, target, number)


def _write(batches: list[pa.RecordBatch], target: Path, number: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_batches(batches)
    # One row group: so no task gets one event of an operation, and another task the other one.
    path = target / f"part-{number:06}.parquet"
    pq.write_table(table, path, row_group_size=len(table), compression="lz4")


def _operations(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield some rows, and end between two operations."""
    row = None
    for row in islice(rows, ROWS):
        yield row
    while row is not None and row[2] == "invoke" and (row := next(rows, None)) is not None:
        yield row


def batch_of(rows: list[Row], history: str | None = None) -> pa.RecordBatch:
    """Return rows as a batch of a table; the values as JSON."""
    import pyarrow as pa

    columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
    place = COLUMNS.index("value")
    columns[place] = [None if value is None else json.dumps(value) for value in columns[place]]
    arrays = [
        pa.array(column, pa.int64() if name in _NUMBERS else pa.string())
        for name, column in zip(COLUMNS, columns, strict=True)
    ]
    names = list(COLUMNS)
    if history is not None:
        names.append("history")
        arrays.append(pa.array([history] * len(rows), pa.string()))
    return pa.RecordBatch.from_arrays(arrays, names)


_NUMBERS = ("seq", "version", "epoch", "t")


def _whole(folder: Path) -> Iterator[Row]:
    """Yield the events in the files of a folder, those of an operation together.

    The last line of a process that was killed may be cut off; it is left out.
    """
    for path in sorted(folder.glob("*.jsonl")):
        begun: dict[tuple[str, int], Row] = {}
        with path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                row: Row = tuple(json.loads(line))
                operation = row[0], row[1]
                if row[2] == "invoke":
                    begun[operation] = row
                    continue
                if (first := begun.pop(operation, None)) is not None:
                    yield first
                elif row[3] in OPERATIONS:
                    continue
                yield row
        yield from begun.values()
