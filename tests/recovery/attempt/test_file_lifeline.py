"""The lifeline of the file backend: as on a server, with the lock in place of a guardian."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.backends.file.leader import FileLeadership
from jrs.contract.clock import lease_time
from jrs.contract.leadership import Leadership
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.testing.masters import Masters
from jrs.testing.processes import command_lines
from tests.recovery.support import CLUSTER, gone, job, noted, spec
from tests.support import BOUND, parent_of, until
from tests.unshared import as_root

__all__ = ["as_root"]

LATER = ["unshare", "--time", "--boottime", "100000", "--fork", "--kill-child"]
"""A host whose clocks differ, since it has slept."""


def is_free(lock: Path) -> bool:
    """Return whether nobody holds the lock."""
    with lock.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.fixture
def leadership(tmp_path: Path) -> Iterator[Leadership]:
    """A leadership on a folder whose ttl is long."""
    with open_backend((tmp_path / "store").as_uri(), cluster=CLUSTER) as backend:
        won = backend.campaign("m1", ttl=600.0, stop=threading.Event())
        assert won is not None
        with won:
            yield won


def test_a_leader_on_a_folder_is_over_when_its_host_has_slept(
    leadership: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S8: the monotonic clock does not move meanwhile."""
    now = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: now(clock) + 3600.0)

    assert leadership.lost.wait(BOUND)


def test_a_leader_on_a_folder_has_a_lifeline(leadership: Leadership) -> None:
    """B7: the moment at which it is over, before others may lead; and its lock."""
    assert isinstance(leadership, FileLeadership)
    assert leadership.lifeline is not None
    (moment,) = struct.unpack("d", os.pread(leadership.lifeline.until, 8, 0))

    assert 0 < moment - lease_time() < 600.0
    assert os.readlink(f"/proc/self/fd/{leadership.lifeline.held}").endswith(".lock")


def test_the_lock_is_held_until_the_attempt_is_dead(tmp_path: Path) -> None:
    """B10: no master leads within the ttl of a leader that died while its attempt may live; the
    next leader finds the attempt dead."""
    url, pids = (tmp_path / "store").as_uri(), tmp_path / "pids"
    with Masters(url, cluster=CLUSTER, ttl=600.0) as masters:
        old = masters.start("m1")
        JobCatalog(masters.backend).submit(spec("job", job("hang"), arguments={"pids": str(pids)}))
        [attempt] = noted(pids, 1)
        [lock] = tmp_path.rglob("*.lock")
        masters.start("m2")
        watchdog = parent_of(attempt)
        os.kill(watchdog, signal.SIGSTOP)
        old.kill()

        assert not gone([attempt])
        assert not is_free(lock)

        os.kill(watchdog, signal.SIGCONT)
        masters.event(lambda event: (event.kind, event.master) == ("elected", "m2"), "m2 leads")

        assert gone([attempt])


@pytest.mark.usefixtures("as_root")
def test_master_and_watchdog_go_by_the_same_clock(tmp_path: Path) -> None:
    """S8: where that clock and the monotonic one differ, an attempt lives as long as its master
    moves the moment, and ends when it hangs."""
    url, pids = (tmp_path / "store").as_uri(), tmp_path / "pids"
    with Masters(url, cluster=CLUSTER, ttl=4.0) as masters:
        masters.start("m1", prefix=LATER)
        JobCatalog(masters.backend).submit(spec("job", job("hang"), arguments={"pids": str(pids)}))
        running = noted(pids, 1)

        assert not gone(running)

        for pid, line in command_lines().items():
            words = line.split()
            if url in words and "master" in words and "unshare" not in words:
                os.kill(pid, signal.SIGSTOP)
        until(lambda: gone(running), "its watchdog ends it")
