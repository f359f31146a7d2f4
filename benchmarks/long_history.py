"""A long history from a shorter one: its copies, one behind the other, each as new as the first.

Copies begin when those before them have ended. They have processes, keys and jobs of their own, and
continue the versions and epochs of one store. So the whole is a history without a fault,
made faster than one that is simulated from its beginning to its end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jrs.testing.chaos.checking.generate import KEYS


@attrs.frozen
class _Span:
    """How much of times, versions and epochs one copy needs."""

    time: int
    version: int
    epoch: int


def copies(table: Path, count: int, target: Path) -> None:
    """Write a table of some copies of a history behind each other."""
    target.mkdir(parents=True, exist_ok=True)
    paths = sorted(table.glob("*.parquet"))
    span = _span(paths)
    for number in range(count):
        for path in paths:
            copied = _copied(pq.read_table(path), number, span)
            pq.write_table(copied, target / f"{number:04}-{path.name}", compression="lz4")


def _span(paths: list[Path]) -> _Span:
    most = {"begun": 0, "ended": 0, "version": 0, "epoch": 0}
    for path in paths:
        table = pq.read_table(path, columns=list(most))
        for name in most:
            most[name] = max(most[name], pc.max(table[name]).as_py() or 0)
    # Those that were never read may have later versions.
    return _Span(max(most["begun"], most["ended"]), 2 * most["version"], most["epoch"])


def _copied(table: pa.Table, number: int, span: _Span) -> pa.Table:
    columns = dict(zip(table.column_names, table.combine_chunks().columns, strict=True))
    parts = columns["parts"].combine_chunks()
    kind, key, digest, version = parts.flatten().flatten()
    fields = {
        "kind": kind,
        "key": _renamed(key, number),
        "digest": digest,
        "version": pc.add(version, number * span.version),
    }
    columns["parts"] = pa.ListArray.from_arrays(
        parts.offsets, pa.StructArray.from_arrays(list(fields.values()), list(fields))
    )
    columns["process"] = pc.binary_join_element_wise(columns["process"], str(number), "-")
    for name in ("key", "after", "until", "error"):
        columns[name] = _renamed(columns[name], number)
    for name, more in (("begun", span.time), ("ended", span.time), ("version", span.version),
                       ("epoch", span.epoch)):  # fmt: skip
        columns[name] = pc.add(columns[name], number * more)
    return pa.table(columns)


def _renamed(names: Any, number: int) -> Any:
    """Return names with the number of the copy in those of keys and of jobs."""
    own = rf"\1{KEYS}{number:04}/"
    renamed = pc.replace_substring_regex(names, f"(^| ){KEYS}", own)
    return pc.replace_substring_regex(renamed, "job-", f"job-{number:04}-")
