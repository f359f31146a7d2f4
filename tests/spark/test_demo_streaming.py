"""The demo of streams, whole: kills, a suspend, a rescale and a drain, and every row compared."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jrs.demo.screen import Screen
from jrs.demo.setting import Setting, Stuck, perform
from jrs.demo.streaming import STREAMS
from jrs.demo.streaming_story import BATCH, _compare, _failures
from jrs.demo.watching import JOB
from jrs.records.model import JobResult, JobStatus
from jrs.recovery.files.job_folders import JobStorage
from jrs.testing.servers import find_etcd, find_zookeeper
from jrs.testing.servers.fixtures import had

from .support import assert_promises_kept, recorded

SEED = "3"
_PATIENCE = 840.0


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("file", marks=pytest.mark.soak),
        "etcd",
        pytest.param("zookeeper", marks=pytest.mark.soak),
    ],
)
def test_the_demo_of_streams(tmp_path: Path, backend: str) -> None:
    """`jrs demo --streaming` kills three leaders, suspends, resumes, rescales and drains the job,
    says that every row is that of one batch, and leaves nothing behind. All that its processes
    asked of the store keeps the promises.
    """
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    if backend != "file":
        with had(find_etcd if backend == "etcd" else find_zookeeper):
            pass  # It can be had, or this test is skipped; the demo starts its own.
    where = ["--backend", backend] if backend != "file" else []
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "demo", "--streaming", "--seed", SEED, *where],
        capture_output=True,
        text=True,
        env=recorded({**os.environ, "TMPDIR": str(temporary)}, tmp_path / "history"),
        timeout=_PATIENCE,
    )
    shown = done.stdout

    assert done.returncode == 0, shown + done.stderr
    assert shown.count("kill -9 m") == 3
    assert shown.startswith(f"jrs demo --streaming --seed {SEED}: backend ")
    for said in (
        "suspend   when ",
        "suspended  without a process: ",
        "suspended  the weather of ",
        "resume    from its newest committed batches",
        "rescaled  partitions of state: ",
        "weather 2 to 4",
        "drain     ",
        "EQUAL: all ",
    ):
        assert said in shown
    steps = [re.search(f"stage +{name} finished in", shown) for name in ("lga", "jfk", "ewr")]
    assert all(steps)
    # Which ports are taken is kept for all servers of this user.
    assert [path for path in temporary.iterdir() if not path.name.startswith("jrs-ports-")] == []
    assert_promises_kept(tmp_path / "history", 1)


@pytest.mark.parametrize("stream", STREAMS)
def test_a_row_that_differs_in_any_stream_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stream: str
) -> None:
    """Each stream is compared with the table of its name, and the rows are counted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    storage = JobStorage(tmp_path, "c")
    tables = storage.published(BATCH, BATCH, temporary=False)
    folders = {name: storage.published(JOB, name, temporary=False) / "batch=0" for name in STREAMS}
    for name in STREAMS:
        for folder in (tables / name, folders[name]):
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"carrier": [name, "x"]}), folder / "part-0.parquet")
    scene: Any = SimpleNamespace(
        output=lambda job_id: storage.folder(job_id) / "out", screen=Screen()
    )
    found: list[str] = []

    assert _compare(scene, found) == 2 * len(STREAMS)
    assert found == []

    pq.write_table(pa.table({"carrier": ["x"]}), folders[stream] / "part-0.parquet")

    assert _compare(scene, found) == 2 * len(STREAMS) - 1
    assert found == [f"{stream}: missing: {stream}"]
    assert "missing" in capsys.readouterr().out


def test_a_job_that_did_not_finish_and_another_report_are_differences() -> None:
    def results(status: JobStatus, *payloads: int) -> dict[str, JobResult]:
        jobs = zip((JOB, BATCH), payloads, strict=True)
        return {job_id: JobResult(job_id, status, payload) for job_id, payload in jobs}

    assert _failures(results(JobStatus.FINISHED, 1, 1)) == []
    assert _failures(results(JobStatus.FINISHED, 2, 1)) == ["the report is 2, of the batch 1"]
    assert len(_failures(results(JobStatus.CANCELED, 1, 1))) == 2


@pytest.mark.parametrize("why", ["a difference", "nothing"])
def test_the_exit_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    why: str,
) -> None:
    """A difference is exit status 1, and keeps the folder to look into; none is 0 and keeps
    nothing."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    differences = [why] if why != "nothing" else []
    status = perform(
        lambda setting: differences, None, clusters=("streams",), title="demo", keep=False
    )

    assert status == len(differences)
    assert len(list(tmp_path.iterdir())) == len(differences)
    assert ("Everything is kept: cluster streams-" in capsys.readouterr().out) is bool(differences)


def test_a_story_that_cannot_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said in one line, with exit status 1, and nothing serves the page any more."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def play(setting: Setting) -> list[str]:
        raise Stuck("job delays has ended FAILED: no disk")

    assert perform(play, None, clusters=("streams",), title="demo", keep=False) == 1
    shown = capsys.readouterr().out
    assert "stuck: job delays has ended FAILED: no disk\n" in shown
    served = re.search(r"Watch the failovers at http://127\.0\.0\.1:([0-9]+)/login", shown)
    assert served
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(served[1])))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seed", "1"], "--seed needs --streaming"),
        (["--streaming", "--seed", "x"], "'x' is not a valid integer"),
        (["--streaming", "--seed", "-1"], "-1 is not in the range"),
        (["--streaming", "--backend", "memory://x"], "cannot be opened by several processes"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: list[str], said: str) -> None:
    """It is refused in one line, with exit status 2, and leaves nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "demo", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=_PATIENCE,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
