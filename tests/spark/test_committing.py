"""The commit of batches, as Spark drives it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jrs.records.model import JobStatus, StopMode
from jrs.store.stops import JobStops

from . import committing, events
from .conftest import Cluster
from .support import until
from .test_orphans import Attempt, Successor, lives
from .test_split_brain import spare_orphans

FILES = 5


def test_a3_a_commit_that_fails_behind_its_effect(cluster: Cluster, tmp_path: Path) -> None:
    """A3, A5: Spark aborts such a batch and runs it again. Each row is there once, and the head has
    passed over each batch, also over those without rows."""
    source = tmp_path / "in"
    source.mkdir()
    for number in range(FILES):
        text = "# nothing" if number in (2, FILES - 1) else f"line {number}"
        (source / f"{number}.txt").write_text(text + "\n")
    cluster.masters.start("m")
    events.submit(cluster, "job", "cut", file=Path(committing.__file__), folder=str(source))
    cluster.until_clean("job")
    result = cluster.results.wait("job", 0)

    assert (result.status, result.attempt) == (JobStatus.FINISHED, 1), str(result.failure)[:3000]
    payload = result.payload
    assert isinstance(payload, dict)
    assert payload["batches"] == payload["head"] + 1 >= FILES
    assert sorted(path.name for path in (tmp_path / "failed").iterdir()) == ["1"]
    out = cluster.storage.published("job", "lines", temporary=False)
    rows = [row for path in out.rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    lines = sorted(str(row["value"]) for row in rows)
    assert lines == [f"line {number}" for number in (0, 1, 3)]


def test_a6_a_function_is_called_by_one_plan(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A6: a batch is called again with what it was called with, though its plan is gone and there
    is more to read. And a driver that was replaced, and cannot be killed, calls no function more:
    not even for the batch that it has planned already."""
    spare_orphans(monkeypatch)
    source = tmp_path / "in"
    source.mkdir()
    (source / "0.txt").write_text("line 0\n")
    first, successor = cluster.masters.start("first"), Successor(cluster)
    events.submit(cluster, "job", "called", file=Path(committing.__file__), folder=str(source))
    events.until_or_ended(
        cluster, "job", (tmp_path / "waits").exists, "the second attempt is about to call"
    )
    attempt = Attempt(cluster, "job")
    try:
        os.kill(attempt.watchdog, signal.SIGSTOP)  # For good: without it the attempt would end.
        first.kill()
        successor.start()
        until(lambda: calls(tmp_path)[-1][0] == 2, "the next leader's attempt calls")
        (tmp_path / "go").touch()
        until(lambda: not lives(attempt.python), "the old driver is dead")
        JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
        until(lambda: cluster.is_clean("job"), "the job is clean")
        result = cluster.results.wait("job", 0)
    finally:
        attempt.close()
        successor.close()

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert [call for call in calls(tmp_path) if call[3]] == [
        [1, 1, 0, ["line 0"]],
        [1, 1, 1, ["line 1"]],
        [1, 2, 1, ["line 1"]],
        [2, 3, 2, ["line 2"]],
    ]


def calls(folder: Path) -> list[list[Any]]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
