"""Leaderships: who is killed, in which order, and when the next one leads."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from jrs.backends.etcd import leader
from jrs.backends.etcd._etcd3 import rpc
from jrs.backends.etcd.backend import EtcdBackend
from jrs.backends.etcd.revoke_lease import revoke
from jrs.contract.clock import Deadline, lease_time
from jrs.contract.errors import Fenced, OutcomeUnknown, Unavailable
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Create
from jrs.testing.servers import EtcdServer, Proxies
from tests.backends.etcd.support import (
    TTL,
    beat_often,
    guardian_of,
    lead,
    no_thread_is_left,
    opened,
    stream_of,
    with_option,
)
from tests.recovery.support import gone
from tests.support import BOUND, until

MASTER = """
import sys, threading
from jrs.store.opening import open_backend
backend = open_backend(sys.argv[1], cluster=sys.argv[2])
leadership = backend.campaign("victim", ttl=float(sys.argv[3]), stop=threading.Event())
print(leadership.epoch, leadership._guardian.pid, flush=True)
sys.stdin.read()
"""


class Master:
    """A process that leads."""

    def __init__(self, server: EtcdServer, cluster: str, ttl: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", MASTER, server.url(), cluster, str(ttl)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        epoch, guardian = self.process.stdout.readline().split()
        self.epoch, self.guardian = int(epoch), int(guardian)

    def kill_with_guardian(self) -> None:
        self.process.send_signal(signal.SIGSTOP)  # Or it starts another guardian.
        os.kill(self.guardian, signal.SIGKILL)
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def backend(etcd_server: EtcdServer) -> Iterator[EtcdBackend]:
    with opened(etcd_server.url()) as backend:
        yield backend


def leases(backend: EtcdBackend) -> list[int]:
    request = rpc.LeaseLeasesRequest()
    answer = backend.connection.read(
        lambda stubs: stubs.lease.LeaseLeases, request, Deadline.after(BOUND)
    )
    return [lease.ID for lease in answer.leases]


def latch(backend: EtcdBackend) -> Any:
    found = backend._range(backend.root + b"latch", Deadline.after(BOUND)).kvs
    return found[0] if found else None


# -- how a leadership ends --------------------------------------------------------------------


def test_a_killed_master_is_succeeded_long_before_its_ttl(
    etcd_server: EtcdServer, backend: EtcdBackend
) -> None:
    """Its guardian ends the lease, and goes."""
    master = Master(etcd_server, backend.cluster, TTL)
    master.kill()
    with lead(backend) as successor:
        assert successor.epoch == master.epoch + 1
    until(lambda: gone([master.guardian]), "the guardian goes")


def test_killed_along_with_its_guardian_it_is_succeeded_after_its_ttl(
    etcd_server: EtcdServer, backend: EtcdBackend
) -> None:
    """And not before: nobody ends its lease."""
    first = Master(etcd_server, backend.cluster, TTL)
    first.kill_with_guardian()
    assert latch(backend) is not None
    revoke(backend.connection, int(latch(backend).value), Deadline.after(BOUND))

    second = Master(etcd_server, backend.cluster, 2.0)
    second.kill_with_guardian()
    with lead(backend) as successor:
        assert successor.epoch == second.epoch + 1 == first.epoch + 2


def test_a_guardian_that_is_killed_is_replaced_by_the_next_heartbeat(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its successor knows what to end."""
    beat_often(monkeypatch)
    with lead(backend) as leadership:
        guardian = guardian_of(leadership)
        first = guardian.pid
        os.kill(first, signal.SIGKILL)
        until(lambda: guardian.pid != first, "it is replaced")
        assert not leadership.lost.is_set()
        assert not gone([guardian.pid])


