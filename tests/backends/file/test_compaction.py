"""The next base, which a child writes while nobody waits for it: what it costs if it cannot."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from jrs.backends.file import compaction, segments
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.compaction import Compaction
from jrs.backends.file.replica import NEVER
from jrs.contract.errors import Unavailable
from jrs.contract.operations import Create
from tests.support import BOUND, until


class Children(Compaction):
    """Leaves every base to a child, and checks for it at each call."""

    small = 0
    poll_interval = 0.0


@pytest.fixture
def pending(tmp_path: Path) -> Iterator[FileBackend]:
    """A handle whose segment is sealed; the next call begins the next one, and its base."""
    with FileBackend(tmp_path, seal_at=NEVER, compaction=Children) as backend:
        backend.commit(Create("k", b""))
        backend.replica.segment.log.write_seal()
        yield backend
    for child in compaction._unreaped:
        child.wait(BOUND)


def is_based(backend: FileBackend) -> bool:
    assert backend.get("k") is not None
    return not backend.replica.segment.pending


def test_paths_that_no_import_looks_at(
    pending: FileBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs put a `Path` into `sys.path`, where it has no effect: the child starts, too."""
    monkeypatch.setattr(sys, "path", [Path("/nowhere"), "", *sys.path])
    until(lambda: is_based(pending), "the base is there")


def test_modules_of_the_working_directory(
    pending: FileBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `queue.py` among the jobs of a user is not what the child imports as `queue`."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "queue.py").write_text("raise SystemExit('this is a job')")
    monkeypatch.chdir(jobs)
    until(lambda: is_based(pending), "the base is there")


def test_a_child_that_cannot_be_started_is_no_callers_problem(
    pending: FileBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the reason; it is tried again after a pause, and said once."""
    tries, told = [], list[bool]()
    pending.compaction_ended = told.append

    def start(folder: Path, turn: int, *, awaited: bool) -> subprocess.Popen[bytes]:
        tries.append(folder)
        raise ValueError("unforeseen")

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "_RETRY_AFTER", 3600.0)
        patch.setattr(compaction, "_started", start)
        for number in range(5):
            pending.commit(Create(f"l/{number}", b""))
            assert not is_based(pending)
        assert len(tries) == 1
        pending.replica._compaction._next_try = 0.0
        assert not is_based(pending)
        assert len(tries) == 2
        assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
            "ValueError('unforeseen')"
        ]
        assert told == [True, True]
    pending.replica._compaction._next_try = 0.0
    until(lambda: is_based(pending), "the base is there")
    assert told == [True, True, False]


def test_a_child_that_is_killed_each_time_is_not_started_at_each_call(
    pending: FileBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for want of memory: the next one starts after a pause, in each process."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, turn: int, *, awaited: bool) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, pass_fds=[turn]))
        return started[-1]

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "_RETRY_AFTER", 3600.0)
        patch.setattr(compaction, "_started", start)
        assert not is_based(pending)
        os.waitid(os.P_PID, started[0].pid, os.WEXITED | os.WNOWAIT)
        for _ in range(5):
            assert not is_based(pending)
        assert len(started) == 1
    pending.replica._compaction._next_try = 0.0
    until(lambda: is_based(pending), "the base is there")


KILLED = """
import os, signal, sys
from pathlib import Path
from jrs.backends.file.base import merge
from jrs.backends.file.base_writer import write_next
merge.write_run = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
write_next(Path(sys.argv[1]))
"""


def test_what_killed_children_have_begun_does_not_pile_up(
    pending: FileBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them leaves a run that may have gigabytes. What others write is not removed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, turn: int, *, awaited: bool) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", KILLED, str(folder)]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, pass_fds=[turn]))
        return started[-1]

    def has_started(number: int) -> bool:
        return not is_based(pending) and len(started) == number

    def begun() -> list[Path]:
        return list(pending.replica.folder.glob(".*.run.*"))

    monkeypatch.setattr(compaction, "_RETRY_AFTER", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(compaction, "_started", start)
        for kills in range(1, 4):
            until(partial(has_started, kills), "one is started")
            assert started[-1].wait(BOUND) == -signal.SIGKILL
            assert len(begun()) == 1
    other = begun()[0].with_name(begun()[0].name.replace(".run.", ".segment."))
    other.touch()
    until(lambda: is_based(pending), "the base is there")
    assert not begun()
    assert other.exists()


FORKS = """
import os, signal, sys
from pathlib import Path
from jrs.backends.file import segments
from jrs.backends.file.backend import FileBackend
from jrs.contract.operations import Create
with FileBackend(Path(sys.argv[1])) as backend:
    backend.commit(Create("k", b""))
    real, children = segments.write_base, []

    def write_base(*arguments, **named):
        real(*arguments, **named)
        children.append(os.fork())
        if not children[-1]:
            signal.pause()

    segments.write_base = write_base
    backend.compact()
print(*children, flush=True)
"""


def test_a_forked_child_does_not_keep_the_turn(tmp_path: Path) -> None:
    """What a program forks while this process writes a base may live on as long as it likes."""
    forks = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKS, tmp_path], stdout=subprocess.PIPE
    )
    assert forks.stdout is not None
    (child,) = map(int, forks.stdout.readline().split())
    try:
        assert forks.wait(BOUND) == 0
        folder = os.open(tmp_path / "clusters/default/log", os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(folder)
    finally:
        forks.stdout.close()
        os.kill(child, signal.SIGKILL)


def test_a_newer_segment_that_cannot_be_opened_now(
    pending: FileBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes are a segment further: without descriptors a read is Unavailable, and
    the next one finds it."""
    monkeypatch.setattr(Children, "begin", lambda *_, **__: False)
    assert not is_based(pending)
    with FileBackend(tmp_path) as other:
        other.commit(Create("l", b""))
        other.compact()
        real, opened = segments.open_newest, []

        def open_newest(folder: Path) -> segments.Segment:
            opened.append(folder)
            if len(opened) == 2:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return real(folder)

        with monkeypatch.context() as patch:
            patch.setattr(segments, "open_newest", open_newest)
            with pytest.raises(Unavailable, match="Too many open files"):
                pending.get("l")
            assert len(opened) == 2
        assert pending.get("l") is not None
        assert pending.replica.start == other.replica.start
