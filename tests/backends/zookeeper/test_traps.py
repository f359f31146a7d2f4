"""What the client library does when nobody helps it, and that none of it shows outside."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError

from jrs.backends.shared.lease import LeadershipLease
from jrs.contract.clock import lease_time
from jrs.contract.errors import Conflict, Fenced, OutcomeUnknown, TooLarge, Unavailable
from jrs.contract.operations import Create, Update
from jrs.testing.contract import contents, lead, present
from jrs.testing.servers import Proxy, ZooKeeperServer
from tests.backends.zookeeper.support import campaign_of, expire
from tests.support import BOUND, until

Client = Callable[..., Any]


def path() -> str:
    return f"/trap-{uuid.uuid4().hex}"


# -- transactions ------------------------------------------------------------------------------


def test_a_failed_transaction_raises_nothing(
    zookeeper_server: ZooKeeperServer, client: Client
) -> None:
    """kazoo returns the exceptions of a transaction, and as a context manager drops them."""
    bare, node = client(zookeeper_server.endpoints[0]), path()
    bare.create(node, b"1")
    failing = bare.transaction()
    failing.set_data(node, b"2")
    failing.check(node, 7)
    failing.delete(node)
    results = failing.commit()
    with bare.transaction() as silent:
        silent.check(node, 7)
        silent.delete(node)

    kinds = [type(result) for result in results]
    assert [RolledBackError, BadVersionError, RuntimeInconsistency] == kinds
    assert bare.get(node)[0] == b"1"


def test_a_failed_commit_raises(handle: Client) -> None:
    """A commit that fails names the operation, and changes nothing."""
    backend = handle()
    backend.commit(Create("k", b"1"))
    with pytest.raises(Conflict) as caught:
        backend.commit(Create("l", b""), Update("k", b"2", 7))

    assert caught.value.op == Update("k", b"2", 7)
    assert contents(backend) == {"k": b"1"}


# -- the size of a request ---------------------------------------------------------------------


def test_a_large_request_looks_like_a_fault_of_the_network(
    zookeeper_server: ZooKeeperServer, client: Client
) -> None:
    """The server drops the connection of a client that sends it more than a mebibyte."""
    bare = client(zookeeper_server.endpoints[0])
    with pytest.raises(ConnectionLoss):
        bare.create(path(), b"x" * (1 << 20))


def test_a_large_commit_is_refused_unsent(handle: Client) -> None:
    """It is too large by name, and the connection is as it was; just below the limit it passes."""
    backend = handle()
    connection = backend._connection
    generation = connection._generation
    half = b"x" * 499_000
    backend.commit(Create("a", half), Create("b", half))
    for ops in (
        [Create("c", half), Create("d", half), Create("e", b"x" * 3000)],
        [Create(f"c/{number}", b"x" * 10_000) for number in range(100)],
    ):
        with pytest.raises(TooLarge):
            backend.commit(*ops)
        with pytest.raises(TooLarge):
            backend.commit_async(*ops).result(BOUND)

    assert contents(backend) == {"a": half, "b": half}
    assert generation == connection._generation


# -- while there is no connection --------------------------------------------------------------


def test_a_request_that_timed_out_happens_later(
    zookeeper_server: ZooKeeperServer, client: Client, proxy: Proxy
) -> None:
    """kazoo keeps what it cannot send, and sends it long after its caller was told that it
    failed."""
    late, witness = client(proxy.endpoint, timeout=600), client(zookeeper_server.endpoints[0])
    node = path()
    proxy.cut()
    until(lambda: late.state == KazooState.SUSPENDED, "the loss of the connection")
    with pytest.raises(KazooTimeoutError):
        late.create_async(node, b"").get(timeout=0.5)
    assert witness.exists(node) is None
    proxy.restore()

    until(lambda: witness.exists(node), "what nobody waits for any more")


def test_a_commit_that_was_refused_never_happens(
    handle: Client, through: Client, proxy: Proxy
) -> None:
    """A commit made while there is no connection waits here, and is forgotten at its deadline."""
    late, witness = through(), handle()
    proxy.cut()
    until(lambda: not late._connection.connected, "the loss of the connection")
    late.timeout = 0.5
    with pytest.raises(Unavailable):
        late.commit(Create("late", b""))
    future = late.commit_async(Create("later", b""))
    with pytest.raises(Unavailable):
        future.result(BOUND)
    late.timeout = BOUND
    proxy.restore()
    until(lambda: _commits(late), "a connection")

    assert contents(witness) == {"here": b""}


def test_what_kazoo_was_given_too_late_is_sent_as_nothing(
    handle: Client, through: Client, proxy: Proxy
) -> None:
    """A write that slipped into kazoo's queue as the connection was lost changes nothing."""
    late, witness = through(), handle()
    connection = late._connection
    proxy.cut()
    until(lambda: not connection.connected, "the loss of the connection")
    # What happens if the loss falls between our look and kazoo's queue.
    connection._connected = True
    connection._client._live.set()
    future = late.commit_async(Create("late", b""))
    connection._connected = False
    connection._client._live.clear()
    assert connection._client._queue
    proxy.restore()

    with pytest.raises(Unavailable):
        future.result(BOUND)
    assert contents(witness) == {}


