"""An unknown outcome that was read back stays what it was read to be."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jrs.backends.etcd.backend import EtcdBackend
from jrs.contract.clock import Deadline
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.operations import Create
from jrs.testing.contract import BOUND
from jrs.testing.servers import EtcdServer
from tests.backends.etcd.support import opened
from tests.support import until


@pytest.fixture
def backend(etcd_server: EtcdServer) -> Iterator[EtcdBackend]:
    with opened(etcd_server.url()) as backend:
        yield backend


@pytest.fixture
def lose(backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch) -> Callable[[Create], Any]:
    """Commit, hold the request back, and return it: it is on its way as far as anyone knows."""

    def commit(op: Create) -> Any:
        held = []

        def hold(method: Any, request: Any, deadline: Deadline) -> None:
            held.append(request)
            raise OutcomeUnknown("held back")

        with monkeypatch.context() as patch:
            patch.setattr(backend.connection, "write", hold)
            with pytest.raises(OutcomeUnknown):
                backend.commit(op)
        [request] = held
        return request

    return commit


def arrive(backend: EtcdBackend, request: Any) -> bool:
    """Let a request be carried out; return whether it changed anything."""
    send = backend.connection.write
    return bool(send(lambda stubs: stubs.kv.Txn, request, Deadline.after(BOUND)).succeeded)


READS: dict[str, Callable[[EtcdBackend], list[Any]]] = {
    "get": lambda backend: [backend.get("k")],
    "get many": lambda backend: backend.get_many(["k"]),
    "scan": lambda backend: list(backend.scan("")),
}


@pytest.mark.parametrize("read", READS)
def test_what_was_read_to_be_absent_does_not_come_later(
    backend: EtcdBackend, lose: Callable[[Create], Any], read: str
) -> None:
    request = lose(Create("k", b"late"))
    assert not any(READS[read](backend))

    assert not arrive(backend, request)
    assert backend.get("k") is None
    backend.commit(Create("k", b"again"))


def test_nor_does_it_come_behind_the_next_commit(
    backend: EtcdBackend, lose: Callable[[Create], Any]
) -> None:
    """The handle's commits keep their order, also for a caller that does not read in between."""
    request = lose(Create("k", b"late"))
    backend.commit(Create("other", b""))

    assert not arrive(backend, request)
    assert backend.get("k") is None


def test_what_came_in_time_is_there(backend: EtcdBackend, lose: Callable[[Create], Any]) -> None:
    request = lose(Create("k", b"in time"))
    assert arrive(backend, request)

    record = backend.get("k")
    assert record is not None
    assert record.value == b"in time"


def test_nothing_is_read_while_it_is_not_certain(
    backend: EtcdBackend, lose: Callable[[Create], Any], etcd_server: EtcdServer
) -> None:
    """With the server gone the barrier cannot be closed: no answer, not one that changes."""
    request = lose(Create("k", b"late"))
    etcd_server.pause()
    with pytest.raises(Unavailable):
        backend.get("k", deadline=Deadline.after(1.0))
    etcd_server[0].resume()
    etcd_server.heal()

    assert backend.get("k") is None
    assert not arrive(backend, request)


def test_a_caller_waits_for_another_one_s_barrier_until_its_own_deadline(
    backend: EtcdBackend, lose: Callable[[Create], Any]
) -> None:
    """The other one closes it for a call that has longer."""
    lose(Create("k", b"late"))
    with ThreadPoolExecutor(1) as pool, backend._barrier._turn:
        hasty = pool.submit(backend.get, "k", deadline=Deadline.after(0.1))
        assert isinstance(hasty.exception(BOUND), Unavailable)

    assert backend.get("k") is None


