"""Stages that die, hang, or are not what they were: noticed, named, and never passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jrs.records.model import JobResult, JobStatus, StopMode, StopState
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops

from . import events, failing
from .conftest import Cluster
from .events import EXPECTED, in_order, published, until_committed, until_or_ended
from .support import BOUND, marked

FILE = Path(failing.__file__)


def submit(cluster: Cluster, name: str, **arguments: Any) -> None:
    events.submit(cluster, "job", name, file=FILE, **arguments)


def ended(cluster: Cluster) -> JobResult:
    cluster.until_clean("job")
    return cluster.results.wait("job", 0)


def failed(cluster: Cluster, message: str) -> None:
    """Check that the job has failed, in its first attempt, and says so in one line."""
    result = ended(cluster)

    assert result.status is JobStatus.FAILED
    assert result.attempt == 1
    assert result.failure is not None
    assert result.failure.message.startswith(message), result.failure.message
    assert "\n" not in result.failure.message


def checkpoint(cluster: Cluster) -> dict[str, bytes]:
    """Return the logs of the job's checkpoints, on whatever epoch they are."""
    folder = cluster.storage.folder("job")
    return {
        "/".join(path.relative_to(folder).parts[1:]): path.read_bytes()
        for path in folder.glob("e*/streams/*/ck/*/[0-9]*")
        if path.is_file()
    }


@pytest.fixture
def source(cluster: Cluster, tmp_path: Path) -> str:
    """A folder with two files of events, of a cluster that has a leader."""
    events.write(tmp_path / "in", 2)
    cluster.masters.start("m")
    return str(tmp_path / "in")


def test_a_stage_that_cannot_be_recovered_is_refused(cluster: Cluster, source: str) -> None:
    """F4, S3: each query that could not survive a failover is refused, and the line says why."""
    submit(cluster, "wrong", folder=source)
    result = ended(cluster)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    expected = {
        "checkpoint": "it sets checkpointLocation, which jrs sets: leave it out",
        "async": "asyncProgressTrackingEnabled commits batches later than it publishes them",
        "memory": "a memory sink forgets its rows with the driver: write to files instead",
        "complete": "adds batch to batch, which in complete mode replace each other",
        "update": "adds batch to batch, which in update mode replace each other",
        "ends": "its trigger ends it by itself: call job.stream with bounded=True",
        "continuous": "its trigger runs it without batches, from which a failover resumes",
        "files": "is on a mount that caches names, where a driver that was replaced may still plan",
        "xml": "is on a mount that caches names, where a driver that was replaced may still plan",
        "column": "it has a column 'Batch', and readers of its folders find the number",
        "frame": "has to return df.writeStream…, not DataFrame",
        "batch": "has to return df.writeStream…, not DataFrameWriter",
        "partitions": 'format("jrs") ignores partitionBy: leave it out',
        "option": 'format("jrs") ignores compression: leave it out',
        "nothing": "has to return df.writeStream…, not NoneType",
        "name": "a/b",
        "unknown": "stage 'unknown' cannot come after 'nobody', which does not exist yet",
        "circle": "stage 'self' cannot come after 'self', which does not exist yet",
        "timers": "its timers use processing time, so a bounded stage would end without",
        "twice": "two stages of job 'job' are named 'twice'",
    }
    said = result.payload
    assert isinstance(said, dict)
    assert {case for case in expected if expected[case] not in str(said.get(case))} == set(), said
    assert [line for line in said.values() if "\n" in str(line)] == []


@pytest.mark.soak
def test_what_is_refused_fails_the_job(cluster: Cluster, source: str) -> None:
    """A job with a query that could not be recovered fails at once, with that line."""
    submit(cluster, "wrong_and_fails", folder=source)
    failed(cluster, "InvalidInput: stage 'sums' cannot be run: a memory sink forgets its rows")


