"""Many commits in one request: each has its own outcome, and they keep their order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from jrs.backends.etcd import backend as backend_module
from jrs.backends.etcd import connection as connection_module
from jrs.backends.etcd import transaction
from jrs.backends.etcd._etcd3 import rpc
from jrs.backends.etcd.backend import EtcdBackend
from jrs.backends.etcd.write_barrier import WriteBarrier
from jrs.backends.shared.group_commit import ACCEPTED
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    AccessDenied,
    Conflict,
    Fenced,
    JrsError,
    OutcomeUnknown,
    TooLarge,
    Unavailable,
)
from jrs.contract.operations import Check, Create, Delete, Fence, Op, Update
from jrs.testing.servers import EtcdServer
from tests.backends.etcd.support import lead, opened
from tests.support import BOUND, until


@pytest.fixture
def backend(etcd_server: EtcdServer) -> Iterator[EtcdBackend]:
    with opened(etcd_server.url()) as backend:
        yield backend


class Held:
    """Holds the requests of a backend back until told, so that commits gather behind the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, backend: EtcdBackend) -> None:
        self.requests: list[Any] = []
        self.until: list[float] = []
        self.go = threading.Event()
        inner = backend.connection.write

        def write(method: Any, request: Any, deadline: Deadline) -> Any:
            self.requests.append(request)
            self.until.append(deadline.at)
            assert self.go.wait(BOUND)
            return inner(method, request, deadline)

        monkeypatch.setattr(backend.connection, "write", write)

    def gather(self, backend: EtcdBackend, *commits: tuple[Op, ...]) -> list[Future[None]]:
        """Queue commits behind one that is being sent; return their futures."""
        first = backend.commit_async(Create("first", b"v"))
        until(lambda: self.requests, "the first is sent")
        futures = [backend.commit_async(*ops) for ops in commits]
        self.go.set()
        first.result(BOUND)
        return futures


def prepared(*ops: Op, fence: Fence | None = None) -> transaction.Commit:
    return transaction.prepare(str.encode, ops, fence, Deadline.after(BOUND))


def failed(future: Future[None]) -> BaseException | None:
    return future.exception(BOUND)


