"""The history of a cluster as a stream of Spark: each event once, over a failover of real masters
and a crash of the query."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jrs
from jrs.testing.masters import Masters
from tests.recovery.support import job

from .support import BOUND, TTL, until

ROOT = Path(__file__).parents[2]


def start(url: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "tests/spark/following.py", url, str(folder)]
    with (folder / "stderr").open("a") as stderr:
        return subprocess.Popen(command, cwd=ROOT, stderr=stderr)


def batches(folder: Path) -> int:
    """Return how many batches the query has committed."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def test_each_event_once(tmp_path: Path) -> None:
    url, folder, hold = (tmp_path / "store").as_uri(), tmp_path / "query", tmp_path / "hold"
    folder.mkdir()
    with (
        Masters(url, cluster="default", storage=tmp_path, ttl=TTL) as masters,
        jrs.connect(url, storage=tmp_path) as client,
    ):
        masters.start("m1")
        masters.start("m2")
        until(lambda: client.leader().leader, "one leads")
        hold.touch()
        calls = str(tmp_path / "calls")
        held = client.submit(job("two_stages"), id="held", calls=calls, hold=str(hold))
        held.wait_stage("first", BOUND)
        with start(url, folder) as query:
            until(lambda: batches(folder) or query.poll() is not None, "a batch is committed")
            query.kill()
        assert query.poll() == -9, (folder / "stderr").read_text()
        committed = batches(folder)

        masters.leader().kill()
        hold.unlink()
        held.result(BOUND)
        with start(url, folder) as query:
            until(lambda: batches(folder) > committed, "it continues")
            client.submit(job("two_stages"), id="late", calls=calls).result(BOUND)
            until(lambda: all(map(client.results.has_clean, ("held", "late"))), "all is over")
            for master in masters.all:  # Nothing is added to the history from now on.
                master.stop()
            (folder / "enough").touch()
            query.wait(BOUND)
        assert query.returncode == 0, (folder / "stderr").read_text()

        expected = [(one.job_id, one.kind, one.text) for one in client.history_after().entries]
    rows = [
        json.loads(line) for part in (folder / "all").glob("*.json")
        for line in part.read_text().splitlines()
    ]  # fmt: skip
    found = [(row.get("job_id", ""), row["kind"], row["text"]) for row in rows]
    assert sorted(found) == sorted(expected)
    assert ("", "lost") in [(job_id, kind) for job_id, kind, _ in found]