@pytest.mark.soak
def test_a_stage_that_dies_fails_its_job(cluster: Cluster, source: str) -> None:
    """A query that dies is noticed, and its job has failed of it, naming the stage."""
    submit(cluster, "frail", folder=source, attempts=0, deaths=1)
    failed(cluster, "StageDied: stage 'frail' died: ")


@pytest.mark.soak
def test_a_stage_is_started_again_as_often_as_it_may(cluster: Cluster, source: str) -> None:
    """A query that dies is started again within the same attempt, as its policy says."""
    submit(cluster, "frail", folder=source, attempts=3, deaths=2)
    result = ended(cluster)

    assert (result.status, result.payload) == (JobStatus.FINISHED, 2), str(result.failure)[:3000]
    assert result.attempt == 1


@pytest.mark.soak
def test_a_stage_that_could_not_be_started_again(cluster: Cluster, source: str) -> None:
    """A restart that fails is one more death, and no end of the job while others are allowed."""
    submit(cluster, "frail_start", folder=source)
    result = ended(cluster)

    assert (result.status, result.payload) == (JobStatus.FINISHED, 2), str(result.failure)[:3000]


@pytest.mark.soak
def test_a_query_that_another_thread_stops(cluster: Cluster, source: str) -> None:
    """F2: a bounded stage whose query is stopped on the way has not finished: it has died."""
    submit(cluster, "stopped", folder=source)
    result = ended(cluster)

    assert (result.status, result.payload) == (JobStatus.FINISHED, 2), str(result.failure)[:3000]
    assert {path.parent.name for path in Path(source).parent.glob("table/*/*.json")} == {"0", "1"}


@pytest.mark.soak
def test_a_drain_reads_what_came_after_a_batch_that_was_left(
    cluster: Cluster, tmp_path: Path
) -> None:
    """F6: of a source that tells no end, Spark runs one batch; one that an earlier attempt has left
    is not that one."""
    cluster.masters.start("m")
    submit(cluster, "left_over", folder=str(tmp_path / "in"))
    result = ended(cluster)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert result.attempt == 2
    last, began = result.payload
    assert last >= began > 1


@pytest.mark.soak
def test_a_function_that_passes_over_an_error(cluster: Cluster, source: str) -> None:
    """F1: a batch that is new, and not read by its sink, is not taken for one that the sink has:
    the job is held, and hands it over again when it is resumed."""
    stops, rows = JobStops(cluster.masters.backend), events.write(Path(source), 2)
    submit(cluster, "passes_over", folder=source)
    until_or_ended(cluster, "job", lambda: stops.get("job") is not None, "the job is held")
    held = stops.get("job")

    assert held is not None
    assert (held.mode, held.state) == (StopMode.HOLD, StopState.DONE)
    assert held.reason.startswith("stage 'one': its sink took batch 1, which is new")

    stops.resume("job")
    result = ended(cluster)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    found = pq.read_table(Path(source).with_name("table")).to_pylist()
    assert in_order([tuple(row.values()) for row in found]) == in_order(EXPECTED["windows"](rows))


@pytest.mark.soak
@pytest.mark.parametrize("where", ["python", "spark"])
def test_a_job_is_elsewhere_when_its_stage_dies(cluster: Cluster, source: str, where: str) -> None:
    """A function that sleeps, or waits for Spark, is broken off when a stage of its job dies."""
    submit(cluster, "stuck", folder=source, where=where)
    failed(cluster, "StageDied: stage 'frail' died: ")


