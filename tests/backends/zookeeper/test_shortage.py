"""A host that is short of descriptors or threads for a while: no session and no handle is lost."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from jrs.backends.zookeeper.protocol.access import Access
from jrs.backends.zookeeper.protocol.connection import Connection
from jrs.backends.zookeeper.protocol.sockets import Handler
from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable
from jrs.testing.servers import Proxy, ZooKeeperServer
from tests.support import BOUND, refuse_threads, until


@pytest.fixture
def access(zookeeper_server: ZooKeeperServer, proxy: Proxy) -> Access:
    """The way to a server by the name of its host, which has to be looked up."""
    return Access.parse(zookeeper_server.url(endpoints=[("localhost", proxy.endpoint[1])]))


@pytest.fixture
def connection(access: Access) -> Iterator[Connection]:
    made = Connection(access, timeout=30.0, name="jrs-zk-short")
    made.start(Deadline.after(BOUND))
    yield made
    made.close()


def test_no_descriptor_to_look_a_host_up(
    connection: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is lost while the process is at its limit of descriptors continues its
    session: a leader keeps its lead."""
    session, failed = connection.session, threading.Event()

    def none_left(*_: Any, **__: Any) -> Any:
        failed.set()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as short:
        short.setattr(socket, "getaddrinfo", none_left)
        proxy.cut()
        assert failed.wait(BOUND)
        proxy.restore()
    until(lambda: connection.connected, "it is connected again")

    assert connection.session == session


def test_an_error_in_the_keeper(connection: Connection, proxy: Proxy) -> None:
    """The thread that keeps a handle alive outlives an error that nobody has foreseen."""
    called = []

    def tick() -> None:
        called.append(1)
        if len(called) < 3:
            raise MemoryError

    connection.on_tick = tick
    until(lambda: len(called) > 3, "it goes on")

    proxy.cut()
    until(lambda: not connection.connected, "it is cut")
    proxy.restore()
    until(lambda: connection.connected, "it is connected again")


@pytest.mark.parametrize("name", ["jrs-zk-short-calls", "jrs-zk-short-keeper"])
def test_no_thread_for_a_connection(
    access: Access, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A candidate without a thread is told to wait, and leaves none behind."""
    refused = refuse_threads(monkeypatch, name, 1)

    with pytest.raises(Unavailable, match="can't start new thread"):
        Connection(access, timeout=30.0, name="jrs-zk-short").start(Deadline.after(BOUND))

    assert refused == [name]
    until(
        lambda: not [one for one in threading.enumerate() if one.name.startswith("jrs-zk-short")],
        "its threads have ended",
    )


def test_no_descriptor_for_a_connection(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, where kazoo gets no sockets to wake its thread with."""

    def none_left(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Handler, "create_socket_pair", none_left)
    with pytest.raises(Unavailable, match="Too many open files"):
        Connection(access, timeout=30.0, name="jrs-zk-short").start(Deadline.after(BOUND))

    until(
        lambda: not [one for one in threading.enumerate() if one.name.startswith("jrs-zk-short")],
        "its threads have ended",
    )
