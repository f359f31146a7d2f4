"""Reading a cluster's tables with format("jrs"), as far as that needs no JVM."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import types

import jrs
from jrs.records.model import Failure, JobResult, JobSpec, JobStatus
from jrs.recovery.inspect.tables import TABLES
from jrs.recovery.spark.by_value import sink_by_value
from jrs.recovery.spark.sink import JrsSink
from jrs.recovery.spark.table_source import TableReader

KINDS: Mapping[str, types.DataType] = {
    "string": types.StringType(), "bigint": types.LongType(),
    "timestamp": types.TimestampType(), "double": types.DoubleType(),
    "boolean": types.BooleanType(), "array<string>": types.ArrayType(types.StringType()),
}  # fmt: skip
"""The types of all tables: Spark parses their names in its JVM."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A cluster with some results."""
    url = (tmp_path / "store").as_uri()
    with jrs.connect(url) as client:
        store = jrs.JobResultStore(client.backend)
        for number in range(5):
            result = JobResult(
                f"job-{number}", JobStatus.FINISHED, number, finished_at=10.5 * number
            )
            store.create_dirty(result, None)
    return url


def schema_of(table: str) -> types.StructType:
    found = types.StructType()
    for column in TABLES[table].columns.split(", "):
        name, _, kind = column.partition(" ")
        found = found.add(name, KINDS[kind])
    return found


def reader(table: str, **options: str) -> TableReader:
    made = JrsSink({"table": table, **options}).reader(schema_of(table))
    assert isinstance(made, TableReader)
    return made


def rows(made: TableReader) -> list[dict[str, Any]]:
    """Return what executors read."""
    return [
        row for part in made.partitions() for batch in made.read(part) for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("by", ["executors", "driver"])
def test_rows(url: str, by: str) -> None:
    """They have the columns of the schema, and times in UTC, and are the same."""
    found = rows(reader("results", backend=url, read=by))

    assert [row["job_id"] for row in found] == [f"job-{number}" for number in range(5)]
    assert found[1]["payload"] == "1"
    assert found[0]["finished_at"] is None
    assert found[1]["finished_at"] == datetime(1970, 1, 1, 0, 0, 10, 500000, tzinfo=UTC)


@pytest.mark.parametrize("table", TABLES)
def test_each_table_has_types_that_spark_knows(url: str, table: str) -> None:
    assert JrsSink({"table": table, "backend": url}).schema() == TABLES[table].columns
    expected = {"results": 5, "jobs": 5, "history": 4}  # One has no time.
    assert len(rows(reader(table, backend=url))) == expected.get(table, 0)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"job": "job-1"}, [1]),
        ({"prefix": "job-"}, [0, 1, 2, 3, 4]),
        ({"prefix": "other"}, []),
        ({"status": "FAILED, CANCELED"}, []),
        ({"since": "1970-01-01T00:00:21+00:00", "until": "1970-01-01T00:00:31.5Z"}, [2, 3]),
        ({"until": "1970-01-01T01:00:21+01:00", "status": "FINISHED"}, [1, 2]),
    ],
)
def test_which_jobs(url: str, options: dict[str, str], found: list[int]) -> None:
    """Both bounds of a time are included."""
    made = reader("results", backend=url, **options)

    assert sorted(row["job_id"] for row in rows(made)) == [f"job-{number}" for number in found]


def test_what_arrow_does_not_take(tmp_path: Path) -> None:
    """Half a character, a time that no calendar has, and a large number stop no query."""
    url = (tmp_path / "store").as_uri()
    odd = JobResult(
        "odd", JobStatus.FAILED, {"x": "\ud800"}, Failure("exception", "bad \udcff"),
        attempt=2**40, finished_at=1e14, code="a\udcff",
        spec=JobSpec("odd", "m:f", tags=("t",)),
    )  # fmt: skip
    with jrs.connect(url) as client:
        jrs.JobResultStore(client.backend).create_dirty(odd, None)

    (row,) = rows(reader("results", backend=url))
    assert (row["payload"], row["message"]) == ('{"x": "\\ud800"}', "bad \\udcff")
    assert (row["attempt"], row["finished_at"], row["code"]) == (2**40, None, "a\\udcff")
    assert len(rows(reader("jobs", backend=url))) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"backend": "file:///x", "table": "tables"},
            "no table is called 'tables', only results, ",
        ),
        ({"table": "results"}, "'backend' is missing"),
        ({"backend": "", "table": "results"}, "'backend' is missing"),
        ({"backend": "file:///x", "table": "jobs", "stage": "a"}, "has no option 'stage'"),
        ({"backend": "file:///x", "table": "jobs", "job": "a b"}, "not a job id: 'a b'"),
        ({"backend": "file:///x", "table": "jobs", "status": "DONE"}, "'DONE' is none of CREATED"),
        (
            {"backend": "file:///x", "table": "jobs", "since": "1h"},
            "'1h' is not a time with a zone",
        ),
        (
            {"backend": "file:///x", "table": "jobs", "until": "2026-11-25"},
            "not a time with a zone",
        ),
        ({"backend": "file:///x", "table": "snapshots", "since": "2026-11-25T00:00Z"}, "no option"),
        ({"backend": "file:///x", "table": "jobs", "partitions": "0"}, "not a number from 1 to 32"),
        ({"backend": "file:///x", "table": "jobs", "partitions": "many"}, "partitions='many' is"),
        ({"backend": "file:///x", "table": "jobs", "read": "me"}, "read='me' is not one of"),
    ],
)
def test_bad_options(options: dict[str, str], said: str) -> None:
    """Both what is read and what is not is refused before anything is opened."""
    with pytest.raises(ValueError, match=said):
        JrsSink(options).schema()


def test_a_schema_of_ones_own() -> None:
    """It cannot be chosen."""
    with pytest.raises(ValueError, match=r"leave out \.schema"):
        JrsSink({"backend": "file:///x", "table": "jobs"}).reader(types.StructType())
    wrong = types.StructType(
        [types.StructField(n, types.DateType()) for n in schema_of("jobs").names]
    )
    with pytest.raises(ValueError, match=r"leave out \.schema"):
        JrsSink({"backend": "file:///x", "table": "jobs"}).reader(wrong)


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    """It is not created."""
    nowhere = tmp_path / "nowhere"

    with pytest.raises(jrs.JrsError):
        rows(reader("results", backend=nowhere.as_uri()))

    assert not nowhere.exists()


WITHOUT_JRS = """
import pickle, sys
sys.modules["jrs"] = None
reader, part = pickle.load(sys.stdin.buffer)
print(sum(batch.num_rows for batch in reader.read(part)))
"""


@pytest.mark.parametrize("by", ["executors", "driver"])
def test_executors_without_jrs(url: str, by: str) -> None:
    """They read what the driver has read; else they say what is missing, and what to do."""
    made = reader("results", backend=url, read=by, job="job-1")
    with sink_by_value():
        sent = cloudpickle.dumps((made, made.partitions()[0]))  # type: ignore[no-untyped-call]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JRS], input=sent, capture_output=True, timeout=60
    )

    assert pickle.loads(sent)[1].value
    if by == "driver":
        assert done.stdout == b"1\n", done.stderr
    else:
        assert b"executors need jrs to read the table 'results'" in done.stderr
        assert b"option('read', 'driver')" in done.stderr
