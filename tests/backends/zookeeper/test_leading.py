"""Leading: the latch, the session behind it, and the guardian that ends it for the dead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.remote.guardian import Guardian
from jrs.backends.shared.lease import LeadershipLease
from jrs.backends.zookeeper import close_session, leader
from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.backends.zookeeper.protocol import codec
from jrs.backends.zookeeper.protocol.access import Access
from jrs.backends.zookeeper.protocol.connection import Connection
from jrs.backends.zookeeper.protocol.multi_read import read
from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced, InvalidInput, OutcomeUnknown, Unavailable
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Create, Update
from jrs.testing.contract import lead, present
from jrs.testing.processes import guardians
from jrs.testing.servers import Proxy, ZooKeeperServer
from jrs.testing.worker import Worker
from tests.backends.zookeeper.support import campaign_of, end_leader, has_sent, latch_of, session_of
from tests.support import BOUND, until

Open = Callable[..., ZooKeeperBackend]
TTL = 3600.0
"""Of leaderships that no test waits out: a candidate looks by itself only after a third of it."""


def begin(backend: ZooKeeperBackend, **options: Any) -> tuple[threading.Thread, list[Leadership]]:
    """Campaign in a thread; return it and where the leadership will be."""
    won: list[Leadership] = []
    thread = threading.Thread(target=lambda: won.append(lead(backend, **options)))
    thread.start()
    return thread, won


def test_candidates_lead_in_their_order(handle: Open) -> None:
    """Who came first leads first, and each resignation wakes the next one at once."""
    backend = handle()
    first = lead(backend, ttl=TTL)
    waiting = []

    def in_latch(candidates: int) -> bool:
        return len(latch_of(backend)) == candidates

    for number in range(3):
        waiting.append(begin(handle(), candidate=f"c{number}", ttl=TTL))
        until(partial(in_latch, number + 2), "a place in the latch")
    leads = first
    for thread, won in waiting:
        leads.resign()
        thread.join(BOUND)
        assert won[0].epoch == leads.epoch + 1
        leads = won[0]
    leads.resign()

    until(lambda: latch_of(backend) == [], "an empty latch")


@pytest.mark.parametrize("whose", ["leader", "candidate"])
def test_the_dead_leave_nothing_behind(handle: Open, whose: str) -> None:
    """The guardian ends the session of a killed process, long before the ttl."""
    backend = handle()
    with Worker(backend.url, backend.cluster) as process:
        if whose == "leader":
            process.lead("doomed", TTL)
        else:
            first = lead(backend, ttl=TTL)
            process.send("lead", "doomed", TTL)
            until(lambda: len(latch_of(backend)) == 2, "the candidate")
        process.kill()
        until(lambda: len(latch_of(backend)) == (whose == "candidate"), "the guardian's work")
    if whose == "candidate":
        first.resign()
    with lead(backend, ttl=TTL):
        pass


def test_without_a_guardian_the_ttl_decides(handle: Open) -> None:
    """A master whose guardian died with it is replaced when its session has run out."""
    backend = handle()
    with Worker(backend.url, backend.cluster) as process:
        process.lead("doomed", 1.0)
        # Both at once, or its next heartbeat starts another guardian.
        both = "server.leadership._guardian._process.kill(); os.kill(os.getpid(), signal.SIGKILL)"
        process.send("run", both)
        process.wait()
        with lead(backend) as leadership:
            assert leadership.epoch == 2


def test_the_latch_is_checked_where_the_epoch_is_bumped(handle: Open) -> None:
    """A candidate that lost its place meanwhile bumps nothing: it takes another one first."""
    backend, other = handle(), handle()
    first = lead(backend, ttl=TTL)
    thread, won = begin(other, ttl=3.0)
    until(lambda: len(latch_of(backend)) == 2, "the candidate")
    epoch = present(backend, EPOCH_KEY)
    own, foreign = sorted(latch_of(backend), key=lambda name: created(backend, name))
    delete = [codec.delete(f"{backend._planner.layout.latch}/{foreign}")]
    backend._connection.write(delete, Deadline.after(BOUND))
    until(lambda: len(latch_of(backend)) == 2, "another place")
    assert epoch == present(backend, EPOCH_KEY)
    assert own in latch_of(backend)
    first.resign()
    thread.join(BOUND)

    assert won[0].epoch == first.epoch + 1
    won[0].resign()


def created(backend: ZooKeeperBackend, name: str) -> int:
    wanted = [codec.get_data(f"{backend._planner.layout.latch}/{name}")]
    (node,) = read(backend._connection, wanted, Deadline.after(BOUND))
    assert isinstance(node, codec.Node)
    return node.created


def test_a_leader_without_its_place_is_none(handle: Open) -> None:
    """A leader whose znode was removed steps down with its next heartbeat."""
    backend = handle()
    leadership = lead(backend, ttl=5.0)
    (own,) = latch_of(backend)
    backend._connection.write(
        [codec.delete(f"{backend._planner.layout.latch}/{own}")], Deadline.after(BOUND)
    )

    assert leadership.lost.wait(BOUND)
    leadership.resign()


def test_a_leader_whose_epoch_was_bumped_is_none(handle: Open) -> None:
    """The heartbeat also checks the fence: the leader notices by itself that its epoch is over."""
    backend = handle()
    leadership = lead(backend, ttl=5.0)
    record = present(backend, EPOCH_KEY)
    backend.commit(Update(EPOCH_KEY, record.value, record.version))

    assert leadership.lost.wait(BOUND)
    leadership.resign()


def test_a_hung_leader_wakes_up_fenced(handle: Open) -> None:
    """SIGSTOP for longer than the ttl: another one leads, and nothing of the old one goes in."""
    backend = handle()
    with Worker(backend.url, backend.cluster) as process:
        old = process.lead("hung", 1.0)
        process.stop()
        with lead(backend) as leadership:
            backend.commit(Create("k", b"new"), fence=leadership.fence)
            process.resume()
            with pytest.raises(Fenced):
                process.commit(Create("l", b""), fence=old)
            assert process.call("lost", BOUND)

    assert backend.get("l") is None


def test_a_short_cut_is_survived(through: Open, handle: Open, proxy: Proxy) -> None:
    """A leader that is back within its ttl leads on, in the same session, also if the cut took a
    heartbeat with it.
    """
    backend, other = through(), handle()
    leadership = lead(backend, ttl=TTL)
    assert isinstance(leadership, LeadershipLease)
    connection, session = campaign_of(leadership), session_of(leadership)
    for _ in range(3):
        proxy.cut()
        until(lambda: not connection.connected, "the loss of the connection")
        proxy.restore()
        leadership._beat(Deadline.after(BOUND))
    proxy.freeze(requests=False)
    with ThreadPoolExecutor(1) as pool:
        beat = pool.submit(leadership._beat, Deadline.after(BOUND))
        until(lambda: has_sent(connection), "the heartbeat is on its way")
        proxy.cut()
        proxy.restore()
        with pytest.raises(OutcomeUnknown):
            beat.result(BOUND)
    leadership._beat(Deadline.after(BOUND))

    assert session == session_of(leadership)
    assert not leadership.lost.is_set()
    other.commit(Create("k", b""), fence=leadership.fence)
    leadership.resign()


def test_a_candidate_whose_session_ended_queues_again(
    through: Open, handle: Open, proxy: Proxy
) -> None:
    """A candidate that was cut off for longer than its ttl comes back with another session."""
    backend, other = handle(), through()
    first = lead(backend, ttl=TTL)
    thread, won = begin(other, ttl=1.0)
    until(lambda: len(latch_of(backend)) == 2, "the candidate")
    proxy.cut()
    until(lambda: len(latch_of(backend)) == 1, "the end of its session")
    proxy.restore()
    until(lambda: len(latch_of(backend)) == 2, "the candidate, again")
    first.resign()
    thread.join(BOUND)

    assert won[0].epoch == first.epoch + 1
    won[0].resign()


def test_a_lost_answer_to_the_bump(
    handle: Open, through: Open, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate that is not told that it bumped the epoch reads that back, and does not again."""
    backend, other = handle(), through()
    with lead(backend) as first:
        pass
    epoch = present(backend, EPOCH_KEY)
    write, frozen = Connection.write, threading.Event()

    def lose_the_answer() -> None:
        until(lambda: present(backend, EPOCH_KEY) != epoch, "the server has done it")
        proxy.cut()
        proxy.restore()

    losing = threading.Thread(target=lose_the_answer)

    def without_answer(self: Connection, ops: Any, deadline: Deadline) -> Any:
        if any(b"epoch" in op and b'"candidate"' in op for op in ops) and not frozen.is_set():
            frozen.set()
            proxy.freeze(requests=False)
            losing.start()
        return write(self, ops, deadline)

    monkeypatch.setattr(Connection, "write", without_answer)
    second = lead(other, ttl=TTL)
    losing.join(BOUND)

    assert frozen.is_set()
    assert second.epoch == first.epoch + 1
    backend.commit(Create("k", b""), fence=second.fence)
    second.resign()


