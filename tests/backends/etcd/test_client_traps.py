"""What the etcd3 client gets wrong, shown on a real server, and that the backend does not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from jrs.backends.etcd._etcd3 import grpc, rpc
from jrs.backends.etcd.revoke_lease import revoke
from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced
from jrs.contract.operations import Create
from jrs.testing.servers import EtcdServer
from tests.backends.etcd.support import beat_often, lead, opened
from tests.support import BOUND


@pytest.fixture
def stock(etcd_server: EtcdServer) -> Iterator[Any]:
    """The package's own client."""
    import etcd3

    host, port = etcd_server[0].endpoint
    client = etcd3.client(host=host, port=port, timeout=10)
    yield client
    # Not close(): that kills its watch thread, which then prints a traceback.
    client.channel.close()


def test_the_limit_is_ignored_and_ours_is_not(stock: Any, etcd_server: EtcdServer) -> None:
    prefix = uuid.uuid4().hex
    for index in range(20):
        stock.put(f"{prefix}/{index}", b"v")

    assert len(list(stock.get_prefix(prefix, limit=10))) == 20

    with opened(etcd_server.url()) as backend:
        backend.commit(*(Create(f"a/{index:02}", b"v") for index in range(20)))
        assert len(list(backend.scan("a/", limit=10))) == 10


def test_a_lost_lease_is_refreshed_without_a_word_and_ours_is_noticed(
    stock: Any, etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat_often(monkeypatch)
    lease = stock.lease(60)
    lease.revoke()

    assert [answer.TTL for answer in lease.refresh()] == [0]

    with opened(etcd_server.url()) as backend, lead(backend) as leadership:
        found = backend.connection.read(
            lambda stubs: stubs.kv.Range,
            rpc.RangeRequest(key=backend.root + b"latch"),
            Deadline.after(BOUND),
        )
        revoke(backend.connection, int(found.kvs[0].value), Deadline.after(BOUND))
        assert leadership.lost.wait(BOUND)


def test_its_lock_fails_when_it_has_to_wait(stock: Any) -> None:
    """On every tenacity since 7.0. Ours is a latch of our own."""
    name = uuid.uuid4().hex
    held = stock.lock(name, ttl=60)
    assert held.acquire()
    try:
        with pytest.raises((TypeError, AttributeError)):
            stock.lock(name, ttl=60).acquire(timeout=2)
    finally:
        held.release()


def test_a_failed_call_says_nothing_and_ours_says_what(stock: Any, etcd_server: EtcdServer) -> None:
    """It raises some errors bare, and others as gRPC's own."""
    with pytest.raises(grpc.RpcError):
        stock.put("k", b"v", lease=12345)

    with opened(etcd_server.url()) as backend, pytest.raises(Fenced, match="newer epoch"):
        leadership = lead(backend)
        fence = leadership.fence
        leadership.resign()
        lead(backend).resign()
        backend.commit(Create("k", b"v"), fence=fence)
