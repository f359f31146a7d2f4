"""Outcomes: what a caller is told while servers hang, die and come back."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionExpiredError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.security import make_acl

from jrs.backends.shared.lease import SAFE, LeadershipLease
from jrs.backends.zookeeper import watch as watching
from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.backends.zookeeper.protocol import codec, connection, handshake
from jrs.backends.zookeeper.protocol.access import Access
from jrs.backends.zookeeper.protocol.connection import Connection
from jrs.contract.clock import Deadline, lease_time
from jrs.contract.errors import AccessDenied, JrsError, OutcomeUnknown, Refused, Unavailable
from jrs.contract.operations import Create, Update
from jrs.store.opening import open_backend
from jrs.testing.contract import contents, lead, present
from jrs.testing.servers import Proxy, ZooKeeperServer
from tests.backends.zookeeper.support import campaign_of, expire, has_sent
from tests.support import BOUND, until

SHORT = 0.5
"""Seconds for a call that is to fail."""
QUEUE = 100
"""Requests that keep a server busy for some tenths of a second."""
Open = Callable[..., ZooKeeperBackend]


def ended(call: Callable[[], Any]) -> JrsError:
    """Return the error of a call, which ends although no server answers it."""
    with pytest.raises(JrsError) as caught:
        call()
    return caught.value


def is_unavailable(backend: ZooKeeperBackend) -> bool:
    """Return whether a read is refused. (A leader that was cut off may answer for a few ticks.)"""
    try:
        backend.get("k")
    except Unavailable:
        return True
    return False


def until_committed(backend: ZooKeeperBackend, key: str) -> None:
    """Write a key, however often it takes."""
    deadline = Deadline.after(BOUND)
    while backend.get(key) is None:
        assert not deadline.expired
        try:
            backend.commit(Create(key, b""))
        except JrsError:
            time.sleep(0.05)


@pytest.fixture(params=["frozen", "paused"])
def hung(
    request: pytest.FixtureRequest, through: Open, proxy: Proxy, zookeeper_server: ZooKeeperServer
) -> Iterator[tuple[ZooKeeperBackend, Callable[[], None]]]:
    """A handle with a short timeout whose server hangs, and what heals it."""
    backend = through()
    backend.commit(Create("k/a", b"1"))
    backend.timeout = SHORT
    if request.param == "frozen":
        proxy.freeze()
        heal: Callable[[], None] = proxy.thaw
    else:
        zookeeper_server.pause()
        heal = zookeeper_server.resume

    def end() -> None:
        heal()
        backend.timeout = BOUND

    yield backend, end
    heal()


def test_every_call_ends_while_the_server_hangs(
    hung: tuple[ZooKeeperBackend, Callable[[], None]],
) -> None:
    """Reads are unavailable, writes unavailable or unknown, and nobody waits for the server."""
    backend, heal = hung
    assert type(ended(lambda: backend.get("k/a"))) is Unavailable
    assert type(ended(lambda: backend.get_many(["k/a", "k/b"]))) is Unavailable
    assert type(ended(lambda: list(backend.scan("k/")))) is Unavailable
    assert type(ended(lambda: list(backend.scan("")))) is Unavailable
    write = ended(lambda: backend.commit(Create("k/b", b"")))
    assert isinstance(write, (Unavailable, OutcomeUnknown))
    pipelined = ended(lambda: backend.commit_async(Create("k/c", b"")).result())
    assert isinstance(pipelined, (Unavailable, OutcomeUnknown))
    with backend.watch("k/") as watch:
        while watch.wait(0.01):
            pass
    ended(lambda: lead(backend, ttl=1.0))
    heal()
    until_committed(backend, "k/z")

    stored = contents(backend)
    assert {"k/a", "k/z"} <= stored.keys()
    for key, error in (("k/b", write), ("k/c", pipelined)):
        if isinstance(error, Unavailable):
            assert key not in stored


def test_closing_while_the_server_hangs(
    hung: tuple[ZooKeeperBackend, Callable[[], None]],
) -> None:
    """A handle closes, and what was in flight has an outcome."""
    backend, _ = hung
    futures = [backend.commit_async(Create(f"k/{number}", b"")) for number in range(300)]
    backend.close()
    outcomes = [future.exception(0) for future in futures]
    assert all(isinstance(error, (Unavailable, OutcomeUnknown)) for error in outcomes)


def test_opening_while_the_server_hangs(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening ends with its timeout, too, with a line that says where."""
    monkeypatch.setattr(handshake, "ANSWER_TIMEOUT", 3600.0)
    proxy.freeze()
    url = zookeeper_server.url(endpoints=[proxy.endpoint]) + "?timeout=1"

    error = ended(lambda: open_backend(url))
    assert f"127.0.0.1:{proxy.endpoint[1]}" in str(error)
    assert isinstance(error, Unavailable)


