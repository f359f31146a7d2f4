"""Servers that hang, are killed, restart or are one of several: typed errors, and no spin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from jrs.backends.etcd import connection as connection_module
from jrs.backends.etcd import watch as watch_module
from jrs.backends.etcd._etcd3 import grpc, rpc
from jrs.backends.etcd.backend import EtcdBackend
from jrs.backends.etcd.connection import Connection
from jrs.backends.etcd.watch import EtcdWatch
from jrs.contract.clock import Deadline
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.operations import Create
from jrs.testing.servers import EtcdServer, Proxies
from tests.backends.etcd.support import Counted, lead, opened, stream_of
from tests.support import BOUND, until


@pytest.fixture
def backend(etcd_server: EtcdServer) -> Iterator[EtcdBackend]:
    with opened(etcd_server.url()) as backend:
        yield backend
        etcd_server.heal()


def test_without_a_timeout_grpc_waits_for_a_server_that_hangs(
    etcd_server: EtcdServer, backend: EtcdBackend
) -> None:
    """It would wait forever; with one it says so."""
    stubs = backend.connection._members[0]
    etcd_server.pause()
    waiting = stubs.kv.Range.future(rpc.RangeRequest(key=b"k"))
    with pytest.raises(grpc.RpcError):
        stubs.kv.Range(rpc.RangeRequest(key=b"k"), timeout=0.5)
    assert not waiting.done()
    etcd_server.resume()
    assert waiting.result(BOUND).header.revision > 0


def test_a_server_that_hangs(
    etcd_server: EtcdServer, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write is `OutcomeUnknown`, the next one is not even sent, and reads are `Unavailable`."""
    backend.commit(Create("k", b"v"))
    etcd_server.pause()
    with monkeypatch.context() as patch, pytest.raises(OutcomeUnknown):
        patch.setattr(connection_module, "WRITE", 0.5)
        backend.commit(Create("a", b"v"))
    with pytest.raises(Unavailable, match="nothing was changed"):
        backend.commit(Create("b", b"v"), deadline=Deadline.after(0.5))
    for read in (
        lambda: backend.get("k", deadline=Deadline.after(0.5)),
        lambda: backend.get_many(["k"], deadline=Deadline.after(0.5)),
        lambda: list(backend.scan("", deadline=Deadline.after(0.5))),
    ):
        with pytest.raises(Unavailable):
            read()
    etcd_server.resume()

    assert backend.get("k") is not None
    assert backend.get("b") is None
    backend.commit(Create("c", b"v"))


