"""The comparison of the streaming demo has to be able to fail: each kind of difference is named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from jrs.demo.comparison import Row, compare, read

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

EXPECTED: list[Row] = [("01:00", "AA", 3), ("01:00", "UA", None), ("02:00", "AA", 5)]


def write(folder: Path, rows: list[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("hour", "carrier", "delay")
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})
    pq.write_table(table, folder / f"part-{len(list(folder.iterdir()))}.parquet")


def differences(folder: Path, *batches: list[Row]) -> list[str]:
    """Compare a stream that has published `batches` with a batch that gave what is expected."""
    write(folder / "batch", EXPECTED)
    for number, rows in enumerate(batches):
        write(folder / "stream" / f"batch={number}", rows)
    return compare("jfk", read(folder / "batch"), read(folder / "stream"))


def test_equal_tables(tmp_path: Path) -> None:
    """Rows in another order, in several batches, are equal."""
    assert differences(tmp_path, EXPECTED[2:], EXPECTED[:2]) == []


def test_a_missing_row(tmp_path: Path) -> None:
    assert differences(tmp_path, EXPECTED[:1], EXPECTED[2:]) == ["jfk: missing: 01:00, UA, -"]


def test_a_doubled_row(tmp_path: Path) -> None:
    """A batch that was published twice."""
    assert differences(tmp_path, EXPECTED, EXPECTED[2:]) == [
        "jfk: there too often or too seldom: 02:00, AA, 5: 2 times, not 1"
    ]


def test_a_changed_value(tmp_path: Path) -> None:
    assert differences(tmp_path, [*EXPECTED[:2], ("02:00", "AA", 6)]) == [
        "jfk: missing: 02:00, AA, 5",
        "jfk: not of the batch: 02:00, AA, 6",
    ]


def test_a_row_that_was_there_twice_and_is_there_once() -> None:
    twice, once = Counter({("x",): 2}), Counter({("x",): 1})

    assert compare("jfk", twice, once) == ["jfk: there too often or too seldom: x: 1 times, not 2"]


def test_nothing_to_compare_with(tmp_path: Path) -> None:
    """Nothing equals nothing, and proves nothing."""
    assert compare("jfk", read(tmp_path), read(tmp_path)) == [
        "jfk: the batch has no rows to compare with"
    ]


def test_only_some_of_many_are_shown() -> None:
    lines = compare("jfk", Counter({(number,): 1 for number in range(1000)}), Counter())

    assert len(lines) == 6
    assert lines[-1] == "jfk: missing: 995 more rows"
