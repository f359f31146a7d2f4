"""A disk that takes its time: nobody waits longer than the deadline."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.clock import Deadline
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.operations import Create
from jrs.testing.contract import BOUND, contents


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Every sync waits while the event is not set; it is set at the end."""
    real, goes = os.fdatasync, threading.Event()
    goes.set()

    def fdatasync(fd: int) -> None:
        assert goes.wait(BOUND)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    yield goes
    goes.set()


def test_a_commit_waits_for_the_disk_no_longer_than_its_deadline(
    tmp_path: Path, hung: threading.Event
) -> None:
    """S10: a commit that is in a sync which does not end is OutcomeUnknown at its deadline; one
    that was not begun, and a read, are Unavailable. The handle works once the disk does."""
    with ThreadPoolExecutor(3) as pool, FileBackend(tmp_path) as backend:
        hung.clear()
        soon = Deadline.after(0.2)
        first = pool.submit(backend.commit, Create("first", b""), deadline=soon)
        with pytest.raises(OutcomeUnknown):
            first.result(BOUND / 2)
        second = pool.submit(backend.commit, Create("second", b""), deadline=Deadline.after(0.2))
        with pytest.raises(Unavailable):
            second.result(BOUND / 2)
        read = pool.submit(backend.get, "first", deadline=Deadline.after(0.2))
        with pytest.raises(Unavailable):
            read.result(BOUND / 2)

        hung.set()
        backend.commit(Create("third", b""))
        assert contents(backend).keys() == {"first", "third"}


def test_watches_wait_for_no_disk(tmp_path: Path, hung: threading.Event) -> None:
    """S10: a watch begins and ends at once while a commit hangs in its sync. What was changed
    since it began reaches it once the disk works."""
    with ThreadPoolExecutor(3) as pool, FileBackend(tmp_path) as backend:
        old = backend.watch("")
        hung.clear()
        first = pool.submit(backend.commit, Create("first", b""), deadline=Deadline.after(0.2))
        with pytest.raises(OutcomeUnknown):
            first.result(BOUND / 2)
        watch = pool.submit(backend.watch, "").result(BOUND / 2)
        pool.submit(old.close).result(BOUND / 2)
        assert watch.changes(0.0) is None

        hung.set()
        assert contents(backend).keys() == {"first"}
        watch.changes(0.0)
        backend.commit(Create("second", b""))
        assert watch.changes(BOUND) == frozenset({"second"})
        watch.close()
