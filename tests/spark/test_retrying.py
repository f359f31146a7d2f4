"""A job on Spark that fails by a bug, and is retried until that is fixed (U3)."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

from jrs import Client
from jrs.records.model import JobStatus
from jrs.testing.masters import MasterEvent

from .conftest import Cluster
from .support import BOUND, left_over
from .test_streams import expected, make_events, published


def test_three_retries_with_failovers_in_between(cluster: Cluster, tmp_path: Path) -> None:
    """U3: outputs and windows are those of a run without a fault, no finished stage runs again, and
    no row of the stream is lost or there twice."""
    source, more, journal = tmp_path / "source", tmp_path / "more", tmp_path / "journal"
    rows, events = make_events(source, 2), make_events(more, 2)
    masters = cluster.masters
    client = Client(masters.backend, storage=cluster.storage.root.parent)
    for name in ("first", "second"):
        masters.start(name)
    job = client.submit(
        "tests.spark.retrying:steps", id="job",
        source=str(source), more=str(more), journal=str(journal), commits=1, bug=True,
    )  # fmt: skip
    for number in (1, 2, 3):
        ended = job.result(BOUND)
        assert ended.status is JobStatus.FAILED
        assert ended.failure is not None
        assert "a bug" in ended.failure.message, ended.failure
        events += make_events(more, 2, first=2 * number)
        job = job.retry(changed={"bug": number < 3, "commits": number + 1}, timeout=BOUND)
        assert job.id == f"job.{number + 1}"
        masters.event(partial(_starts, job.id), f"{job.id} starts", BOUND)
        masters.leader().kill()
        masters.start(f"after-{number}")
    masters.until(partial(_has_read, cluster, job.id, 8), "all of the stream is read", BOUND)
    job.drain()
    result = job.result(BOUND)
    cluster.until_clean(job.id)

    assert result.status is JobStatus.FINISHED, result.failure
    assert result.payload == [len(rows), 3, sum(row["value"] for row in rows)]
    assert published(cluster, job.id, "live") == expected(events)
    report = cluster.storage.published(job.id, "report", temporary=False) / "report"
    assert report.read_text() == f"3 keys, {result.payload[2]} in all"
    ran = Counter(journal.read_text().split())
    assert (ran["typed"], ran["counted"]) == (1, 1)
    assert ran.keys() == {"typed", "counted", "summed", "report"}
    lines = [client.job(id).descendants() for id in ("job", "job.2", "job.3")]
    assert [[one.descendant for one in line] for line in lines] == [["job.2"], ["job.3"], ["job.4"]]
    assert [
        line for line in left_over(masters.backend, cluster.storage, job.id) if job.id in line
    ] == [f"lineage/job.3/{job.id}"]


def _starts(job_id: str, event: MasterEvent) -> bool:
    return (event.kind, event.job_id) == ("attempt", job_id)


def _has_read(cluster: Cluster, job_id: str, files: int) -> bool:
    """Return whether the job's stream has committed a batch for each file."""
    commits = cluster.storage.folder(job_id).glob("e*/streams/live/ck/commits/[0-9]*")
    return max((int(path.name) for path in commits), default=-1) >= files - 1