def test_the_time_of_a_request_begins_when_the_one_before_it_was_answered(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long queue of commits that depend on each other is no fault of the server: its time is not
    up as long as it answers."""
    held = Held(monkeypatch, backend)
    create, delete = Create("k", b""), Delete("k")
    futures = held.gather(backend, (create,), (delete,), (create,), (delete,))

    assert [failed(future) for future in futures] == [None] * 4
    assert len(held.until) == 5
    assert held.until == sorted({*held.until})


def test_each_commit_of_a_request_has_its_own_outcome(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails does not fail its neighbours, and names its own operation."""
    backend.commit(Create("taken", b"v"))
    leadership = lead(backend)
    stale = Fence(leadership.epoch - 1, leadership.fence.version - 1)
    held = Held(monkeypatch, backend)
    clash = (Create("b", b"v"), Create("taken", b"w"))
    futures = held.gather(backend, (Create("a", b"v"),), clash, (Create("c", b"v"),))

    assert len(held.requests) == 2
    assert len(held.requests[1].success) == 3
    assert failed(futures[0]) is failed(futures[2]) is None
    error = failed(futures[1])
    assert isinstance(error, Conflict)
    assert error.op == clash[1]
    assert [one.key for one in backend.scan("")][:2] == ["a", "c"]

    fenced = backend.commit_async(Create("d", b"v"), fence=stale)
    fine = backend.commit_async(Create("e", b"v"), fence=leadership.fence)
    assert isinstance(failed(fenced), Fenced)
    assert failed(fine) is None
    leadership.resign()


def test_what_depends_on_another_goes_into_a_later_request(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one request it would be compared with what was before, or be refused as a whole."""
    held = Held(monkeypatch, backend)
    futures = held.gather(
        backend, (Create("a", b"1"),), (Delete("a"),), (Create("a", b"2"),), (Create("b", b"1"),)
    )
    assert [failed(future) for future in futures] == [None] * 4
    assert len(held.requests) == 1 + 3
    record = backend.get("a")
    assert record is not None
    assert record.value == b"2"


def test_a_server_refuses_a_key_that_is_written_twice(backend: EtcdBackend) -> None:
    """Also in transactions within a transaction; so it is never sent."""
    commits = [prepared(Create("a", b"1")), prepared(Create("a", b"2"))]
    with pytest.raises(JrsError, match="duplicate key"):
        backend.connection.write(
            lambda stubs: stubs.kv.Txn,
            transaction.request_of(commits, WriteBarrier(backend.connection, backend.root).check()),
            Deadline.after(BOUND),
        )
    assert list(transaction.in_requests(commits)) == [[commits[0]], [commits[1]]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((Create("a", b""),), (Check("a", 1),)),
        ((Check("a", 1),), (Update("a", b"", 1),)),
        ((Delete("a"),), (Create("b", b""), Create("a", b""))),
    ],
)
def test_commits_that_touch_the_same_key_are_apart(
    first: tuple[Op, ...], second: tuple[Op, ...]
) -> None:
    pair = [prepared(*first), prepared(*second)]
    assert [len(request) for request in transaction.in_requests(pair)] == [1, 1]


def test_commits_that_only_check_the_same_key_are_together() -> None:
    """As do all commits of a leader, with its fence."""
    fence = Fence(1, 10)
    commits = [prepared(Create(f"k{index}", b""), fence=fence) for index in range(3)]
    assert [len(request) for request in transaction.in_requests(commits)] == [3]


def test_order_is_kept(backend: EtcdBackend) -> None:
    """Each is made at a later revision than the one before, or at the same."""
    futures = [backend.commit_async(Create(f"{index:04}", b"v")) for index in range(500)]
    for future in futures:
        future.result(BOUND)
    versions = [record.version for record in backend.scan("")]
    assert versions == sorted(versions)


def test_callers_with_little_time_share_a_request(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a timeout that is shorter than the longest write, each caller has little time."""
    monkeypatch.setattr(backend_module, "WRITE", 2 * BOUND)
    held = Held(monkeypatch, backend)
    with ThreadPoolExecutor(20) as pool:
        first = backend.commit_async(Create("first", b""))
        until(lambda: held.requests, "the first is sent")
        rest = [pool.submit(backend.commit, Create(f"k{index}", b"")) for index in range(20)]
        until(lambda: len(backend._group._queue) == 20, "the others wait")
        held.go.set()
        assert [failed(future) for future in (first, *rest)] == [None] * 21
    assert len(held.requests) == 2


# -- errors of a request ----------------------------------------------------------------------


class Server:
    """Answers as told: an error, or success for each commit of a request."""

    def __init__(self, *errors: JrsError | None) -> None:
        self.errors = list(errors)
        self.sent: list[int] = []

    def __call__(self, request: Any, first: transaction.Commit) -> Any:
        nested = len([op for op in request.success if op.HasField("request_txn")])
        self.sent.append(nested or 1)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        won = rpc.TxnResponse(succeeded=True)
        inner = [rpc.ResponseOp(response_txn=won)] * nested
        return rpc.TxnResponse(succeeded=True, responses=inner)


def batch(count: int) -> list[transaction.Commit]:
    return [prepared(Create(f"k{index}", b"")) for index in range(count)]


def test_a_refused_request_is_sent_one_by_one() -> None:
    """So the commit that caused it is refused, and no other."""
    refused = TooLarge("of the batch"), None, AccessDenied("of one")
    server = Server(*refused)
    verdicts = transaction.send(batch(3), rpc.Compare(key=b"barrier"), server)
    assert server.sent == [3, 1, 1, 1]
    assert verdicts == [ACCEPTED, refused[2], ACCEPTED]


@pytest.mark.parametrize("error", [OutcomeUnknown("cut off"), Unavailable("down")])
def test_nothing_is_sent_behind_what_failed(error: JrsError) -> None:
    """It might still be carried out, and then they would have changed places."""
    server = Server(None, error)
    commits = batch(130)
    verdicts = transaction.send(commits, rpc.Compare(key=b"barrier"), server)
    assert server.sent == [64, 64]
    assert verdicts[:64] == [ACCEPTED] * 64
    assert verdicts[64:128] == [error] * 64
    assert [type(verdict) for verdict in verdicts[128:]] == [Unavailable] * 2


# -- deadlines --------------------------------------------------------------------------------


def test_a_lone_caller_s_own_deadline_holds(
    etcd_server: EtcdServer, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its thread writes for other callers."""
    monkeypatch.setattr(connection_module, "WRITE", 3600.0)
    backend.get("k")
    etcd_server.pause()
    # On a busy machine it may pass before the commit is sent.
    with pytest.raises((OutcomeUnknown, Unavailable)):
        backend.commit(Create("k", b"v"), deadline=Deadline.after(0.5))
    etcd_server.resume()


def test_a_deadline_that_has_passed_sends_nothing(backend: EtcdBackend) -> None:
    with pytest.raises(Unavailable, match="nothing was changed"):
        backend.commit(Create("k", b"v"), deadline=Deadline.after(0.0))
    assert backend.get("k") is None


def test_a_long_queue_takes_no_time_of_a_commit_without_a_caller() -> None:
    """Behind more commits than a slow server takes in the timeout, the others failed."""
    deadline = Deadline(10.0)
    alone = transaction.prepare(str.encode, (Create("k", b""),), None, deadline, allowed=5.0)
    assert [alone.until(answered).at for answered in (3.0, 20.0)] == [10.0, 25.0]
    assert transaction.prepare(str.encode, (), None, deadline).until(20.0) == deadline


def test_a_commit_that_nobody_waits_for_has_a_deadline(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts from the call on: a commit that waited behind others for too long is not sent."""
    held = Held(monkeypatch, backend)
    first = backend.commit_async(Create("first", b"v"))
    until(lambda: held.requests, "the first is sent")
    backend.timeout = 0.0
    late = [backend.commit_async(Create(f"k{index}", b"v")) for index in range(2)]
    backend.timeout = BOUND
    held.go.set()
    assert failed(first) is None
    for future in late:
        assert isinstance(failed(future), Unavailable)
    assert [record.key for record in backend.scan("")] == ["first"]