def _commits(backend: Any) -> bool:
    try:
        backend.commit(Create("here", b""))
    except (Unavailable, OutcomeUnknown):
        return False
    except Conflict:
        return True
    return True


# -- the end of a session ----------------------------------------------------------------------


def test_a_retry_writes_in_a_session_that_did_not_ask_for_it(
    zookeeper_server: ZooKeeperServer, client: Client
) -> None:
    """kazoo's retry outlives the session by default: a deposed leader's write goes through."""
    bare, node = client(zookeeper_server.endpoints[0], timeout=600), path()
    bare.create(node, b"before")
    first = bare.client_id[0]
    tries: list[int] = []

    def write() -> None:
        tries.append(bare.client_id[0] if bare.client_id else 0)
        if len(tries) == 1:
            raise SessionExpiredError  # As it learns when it wakes up.
        bare.set(node, b"zombie")

    expire(bare.client_id, zookeeper_server)
    until(lambda: bare.client_id and bare.client_id[0] != first, "another session")
    bare.retry(write)

    assert bare.get(node)[0] == b"zombie"


def test_a_commit_in_flight_is_not_made_again(
    handle: Client, through: Client, proxy: Proxy
) -> None:
    """A write whose answer is lost is of unknown outcome, and made once at most."""
    late, witness = through(), handle()
    late.commit(Create("n", b"0"))
    record = present(late, "n")
    proxy.freeze(requests=False)
    with ThreadPoolExecutor(1) as pool:
        committed = pool.submit(late.commit, Update("n", b"1", record.version))
        until(lambda: present(witness, "n").value == b"1", "the server has done it")
        proxy.cut()
        with pytest.raises(OutcomeUnknown):
            committed.result(BOUND)
    proxy.restore()
    until(lambda: not late._connection._flying and _commits(late), "a connection")

    assert present(witness, "n").value == b"1"


def test_a_lock_is_held_by_the_client_that_lost_it(
    zookeeper_server: ZooKeeperServer, client: Client
) -> None:
    """kazoo's lock says that it is acquired when its znode is gone and another client has it."""
    one, two = (client(zookeeper_server.endpoints[0], timeout=600) for _ in range(2))
    node = path()
    lock, other = one.Lock(node), two.Lock(node)
    lock.acquire()
    session = one.client_id[0]
    expire(one.client_id, zookeeper_server)
    until(lambda: one.client_id and one.client_id[0] != session, "another session")
    other.acquire(timeout=BOUND)

    assert lock.is_acquired
    assert other.is_acquired
    other.release()


def test_a_leader_whose_session_ended_knows(
    handle: Client, zookeeper_server: ZooKeeperServer
) -> None:
    """The leadership is lost with its session, and its fence with the next epoch."""
    backend = handle()
    first = lead(backend, ttl=5.0)
    expire(campaign_of(first).session, zookeeper_server)

    assert first.lost.wait(BOUND)
    with lead(backend), pytest.raises(Fenced):
        backend.commit(Create("k", b""), fence=first.fence)
    first.resign()


def test_the_loss_of_a_session_is_not_told_to_who_is_cut_off(
    zookeeper_server: ZooKeeperServer, client: Client, proxy: Proxy
) -> None:
    """kazoo reports it once it can talk to a server again, and not before."""
    bare = client(proxy.endpoint, timeout=600)
    session = bare.client_id
    states: list[str] = []
    bare.add_listener(states.append)
    proxy.cut()
    until(lambda: states, "the loss of the connection")
    # Until the server knows it no more: the request to end it may be lost with its connection.
    until(lambda: not expire(session, zookeeper_server), "the session is over")
    assert states == [KazooState.SUSPENDED]
    proxy.restore()

    until(lambda: KazooState.LOST in states, "the bad news")


