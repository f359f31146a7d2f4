"""When a server that is silent is woken and left, and how long the next one is waited for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient

from jrs.backends.zookeeper.protocol import codec, sockets
from jrs.backends.zookeeper.protocol import connection as connection_module
from jrs.backends.zookeeper.protocol.access import Access
from jrs.backends.zookeeper.protocol.connection import Connection
from jrs.backends.zookeeper.protocol.request import Request
from jrs.backends.zookeeper.protocol.sockets import BufferedSocket
from jrs.contract.clock import Deadline
from jrs.testing.servers import Proxy, ZooKeeperServer
from tests.support import BOUND, until

LIMIT = 0.75
"""Seconds of silence that a session of a few seconds bears."""


class Waiting(NamedTuple):
    """A connection with a request on its way to a server."""

    connection: Connection
    here: BufferedSocket
    there: socket.socket
    """The server's end."""
    since: float

    def hangs(self, seconds: float) -> bool:
        """Return whether the server counts as hung at a look after so many seconds."""
        return self.connection._check_silence(self.since + seconds)

    @property
    def asked(self) -> int:
        return len(self.connection._flying)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    monkeypatch.setattr(connection_module, "_SILENCE", 3.0)
    monkeypatch.setattr(sockets, "_SHORTEST", LIMIT)
    made = Connection(Access.parse("zookeeper://127.0.0.1:1"), timeout=4.0, name="jrs-zk-silent")
    one, there = socket.socketpair()
    with one, there, monkeypatch.context() as connected:
        connected.setattr(KazooClient, "connected", True)
        here = BufferedSocket(one)
        made._protocol._socket = here
        made._connected, made._flying = True, {Request(codec.EXISTS, b"", print)}
        yield Waiting(made, here, there, here.heard_at)
    made._connected, made._flying = False, set()
    made.close()


def test_a_silent_server_is_woken_before_it_is_left(waiting: Waiting) -> None:
    """Also if the limit has passed before anybody looked: with a short ttl it follows at once."""
    assert not waiting.hangs(LIMIT + 0.1)
    assert waiting.asked == 2
    assert waiting.hangs(LIMIT + 0.4)


def test_a_pause_of_this_process_is_no_silence(waiting: Waiting) -> None:
    """The server has answered meanwhile, and nobody has read it yet."""
    assert not waiting.hangs(LIMIT - 0.1)
    assert waiting.asked == 2
    waiting.there.send(b"an answer")
    assert not waiting.hangs(100.0)


def test_a_long_reply_over_a_slow_link(waiting: Waiting) -> None:
    """A server that still sends a reply does not count as hung, however long it takes."""
    assert not waiting.hangs(8.0)
    waiting.there.send(b"part")
    waiting.here.recv(4)
    waiting.here.heard_at = waiting.since + 9.0
    assert not waiting.hangs(9.6)
    assert waiting.hangs(10.0)


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_only_silence_has_the_next_server_waited_for_longer(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A server that refuses a connection costs no time, so the others are not slow."""
    failed, connect = threading.Event(), sockets.connect

    def connects(*args: Any) -> BufferedSocket:
        try:
            if how == "silent" and not failed.is_set():
                raise TimeoutError("no answer")
            return connect(*args)
        except OSError:
            failed.set()
            raise

    access = Access.parse(zookeeper_server.url(endpoints=[proxy.endpoint]))
    made = Connection(access, timeout=30.0, name="jrs-zk-refused")
    with closing(made):
        made.start(Deadline.after(BOUND))
        limit = made._silence_limit.within(3600.0)
        monkeypatch.setattr(sockets, "connect", connects)
        proxy.cut()
        assert failed.wait(BOUND)
        proxy.restore()
        until(lambda: made.connected, "it is connected again")

        assert (made._silence_limit.within(3600.0) > limit) == (how == "silent")
