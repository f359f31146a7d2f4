"""The load of lists on a backend without servers, and on one that breaks its promises."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from jrs.backends.etcd.backend import EtcdBackend
from jrs.backends.file.backend import FileBackend
from jrs.backends.memory import MemoryBackend, Space
from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, Unavailable
from jrs.contract.operations import Absent, Check, Create, Delete, Fence, Op, Update
from jrs.testing.chaos import appending
from jrs.testing.chaos.appending import append_to_lists
from jrs.testing.chaos.checking.list_append import list_append
from jrs.testing.chaos.checking.verdict import Run
from jrs.testing.chaos.recorded import Kind, Verb, events_of
from jrs.testing.chaos.recorder import RecordedBackend, end_recording, recording_in
from tests.support import BOUND

CLIENTS = 6
WRITES = (Create, Update)
SECONDS = 1.5


class Slow(Space):
    """It takes its time, so that clients meet."""

    def commit(self, ops: tuple[Op, ...], fence: Fence | None) -> None:
        time.sleep(0.002)  # The commit is on its way.
        super().commit(ops, fence)


class LosesUpdates(Slow):
    """Updates do not look at the version."""

    def _check(self, op: Op) -> None:
        if not isinstance(op, Update):
            super()._check(op)


class SkewsWrites(Slow):
    """Conditions without a write are not looked at."""

    def _check(self, op: Op) -> None:
        if not isinstance(op, (Absent, Check)):
            super()._check(op)


class WritesOneByOne(Slow):
    """The parts of a commit are written one behind the other, and others see them so."""

    def commit(self, ops: tuple[Op, ...], fence: Fence | None) -> None:
        for op in ops:
            super().commit((op,), fence)


class KeepsRefused(Slow):
    """A commit that is refused may have been written."""

    def commit(self, ops: tuple[Op, ...], fence: Fence | None) -> None:
        super().commit(ops, fence)
        if self.version % 10 == 0:
            raise Conflict(Delete(ops[0].key), "refused behind the write")


class SharesRequests(MemoryBackend):
    """Two commits on their way are both checked before either is written, as one request of both
    would be."""

    def __init__(self) -> None:
        super().__init__(Space())
        self._sent: list[tuple[tuple[Op, ...], Future[None]]] = []

    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        future = Future[None]()
        self._sent.append((ops, future))
        if len(self._sent) == 2:
            sent, self._sent = self._sent, []
            for some, _ in sent:
                self.space.commit(tuple(map(_condition, some)), None)
            for some, its in sent:
                self.space.commit(tuple(op for op in some if isinstance(op, WRITES)), None)
                its.set_result(None)
        return future


def _condition(op: Op) -> Op:
    """Return what has to be true for an operation."""
    if isinstance(op, Create):
        return Absent(op.key)
    return Check(op.key, op.version) if isinstance(op, Update) and op.version else op


def run_on(inner: Backend, folder: Path, count: int = CLIENTS, seconds: float = SECONDS) -> Run:
    """Let clients append to lists of a backend; return what they have recorded."""
    with inner:
        backend = RecordedBackend(inner, recording_in(folder))
        until = time.monotonic() + seconds
        clients = [
            threading.Thread(
                target=append_to_lists, args=(backend, until, f"c{number}"), daemon=True
            )
            for number in range(count)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join(BOUND)
            assert not client.is_alive(), "a client does not end"
        for _ in backend.scan("lists/"):
            pass
    end_recording(folder)
    return Run(events_of(folder))


def test_memory(tmp_path: Path) -> None:
    run = run_on(MemoryBackend(Slow()), tmp_path)
    commits = [call for call in run.calls if call.f is Verb.COMMIT]

    assert list_append.violations(run) == []
    assert {call.type for call in commits} == {Kind.OK, Kind.FAIL}
    assert sum(call.type is Kind.OK for call in commits) > 50


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (LosesUpdates, "lost update"),
        (SkewsWrites, "no order fits: G"),
        (WritesOneByOne, "no order fits: G"),
        (KeepsRefused, "G1a"),
    ],
)
def test_a_backend_that_breaks_its_promise(broken: type[Space], words: str, tmp_path: Path) -> None:
    run = run_on(MemoryBackend(broken()), tmp_path)
    found = [one.message for one in list_append.violations(run)]

    assert any(message.startswith(words) for message in found), found[:3]


def test_commits_that_share_a_request(tmp_path: Path) -> None:
    """Each appends to the list that the other one requires to be unchanged. One client shows it: no
    two have to meet."""
    run = run_on(SharesRequests(), tmp_path, count=1, seconds=0.5)
    found = [one.message for one in list_append.violations(run)]

    assert found[0].startswith("no order fits: G2"), found[:3]


def test_a_client_that_begins_late(tmp_path: Path) -> None:
    """Its time is over when it begins, as on a busy machine; it has appended all the same."""
    space = Space()
    run_on(MemoryBackend(space), tmp_path, seconds=0)
    with MemoryBackend(space) as backend:
        elements = b" ".join(record.value for record in backend.scan("lists/")).split()

    assert len({element.split(b".")[0] for element in elements}) == CLIENTS


class Away(Space):
    """It can be read, and refuses every commit."""

    def commit(self, ops: tuple[Op, ...], fence: Fence | None) -> None:
        raise Unavailable("the disk is full")


def test_a_client_that_can_append_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the reason, and neither hangs nor seems to have done its work."""
    monkeypatch.setattr(appending, "_FIRST", 0.5)
    with (
        MemoryBackend(Away()) as backend,
        pytest.raises(TimeoutError, match=r"c1 could append nothing; .* the disk is full"),
    ):
        append_to_lists(backend, 0, "c1")


@pytest.mark.parametrize("kind", [MemoryBackend, FileBackend, EtcdBackend, ZooKeeperBackend])
def test_the_recorder_asks_the_backend(kind: type[Backend]) -> None:
    """Whatever a backend does in its own way, the recorder asks it for: else a chaos run would not
    test it. `overwrite` is recorded as the read and the commit that it is made of."""
    its_own = vars(kind).keys() & vars(Backend).keys() - {"overwrite", "__doc__", "__module__"}

    assert its_own <= vars(RecordedBackend).keys()