def test_a_leader_that_is_cut_off_knows_before_anybody_else_leads(
    handle: Client, through: Client, proxy: Proxy
) -> None:
    """By its own clock, and while it can talk to nobody."""
    cut_off, other = through(), handle()
    first = lead(cut_off, ttl=1.0)
    assert isinstance(first, LeadershipLease)
    over: list[bool] = []

    def succeed() -> None:
        with lead(other):
            # By the clock: on a busy machine the thread that acts upon it may be late.
            over.append(first.lost.is_set() or lease_time() >= first.valid_until)

    waiting = threading.Thread(target=succeed)
    waiting.start()
    proxy.freeze()
    assert first.lost.wait(BOUND)
    waiting.join(BOUND)

    assert over == [True]
    proxy.thaw()
    first.resign()


# -- numbers -----------------------------------------------------------------------------------


def test_sequence_numbers_and_versions_begin_again(
    zookeeper_server: ZooKeeperServer, client: Client
) -> None:
    """A sequence starts over with its parent, and a version with its znode: neither is a token."""
    bare, node = client(zookeeper_server.endpoints[0]), path()
    numbers, versions, created = [], [], []
    for _ in range(2):
        bare.create(node, b"")
        made = [bare.create(f"{node}/n-", b"", sequence=True) for _ in range(2)]
        numbers.append([one.rsplit("-", 1)[1] for one in made])
        stat = bare.exists(made[0])
        versions.append(stat.version)
        created.append(stat.czxid)
        bare.delete(node, recursive=True)

    assert numbers[0] == numbers[1]
    assert versions[0] == versions[1]
    assert created[0] < created[1]


def test_epochs_continue_when_the_latch_is_made_again(
    handle: Client, zookeeper_server: ZooKeeperServer, client: Client
) -> None:
    """The epoch is a record of its own, and no number of a candidate's znode."""
    backend = handle()
    with lead(backend) as leadership:
        old = leadership.fence
    bare = client(zookeeper_server.endpoints[0])
    latch = backend._planner.layout.latch
    bare.delete(latch, recursive=True)
    bare.create(latch, b"")
    with lead(backend) as leadership:
        assert leadership.epoch == old.epoch + 1
        with pytest.raises(Fenced):
            backend.commit(Create("k", b""), fence=old)


# -- a server that hangs -----------------------------------------------------------------------


def test_requests_are_taken_for_heartbeats(
    zookeeper_server: ZooKeeperServer, client: Client
) -> None:
    """kazoo stays with a server that answers nothing, as long as it is asked often enough."""
    bare = client(zookeeper_server.endpoints[0], timeout=600)
    zookeeper_server.pause()
    select, waits = bare.handler.select, []

    def recorded(reading: Any, writing: Any, *rest: Any) -> Any:
        if not writing:
            waits.append(rest[-1])
        return select(reading, writing, *rest)

    def waits_for(requests: int) -> bool:
        return len(waits) >= requests

    bare.handler.select = recorded
    try:
        for number in range(1, 31):
            bare.exists_async("/")
            until(partial(waits_for, number), "it waits for the answer")
        assert bare.state == KazooState.CONNECTED
    finally:
        zookeeper_server.resume()

    # However often it asked in vain, it waits as long for an answer as at first.
    assert min(waits) > 0.9 * max(waits)


# -- coming back -------------------------------------------------------------------------------


def test_attempts_to_reconnect_grow_rare(client: Client, zookeeper_server: ZooKeeperServer) -> None:
    """kazoo doubles the time between two attempts, up to an hour."""
    retry = client(zookeeper_server.endpoints[0])._conn_retry
    assert (retry.backoff, retry.max_delay) == (2, 3600.0)


def test_a_handle_is_back_soon(through: Client, proxy: Proxy) -> None:
    """However long an outage was, the pause between two attempts to connect is below a second."""
    backend = through()
    backend.commit(Create("k", b""))
    pauses: list[float] = []
    protocol = backend._connection._protocol
    attempt = protocol._connect_attempt

    def recorded(*place: Any) -> Any:
        retry = place[-1]
        retry.sleep_func = lambda _: None
        pauses.append(retry._cur_delay)
        return attempt(*place)

    protocol._connect_attempt = recorded
    proxy.cut()
    until(lambda: len(pauses) > 100, "many attempts to connect")
    proxy.restore()

    assert present(backend, "k").value == b""
    assert 0.0 < max(pauses) < 1.0
