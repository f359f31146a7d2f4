"""The comparison: the published rows of the streams against the tables of one batch job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from jrs.records.model import Json

Row = tuple[Json, ...]
Table = Counter[Row]
"""Each row with its number of occurrences."""

_SHOWN = 5
"""Most rows of each kind that are shown of a table that differs; all rows are counted."""


def read(folder: Path) -> Table:
    """Return the rows of a folder of Parquet files, with the batches of a stream as one table."""
    # Heavy: not for every process that imports this package.
    import pyarrow.parquet as pq

    files = sorted(folder.rglob("[!._]*.parquet"))
    return Counter(
        tuple(row.values()) for path in files for row in pq.ParquetFile(path).read().to_pylist()
    )


def compare(name: str, expected: Table, found: Table) -> list[str]:
    """Return a line for each row in which two tables differ; none if they are equal."""
    kinds: Mapping[str, Iterable[tuple[Row, str]]] = {
        "missing": [(row, "") for row in expected if row not in found],
        "not of the batch": [(row, "") for row in found if row not in expected],
        "there too often or too seldom": [
            (row, f": {found[row]} times, not {times}")
            for row, times in expected.items()
            if row in found and found[row] != times
        ],
    }
    lines = [] if expected else [f"{name}: the batch has no rows to compare with"]
    for kind, rows in kinds.items():
        said = [f"{name}: {kind}: {_text(row)}{more}" for row, more in rows]
        lines += sorted(said)[:_SHOWN]
        if len(said) > _SHOWN:
            lines.append(f"{name}: {kind}: {len(said) - _SHOWN:,} more rows")
    return lines


def _text(row: Row) -> str:
    return ", ".join("-" if value is None else str(value) for value in row)