def test_resigning_while_the_server_hangs(through: Open, proxy: Proxy) -> None:
    """Resigning ends, although nobody can be told and the session lasts for long."""
    leadership = lead(through(), ttl=TTL)
    proxy.freeze()
    leadership.resign()
    proxy.thaw()


def test_resigning_without_a_connection(through: Open, handle: Open, proxy: Proxy) -> None:
    """The guardian ends the session in the leader's place, as soon as a server can be reached."""
    backend = handle()
    leadership = lead(through(), ttl=TTL)
    connection = campaign_of(leadership)
    proxy.cut()
    until(lambda: not connection.connected, "the loss of the connection")
    leadership.resign()
    assert len(latch_of(backend)) == 1
    proxy.restore()

    until(lambda: latch_of(backend) == [], "an empty latch")


def test_a_candidate_that_stops_without_a_connection(
    through: Open, handle: Open, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guardian takes it out of the latch."""
    backend, stop = handle(), threading.Event()

    def cut_off(candidacy: leader._Candidacy, _: threading.Event) -> None:
        proxy.cut()
        until(lambda: not candidacy._connection.connected, "the loss of the connection")
        stop.set()

    with lead(backend, ttl=TTL):
        monkeypatch.setattr(leader._Candidacy, "rest", cut_off)
        assert through().campaign("candidate", ttl=TTL, stop=stop) is None
        assert len(latch_of(backend)) == 2
        proxy.restore()

        until(lambda: len(latch_of(backend)) == 1, "the candidate leaves")


def test_the_guardian_of_a_candidate_hears_of_it(
    handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the candidate waits: a guardian that hears nothing for two ttls goes."""
    beaten: list[Guardian] = []
    monkeypatch.setattr(Guardian, "beat", lambda self: beaten.append(self))
    first = lead(handle(), ttl=TTL)
    assert isinstance(first, LeadershipLease)
    thread, won = begin(handle(), ttl=1.0)

    until(
        lambda: len([one for one in beaten if one is not first._guardian]) > 3,
        "the candidate tells its guardian, look after look",
    )
    first.resign()
    thread.join(BOUND)
    won[0].resign()


def test_the_range_of_ttls_is_the_servers(
    handle: Open, start_zookeeper: Callable[..., Any]
) -> None:
    """What is declared is what the server grants, and what it does not is refused by name."""
    server = start_zookeeper(config=["minSessionTimeout=1000", "maxSessionTimeout=7000"])
    backend = handle(server.url())
    limits = backend.capabilities
    assert (limits.min_ttl, limits.max_ttl) == (1.0, 7.0)
    for ttl in (1.0, 3.217, 7.0):
        leadership = lead(backend, ttl=ttl)
        assert isinstance(leadership, LeadershipLease)
        assert leadership._ttl == ttl
        leadership.resign()
    with pytest.raises(InvalidInput):
        backend.campaign("me", ttl=8.0, stop=threading.Event())


def test_a_server_that_grants_less_than_it_did(
    handle: Open, start_zookeeper: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of another length than asked for is no leadership, and says what to change."""
    server = start_zookeeper(config=["maxSessionTimeout=5000"])
    backend = handle(server.url())
    monkeypatch.setattr(type(backend), "check_ttl", lambda self, ttl: None)
    with pytest.raises(InvalidInput, match="5 s, not of 9 s"):
        backend.campaign("me", ttl=9.0, stop=threading.Event())

    until(lambda: latch_of(backend) == [], "an empty latch")


def test_a_campaign_without_a_server(handle: Open, start_zookeeper: Callable[..., Any]) -> None:
    """A campaign that can ask nobody gives up with `Unavailable`, and leaves no process behind."""
    server = start_zookeeper()
    backend = handle(server.url())
    backend.timeout = 1.0
    before = guardians(os.getpid())
    server.kill()
    with pytest.raises(Unavailable):
        backend.campaign("me", ttl=1.0, stop=threading.Event())

    # One may still end the session of an earlier test.
    assert set(guardians(os.getpid())) <= set(before)


def test_the_ender(zookeeper_server: ZooKeeperServer, handle: Open) -> None:
    """It ends the given session; a session that is gone already is no failure."""
    backend = handle()
    leadership = lead(backend, ttl=TTL)
    session = session_of(leadership)
    end = close_session.ender(Access.parse(zookeeper_server.url(), {}).config())
    end_leader(leadership, backend, end)
    secret = close_session.secret_of(session)
    end(secret, Deadline.after(BOUND))
    leadership.resign()

    zookeeper_server.kill()
    with pytest.raises(Unavailable):
        end(secret, Deadline.after(1.0))


def test_a_wrong_password_ends_no_session(zookeeper_server: ZooKeeperServer, handle: Open) -> None:
    """A session's password is what it takes: with its number alone nobody ends it."""
    backend = handle()
    with lead(backend, ttl=TTL) as leadership:
        assert isinstance(leadership, LeadershipLease)
        session = session_of(leadership)
        end = close_session.ender(Access.parse(zookeeper_server.url(), {}).config())
        end(close_session.secret_of((session[0], b"\1" * 16)), Deadline.after(BOUND))

        assert len(latch_of(backend)) == 1
        leadership._beat(Deadline.after(BOUND))
        assert not leadership.lost.is_set()


def test_the_guardian_is_quiet_about_secrets(
    handle: Open, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the password nor the session's is in the guardian's arguments or environment."""
    monkeypatch.setenv("JRS_BACKEND_USER", "u")
    monkeypatch.setenv("JRS_BACKEND_PASSWORD", "sesame-word")
    backend = handle(theirs)
    monkeypatch.delenv("JRS_BACKEND_PASSWORD")
    with lead(backend, ttl=TTL) as leadership:
        assert isinstance(leadership, LeadershipLease)
        assert isinstance(leadership._guardian, Guardian)
        pid = leadership._guardian.pid
        said = b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))

    assert b"jrs.backends.remote.guardian" in said
    assert b"sesame-word" not in said


def test_interrupted_while_it_leads(handle: Open) -> None:
    """A master that ends by an exception hands over at once and says nothing of threads."""
    backend = handle()
    code = (
        "import sys, threading\nfrom jrs.store.opening import open_backend\n"
        "backend = open_backend(sys.argv[1], cluster=sys.argv[2])\n"
        "backend.campaign('me', ttl=3600.0, stop=threading.Event())\n"
        "raise SystemExit(3)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, backend.url, backend.cluster],
        capture_output=True,
        timeout=BOUND,
    )
    assert (ended.returncode, ended.stderr) == (3, b"")
    with lead(backend, ttl=TTL):
        pass
