"""Handles on a real ZooKeeper, directly and through a proxy that can be frozen and cut."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.store.opening import open_backend
from jrs.testing.servers import Proxy, ZooKeeperServer
from tests.backends.zookeeper.support import patient as patient
from tests.support import BOUND

Open = Callable[..., ZooKeeperBackend]


@pytest.fixture
def cluster() -> str:
    return f"c{uuid.uuid4().hex}"


@pytest.fixture
def handle(zookeeper_server: ZooKeeperServer, cluster: str) -> Iterator[Open]:
    """Open handles on one cluster; options of the URL by keyword, another one as `url`.

    Calls have a minute, so that they succeed on a busy machine: a test whose calls are to fail sets
    `backend.timeout` once the handle is open.
    """
    with ExitStack() as stack:

        def handle(url: str | None = None, **options: object) -> ZooKeeperBackend:
            url = url or zookeeper_server.url()
            for name, value in {"timeout": BOUND, **options}.items():
                url += f"{'&' if '?' in url else '?'}{name}={value}"
            opened = open_backend(url, cluster=cluster)
            assert isinstance(opened, ZooKeeperBackend)
            return stack.enter_context(opened)

        yield handle


@pytest.fixture
def theirs(zookeeper_server: ZooKeeperServer, client: Callable[..., KazooClient]) -> str:
    """The URL of a path of its own: what users create is closed to everybody else."""
    path = f"theirs-{uuid.uuid4().hex}"
    client(zookeeper_server.endpoints[0]).create(f"/{path}", b"")
    return zookeeper_server.url(path)


@pytest.fixture
def proxy(zookeeper_server: ZooKeeperServer) -> Iterator[Proxy]:
    with Proxy(zookeeper_server.endpoints[0]) as proxy:
        yield proxy


@pytest.fixture
def through(handle: Open, zookeeper_server: ZooKeeperServer, proxy: Proxy) -> Open:
    """Open handles whose every byte passes the proxy."""
    return lambda **options: handle(zookeeper_server.url(endpoints=[proxy.endpoint]), **options)


@pytest.fixture
def client() -> Iterator[Callable[..., KazooClient]]:
    """Start clients of kazoo's as they come, for what they do when nobody helps them."""
    with ExitStack() as stack:

        def client(endpoint: tuple[str, int], **options: object) -> KazooClient:
            made = KazooClient(hosts=f"{endpoint[0]}:{endpoint[1]}", **options)
            made.start(BOUND)
            stack.callback(made.close)
            stack.callback(made.stop)
            return made

        yield client
