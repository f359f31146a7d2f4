"""A disk that takes its time: nobody waits longer than the deadline."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.clock import Deadline
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.operations import Create
from jrs.testing.contract import BOUND, contents
from tests.support import until


@attrs.frozen
class Disk:
    """A disk on which every sync waits while `goes` is not set."""

    goes: threading.Event = attrs.field(factory=threading.Event)

    def hang_in_a_commit(self, backend: FileBackend, pool: ThreadPoolExecutor) -> None:
        """Commit `first`, whose outcome is unknown at its deadline, since its sync hangs."""
        self.goes.clear()

        def is_unknown() -> bool:
            soon = Deadline.after(0.2)
            first = pool.submit(backend.commit, Create("first", b""), deadline=soon)
            error = first.exception(BOUND)
            # A busy machine may not begin it by then: nothing was changed.
            assert type(error) is OutcomeUnknown or "nothing was changed" in str(error)
            return type(error) is OutcomeUnknown

        until(is_unknown, "the commit is in a sync at its deadline")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk of this process; it works, and again at the end."""
    real, disk = os.fdatasync, Disk()
    disk.goes.set()

    def fdatasync(fd: int) -> None:
        assert disk.goes.wait(BOUND)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    yield disk
    disk.goes.set()


def test_a_commit_waits_for_the_disk_no_longer_than_its_deadline(
    tmp_path: Path, disk: Disk
) -> None:
    """S10: a commit that is in a sync which does not end is OutcomeUnknown at its deadline; one
    that was not begun, and a read, are Unavailable. The handle works once the disk does."""
    with ThreadPoolExecutor(3) as pool, FileBackend(tmp_path) as backend:
        disk.hang_in_a_commit(backend, pool)
        second = pool.submit(backend.commit, Create("second", b""), deadline=Deadline.after(0.2))
        with pytest.raises(Unavailable):
            second.result(BOUND / 2)
        read = pool.submit(backend.get, "first", deadline=Deadline.after(0.2))
        with pytest.raises(Unavailable):
            read.result(BOUND / 2)

        disk.goes.set()
        backend.commit(Create("third", b""))
        assert contents(backend).keys() == {"first", "third"}


def test_watches_wait_for_no_disk(tmp_path: Path, disk: Disk) -> None:
    """S10: a watch begins and ends at once while a commit hangs in its sync. What was changed
    since it began reaches it once the disk works."""
    with ThreadPoolExecutor(3) as pool, FileBackend(tmp_path) as backend:
        old = backend.watch("")
        disk.hang_in_a_commit(backend, pool)
        watch = pool.submit(backend.watch, "").result(BOUND / 2)
        pool.submit(old.close).result(BOUND / 2)
        assert watch.changes(0.0) is None

        disk.goes.set()
        assert contents(backend).keys() == {"first"}
        watch.changes(0.0)
        backend.commit(Create("second", b""))
        assert watch.changes(BOUND) == frozenset({"second"})
        watch.close()
