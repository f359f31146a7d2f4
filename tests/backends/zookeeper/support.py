"""What lies behind a handle and a leadership on ZooKeeper."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.client import KazooClient

from jrs.backends.remote.guardian import Ender
from jrs.backends.shared.lease import LeadershipLease
from jrs.backends.zookeeper import close_session
from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.backends.zookeeper.protocol import codec, connection, sessions, sockets
from jrs.backends.zookeeper.protocol.connection import Connection
from jrs.backends.zookeeper.protocol.multi_read import read
from jrs.contract.clock import Deadline
from jrs.contract.leadership import Leadership
from jrs.testing.servers import ZooKeeperServer
from tests.support import BOUND, until


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take no server that a busy machine slows down for one that hangs. What waits for a server
    that hangs then waits for long, so that a test of it does not pass by luck."""
    monkeypatch.setattr(connection, "_SILENCE", BOUND / 2)
    monkeypatch.setattr(sockets, "_SHORTEST", BOUND / 2)
    monkeypatch.setattr(sessions, "_LONGEST_READ", 3600.0)


def campaign_of(leadership: Leadership) -> Any:
    """Return the campaign that won a leadership, and ends it."""
    assert isinstance(leadership, LeadershipLease)
    end: Any = leadership._end
    return end.__self__


def session_of(leadership: Leadership) -> tuple[int, bytes]:
    """Return the session that holds a leadership: its number and its password."""
    session: tuple[int, bytes] = campaign_of(leadership).session
    return session


def has_sent(connection: Connection) -> bool:
    """Return whether a request is on its way, or done and not answered."""
    return any(request.sent for request in tuple(connection._flying))


def latch_of(backend: ZooKeeperBackend) -> list[str]:
    """Return the candidates' znodes."""
    wanted = [codec.get_children(backend._planner.layout.latch)]
    (names,) = read(backend._connection, wanted, Deadline.after(BOUND))
    assert isinstance(names, list)
    return names


def end_leader(leadership: Leadership, backend: ZooKeeperBackend, end: Ender) -> None:
    """End a leader's session as a guardian does, until it has ended: this leader is alive, and may
    take its session back before it can be closed."""
    secret = close_session.secret_of(session_of(leadership))

    def has_ended() -> bool:
        end(secret, Deadline.after(BOUND))
        return latch_of(backend) == []

    until(has_ended, "the leader's session has ended")


def expire(session: tuple[int, bytes] | None, server: ZooKeeperServer) -> bool:
    """End a session behind the back of its client, as if its timeout had passed; return whether it
    had not ended before."""
    assert session is not None
    twin = KazooClient(hosts="{}:{}".format(*server.endpoints[0]), client_id=session)
    twin.start(BOUND)
    continued: bool = twin.client_id == session  # Else it was given a new one.
    twin.stop()
    twin.close()
    return continued
