"""What file sinks leave in a job's output: gone with the job, and the table is the same for all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from jrs.contract.errors import CorruptRecord
from jrs.recovery.cleanup.sink_leftovers import SinkLogs
from jrs.recovery.files.job_folders import JobStorage

ORPHAN = "part-00009-c000.parquet"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with a compacted log: 0 to 1 in one file, 2 in another, and a file of no batch."""
    table = tmp_path / "test" / "job" / "out" / "rows"
    (table / "_spark_metadata").mkdir(parents=True)
    (table / "day=1").mkdir()
    for name in ("day=1/part-0.parquet", "part-1.parquet", "part-2.parquet", ORPHAN):
        (table / name).write_text(name)

    def entry(name: str) -> str:
        return json.dumps({"path": f"file:///once/elsewhere/rows/{name}", "action": "add"})

    log = table / "_spark_metadata"
    first = ["v1", entry("day%3D1/part-0.parquet"), entry("part-1.parquet")]
    (log / "1.compact").write_text("\n".join(first))
    (log / ".1.compact.crc").write_bytes(b"crc")
    (log / "2").write_text("\n".join(["v1", entry("part-2.parquet")]))
    return table


def files(table: Path) -> list[str]:
    return sorted(str(path.relative_to(table)) for path in table.rglob("*") if path.is_file())


def test_what_does_not_count_goes_and_the_table_stays(tmp_path: Path, table: Path) -> None:
    """S2, J7: the files of no batch and the log go with the job; a second pass finds nothing."""
    logs = SinkLogs(JobStorage(tmp_path, "test"))
    (table / "_year=2026").mkdir()
    (table / "_year=2026" / ORPHAN).write_text("of no batch, in a partition")
    wanted = ["day=1/part-0.parquet", "part-1.parquet", "part-2.parquet"]

    assert logs.describe("job") == [
        str(table / name) for name in (f"_year=2026/{ORPHAN}", ORPHAN, "_spark_metadata")
    ]

    for _ in range(2):
        logs.clean("job")

        assert files(table) == wanted
        assert logs.describe("job") == []


def test_what_others_have_written_stays(tmp_path: Path, table: Path) -> None:
    """No log names it, and it is no part of a batch."""
    (table / "reports").mkdir()
    (table / "reports" / "part-00000-c000.csv").write_text("of a function of the job")
    (table / "README.md").write_text("of a function of the job")
    SinkLogs(JobStorage(tmp_path, "test")).clean("job")

    assert {"README.md", "reports/part-00000-c000.csv"} < set(files(table))
    assert ORPHAN not in files(table)


def test_a_table_in_a_folder_of_its_own(tmp_path: Path, table: Path) -> None:
    """A sink may write below its stage's output, also below another table: each log holds for its
    own table, and nothing that one of them names goes."""
    logs = SinkLogs(JobStorage(tmp_path, "test"))
    output = tmp_path / "test/job/out/nested"
    shutil.copytree(table, output / "orders/rows")
    shutil.copytree(table, table / "more/rows")
    rows = ["day=1/part-0.parquet", "part-1.parquet", "part-2.parquet"]
    (output / "own.csv").write_text("in no table")

    logs.clean("job")

    assert files(output) == sorted([*(f"orders/rows/{name}" for name in rows), "own.csv"])
    assert files(table) == sorted([*rows, *(f"more/rows/{name}" for name in rows)])
    assert logs.describe("job") == []


@pytest.mark.parametrize("damage", ["gap", "garbage"])
def test_a_log_that_cannot_be_read_keeps_everything(
    tmp_path: Path, table: Path, damage: str
) -> None:
    """Nobody knows which rows count then: it is named, and nothing is removed."""
    log = table / "_spark_metadata"
    if damage == "gap":
        (log / "4").write_text("v1")
    else:
        (log / "2").write_text("v1\n{")
    before = files(table)
    with pytest.raises(CorruptRecord, match="_spark_metadata"):
        SinkLogs(JobStorage(tmp_path, "test")).clean("job")

    assert files(table) == before


def test_long_names(tmp_path: Path, table: Path) -> None:
    """A file or a folder whose name is as long as a filesystem takes is deleted like any other."""
    for name in ("part-".ljust(255, "0"), f"url={'x' * 200}/part-{'0' * 100}"):
        (table / name).parent.mkdir(exist_ok=True)
        (table / name).write_text("of no batch")
    logs = SinkLogs(JobStorage(tmp_path, "test"))

    logs.clean("job")

    assert files(table) == ["day=1/part-0.parquet", "part-1.parquet", "part-2.parquet"]