@pytest.mark.parametrize("how", ["cut", "silent"])
def test_a_lost_answer_is_unknown_and_the_write_is_there(
    handle: Open, through: Open, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The worst case: the server has done it, and the answer is lost. No caller hears "undone"."""
    late, witness = through(), handle()
    late.commit(Create("n", b"0"))
    version = present(late, "n").version
    proxy.freeze(requests=False)
    with ThreadPoolExecutor(1) as pool:
        futures = [
            late.commit_async(Create("async", b"")),
            pool.submit(late.commit, Update("n", b"1", version)),
        ]
        until(lambda: contents(witness) == {"n": b"1", "async": b""}, "the server has done both")
        assert not any(future.done() for future in futures)
        if how == "cut":
            proxy.cut()
        else:
            monkeypatch.setattr(connection, "_SILENCE", 0.1)
        for future in futures:
            with pytest.raises(OutcomeUnknown):
                future.result(BOUND)
    proxy.restore()

    assert contents(witness) == {"n": b"1", "async": b""}


def test_a_write_that_is_answered_behind_its_deadline_is_not_lost(
    handle: Open, through: Open, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session is not given up for it: a leader would lose its lead at the next short cut."""
    monkeypatch.setattr(connection, "_SILENCE", BOUND)
    late, witness = through(), handle()
    late.commit(Create("n", b"0"))
    session = late._connection.session
    proxy.freeze(requests=False)
    with ThreadPoolExecutor(1) as pool:
        committed = pool.submit(late.commit, Create("k", b""))
        until(lambda: "k" in contents(witness), "the server has done it")
        (write,) = [one for one in late._connection._flying if one.type == codec.MULTI]
        assert isinstance(late._connection.overdue(write), OutcomeUnknown)
        proxy.thaw()
        with pytest.raises(OutcomeUnknown):
            committed.result(BOUND)

    assert late.get("k") is not None
    assert late._connection._protocol.in_doubt is None
    proxy.cut()
    proxy.restore()
    assert late.get("k") is not None
    assert late._connection.session == session


def test_pipelined_commits_over_cuts(handle: Open, through: Open, proxy: Proxy) -> None:
    """Of a stream that is cut again and again: what succeeded is there, what was refused not."""
    late, witness = through(timeout=BOUND / 2), handle()
    late.commit(Create("s/first", b""))
    futures = {}
    for round_ in range(4):
        for number in range(150):
            key = f"s/{round_}-{number}"
            futures[key] = late.commit_async(Create(key, b""))
            if number == 75:
                futures[f"s/{round_}-0"].exception(BOUND)
                proxy.freeze(requests=False)
        proxy.wait_until_held(BOUND)
        proxy.cut()
        until(lambda: not late._connection.connected, "the loss of the connection")
        proxy.restore()
    outcomes = {key: future.exception(BOUND) for key, future in futures.items()}
    stored = contents(witness, "s/")

    assert any(error is None for error in outcomes.values())
    assert any(isinstance(error, OutcomeUnknown) for error in outcomes.values())
    for key, error in outcomes.items():
        assert error is None or isinstance(error, (Unavailable, OutcomeUnknown))
        if error is None:
            assert key in stored
        if isinstance(error, Unavailable):
            assert key not in stored


def test_reads_continue_over_a_restart(handle: Open, zookeeper_server: ZooKeeperServer) -> None:
    """A read that waits while the server is started again is answered by the new one."""
    server, backend = zookeeper_server, handle()
    backend.commit(Create("k", b"1"))
    session = backend._connection.session
    server.kill()
    starting = threading.Thread(target=server.start)
    starting.start()
    record = backend.get("k")
    starting.join()

    assert record is not None
    assert session == backend._connection.session
    backend.commit(Update("k", b"2", record.version))


def test_a_new_session_after_the_old_one_ended(
    through: Open,
    proxy: Proxy,
    zookeeper_server: ZooKeeperServer,
    handle: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handle outlives its session: the next call is made in another one, watches included."""
    monkeypatch.setattr(watching, "POLL", 3600.0)
    backend, witness = through(), handle()
    session = backend._connection.session
    with backend.watch("k/") as watch:
        assert watch.wait(BOUND)
        proxy.cut()
        until(lambda: not backend._connection.connected, "the loss of the connection")
        expire(session, zookeeper_server)
        proxy.restore()
        backend.commit(Create("k/a", b""))
        assert watch.wait(BOUND)
        while watch.wait(0.3):
            pass
        witness.commit(Create("k/b", b""))
        assert watch.wait(BOUND)

    assert session != backend._connection.session


# -- an ensemble -------------------------------------------------------------------------------


@pytest.fixture
def spread(zookeeper_ensemble: ZooKeeperServer, cluster: str) -> Iterator[Open]:
    with ExitStack() as stack:

        def opened(*members: int, **options: object) -> ZooKeeperBackend:
            ends = [zookeeper_ensemble.endpoints[at] for at in members or range(3)]
            url = zookeeper_ensemble.url(endpoints=ends)
            rest = "&".join(f"{k}={v}" for k, v in {"timeout": BOUND, **options}.items())
            backend = open_backend(f"{url}?{rest}", cluster=cluster)
            assert isinstance(backend, ZooKeeperBackend)
            return stack.enter_context(backend)

        yield opened


def home_of(backend: ZooKeeperBackend, server: ZooKeeperServer) -> int:
    """Return the index of the member that a handle is connected to."""
    return member_of(backend._connection, server)


def member_of(made: Connection, server: ZooKeeperServer) -> int:
    return server.endpoints.index(made._protocol._socket.getpeername())


def test_a_member_that_hangs_is_left_although_requests_continue(
    spread: Open, zookeeper_ensemble: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo takes requests for heartbeats, and stays with a server that answers none of them."""
    backend = spread()
    backend.commit(Create("k", b""))
    home = home_of(backend, zookeeper_ensemble)
    zookeeper_ensemble[home].pause()
    monkeypatch.setattr(connection, "_SILENCE", 2.0)
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.1):
            backend.commit_async(Create("k", b""))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        assert backend.get("k", deadline=Deadline.after(BOUND)) is not None
    finally:
        stop.set()
        asking.join()

    assert home != home_of(backend, zookeeper_ensemble)


def test_a_leader_keeps_the_lead_when_its_member_hangs(
    spread: Open, zookeeper_ensemble: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves a member that hangs early enough, also with a short ttl."""
    monkeypatch.undo()  # What is to be tested is when a server counts as hung.
    backend = spread()
    # A machine that is busy with something else may take what is left of a short ttl.
    assert any(_keeps_the_lead(backend, zookeeper_ensemble) for _ in range(3))


def _keeps_the_lead(backend: ZooKeeperBackend, ensemble: ZooKeeperServer) -> bool:
    """Return whether a leader is heard again after its member hangs: by another member."""
    ttl, leader = 6.0, ensemble.leader()
    while True:
        leads = lead(backend, ttl=ttl)
        home = member_of(campaign_of(leads), ensemble)
        if home != leader:  # Where that one hangs, no write ends until the others miss it.
            break
        leads.resign()
    assert isinstance(leads, LeadershipLease)
    ensemble[home].pause()
    later = lease_time() + SAFE * ttl  # Behind the pause: before it, this member answers.
    until(lambda: leads.lost.is_set() or leads.valid_until > later, "heartbeats after the pause")
    kept = not leads.lost.is_set()
    if kept:
        assert home != member_of(campaign_of(leads), ensemble)
    leads.resign()
    ensemble[home].resume()
    return kept


def test_a_server_that_sleeps_over_a_request_is_woken(
    through: Open, proxy: Proxy, zookeeper_server: ZooKeeperServer
) -> None:
    """ZOOKEEPER-4537: a member can miss that it has something to do, until the next request comes.
    A caller that waits for its only request would wait for the next heartbeat."""
    backend = through()
    session = backend._connection.session
    assert session is not None

    def received() -> int:
        line = re.search(rf".*recved=(\d+).*sid={session[0]:#x},", zookeeper_server.ask("cons"))
        assert line is not None
        return int(line[1])

    with ThreadPoolExecutor(1) as pool:
        proxy.freeze(requests=False)
        answer = pool.submit(backend.get, "k")
        proxy.wait_until_held(BOUND)
        sent = received()
        until(lambda: received() > sent + 1, "the silence is answered with requests")
        proxy.thaw()

        assert answer.result(BOUND) is None


@pytest.mark.parametrize("who", ["home", "leader", "follower"])
def test_a_member_dies(spread: Open, zookeeper_ensemble: ZooKeeperServer, who: str) -> None:
    """Commits continue once there is a leader, and each one did what its caller was told."""
    backend, server = spread(), zookeeper_ensemble
    leads = server.leader()
    victim = {
        "home": home_of(backend, server),
        "leader": leads,
        "follower": (leads + 1) % 3,
    }[who]
    outcomes: dict[str, JrsError | None] = {}
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            key = f"k/{len(outcomes)}"
            try:
                backend.commit(Create(key, b""))
                outcomes[key] = None
            except (Unavailable, OutcomeUnknown) as error:
                outcomes[key] = error

    def more() -> None:
        """Wait until some more commits have succeeded."""
        wanted = done() + 10
        until(lambda: writing.done() or done() >= wanted, "commits continue")

    def done() -> int:
        return [*outcomes.values()].count(None)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            more()
            server[victim].kill()
            more()
        finally:
            over.set()
        writing.result(BOUND)
    stored = contents(backend, "k/")

    for key, outcome in outcomes.items():
        assert outcome is not None or key in stored
        assert not isinstance(outcome, Unavailable) or key not in stored


def test_a_read_sees_what_another_member_was_told(
    spread: Open, zookeeper_ensemble: ZooKeeperServer
) -> None:
    """A read waits until its own server has what was committed at any other one. Only the leader's
    clients may see that a moment later."""
    leads = zookeeper_ensemble.leader()
    handles = [spread(member) for member in range(3)]
    handles[0].commit(Create("n", b"0"))
    for number in range(1, 120):
        writer, *readers = handles[number % 3 :] + handles[: number % 3]
        writer.commit(Update("n", b"%d" % number, present(writer, "n").version))
        for reader in readers:
            if reader is handles[leads]:
                until(partial(_has, reader, number), "the leader has applied it")
            assert _has(reader, number)
            assert [record.value for record in reader.scan("n")] == [b"%d" % number]


def _has(backend: ZooKeeperBackend, number: int) -> bool:
    return present(backend, "n").value == b"%d" % number


def test_without_a_sync_a_follower_is_behind(
    spread: Open, zookeeper_ensemble: ZooKeeperServer
) -> None:
    """The trap: what one server was told is committed is not yet known to another one."""
    leads = zookeeper_ensemble.leader()
    late = (leads + 1) % 3
    writer, reader = spread(leads), spread(late)
    writer.commit(Create("n", b"0"))
    path = writer._planner.layout.record("n")
    numbers = itertools.count(1)

    def is_behind() -> bool:
        version, number = present(reader, "n").version, next(numbers)
        client = reader._connection._client
        zookeeper_ensemble[late].pause()
        try:
            # It has so much to catch up with that it gets to the read before the end of it.
            for part in range(8):
                writer.commit(Create(f"k/{number}/{part}", bytes(500_000)))
            writer.commit(Update("n", b"%d" % number, version))
            answer = client.get_async(path)
            until(lambda: not client._queue, "the read is on its way")
        finally:
            zookeeper_ensemble[late].resume()
        try:
            return bool(answer.get(timeout=BOUND)[0] != b"%d" % number)
        except (ConnectionLoss, SessionExpiredError):
            return False  # The commits took so long that the leader has dropped the follower.

    until(is_behind, "a follower answered from before a commit")


@contextmanager
def begun(
    server: ZooKeeperServer, cluster: str, proxy: Proxy, way_out: Proxy
) -> Iterator[tuple[ZooKeeperBackend, ThreadPoolExecutor]]:
    """Open a handle that has written through `proxy`, and whose other way is cut."""
    way_out.cut()
    url = server.url(endpoints=[proxy.endpoint, way_out.endpoint])
    with (
        open_backend(f"{url}?timeout={BOUND}", cluster=cluster) as backend,
        ThreadPoolExecutor(1) as pool,
    ):
        assert isinstance(backend, ZooKeeperBackend)
        backend.commit(Create("k/first", b""))
        yield backend, pool


@pytest.mark.parametrize("detour", ["same member", "another member"])
def test_what_was_read_back_as_not_done_is_never_done(
    zookeeper_ensemble: ZooKeeperServer, cluster: str, detour: str
) -> None:
    """A write that is held up in the network while its handle continues elsewhere comes too late.

    Its session has moved on, so the server that gets it in the end turns it away; and a reader of
    the same handle that was answered meanwhile may rely on what it saw.
    """
    server = zookeeper_ensemble
    leads = server.leader()
    held, other = leads, leads if detour == "same member" else (leads + 1) % 3
    with Proxy(server.endpoints[held]) as proxy, Proxy(server.endpoints[other]) as way_out:
        with begun(server, cluster, proxy, way_out) as (backend, pool):
            way_out.restore()
            proxy.freeze(replies=False)
            committed = pool.submit(backend.commit, Create("k/held", b""))
            proxy.wait_until_held(BOUND)
            until(lambda: has_sent(backend._connection), "the write is on its way")
            backend._connection._cut()
            with pytest.raises(OutcomeUnknown):
                committed.result(BOUND)
            assert backend.get("k/held") is None
            on_their_way = [*proxy._tasks]
            proxy.thaw()
            until(lambda: all(one.done() for one in on_their_way), "the server has what was held")

            assert contents(backend) == {"k/first": b""}


class Busy:
    """Many requests that wait in a server's queue, each of which takes it some milliseconds."""

    def __init__(self, server: ZooKeeperServer, member: int, path: str) -> None:
        access = Access.parse(server.url())
        address = server.endpoints[member]
        self._talk = handshake._Talk(access, address, address[0], Deadline.after(BOUND))
        self._request = codec.multi([codec.set_data(path, b"")] * 2000)

    def __enter__(self) -> Busy:
        self._talk.__enter__()
        self._talk.connect(timeout=BOUND)
        return self

    def __exit__(self, *exc: object) -> None:
        self._talk.__exit__(*exc)

    def ask(self) -> None:
        for number in range(1, QUEUE + 1):
            self._talk._send(handshake._REQUEST.pack(number, codec.MULTI) + self._request)
        self._talk._receive()

    def wait(self) -> None:
        for _ in range(QUEUE - 1):
            self._talk._receive()


def test_no_late_connection_brings_a_session_back_to_a_held_write(
    zookeeper_ensemble: ZooKeeperServer,
    cluster: str,
) -> None:
    """A connection that was begun and given up comes late, together with the write that was lost.

    The server moves the session back while the write waits in its queue, here behind many others.
    """
    server = zookeeper_ensemble
    leads = server.leader()
    with (
        Busy(server, leads, "/zookeeper") as busy,
        Proxy(server.endpoints[leads]) as proxy,
        Proxy(server.endpoints[(leads + 1) % 3]) as way_out,
    ):
        with begun(server, cluster, proxy, way_out) as (backend, pool):
            until(lambda: len(proxy._tasks) == 1, "only the handle's connection is left")
            proxy.freeze(replies=False)
            committed = pool.submit(backend.commit, Create("k/held", b""))
            proxy.wait_until_held(BOUND)
            until(lambda: has_sent(backend._connection), "the write is on its way")
            (first,) = proxy._tasks
            backend._connection._cut()
            until(lambda: len(proxy._tasks) > 1, "the client tries the frozen way again")
            way_out.restore()
            with pytest.raises(OutcomeUnknown):
                committed.result(BOUND)
            assert backend.get("k/held") is None
            busy.ask()
            proxy.thaw()
            busy.wait()
            until(first.done, "the server has what was held")

            assert contents(backend) == {"k/first": b""}


def test_a_session_that_lost_a_write_ends_even_if_its_login_fails(
    through: Open,
    handle: Open,
    proxy: Proxy,
    zookeeper_server: ZooKeeperServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """kazoo forgets a session when the login of its next connection fails, and begins another one:
    nothing is read before the old session has ended."""
    backend, witness = through(), handle()
    session = backend._connection.session
    connect, failed = ConnectionHandler._connect, threading.Event()

    def fail_once(self: ConnectionHandler, *place: Any) -> Any:
        if self is backend._connection._protocol and not failed.is_set():
            failed.set()
            raise AuthFailedError
        return connect(self, *place)

    with ThreadPoolExecutor(1) as pool:
        proxy.freeze(requests=False)
        committed = pool.submit(backend.commit, Create("k/lost", b""))
        until(lambda: witness.get("k/lost") is not None, "the server has done it")
        monkeypatch.setattr(ConnectionHandler, "_connect", fail_once)
        proxy.cut()
        proxy.restore()
        with pytest.raises(OutcomeUnknown):
            committed.result(BOUND)
    until(lambda: not is_refused(backend), "the handle has logged in again")

    assert failed.is_set()
    assert not expire(session, zookeeper_server)


def is_refused(backend: ZooKeeperBackend) -> bool:
    try:
        backend.get("k")
    except JrsError:
        return True
    return False


def test_no_quorum(spread: Open, zookeeper_ensemble: ZooKeeperServer) -> None:
    """Without a majority no call succeeds, and each one ends; with it everything continues."""
    backend = spread()
    backend.commit(Create("k", b"1"))
    backend.timeout = SHORT
    leads = zookeeper_ensemble.leader()
    for member in range(3):
        if member != leads:
            zookeeper_ensemble[member].kill()
    error = ended(lambda: backend.commit(Create("l", b"")))
    assert isinstance(error, (Unavailable, OutcomeUnknown))
    until(lambda: is_unavailable(backend), "the member that is left stops to answer")
    assert isinstance(ended(lambda: backend.get("k")), Unavailable)
    opening = ended(lambda: spread(timeout=1))
    assert isinstance(opening, Unavailable)
    zookeeper_ensemble.heal()
    backend.timeout = BOUND

    until_committed(backend, "m")
    if isinstance(error, Unavailable):
        assert backend.get("l") is None


def test_a_cluster_that_is_removed_under_a_handle(
    handle: Open, client: Any, zookeeper_server: ZooKeeperServer, cluster: str
) -> None:
    """Each call says so at once, and sends nothing again and again."""
    backend = handle(timeout=600)
    backend.commit(Create("k/a", b""))
    client(zookeeper_server.endpoints[0]).delete(f"/jrs/{cluster}", recursive=True)
    calls: list[Callable[[], object]] = [
        lambda: backend.commit(Create("k/b", b"")),
        lambda: backend.commit_async(Create("other/b", b"")).result(BOUND),
        lambda: list(backend.scan("")),
        lambda: list(backend.scan("k/")),
        lambda: lead(backend),
        lambda: backend.mark_format(10**6),
    ]
    for call in calls:
        error = ended(call)
        assert isinstance(error, Refused)
        assert "removed while it was open" in str(error)


def test_a_directory_that_may_not_be_created(
    handle: Open, client: Any, zookeeper_server: ZooKeeperServer, cluster: str
) -> None:
    """What the server says to that is what the commit ends with."""
    backend = handle(timeout=600)
    admin = client(zookeeper_server.endpoints[0])
    admin.set_acls(f"/jrs/{cluster}/map", [make_acl("world", "anyone", read=True)])
    assert isinstance(ended(lambda: backend.commit(Create("k/a", b""))), AccessDenied)
