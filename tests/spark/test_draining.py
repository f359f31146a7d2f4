"""Ending a stream: whatever it holds back is given, once, and what cannot be ended is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.contract.errors import WrongState
from jrs.records.model import JobStatus, StopMode
from jrs.store.stops import JobStops

from . import events
from .conftest import Cluster
from .events import EXPECTED, in_order, published, submit, until_committed, until_or_ended
from .support import BOUND, left_over


def drain(cluster: Cluster, job_id: str) -> None:
    JobStops(cluster.masters.backend).request(job_id, StopMode.DRAIN)


def check_finished(cluster: Cluster, job_id: str) -> None:
    result = cluster.results.wait(job_id, 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert left_over(cluster.masters.backend, cluster.storage, job_id) == []


@pytest.mark.parametrize("store", ["rocksdb", pytest.param("hdfs", marks=pytest.mark.soak)])
def test_every_shape_gives_all_it_holds(cluster: Cluster, tmp_path: Path, store: str) -> None:
    """F5, F7, S2: at the end of a bounded stage, and when an unbounded one is drained, windows,
    windows of windows, deduplication, outer joins, sessions and timers have given what a batch
    computation gives, each row once.
    """
    folder = tmp_path / "in"
    rows = events.write(folder, 3)
    events.repeat(folder, 1)
    rows += rows[10:20]
    cluster.masters.start("m")
    submit(cluster, "job", "every_shape", store=store, folder=str(folder))
    for shape in EXPECTED:
        until_committed(cluster, "job", f"live-{shape}")
    new = events.write(folder, 2, first=3)
    drain(cluster, "job")
    cluster.until_clean("job")
    check_finished(cluster, "job")

    for shape, expected in EXPECTED.items():
        assert published(cluster, "job", f"bounded-{shape}") == in_order(expected(rows)), shape
        assert published(cluster, "job", f"live-{shape}") == in_order(expected(rows + new)), shape


@pytest.mark.soak
def test_an_empty_stage_ends(cluster: Cluster, tmp_path: Path) -> None:
    """F5: a bounded stage with nothing to read, and an unbounded one that is drained before it has
    read anything, have nothing to flush and end.
    """
    (tmp_path / "in").mkdir()
    cluster.masters.start("m")
    submit(cluster, "bounded", "bounded_without_input", folder=str(tmp_path / "in"))
    cluster.until_clean("bounded")
    submit(cluster, "live", "unbounded", folder=str(tmp_path / "in"), windows="windows")
    drain(cluster, "live")
    cluster.until_clean("live")

    for job_id, stage in [("bounded", "empty"), ("live", "windows")]:
        check_finished(cluster, job_id)

        assert published(cluster, job_id, stage) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", ["complete", "timers_of_processing_time"])
def test_what_no_watermark_flushes_is_not_drained(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    """S2: a drain that could not give all that is held back is refused with the reason, and the
    job runs as before.
    """
    stages = {"complete": ["windows", "table"], "timers_of_processing_time": ["clock"]}[name]
    folder = tmp_path / "in"
    events.write(folder, 2)
    cluster.masters.start("m")
    submit(cluster, "job", name, folder=str(folder))
    for stage in stages:
        until_committed(cluster, "job", stage)
    drain(cluster, "job")

    with pytest.raises(WrongState, match=f"cannot be drained: stage '{stages[-1]}'"):
        JobStops(cluster.masters.backend).wait("job", BOUND)

    last = {stage: newest_commit(cluster, "job", stage) for stage in stages}
    events.write(folder, 2, first=2)
    for stage in stages:
        until_committed(cluster, "job", stage, last[stage] + 1)


@pytest.mark.soak
def test_a_drain_asked_for_before_anything_runs(cluster: Cluster, tmp_path: Path) -> None:
    """S2: asked for before the job has started, a drain is refused or carried out all the same."""
    folder = tmp_path / "in"
    rows = events.write(folder, 2)
    submit(cluster, "refused", "complete", folder=str(folder))
    submit(cluster, "drained", "unbounded", folder=str(folder), one="windows", two="sessions")
    drain(cluster, "refused")
    drain(cluster, "drained")
    cluster.masters.start("m")

    with pytest.raises(WrongState, match="cannot be drained: stage 'table'"):
        JobStops(cluster.masters.backend).wait("refused", BOUND)

    cluster.until_clean("drained")

    result = cluster.results.wait("drained", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert published(cluster, "drained", "one") == in_order(EXPECTED["windows"](rows))
    assert published(cluster, "drained", "two") == in_order(EXPECTED["sessions"](rows))


@pytest.mark.soak
def test_a_batch_that_outlasts_sparks_patience_is_drained(cluster: Cluster, tmp_path: Path) -> None:
    """S2: a drain waits for Python that Spark cannot stop; it does not fail the job."""
    folder = tmp_path / "in"
    events.write(folder, 2)
    cluster.masters.start("m")
    submit(cluster, "job", "slow_batches", folder=str(folder))
    until_or_ended(cluster, "job", (tmp_path / "begun").exists, "a batch has begun")
    drain(cluster, "job")
    until_or_ended(cluster, "job", (tmp_path / "late").exists, "Spark gives the batch up")
    (tmp_path / "go").touch()
    cluster.until_clean("job")
    check_finished(cluster, "job")


def newest_commit(cluster: Cluster, job_id: str, stage: str) -> int:
    commits = cluster.storage.folder(job_id).glob(f"e*/streams/{stage}/ck/commits/[0-9]*")
    return max(int(path.name) for path in commits)