def test_who_resigns_hands_over_at_once(
    etcd_server: EtcdServer, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is told, and does not look: it would do so after a third of the ttl."""
    waits, wait = threading.Event(), leader._await

    def waiting(*args: Any) -> None:
        waits.set()
        wait(*args)

    monkeypatch.setattr(leader, "_await", waiting)
    with opened(etcd_server.url(), backend.cluster) as other:
        first = lead(backend)
        won: list[Leadership] = []
        candidate = threading.Thread(target=lambda: won.append(lead(other)))
        candidate.start()
        assert waits.wait(BOUND)
        first.resign()
        candidate.join(BOUND)
        assert won[0].epoch == first.epoch + 1
        with pytest.raises(Fenced):
            backend.commit(Create("k", b"v"), fence=first.fence)
        won[0].resign()
    assert latch(backend) is None


def test_a_leader_that_is_cut_off_knows_before_another_leads(
    etcd_server: EtcdServer, backend: EtcdBackend
) -> None:
    with Proxies(etcd_server.endpoints) as proxies:
        cut = opened(etcd_server.url(endpoints=proxies.endpoints), backend.cluster)
        leadership = lead(cut, 3.0)
        proxies.freeze()
        with lead(backend) as successor:
            # By its clock: on a busy machine the thread that acts upon it may be late.
            assert lease_time() >= leadership.valid_until
            assert leadership.lost.wait(BOUND)
            assert successor.epoch == leadership.epoch + 1
            proxies.thaw()
            with pytest.raises(Fenced):
                cut.commit(Create("k", b"v"), fence=leadership.fence)
            leadership.resign()
            assert not successor.lost.is_set()
            assert latch(backend) is not None
        cut.close()


def test_the_end_of_a_lease_ends_the_leadership(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever hand."""
    beat_often(monkeypatch)
    with lead(backend) as leadership:
        revoke(backend.connection, int(latch(backend).value), Deadline.after(BOUND))
        assert leadership.lost.wait(BOUND)


def test_a_leader_that_can_start_no_thread_leads_on(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat needs none: at its limit of threads, a process keeps its leadership."""
    beat_often(monkeypatch)
    start = threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if threading.current_thread().name.startswith("jrs-heartbeat"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    with lead(backend) as leadership:
        began = leadership.valid_until
        until(lambda: leadership.valid_until > began, "a heartbeat is acknowledged")
        assert not leadership.lost.is_set()


def test_a_watch_for_whose_stream_no_thread_starts_opens_another(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, refused = backend.connection.stream, threading.Event()

    def streams(*args: Any) -> Any:
        if not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        return stream(*args)

    monkeypatch.setattr(backend.connection, "stream", streams)
    with backend.watch("") as watch:
        assert refused.wait(BOUND)
        until(lambda: stream_of(watch) is not None, "it opens another stream")


def test_a_handle_closed_under_a_leadership(etcd_server: EtcdServer, backend: EtcdBackend) -> None:
    """Its lease cannot be ended over that handle; the guardian has a connection of its own."""
    before = threading.enumerate()
    handle = opened(etcd_server.url(), backend.cluster)
    leadership = lead(handle)
    handle.close()
    leadership.resign()
    leadership.resign()
    handle.close()

    with lead(backend) as successor:
        assert successor.epoch == leadership.epoch + 1
    backend.close()
    no_thread_is_left(before)


def test_a_handle_closed_under_a_campaign(etcd_server: EtcdServer, backend: EtcdBackend) -> None:
    """The candidate gets an error, and leaves nothing behind."""
    handle = opened(etcd_server.url(), backend.cluster)
    with lead(backend):
        failed: list[BaseException] = []

        def campaign() -> None:
            try:
                lead(handle, 2.0)
            except Unavailable as error:
                failed.append(error)

        looked = Looks(handle)
        candidate = threading.Thread(target=campaign)
        candidate.start()
        until(lambda: looked.calls, "it looks for the latch")
        handle.close()
        candidate.join(BOUND)
        assert "closed" in str(failed[0])


@pytest.mark.parametrize("step", ["_exists", "grant", "_create_latch", "_bump"])
def test_a_candidate_hears_stop_while_no_server_answers(
    etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """At whatever step, and it leaves no latch behind."""
    handle = opened(with_option(etcd_server.url(), "timeout=600"))
    stop, came = threading.Event(), threading.Event()
    inner = getattr(leader, step)

    def hangs(*args: Any) -> Any:
        if not came.is_set():
            etcd_server.pause()
            came.set()
        return inner(*args)

    monkeypatch.setattr(leader, step, hangs)
    won: list[object] = []
    candidate = threading.Thread(
        target=lambda: won.append(handle.campaign("a", ttl=TTL, stop=stop)), daemon=True
    )
    candidate.start()
    assert came.wait(BOUND)
    stop.set()
    candidate.join(BOUND)
    etcd_server.resume()
    assert won == [None]
    with opened(etcd_server.url(), handle.cluster) as other:
        until(functools.partial(_ended, other), "the lease is ended")
        lead(other).resign()
    handle.close()


class Looks:
    def __init__(self, backend: EtcdBackend) -> None:
        self.calls = 0
        inner = backend.connection.read

        def read(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return inner(*args, **kwargs)

        backend.connection.read = read


def test_many_threads_resign_and_close(etcd_server: EtcdServer) -> None:
    """In whatever order: no error, no thread, and nothing left on the server."""
    before = threading.enumerate()
    for order in range(4):
        handle = opened(etcd_server.url())
        cluster = handle.cluster
        leadership = lead(handle)
        acts = [leadership.resign, handle.close, leadership.resign, handle.close]
        threads = [threading.Thread(target=act) for act in acts[order:] + acts[:order]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)
        with opened(etcd_server.url(), cluster) as looking:
            until(functools.partial(_ended, looking), "the lease is ended")
    no_thread_is_left(before)


def _ended(backend: EtcdBackend) -> bool:
    return latch(backend) is None


# -- tries that fail --------------------------------------------------------------------------


class Disturbed:
    """Makes the nth transaction of a handle end in an error, done or not."""

    def __init__(
        self, backend: EtcdBackend, nth: int, *, done: bool, error: type[Exception]
    ) -> None:
        self.seen = 0
        inner = backend.connection.write

        def write(method: Any, request: Any, deadline: Deadline) -> Any:
            if not isinstance(request, rpc.TxnRequest):
                return inner(method, request, deadline)
            self.seen += 1
            if self.seen != nth:
                return inner(method, request, deadline)
            if done:
                inner(method, request, deadline)
            raise error("disturbed")

        backend.connection.write = write


@pytest.mark.parametrize("done", [False, True], ids=["dropped", "done"])
@pytest.mark.parametrize("nth", [1, 2], ids=["latch", "epoch"])
def test_a_candidate_whose_outcome_is_unknown_leads_in_the_end(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch, nth: int, done: bool
) -> None:
    """It reads back what happened, and tries again if nothing did; one lease is left, its own."""
    monkeypatch.setattr(leader, "_LOOKS", TTL / 0.2)
    before = leases(backend)
    disturbed = Disturbed(backend, nth, done=done, error=OutcomeUnknown)
    with lead(backend) as leadership:
        assert disturbed.seen >= 2
        assert leadership.epoch == 1
        backend.commit(Create("k", b"v"), fence=leadership.fence)
        assert [b"%d" % one for one in leases(backend) if one not in before] == [
            latch(backend).value
        ]
    assert set(leases(backend)) <= set(before)


@pytest.mark.parametrize("nth", [1, 2], ids=["latch", "epoch"])
def test_the_lease_of_a_failed_try_is_ended(backend: EtcdBackend, nth: int) -> None:
    before = leases(backend)
    Disturbed(backend, nth, done=True, error=Unavailable)
    with pytest.raises(Unavailable, match="disturbed"):
        lead(backend)
    assert set(leases(backend)) <= set(before)
    assert latch(backend) is None
    lead(backend).resign()


def test_a_candidate_whose_lease_ended_before_its_latch_leads_with_another(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a cut that was longer than the ttl: waiting helps, so it is no refusal."""
    monkeypatch.setattr(leader, "_LOOKS", TTL / 0.2)
    ended: list[int] = []
    inner = leader._create_latch

    def create_latch(backend: EtcdBackend, latch: bytes, lease: int) -> bool:
        if not ended:
            ended.append(lease)
            revoke(backend.connection, lease, Deadline.after(BOUND))
        return inner(backend, latch, lease)

    monkeypatch.setattr(leader, "_create_latch", create_latch)
    with lead(backend) as leadership:
        assert leadership.epoch == 1
        assert latch(backend).value != b"%d" % ended[0]


def test_candidates_leave_no_leases(etcd_server: EtcdServer, backend: EtcdBackend) -> None:
    """Neither candidates that lose a race, nor those that stop."""
    before = leases(backend)
    stop = threading.Event()
    won: list[Leadership | None] = []
    handles = [opened(etcd_server.url(), backend.cluster) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda one=one: won.append(one.campaign("c", ttl=TTL, stop=stop)))
        for one in handles
    ]
    for thread in threads:
        thread.start()
    until(lambda: won, "one leads")
    stop.set()
    for thread in threads:
        thread.join(BOUND)
    leaders = [one for one in won if one is not None]
    for one in leaders:
        one.resign()
    for handle in handles:
        handle.close()
    assert set(leases(backend)) <= set(before)