def test_a_write_is_given_up_before_a_long_deadline(
    etcd_server: EtcdServer, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an election it was dropped, and nobody is going to answer."""
    monkeypatch.setattr(connection_module, "WRITE", 0.5)
    backend.get("k")
    etcd_server.pause()
    deadline = Deadline.after(3600.0)
    with pytest.raises(OutcomeUnknown):
        backend.commit(Create("k", b"v"), deadline=deadline)
    assert not deadline.expired


def test_a_server_that_was_killed(
    etcd_server: EtcdServer, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads are tried until the deadline, with pauses between them: they do not spin."""
    evaluated = Counted(monkeypatch, connection_module, "translate_error")
    now = 0.0

    def pause(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return False

    etcd_server.kill()
    with monkeypatch.context() as patch, pytest.raises(Unavailable):
        patch.setattr(backend.connection._over, "wait", pause)
        backend.get("k", deadline=Deadline(2.0, lambda: now))
    assert 2 <= evaluated.calls <= 12

    with pytest.raises(Unavailable, match="nothing was changed"):
        backend.commit(Create("k", b"v"), deadline=Deadline.after(0.5))


def test_the_outcome_of_a_write_whose_answer_is_lost_is_unknown(etcd_server: EtcdServer) -> None:
    """It was carried out, here; the same words may mean the opposite."""
    with Proxies(etcd_server.endpoints) as proxies:
        url = etcd_server.url(endpoints=proxies.endpoints)
        with opened(url, "lost") as backend, opened(etcd_server.url(), "lost") as witness:
            backend.get("k")
            proxies.freeze(requests=False)
            unknown = backend.commit_async(Create("k", b"v"))
            until(lambda: witness.get("k") is not None, "the server has done it")
            proxies.cut()
            with pytest.raises(OutcomeUnknown, match="read it back"):
                unknown.result(BOUND)
            proxies.restore()
            assert backend.get("k") is not None


def test_everything_continues_after_a_restart(
    etcd_server: EtcdServer, backend: EtcdBackend
) -> None:
    """Reads, writes, a leadership, and a watch, which tells of what happened after it, too."""
    with backend.watch("") as watch, lead(backend) as leadership:
        until(lambda: stream_of(watch) is not None, "it listens")
        before = stream_of(watch)
        etcd_server.kill()
        etcd_server.start()
        backend.commit(Create("k", b"v"), fence=leadership.fence)
        assert backend.get("k") is not None
        until(lambda: stream_of(watch) not in (before, None), "it listens again")
        while watch.wait(0.0):  # What it had to tell of the restart.
            pass
        backend.commit(Create("l", b"v"), fence=leadership.fence)
        assert watch.wait(BOUND)
        assert not leadership.lost.is_set()


def test_a_watch_does_not_spin_while_the_server_is_down(
    etcd_server: EtcdServer, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pauses for longer and longer. The client's own one spins, for half a core."""
    monkeypatch.setattr(watch_module, "_PAUSES", (0.01, 0.16))
    heard = Counted(monkeypatch, EtcdWatch, "_hear")
    with backend.watch("") as watch:
        until(lambda: heard.calls, "the server has answered that it listens")
        assert isinstance(watch, EtcdWatch)
        monkeypatch.setattr(watch_module, "ATTEMPT", 0.1)
        sleep, pauses = watch._over.wait, list[float]()

        def pause(timeout: float | None = None) -> bool:
            assert timeout is not None
            pauses.append(timeout)
            return sleep(timeout)

        watch._over.wait = pause
        etcd_server.kill()
        until(lambda: len(pauses) >= 7, "it tries to listen again")

    assert pauses[:7] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.16, 0.16]


@pytest.mark.parametrize("hurt", ["kill", "pause"])
def test_two_of_three_members_are_enough(
    etcd_ensemble: EtcdServer, monkeypatch: pytest.MonkeyPatch, hurt: str
) -> None:
    """Whichever is gone or hangs, also while a handle is opened; it gets one write at most."""
    url = etcd_ensemble.url()
    with opened(url, "three") as backend:
        for index in range(3):
            getattr(etcd_ensemble[index], hurt)()
            etcd_ensemble.leader()
            sent = Counted(monkeypatch, backend.connection._members[index].kv, "Txn")
            for number in range(6):
                _commit(backend, f"{hurt}/{index}/{number}")
            assert sent.calls <= 1
            with opened(url, "three", create=False) as late:
                assert late.get(f"{hurt}/{index}/5") is not None
            etcd_ensemble.heal()
        for key in list(backend.scan("")):
            assert key.value == b"v"


def _commit(backend: EtcdBackend, key: str) -> None:
    """Write a key; try again where the outcome is unknown, as after an election."""
    while backend.get(key) is None:
        with suppress(OutcomeUnknown):
            backend.commit(Create(key, b"v"))


def test_without_a_majority_a_write_is_not_even_sent(etcd_ensemble: EtcdServer) -> None:
    """A member that knows no leader says so, instead of dropping what it is given."""
    with opened(etcd_ensemble.url()) as backend:
        backend.commit(Create("k", b"v"))
        survivor = etcd_ensemble.leader()
        for index, member in enumerate(etcd_ensemble):
            if index != survivor:
                member.kill()
        until(lambda: etcd_ensemble[survivor].running and _leaderless(backend), "it is noticed")
        backend.timeout = 2.0
        # The one that is left was in order when it was last heard of.
        backend.connection._current = survivor
        backend.connection._members[survivor].answers = True
        with pytest.raises(Unavailable, match="nothing was changed"):
            backend.commit(Create("l", b"v"))
        with pytest.raises(Unavailable):
            backend.get("k")
        etcd_ensemble.heal()
        assert backend.get("l", deadline=Deadline.after(BOUND)) is None


def _leaderless(backend: EtcdBackend) -> bool:
    answers = backend.connection.each(
        lambda stubs: stubs.maintenance.Status, rpc.StatusRequest(), 1.0
    )
    return all(isinstance(answer, Exception) or not answer.leader for answer in answers)


def test_a_member_that_failed_is_left_for_the_next(
    etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not asked again by every call."""
    with Proxies([etcd_server[0].endpoint] * 2) as proxies:
        with opened(etcd_server.url(endpoints=proxies.endpoints)) as backend:
            connection: Connection = backend.connection
            gone = connection._current
            proxies[gone].cut()
            evaluated = Counted(monkeypatch, connection_module, "translate_error")
            for _ in range(10):
                backend.get("k")
            assert connection._current != gone
            assert evaluated.calls <= 1