def test_who_leaves_while_his_commit_is_being_sent_reads_for_good(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another caller sends it, and waits longer: it does not take effect after the read."""
    send, calls, go = backend.connection.write, [], threading.Semaphore(0)

    def slow(method: Any, request: Any, deadline: Deadline) -> Any:
        calls.append(request)
        assert go.acquire(timeout=BOUND)
        return send(method, request, deadline)

    monkeypatch.setattr(backend.connection, "write", slow)
    group = backend._group
    with ThreadPoolExecutor(3) as pool:
        pool.submit(backend.commit, Create("first", b""))
        until(lambda: calls, "the first is being sent")
        pool.submit(backend.commit, Create("second", b""))
        until(lambda: len(group._queue) == 1, "the second waits")
        hasty = pool.submit(backend.commit, Create("k", b"late"), deadline=Deadline.after(3.0))
        until(lambda: len(group._queue) == 2, "the third waits")
        go.release()
        until(lambda: len(calls) == 2, "the second sends for the third")
        with pytest.raises(OutcomeUnknown):
            hasty.result(BOUND)
        assert backend.get("k") is None
        go.release()

    assert backend.get("k") is None


@pytest.mark.parametrize("moment", ["close_behind", "check"])
def test_who_leaves_before_his_commit_is_sent_reads_for_good(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Another caller has taken it, and is about to close a barrier or to look which one is open: it
    is not sent through the barrier that is opened for what comes next."""
    barrier, reached, go = backend._barrier, threading.Event(), threading.Event()
    real, group = getattr(barrier, moment), backend._group
    send, calls = backend.connection.write, []

    def slow(method: Any, request: Any, deadline: Deadline) -> Any:
        calls.append(request)
        until(lambda: len(group._queue) == 2 or len(calls) > 1, "the others wait")
        return send(method, request, deadline)

    def held_up(*args: Any) -> Any:
        if not calls or len(group._queue) or reached.is_set():
            return real(*args)
        reached.set()
        assert go.wait(BOUND)
        return real(*args)

    monkeypatch.setattr(backend.connection, "write", slow)
    monkeypatch.setattr(barrier, moment, held_up)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(backend.commit, Create("first", b""))
        until(lambda: calls, "the first is being sent")
        pool.submit(backend.commit, Create("second", b""))
        until(lambda: len(group._queue) == 1, "the second waits")
        hasty = pool.submit(backend.commit, Create("k", b"late"), deadline=Deadline.after(3.0))
        assert reached.wait(BOUND)
        with pytest.raises(Unavailable, match="nothing was changed"):
            hasty.result(BOUND)
        assert backend.get("k") is None
        go.set()

    assert backend.get("k") is None


def test_no_interrupt_comes_between_two_gates(
    backend: EtcdBackend, lose: Callable[[Create], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6: a handle that was interrupted there used its closed barrier for good: it never wrote."""
    barrier = backend._barrier
    new = barrier._new

    def interrupted() -> bytes:
        # What a signal handler does that raises here; it runs in the main thread alone.
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return new()

    lose(Create("k", b"late"))
    with monkeypatch.context() as patch:
        patch.setattr(barrier, "_new", interrupted)
        with contextlib.suppress(KeyboardInterrupt):
            backend.get("k")

    backend.commit(Create("k", b"again"))


def test_an_interrupted_caller_leaves_nothing_on_its_way(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6: Ctrl-C ends the waiting, not what was sent; what is read afterwards holds."""
    held, came, go = [], threading.Event(), threading.Event()

    def interrupt(number: int, frame: object) -> None:
        if not came.is_set():
            came.set()
            raise KeyboardInterrupt

    def interrupted(method: Any, request: Any, deadline: Deadline) -> None:
        held.append(request)
        # A signal that comes just before the wait begins is handled only after it: send again.
        while not came.wait(0.05):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert go.wait(BOUND)
        raise OutcomeUnknown("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(backend.connection, "write", interrupted)
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                backend.commit(Create("k", b"late"))
        finally:
            signal.signal(signal.SIGINT, before)
        go.set()
    assert backend.get("k") is None

    assert not arrive(backend, held[0])
