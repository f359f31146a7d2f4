"""Leaders that sleep in the middle of a commit, or die: the fence holds, and nobody waits."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.errors import Fenced
from jrs.contract.operations import Create, Fence
from jrs.testing.contract import BOUND, contents, lead
from jrs.testing.worker import Worker, packed, packed_fence

SLEEPER = """
import os, signal
def sleep_at_the_next_write(when):
    real = os.write
    def write(fd, data):
        os.write = real
        if when == "before":
            signal.raise_signal(signal.SIGSTOP)  # This very thread: it stops at once.
        written = real(fd, data)
        if when == "after":
            signal.raise_signal(signal.SIGSTOP)  # This very thread: it stops at once.
        return written
    os.write = write
os.sleep_at_the_next_write = sleep_at_the_next_write
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Worker(tmp_path.as_uri(), "default", before=SLEEPER))


def asleep_in_a_commit(process: Worker, when: str, ttl: float) -> Fence:
    """Make a process lead, commit, and fall asleep before or after the write of the commit."""
    fence = process.lead("sleeper", ttl)
    process.commit(Create("first", b""), fence=fence)
    process.call("run", f"os.sleep_at_the_next_write({when!r})")
    process.send("commit", packed((Create("late", b""),)), packed_fence(fence))
    process.await_stopped()
    return fence


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_leader_that_sleeps_in_a_commit(
    tmp_path: Path, worker: Callable[[], Worker], when: str
) -> None:
    """Nobody waits for a leader that sleeps in a commit; when it wakes up after it was replaced,
    the commit is Fenced unless it was in the log before the epoch was bumped."""
    sleeper = worker()
    fence = asleep_in_a_commit(sleeper, when, ttl=1.0)
    with FileBackend(tmp_path) as backend:
        # It holds no lock that reads, commits or a compaction would need.
        backend.commit(Create("meanwhile", b""))
        assert backend.get("first") is not None
        backend.compact()
        with lead(backend, "next", ttl=1.0) as leadership:
            assert leadership.epoch > fence.epoch
            backend.commit(Create("taken-over", b""), fence=leadership.fence)
            written = {"first", "meanwhile", "taken-over"} | (
                {"late"} if when == "after" else set()
            )
            assert contents(backend).keys() == written

            sleeper.resume()
            if when == "before":
                with pytest.raises(Fenced):
                    sleeper.receive()
            else:
                sleeper.receive()
            assert sleeper.call("lost", BOUND) is True
            with pytest.raises(Fenced):
                sleeper.commit(Create("later", b""), fence=fence)
            # Whether it still leads by its own clock is up to how busy the machine is.
            assert backend.is_current(leadership.fence)
            assert contents(backend).keys() == written


def test_a_zombie_whose_write_came_before_the_bump_without_a_compaction(
    tmp_path: Path, worker: Callable[[], Worker]
) -> None:
    """A commit that was written and not yet synced is made durable by its first reader."""
    sleeper = worker()
    fence = asleep_in_a_commit(sleeper, "after", ttl=3600.0)
    with FileBackend(tmp_path) as backend:
        assert contents(backend).keys() == {"first", "late"}
        assert backend.is_current(fence)
    sleeper.kill()
    with FileBackend(tmp_path) as backend:
        assert contents(backend).keys() == {"first", "late"}


def test_a_zombie_that_slept_through_segments(tmp_path: Path, worker: Callable[[], Worker]) -> None:
    """A commit that is written into a segment that was sealed and removed long ago is Fenced."""
    sleeper = worker()
    asleep_in_a_commit(sleeper, "before", ttl=1.0)
    with FileBackend(tmp_path) as backend, lead(backend, "next", ttl=1.0):
        for number in range(5):
            backend.commit(Create(f"k/{number}", b""))
            backend.compact()
        before = contents(backend)
        sleeper.resume()
        with pytest.raises(Fenced):
            sleeper.receive()
        assert before == contents(backend)
        with FileBackend(tmp_path) as other:
            assert before == contents(other)


def test_an_unfenced_sleeper_commits_when_it_wakes(
    tmp_path: Path, worker: Callable[[], Worker]
) -> None:
    """A commit that carries no fence is evaluated where it is written at last, segments later."""
    sleeper = worker()
    sleeper.call("run", "os.sleep_at_the_next_write('before')")
    sleeper.send("commit", packed((Create("late", b""),)), None)
    sleeper.await_stopped()
    with FileBackend(tmp_path) as backend:
        for number in range(3):
            backend.commit(Create(f"k/{number}", b""))
            backend.compact()
        sleeper.resume()
        sleeper.receive()
        assert contents(backend).keys() == {"k/0", "k/1", "k/2", "late"}


def test_a_killed_leader_is_replaced_whatever_its_ttl(
    tmp_path: Path, worker: Callable[[], Worker]
) -> None:
    """After kill -9 the next one leads at once: a ttl of an hour is not waited for."""
    process = worker()
    old = process.lead("killed", 3600.0)
    with FileBackend(tmp_path) as backend:
        stop = threading.Event()
        won = []
        thread = threading.Thread(
            target=lambda: won.append(backend.campaign("next", ttl=3600.0, stop=stop))
        )
        thread.start()
        backend.commit(Create("k", b""), fence=old)
        assert not won
        process.kill()
        thread.join(BOUND)
        stop.set()
        assert not thread.is_alive()
        assert won[0] is not None
        with won[0] as leadership, pytest.raises(Fenced):
            assert leadership.epoch == old.epoch + 1
            backend.commit(Create("l", b""), fence=old)


def test_a_leader_killed_in_its_sleep(tmp_path: Path, worker: Callable[[], Worker]) -> None:
    """A stopped leader that is killed is replaced at once too."""
    process = worker()
    old = asleep_in_a_commit(process, "before", ttl=3600.0)
    process.kill()
    with FileBackend(tmp_path) as backend, lead(backend, ttl=3600.0) as leadership:
        assert leadership.epoch == old.epoch + 1
        assert contents(backend).keys() == {"first"}


def test_a_candidate_that_sleeps_between_lock_and_epoch(
    tmp_path: Path, worker: Callable[[], Worker]
) -> None:
    """A candidate that sleeps with its lock taken and the epoch not bumped stops nobody."""
    process = worker()
    process.call("run", "os.sleep_at_the_next_write('before')")
    process.send("lead", "half", 3600.0)
    process.await_stopped()
    with FileBackend(tmp_path) as backend:
        with lead(backend, ttl=3600.0) as leadership:
            process.resume()
            assert not leadership.lost.is_set()
            backend.commit(Create("k", b""), fence=leadership.fence)
        fence = Fence(*process.receive())
        assert fence.epoch == leadership.epoch + 1


FORKS = """
import os, signal, sys, threading
from pathlib import Path
from jrs.backends.file.backend import FileBackend
backend = FileBackend(Path(sys.argv[1]))
leadership = backend.campaign("forks", ttl=3600.0, stop=threading.Event())
child = os.fork()
if child == 0:
    signal.pause()
print(child, flush=True)
signal.pause()
"""


def test_a_forked_child_does_not_hold_the_lock(tmp_path: Path) -> None:
    """A child that a leader forked and that outlives it does not keep the next one from leading."""
    leader = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKS, tmp_path], stdout=subprocess.PIPE
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    try:
        leader.kill()
        leader.wait()
        with FileBackend(tmp_path) as backend, lead(backend, ttl=3600.0) as leadership:
            assert leadership.epoch == 2
    finally:
        leader.stdout.close()
        os.kill(child, signal.SIGKILL)