def test_other_code_is_held(cluster: Cluster, source: str) -> None:
    """F4, J2: with another plan, or a new stage before one that has finished, a job is held, with
    the reason, and nothing is changed; with the code that it began with it resumes.
    """
    stops, version = JobStops(cluster.masters.backend), Path(source).with_name("version")
    version.write_text("as it was")
    submit(cluster, "changing", folder=source)
    until_committed(cluster, "job", "sums", 1)
    stops.request("job", StopMode.SUSPEND)
    stops.wait("job", BOUND)
    before = checkpoint(cluster)
    for changed, why in (
        ("plan", "stage 'sums' of job 'job' is not the query of its checkpoint"),
        ("dag", "stage 'first' of job 'job' has finished, and now comes after 'extra'"),
    ):
        version.write_text(changed)
        stops.resume("job")
        until_or_ended(cluster, "job", lambda: stops.get("job") is not None, "the job is held")
        held = stops.get("job")

        assert held is not None
        assert (held.mode, held.state) == (StopMode.HOLD, StopState.DONE)
        assert held.reason.startswith(why)
        assert JobCatalog(cluster.masters.backend).view("job").status is JobStatus.SUSPENDED
        kept = {name: text for name, text in checkpoint(cluster).items() if "extra" not in name}
        assert kept == before

    rows = events.write(Path(source), 1, first=2)
    version.write_text("as it was")
    stops.resume("job")
    until_committed(cluster, "job", "sums", 2)
    stops.request("job", StopMode.DRAIN)
    result = ended(cluster)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    rows = events.write(Path(source).with_name("again"), 3)
    assert published(cluster, "job", "sums") == in_order(EXPECTED["windows"](rows))


@pytest.mark.soak
def test_a_job_that_hangs_is_suspended_all_the_same(cluster: Cluster, tmp_path: Path) -> None:
    """S3, S5: an attempt that does not quiesce is ended after the grace period; the job is
    suspended and can be resumed.
    """
    stops = JobStops(cluster.masters.backend)
    cluster.masters.start("m")
    submit(cluster, "hangs", folder=str(tmp_path))
    cluster.masters.until((tmp_path / "hangs").exists, "it hangs")
    stops.request("job", StopMode.SUSPEND, grace=0.5)
    stop = stops.wait("job", BOUND)

    assert stop is not None
    assert stop.state is StopState.DONE
    assert marked(cluster.masters.backend, "job") == {}

    stops.resume("job")
    result = ended(cluster)

    assert (result.status, result.payload) == (JobStatus.FINISHED, 2)


@pytest.mark.soak
def test_a_suspend_is_finished_by_the_next_leader(
    cluster: Cluster, source: str, tmp_path: Path
) -> None:
    """S1, S3: a leader dies during a suspend; the next one suspends the job, which can be
    resumed as if nothing had happened.
    """
    stops = JobStops(cluster.masters.backend)
    cluster.masters.start("next")
    events.submit(cluster, "job", "unbounded", folder=source, windows="windows")
    until_committed(cluster, "job", "windows")
    stops.request("job", StopMode.SUSPEND)
    cluster.masters.leader().kill()
    stop = stops.wait("job", BOUND)

    assert stop is not None
    assert stop.state is StopState.DONE
    assert marked(cluster.masters.backend, "job") == {}

    stops.resume("job")
    rows = [*events.write(tmp_path / "again", 2), *events.write(Path(source), 1, first=2)]
    stops.request("job", StopMode.DRAIN)
    result = ended(cluster)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert published(cluster, "job", "windows") == in_order(EXPECTED["windows"](rows))


@pytest.mark.soak
def test_a_cancel_overrides_a_drain_that_is_stuck(
    cluster: Cluster, source: str, tmp_path: Path
) -> None:
    """S5: a drain that waits for Python that never ends is overridden by a cancel at any time."""
    events.submit(cluster, "job", "slow_batches", folder=source)
    until_or_ended(cluster, "job", (tmp_path / "begun").exists, "a batch has begun")
    JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
    until_or_ended(cluster, "job", (tmp_path / "late").exists, "the drain is stuck")
    JobCatalog(cluster.masters.backend).cancel("job")
    result = ended(cluster)

    assert result.status is JobStatus.CANCELED
    assert marked(cluster.masters.backend, "job") == {}
    assert cluster.storage.left_in_staging("job") == []
