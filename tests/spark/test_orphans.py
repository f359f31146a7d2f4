"""JVMs and Pythons that outlive their leader because nobody could kill them: they hang."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jrs import Master, open_backend
from jrs.contract.backend import Backend
from jrs.records.model import JobStatus
from jrs.recovery.processes import left_running as left
from jrs.recovery.rules.events import Event

from .conftest import Cluster
from .support import BOUND, TTL, left_over, marked, published, until, watchdogs


class Successor:
    """A master in this process, so that a test can look between two of its steps."""

    def __init__(self, cluster: Cluster) -> None:
        self.events: list[Event] = []
        self._backend = open_backend(cluster.masters.url)
        self._stop = threading.Event()
        storage = cluster.storage.root.parent
        master = Master(
            self._backend,
            url=cluster.masters.url,
            storage=storage,
            ttl=TTL,
            report=self.events.append,
        )
        self._thread = threading.Thread(target=master.run, args=(self._stop,))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._backend.close()


@pytest.fixture
def successor(cluster: Cluster) -> Iterator[Successor]:
    made = Successor(cluster)
    yield made
    made.close()


class Attempt:
    """The processes of a job's attempt, as the first leader started them."""

    def __init__(self, cluster: Cluster, job_id: str) -> None:
        lines = marked(cluster.masters.backend, job_id)
        self.python = next(
            pid for pid, line in lines.items() if "jrs.recovery.attempt_main" in line
        )
        self.jvm = next(pid for pid, line in lines.items() if "SparkSubmit" in line)
        (self.watchdog,) = watchdogs(cluster.masters.backend)

    def stop(self) -> None:
        """Stop all that could end the JVM."""
        os.kill(self.watchdog, signal.SIGSTOP)
        os.kill(self.python, signal.SIGSTOP)

    def close(self) -> None:
        for pid in (self.watchdog, self.python, self.jvm):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def before_orphans_end(
    monkeypatch: pytest.MonkeyPatch, job_id: str, look: Callable[[], None]
) -> None:
    """Call `look` once, when the next leader is about to kill the job's orphans."""
    end = left.end
    looked = threading.Event()

    def look_then_end(backend: Backend, ended: str, *arguments: Any, **options: Any) -> list[int]:
        if ended == job_id and not looked.is_set():
            looked.set()
            look()
        return end(backend, ended, *arguments, **options)

    monkeypatch.setattr(left, "end", look_then_end)


def epochs(cluster: Cluster, job_id: str) -> list[str]:
    return sorted(path.name for path in cluster.storage.folder(job_id).glob("e[0-9]*"))


def test_an_orphan_jvm_is_fenced_then_killed(
    cluster: Cluster, successor: Successor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a JVM that nobody could stop is renamed while it writes; then it is found and
    killed; only then is the job started again, and the orphan's files are never seen.
    """
    first = cluster.masters.start("first")
    cluster.submit("long", "writes_for_long")
    staging = cluster.storage.folder("long") / "e1" / "write.1"
    cluster.masters.until(lambda: any(staging.rglob("part-*")), "the JVM writes", BOUND)
    attempt = Attempt(cluster, "long")
    seen: dict[str, Any] = {}

    def look() -> None:
        seen["jvm lives"] = lives(attempt.jvm)
        # An old folder may be there again: Hadoop makes the parents of what it writes.
        seen["renamed"] = "e2" in epochs(cluster, "long")
        seen["attempts"] = [e.message for e in successor.events if e.kind == "attempt"]
        seen["published"] = published(cluster.storage, "long")

    before_orphans_end(monkeypatch, "long", look)
    try:
        attempt.stop()
        first.kill()
        successor.start()
        until(lambda: cluster.is_clean("long"), "long is clean")
        result = cluster.results.wait("long", 0)

        assert seen == {"jvm lives": True, "renamed": True, "attempts": [], "published": {}}
        assert not lives(attempt.jvm)
        assert not lives(attempt.python)
        assert [e.job_id for e in successor.events if e.kind == "orphans"] == ["long"]
        assert (result.status, result.payload) == (
            JobStatus.FINISHED,
            {"attempt": 2, "tasks": 2},
        )
        assert len(published(cluster.storage, "long")["write/rows"]) == 2
        assert left_over(cluster.masters.backend, cluster.storage, "long") == []
    finally:
        attempt.close()


def test_a_python_that_wakes_up_publishes_nothing(
    cluster: Cluster, successor: Successor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An attempt that was stopped when all it had left to do was to publish, and wakes up under
    the next leader, publishes nothing and records nothing.
    """
    first = cluster.masters.start("first")
    cluster.submit("late", "waits_when_written", folder=str(tmp_path))
    cluster.masters.until((tmp_path / "written").exists, "the stage has written", BOUND)
    attempt = Attempt(cluster, "late")
    seen: dict[str, Any] = {}

    def look() -> None:
        (tmp_path / "go").touch()
        os.kill(attempt.python, signal.SIGCONT)
        until(lambda: not lives(attempt.python), "the old attempt has ended")
        seen["published"] = published(cluster.storage, "late")
        seen["result"] = cluster.results.get("late")
        seen["stages"] = list(cluster.masters.backend.scan("stages/"))

    before_orphans_end(monkeypatch, "late", look)
    try:
        attempt.stop()
        first.kill()
        successor.start()
        until(lambda: cluster.is_clean("late"), "late is clean")

        assert seen == {"published": {}, "result": None, "stages": []}
        assert cluster.results.wait("late", 0).payload == {"attempt": 2}
        assert left_over(cluster.masters.backend, cluster.storage, "late") == []
    finally:
        attempt.close()
