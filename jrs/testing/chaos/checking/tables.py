"""Histories as tables: Parquet files whose rows are operations, with typed, nested columns.

What an operation asked of each key, or was told of it, is a list of parts. So a file is read and
checked in columns, and nothing in it has to be parsed. Events that are no operations are rows, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jrs.contract.operations import EPOCH_KEY
from jrs.testing.chaos.checking.generate import Row
from jrs.testing.chaos.recorded import LISTS, OPERATIONS, Part, digest, files_in

ROWS = 250_000
"""How many operations a file has, about."""


_PART = {
    "kind": pa.int8(),
    "key": pa.string(),
    "digest": pa.int64(),
    "version": pa.int64(),
}
_LIST = {
    "kind": pa.int8(),
    "key": pa.string(),
    "text": pa.string(),
    "version": pa.int64(),
    "number": pa.int32(),
}
"""The parts whose key has a list, with its text, and the numbers of reads among those at once."""
_COLUMNS = {
    "process": pa.string(),
    "seq": pa.int64(),
    "f": pa.string(),
    "type": pa.string(),
    "begun": pa.int64(),
    "ended": pa.int64(),
    "key": pa.string(),
    "after": pa.string(),
    "until": pa.string(),
    "version": pa.int64(),
    "epoch": pa.int64(),
    "error": pa.string(),
}
"""As of `recorded.Call`; but `ended` is the time of the answer, whatever it was, and null without
one. `key` is that of what has no parts, or the prefix of a page, which is between `after` and
`until`."""


def to_parquet(folder: Path, target: Path) -> Path:
    """Write the history in a folder, which may be larger than memory, to a table; return its
    folder."""
    write_rows(_lines(folder), target)
    return target


def write_rows(rows: Iterable[Row], target: Path) -> None:
    """Write the events of a history to files of a table."""
    target.mkdir(parents=True, exist_ok=True)
    waiting = _operations(rows)
    for number, some in enumerate(iter(lambda: list(islice(waiting, ROWS)), [])):
        _write([_batch(some)], target, number)


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


def batch_of(rows: Iterable[Row], history: str = "") -> pa.RecordBatch:
    """Return the events of a history as rows of a table."""
    return _batch(list(_operations(rows)), history)


def _write(batches: list[pa.RecordBatch], target: Path, number: int) -> None:
    table = pa.Table.from_batches(batches)
    pq.write_table(table, target / f"part-{number:06}.parquet", compression="lz4")


def _operations(rows: Iterable[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Yield the two events of each operation, or the one of another event; operations without an
    answer come last."""
    begun: dict[tuple[str, int], Row] = {}
    for row in rows:
        if row[3] not in OPERATIONS:
            yield row, row
        elif row[2] == "invoke":
            begun[row[0], row[1]] = row
        elif (first := begun.pop((row[0], row[1]), None)) is not None:
            yield first, row
    for first in begun.values():
        yield first, None


def _batch(operations: list[tuple[Row, Row | None]], history: str = "") -> pa.RecordBatch:
    rows: list[tuple[Any, ...]] = []
    parts: list[tuple[Any, ...]] = []
    lists: list[tuple[Any, ...]] = []
    ends, list_ends = [0], [0]
    for begun, ended in operations:
        process, seq, _, f, key, value, version, epoch, t, _ = begun
        after = until = None
        kind, end, error = "info", None, ""
        if ended is not None:
            _, _, kind, _, _, answer, answer_version, answer_epoch, end, error = ended
            if value is None:  # What was asked is in the first event, but for reads.
                value = answer
                version = answer_version if version is None else version
                epoch = answer_epoch if epoch is None else epoch
        if f == "commit":
            parts += map(_of_commit, value)
            lists += map(_of_lists, filter(_names_list, value))
        elif f == "notice":
            parts += [(_NAMED, name, None, None) for name in ([""] if value is None else value)]
        elif kind == "ok":
            if f == "get":
                parts.append((_READ, key, _number(value), version))
                if key.startswith(LISTS):
                    lists.append((_READ, key, value, version, 0))
            elif f == "get_many" or f == "scan":
                read = value
                if f == "scan":
                    after, until, read = value
                parts += [(_READ, name, _number(seen), at) for name, at, seen in read]
                lists += [
                    (_READ, name, seen, at, number)
                    for number, (name, at, seen) in enumerate(read)
                    if name.startswith(LISTS)
                ]
            elif f == "campaign":
                parts.append((_CHECK, EPOCH_KEY, None, version))
        ends.append(len(parts))
        list_ends.append(len(lists))
        key = None if f == "get" else key
        rows.append((process, seq, f, kind, t, end, key, after, until, version, epoch, error))
    columns = _arrays(rows, _COLUMNS)
    columns["parts"] = _nested(ends, _arrays(parts, _PART))
    columns["lists"] = _nested(list_ends, _arrays(lists, _LIST))
    columns["history"] = pa.array([history] * len(rows), pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _nested(ends: list[int], fields: dict[str, pa.Array]) -> pa.ListArray:
    """Return a column of lists of records."""
    records = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), records)


def _arrays(rows: list[tuple[Any, ...]], types: dict[str, Any]) -> dict[str, pa.Array]:
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [()] * len(types)
    return {
        name: pa.array(column, of)
        for (name, of), column in zip(types.items(), columns, strict=True)
    }


_READ, _CHECK, _NAMED = int(Part.READ), int(Part.CHECK), int(Part.NAMED)
_KINDS = {part.name.lower(): int(part) for part in Part}


def _of_commit(part: list[Any]) -> tuple[int, str, int | None, int | None]:
    name, key, *more = part
    kind = _KINDS[name]
    if name == "create" or name == "absent":
        return kind, key, _number(more[0]) if more else None, None
    if name == "update":
        return kind, key, _number(more[0]), more[1]
    return kind, key, None, more[0]


def _names_list(part: list[Any]) -> bool:
    return bool(part[1].startswith(LISTS))


def _of_lists(part: list[Any]) -> tuple[int, str, str | None, int | None, None]:
    kind, key, _, version = _of_commit(part)
    return kind, key, part[2] if part[0] in ("create", "update") else None, version, None


_DIGEST = re.compile("[0-9a-f]{16}")


def _number(text: str | None) -> int | None:
    """Return a digest as a number of 64 bits with a sign; what is none is digested first."""
    if text is None:
        return None
    number = int(text if _DIGEST.fullmatch(text) else digest(text.encode()), 16)
    return number - (1 << 64) if number >> 63 else number


def _lines(folder: Path) -> Iterator[Row]:
    """Yield the events in the files of a folder.

    The last line of a process that was killed may be cut off; it is left out.
    """
    for path in files_in(folder):
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield tuple(json.loads(line))
