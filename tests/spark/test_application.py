"""Application mode on Spark: `main` on two replicas, jobs in threads of its own session."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jrs import JobResultStore, open_backend

from .support import BOUND, until

SCRIPT = Path(__file__).with_name("application.py")
ANSWER = {"answer": {"n": 100, "sum": [5050, "jrs-add"]}}


class Replica:
    """One process of the driver. Its output goes to a file, so that it is never blocked."""

    def __init__(self, folder: Path, name: str, mode: str) -> None:
        self._out = folder / f"{name}.out"
        arguments = [(folder / "store").as_uri(), str(folder), mode]
        with self._out.open("wb") as out, (folder / f"{name}.err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), *arguments], stdout=out, stderr=err
            )

    def lines(self) -> list[dict[str, Any]]:
        """Return what it printed: events, and at its end the answer."""
        return [json.loads(line) for line in self._out.read_text().splitlines()]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Callable[[str, str], Replica]]:
    made: list[Replica] = []

    def start(name: str, mode: str) -> Replica:
        made.append(Replica(tmp_path, name, mode))
        return made[-1]

    yield start
    for one in made:
        one.close()


def journal(folder: Path) -> list[str]:
    path = folder / "journal"
    return path.read_text().splitlines() if path.exists() else []


def test_main_resumes_after_its_finished_jobs(
    replica: Callable[[str, str], Replica], tmp_path: Path
) -> None:
    """J8: when the leader is killed between two jobs, the next one's `main` is handed the first
    job's stored result, runs only the second, and a replica that comes later is handed the answer.
    """
    first = replica("first", "between")
    until(lambda: f"between {first.process.pid}" in journal(tmp_path), "one job is done")
    second = replica("second", "between")
    first.close()
    second.process.wait(BOUND)
    third = replica("third", "between")
    third.process.wait(BOUND)

    assert second.lines()[-1] == third.lines()[-1] == ANSWER
    assert journal(tmp_path) == [
        f"count {first.process.pid}",
        f"between {first.process.pid}",
        f"between {second.process.pid}",
        f"add {second.process.pid}",
    ]
    with open_backend((tmp_path / "store").as_uri()) as backend:
        assert list(JobResultStore(backend).dirty()) == []


def test_a_driver_survives_the_death_of_its_jvm(
    replica: Callable[[str, str], Replica], tmp_path: Path
) -> None:
    """A job in a thread whose JVM is killed is started again in the same driver, on a new JVM."""
    only = replica("only", "lose-jvm")
    only.process.wait(BOUND)
    lines = only.lines()

    assert lines[-1] == ANSWER
    assert [line["job_id"] for line in lines[:-1] if line["kind"] == "died"] == ["add"]
    assert [line.split()[0] for line in journal(tmp_path)] == ["count", "add", "add"]
