"""Streaming stages next to batch stages: recovered, drained, suspended and resumed as one job."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jrs import JobSpec
from jrs.records.model import JobStatus, Json, StopMode, StopState
from jrs.recovery.files.job_folders import JobStorage
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops

from .conftest import Cluster
from .support import BOUND, left_over

STREAMS = Path(__file__).with_name("streams.py")


def make_events(folder: Path, files: int, first: int = 0) -> list[dict[str, Any]]:
    """Write files of events, ten minutes of event time each; return all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(first, first + files):
        some = [
            {
                "at": f"2026-01-01T{number // 6:02d}:{number % 6 * 10 + minute:02d}:00",
                "key": f"k{minute % 3}",
                "value": number * 10 + minute,
            }
            for minute in range(10)
        ]
        # Never seen half written, and in the order of their numbers: Spark goes by the time, in
        # which those that are written at once would be in any order, and the last of them late.
        whole = folder / f".f{number:03d}"
        whole.write_text("\n".join(map(json.dumps, some)))
        os.utime(whole, (1e9 + number, 1e9 + number))
        whole.rename(folder / f"f{number:03d}.json")
        rows += some
    return rows


def expected(rows: list[dict[str, Any]]) -> list[tuple[str, str, int, int]]:
    """Return what windows of ten minutes have to give, by hand."""
    sums: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        sums.setdefault((row["at"][:15] + "0:00", row["key"]), []).append(row["value"])
    return sorted((start, key, len(v), sum(v)) for (start, key), v in sums.items())


def published(cluster: Cluster, job_id: str, stage: str) -> list[tuple[str, str, int, int]]:
    """Return the rows that a stage has published, in order; a row twice is there twice."""
    import pyarrow.parquet as pq

    rows = []
    out = cluster.storage.folder(job_id) / "out" / stage
    for path in sorted(out.glob("batch=*/*.parquet")):
        for row in pq.read_table(path, partitioning=None).to_pylist():
            start = row["start"].strftime("%Y-%m-%dT%H:%M:%S")
            rows.append((start, row["key"], row["n"], row["total"]))
    return sorted(rows)


def submit(cluster: Cluster, job_id: str, name: str, **arguments: Json) -> None:
    spec = JobSpec(job_id, f"{STREAMS}:{name}", arguments)
    JobCatalog(cluster.masters.backend).submit(spec)


@pytest.mark.soak
def test_a_bounded_stage_gives_every_window_and_finishes(cluster: Cluster, tmp_path: Path) -> None:
    """F5: the windows that the watermark has not passed are flushed at the end of the input."""
    rows = make_events(tmp_path / "in", 4)
    cluster.masters.start("m")
    submit(cluster, "job", "bounded", source=str(tmp_path / "in"))
    cluster.until_clean("job")
    result = cluster.results.wait("job", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert published(cluster, "job", "sums") == expected(rows)
    assert left_over(cluster.masters.backend, cluster.storage, "job") == []


def test_every_kind_of_stage_in_one_job(cluster: Cluster, tmp_path: Path) -> None:
    """F1, F3, S2: bounded, unbounded and batch stages side by side, suspended, resumed, drained.
    Meanwhile the storage is moved: the bounded stage has read a part of its closed input."""
    rows = make_events(tmp_path / "in", 9)
    more = make_events(tmp_path / "more", 3)
    stops = JobStops(cluster.masters.backend)
    master = cluster.masters.start("m")
    submit(cluster, "job", "every_kind", source=str(tmp_path / "in"), more=str(tmp_path / "more"))
    until = cluster.masters.until
    live = cluster.storage.folder("job")
    until(lambda: list(live.glob("e*/streams/live/ck/commits/2")), "live has read all", BOUND)
    stops.request("job", StopMode.SUSPEND)
    stop = stops.wait("job", BOUND)

    assert stop is not None
    assert stop.state is StopState.DONE
    assert JobCatalog(cluster.masters.backend).view("job").status is JobStatus.SUSPENDED

    master.stop()
    there = cluster.storage.root.parent.with_name("there")
    cluster.storage.root.parent.rename(there)
    cluster.storage = JobStorage(there, cluster.storage.root.name)
    live = cluster.storage.folder("job")
    cluster.masters.start("m2", options=("--storage", str(there)))
    more += make_events(tmp_path / "more", 2, first=3)
    make_events(tmp_path / "in", 1, first=20)
    stops.resume("job")
    until(lambda: list(live.glob("e*/streams/live/ck/commits/4")), "live continues", BOUND)
    stops.request("job", StopMode.DRAIN)
    cluster.until_clean("job")
    result = cluster.results.wait("job", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert published(cluster, "job", "hourly") == expected(rows)
    assert published(cluster, "job", "live") == expected(more)
    assert {stage.name: stage.has_output for stage in result.stages} == {
        "typed": True, "hourly": True, "live": True, "report": False,
    }  # fmt: skip
    assert left_over(cluster.masters.backend, cluster.storage, "job") == []


@pytest.fixture(autouse=True)
def no_noise(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None] | None:
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    return None
