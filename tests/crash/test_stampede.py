"""A large segment is compacted while many processes look on: one of them writes the next base."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jrs.backend import Create
from jrs.backends.file import FileBackend, lines
from jrs.testing.contract import BOUND
from jrs.testing.worker import Worker
from tests.support import until

NEVER = 1 << 40
SIZE = 16 << 20
TTL = 5.0


def filled(root: Path) -> Path:
    """Make a store whose next base is large; return the folder of its log."""
    with FileBackend(root, seal_at=NEVER) as backend:
        value = b"v" * 4000
        futures = [backend.commit_async(Create(f"k/{n}", value)) for n in range(SIZE // 4000)]
        for future in futures:
            future.result(BOUND)
    return root / "clusters/default/log"


def seal(log: Path) -> None:
    (path,) = log.glob("*.log")
    with path.open("ab") as file:
        file.write(lines.BATCH + lines.SEAL_LINE)


@contextmanager
def temporary_bases(log: Path) -> Iterator[set[str]]:
    """Collect the names under which bases are written meanwhile."""
    names: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.002):
            names.update(n for n in os.listdir(log) if n.startswith(".") and ".base." in n)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield names
    finally:
        over.set()
        thread.join()


def test_one_process_writes_the_next_base(tmp_path: Path) -> None:
    """B1: of the processes that see a seal without a base one writes it; the others wait, answer
    afterwards, and the leader keeps its lead."""
    log = filled(tmp_path)
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(tmp_path.as_uri(), "default")) for _ in range(4)]
        workers[0].lead("leader", TTL)
        for worker in workers:
            assert worker.get("k/0") is not None
        with temporary_bases(log) as names:
            seal(log)
            for worker in workers:
                worker.send("get", "k/1")
            for worker in workers:
                assert worker.receive() is not None
        assert len(names) == 1
        assert len(list(log.glob("*.base"))) == 1
        assert workers[0].call("lost", 0.0) is False


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task")
    found = [task.joinpath("children").read_text().split() for task in path.iterdir()]
    return [int(child) for each in found for child in each]


def test_a_writer_that_dies_is_followed_by_another(tmp_path: Path) -> None:
    """B1: the lock on the folder ends with the writer; the next process writes the base."""
    log = filled(tmp_path)
    with (
        Worker(tmp_path.as_uri(), "default") as first,
        Worker(tmp_path.as_uri(), "default") as second,
    ):
        for worker in (first, second):
            assert worker.get("k/0") is not None
        seal(log)
        first.send("get", "k/1")
        (writer, *_) = until(lambda: children(first.pid), "the base is being written")
        os.kill(writer, signal.SIGSTOP)
        second.send("get", "k/1")
        os.kill(writer, signal.SIGKILL)
        first.kill()
        assert second.receive() is not None
        assert len(list(log.glob("*.base"))) == 1
