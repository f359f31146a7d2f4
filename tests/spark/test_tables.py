"""The tables of a cluster, read by a real Spark, and the report of examples/report.py over them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import jrs
from jrs.records import keys
from jrs.records.attempts import AttemptSummary
from jrs.records.codec import encode
from jrs.records.heads import BatchReport, StreamHead, StreamProgress
from jrs.records.model import Failure, JobResult, JobSpec, JobStatus, StageSummary
from jrs.recovery.inspect.tables import TABLES

from .support import BOUND

ROOT = Path(__file__).parents[2]
ENDED = 2500


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A cluster with some thousand results, a job that waits, and one with a stream."""
    url = (tmp_path / "store").as_uri()
    with jrs.connect(url) as client:
        store = jrs.JobResultStore(client.backend)
        written = [store.create_dirty_async(result(number), None) for number in range(ENDED)]
        for one in written:
            one.result(BOUND)
        client.submit("etl:nightly", id="waits", tags=["team=sales"])
        client.submit("etl:live", id="live")
        progress = StreamProgress(
            11, rows_per_second=120.5, watermark=7.5, offsets_behind=1532, state_bytes=2**33
        )
        head = StreamHead("live", "sums", 1, 12, report=BatchReport(12, 9.5, progress))
        client.backend.overwrite(keys.head("live", "sums"), encode(head))
    return url


def result(number: int) -> JobResult:
    """Return the result of a job of two attempts; one in ten has failed."""
    job_id, start = f"job-{number:04d}", number + 1.0
    failure = Failure("exception", "no disk") if number % 10 == 0 else None
    return JobResult(
        job_id, JobStatus.FINISHED if failure is None else JobStatus.FAILED, {"n": number}, failure,
        attempt=2, epoch=3, finished_at=start + 1.5, code=f"v{number % 2}",
        stages=(StageSummary("load", 1, 2, 0.5, start + 0.5),),
        spec=JobSpec(job_id, "etl:nightly", tags=(f"team={number % 2}",), slots=2),
        attempts=(
            AttemptSummary(1, 2, "m1", "h1", 7, start, ended="ended with its leader"),
            AttemptSummary(2, 3, "m2", "h2", 8, start + 1.0, start + 1.5),
        ),
    )  # fmt: skip


def run(program: str, url: str) -> str:
    done = subprocess.run(
        [sys.executable, program, url], cwd=ROOT, capture_output=True, text=True, timeout=BOUND
    )

    assert done.returncode == 0, done.stderr
    return done.stdout


def test_queries(url: str) -> None:
    """Executors and the driver read the same rows; what is chosen by options is what SQL finds."""
    found = json.loads(run("tests/spark/querying.py", url).splitlines()[-1])

    assert found["columns"] == {
        name: [column.split()[0] for column in table.columns.split(", ")]
        for name, table in TABLES.items()
    }
    assert found["counts"] == found["driver"] == {
        "results": ENDED, "jobs": ENDED + 2, "stages": ENDED + 1, "attempts": 2 * ENDED,
        "snapshots": 0, "history": found["counts"]["history"],
    }  # fmt: skip
    assert found["counts"]["history"] > ENDED
    assert found["parts"] == 2
    assert found["one"] == {"payload": '{"n": 7}', "at": 9.5}
    assert found["statuses"] == {"FAILED": ENDED // 10, "FINISHED": ENDED - ENDED // 10}
    assert found["late"] == 3
    assert found["failed"] == ENDED // 10
    assert found["tags"] == ["team=sales"]
    assert found["live"] == {
        "attempt": None, "batch": 12, "rows_per_second": 120.5, "offsets_behind": 1532,
        "state_bytes": 2**33, "watermark": 7.5, "batch_at": 9.5,
    }  # fmt: skip
    assert found["types"]["batch"] == found["types"]["state_bytes"] == "bigint"
    assert found["types"]["rows_per_second"] == "double"


def test_the_report(url: str) -> None:
    """`python examples/report.py URL` prints failures by version, the time that failovers have cost
    and costs by team; see test_demo.py for a real cluster."""
    said = run("examples/report.py", url)

    assert "|v0  |1250|250   |" in said
    assert "|v1  |1250|0     |" in said
    assert "|job-0000|1        |0.5    |" in said
    assert "|0   |1250|3750.0      |" in said
