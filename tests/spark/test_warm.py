"""Warm standby on Spark: the next attempt of a stream takes a session that was prepared for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, JobStatus, StopMode
from jrs.recovery.attempt_main import PROGRAM
from jrs.store.stops import JobStops
from jrs.testing.processes import children, command_lines
from tests.recovery.support import gone, state_of

from . import events
from .conftest import Cluster
from .events import EXPECTED, in_order, published, submit, until_committed
from .support import BOUND, left_over, until

ROOT = Path(__file__).parents[2]


def record(cluster: Cluster) -> AttemptRecord:
    stored = cluster.masters.backend.get(keys.ATTEMPTS + "job")
    assert stored is not None
    return decode(AttemptRecord, stored.value, stored.key)


def attempts_of(master: int) -> list[int]:
    """Return the Python processes of attempts below a master, prepared ones included."""
    descendants = children(master)
    for each in descendants:
        descendants += children(each)
    lines = command_lines(descendants)
    return [pid for pid, line in lines.items() if f"-m {PROGRAM} " in line]


def test_the_next_leader_continues_in_the_prepared_session(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A stream with state loses its leader by kill -9. Its next attempt is the process that waited:
    each row is there once, and another process is prepared after it."""
    folder = tmp_path / "in"
    rows = events.write(folder, 2)
    first = cluster.masters.start("first")
    submit(cluster, "job", "unbounded", folder=str(folder), windows="windows")
    until_committed(cluster, "job", "windows")
    assert record(cluster).session is not None
    second = cluster.masters.start("second", options=["--warm", "1"])
    cluster.masters.until(
        lambda: any(event.kind == "warm" for event in cluster.masters.events), "one waits", BOUND
    )
    (waits,) = attempts_of(second.process.pid)
    until(lambda: state_of(waits) == "T", "it is stopped")
    first.kill()
    rows += events.write(folder, 2, first=2)
    cluster.masters.until(lambda: record(cluster).pid == waits, "the next attempt is it", BOUND)
    until_committed(cluster, "job", "windows")
    JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
    cluster.until_clean("job")
    result = cluster.results.wait("job", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert (result.attempt, result.epoch) == (2, 2)
    assert published(cluster, "job", "windows") == in_order(EXPECTED["windows"](rows))
    assert left_over(cluster.masters.backend, cluster.storage, "job") == []
    second.stop()
    until(lambda: gone([waits]), "it has ended with its attempt")


def test_a_session_that_fits_and_one_that_does_not(tmp_path: Path) -> None:
    """Settings of SQL are changed in the session that was prepared; for others it is ended, and
    another one starts. All that either keeps is where it is removed, whatever the host names."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(tmp_path)}
    environment.pop("JRS_SCRATCH", None)
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("preparing.py")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=BOUND,
    )
    assert done.returncode == 0, done.stderr[-4000:]

    assert json.loads(done.stdout.splitlines()[-1]) == {
        "partitions": "3",
        "joins": "10485760b",
        "rows": 10,
        "scratch": True,
        "waiting": False,
        "another": True,
        "lives": True,
        "memory": "700m",
        "discarded": True,
    }
    assert os.listdir(tmp_path) == [f"jrs-scratch-{os.getuid()}"]
    assert "spark.driver.memory cannot be changed in a session that runs" in done.stderr
