"""Members that answer slowly are waited for, and a member that hangs is left early."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jrs.backends.etcd import connection
from jrs.backends.etcd._etcd3 import grpc, rpc
from jrs.backends.etcd.connection import ATTEMPT, Connection
from jrs.backends.remote.address import Address
from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable
from jrs.testing.servers import EtcdServer, Proxy
from tests.backends.etcd.support import dropping
from tests.support import BOUND, FakeClock

REQUEST = rpc.RangeRequest(key=b"x")
DOWN = 0.0


class TookTooLong(grpc.RpcError):  # type: ignore[misc]
    def code(self) -> Any:
        return grpc.StatusCode.DEADLINE_EXCEEDED

    def details(self) -> str:
        return "Deadline Exceeded"


class IsDown(grpc.RpcError):  # type: ignore[misc]
    def code(self) -> Any:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "failed to connect to all addresses"


class HasNoLeader(IsDown):
    def details(self) -> str:
        return "etcdserver: no leader"


class Keys:
    """The requests of one member, which needs so many seconds for each, by the test's clock.

    Needs of `DOWN`: it refuses them.
    """

    def __init__(self, clock: FakeClock, needs: float) -> None:
        self._clock = clock
        self.needs = needs
        self.waited: list[float] = []

    def Range(self, request: Any, *, timeout: float, metadata: Any) -> Any:
        if self.needs == DOWN:
            raise IsDown
        self.waited.append(min(timeout, self.needs))
        self._clock.now += self.waited[-1]
        if timeout < self.needs:
            raise TookTooLong
        return rpc.RangeResponse()


class World:
    """A connection to members whose time passes by a clock alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *needs: float) -> None:
        self.clock = FakeClock()
        hosts = ",".join(f"127.0.0.1:{port + 1}" for port in range(len(needs)))
        self.connection = Connection(Address.parse(f"etcd://{hosts}", default_port=2379))
        self.keys = [Keys(self.clock, each) for each in needs]
        members: list[Any] = [
            SimpleNamespace(target=f"h{number}", kv=keys, answers=False, pace=0.0)
            for number, keys in enumerate(self.keys)
        ]
        self.connection._members = members
        self.connection._current = 0
        monkeypatch.setattr(self.connection._over, "wait", self._pass)

    def _pass(self, seconds: float) -> None:
        self.clock.now += seconds

    def call(self, verb: str, timeout: float) -> float:
        """Call and return the seconds that it took."""
        began = self.clock.now
        deadline = Deadline.after(timeout, self.clock)
        getattr(self.connection, verb)(lambda member: member.kv.Range, REQUEST, deadline)
        assert self.clock.now <= began + timeout
        return self.clock.now - began


# A real member cannot be told how long to take for an answer.
@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize("members", [1, 3])
def test_an_answer_that_takes_longer_than_usual(
    monkeypatch: pytest.MonkeyPatch, verb: str, members: int
) -> None:
    """It is waited for once all members were silent, and from then on at once."""
    world = World(monkeypatch, *[1.8] * members)
    world.call(verb, 20.0)
    assert world.call("read", 20.0) == pytest.approx(1.8)


@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize("needs", [(DOWN, 1.8, 1.8), (DOWN, 1.8), (DOWN, DOWN, 1.8)])
def test_slow_members_next_to_one_that_is_down(
    monkeypatch: pytest.MonkeyPatch, verb: str, needs: tuple[float, ...]
) -> None:
    world = World(monkeypatch, *needs)
    world.call(verb, 20.0)


def test_a_link_with_a_long_round_trip(etcd_server: EtcdServer) -> None:
    """Each connection was given up before the first bytes of the member came, so none was made."""
    with Proxy(etcd_server.endpoints[0], delay=0.4) as proxy:
        url = etcd_server.url(endpoints=[proxy.endpoint])
        connection = Connection(Address.parse(url, default_port=2379))
        try:
            connection.read(lambda member: member.kv.Range, REQUEST, Deadline.after(BOUND))
        finally:
            connection.close()


def test_a_write_to_a_member_that_drops_attempts_to_connect(
    etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent, so the next member gets it; each of them answered before."""
    monkeypatch.setattr(connection, "WRITE", connection.WRITE - 1.0)  # Clearly longer.
    with dropping() as silent:
        url = etcd_server.url(endpoints=[silent, etcd_server.endpoints[0]])
        handle = Connection(Address.parse(url, default_port=2379))
        try:
            handle._current = 0
            for member in handle._members:
                member.answers = True
            grant = rpc.LeaseGrantRequest(TTL=10)
            answer = handle.write(lambda member: member.lease.LeaseGrant, grant, Deadline.after(20))
            assert answer.ID
            assert handle._current == 1
        finally:
            handle.close()


def test_a_call_with_too_little_time_says_nothing_about_a_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The read of a watch has less time than an answer of a slow member takes."""
    world = World(monkeypatch, 1.8)
    world.call("read", 20.0)
    with pytest.raises(Unavailable):
        world.call("read", ATTEMPT)
    assert world.call("read", 20.0) == pytest.approx(1.8)


def test_the_whole_timeout_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 9.0)
    world.call("read", 20.0)
    assert len(world.keys[0].waited) == 4
    with pytest.raises(Unavailable):
        World(monkeypatch, 9.0).call("read", 10.0)


def test_a_member_that_hangs_is_left_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after answers of others that were slow, and after an answer of its own that was."""
    world = World(monkeypatch, 3600.0, 0.1)
    assert world.call("read", 20.0) <= ATTEMPT + 0.2
    world.keys[1].needs = 1.4
    world.call("read", 20.0)
    world.connection.next_member()
    assert world.call("read", 20.0) <= ATTEMPT + 1.5

    slow = World(monkeypatch, 1.4, 0.1)
    slow.call("read", 20.0)
    slow.keys[0].needs = 3600.0
    assert slow.call("read", 20.0) <= 2 * 1.4 + 0.2
    slow.connection.next_member()
    assert slow.call("read", 20.0) <= ATTEMPT + 0.2


def test_another_member_keeps_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the last answer was: a heartbeat has to come in time."""
    world = World(monkeypatch, 5.0, 0.1)
    world.connection._members[0].pace = 5.0
    world.keys[0].needs = 3600.0
    deadline = Deadline.after(2.0, world.clock)
    world.connection.read(lambda member: member.kv.Range, REQUEST, deadline, attempt=1.0)
    assert world.keys[0].waited == [1.0]


def test_members_that_elect_do_not_lengthen_anything() -> None:
    """One that hangs is given no more time because the others have no leader yet."""
    tries = connection._Tries(2, Deadline.after(60.0, FakeClock()))
    hangs: Any = SimpleNamespace(pace=0.0)
    tries.failed(TookTooLong())
    assert tries.failed(HasNoLeader())
    assert tries.seconds(hangs, ATTEMPT) == ATTEMPT
    tries.failed(TookTooLong())
    assert tries.failed(TookTooLong())
    assert tries.seconds(hangs, ATTEMPT) == 2 * ATTEMPT
