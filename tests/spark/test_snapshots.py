"""Snapshots of running queries, of every kind of state store, and jobs that resume from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .support import BOUND

ROOT = Path(__file__).parents[2]


def run(root: Path, provider: str, shape: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("snapshotting.py"), root, provider, shape],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TZ": "UTC"},
        timeout=BOUND,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.parametrize(
    ("provider", "shape"),
    [
        pytest.param("hdfs", "windows", marks=pytest.mark.soak),
        pytest.param("rocksdb", "windows", marks=pytest.mark.soak),
        pytest.param("changelog", "windows", marks=pytest.mark.soak),
        ("changelog-v2", "windows"),
        pytest.param("hdfs", "join", marks=pytest.mark.soak),
        pytest.param("changelog-v2", "join", marks=pytest.mark.soak),
    ],
)
def test_resume_from_a_snapshot_of_a_running_query(
    tmp_path: Path, provider: str, shape: str
) -> None:
    """Taken while the query runs and without pausing it (R1), of committed batches alone (N2).
    After the original is gone (R6), restored several times (S6, S7): moved, as a fork next to it,
    rolled back to an older batch (N1), and in another cluster and folder (R2, R5), with the file
    source and the file sink that were moved along. What comes out is what comes out of a run that
    nobody disturbed; so it is when what was restored is rescaled (N6). The state can be read as
    tables, as well (N5, N7)."""
    said = run(tmp_path / "jobs", provider, shape)

    assert len(said["reference"]) >= 24
    first, older, second, logical = said["pinned"]
    assert older == first - 2
    assert first <= second <= logical
    assert said["moved"] == said["reference"]
    assert said["forked"] == said["reference"]
    assert said["rolled back"] == said["reference"]
    assert said["far"] == said["reference"]
    assert said.get("rescaled", said["reference"]) == said["reference"]
    assert said["ids"][0] != said["ids"][1]
    assert len(said["logical"]) >= (2 if shape == "join" else 1)
    assert sum(said["logical"].values()) > 0
    assert said["shared"]
