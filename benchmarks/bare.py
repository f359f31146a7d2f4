"""The clients of etcd and ZooKeeper without jrs, doing what it is compared with.

A guarded transaction creates a key if it is absent and a fence key is at its version, as a commit
of jrs does; and elections as they are made with nothing but the client. These run in a process of
their own, to be killed::

    bare.py etcd|zookeeper HOSTS TTL COUNT    take part in COUNT elections; say when one is won
"""

from __future__ import annotations

import abc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from measure import Waiting

VALUE = b"v" * 256
_TIMEOUT = 20.0


class Bare(abc.ABC):
    """One client, for many threads."""

    name: str

    @abc.abstractmethod
    def commit(self, name: str) -> None:
        """Create `name` under the fence, durably."""

    @abc.abstractmethod
    def submit(self, name: str) -> Waiting:
        """Begin to; return what waits for it."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the client."""


class BareEtcd(Bare):
    """A channel of gRPC's, and etcd's own stub for transactions."""

    name = "kvstub.Txn"

    def __init__(self, hosts: str) -> None:
        from jrs.backends.etcd._etcd3 import grpc, rpc

        self._rpc = rpc
        self._channel = grpc.insecure_channel(hosts)
        self._txn = rpc.KVStub(self._channel).Txn
        put = rpc.RequestOp(request_put=rpc.PutRequest(key=b"/bare/fence", value=b"1"))
        self._fence = self._txn(rpc.TxnRequest(success=[put]), timeout=_TIMEOUT).header.revision

    def commit(self, name: str) -> None:
        assert self._txn(self._request(name), timeout=_TIMEOUT).succeeded

    def submit(self, name: str) -> Waiting:
        future = self._txn.future(self._request(name), timeout=_TIMEOUT)

        def wait() -> None:
            assert future.result().succeeded

        return wait

    def close(self) -> None:
        self._channel.close()

    def _request(self, name: str) -> Any:
        rpc, compare = self._rpc, self._rpc.Compare
        key = b"/bare/map/" + name.encode()
        return rpc.TxnRequest(
            compare=[
                compare(
                    result=compare.EQUAL,
                    target=compare.MOD,
                    key=b"/bare/fence",
                    mod_revision=self._fence,
                ),
                compare(result=compare.EQUAL, target=compare.CREATE, key=key, create_revision=0),
            ],
            success=[rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=VALUE))],
        )


class BareZooKeeper(Bare):
    """kazoo, and its own transactions."""

    name = "client.transaction()"

    def __init__(self, hosts: str) -> None:
        from kazoo.client import KazooClient

        self._client = KazooClient(hosts, timeout=15.0)
        self._client.start()
        self._client.ensure_path("/bare/map")
        self._client.ensure_path("/bare/fence")
        self._fence = self._client.set("/bare/fence", b"1").version

    def commit(self, name: str) -> None:
        _check(self._transaction(name).commit())

    def submit(self, name: str) -> Waiting:
        future = self._transaction(name).commit_async()
        return lambda: _check(future.get(timeout=_TIMEOUT))

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _transaction(self, name: str) -> Any:
        transaction = self._client.transaction()
        transaction.check("/bare/fence", self._fence)
        transaction.create(f"/bare/map/{name}", VALUE)
        return transaction


def _check(results: list[object]) -> None:
    for result in results:
        if isinstance(result, Exception):  # They are returned, not raised.
            raise result


BARE: dict[str, Callable[[str], Bare]] = {"etcd": BareEtcd, "zookeeper": BareZooKeeper}


# -- elections -----------------------------------------------------------------------------


def elect_by_lease(hosts: str, ttl: float, index: int, won: Callable[[], None]) -> None:
    """Create a key in a lease if it is absent; wait for its end on a watch."""
    from jrs.backends.etcd._etcd3 import grpc, rpc

    channel = grpc.insecure_channel(hosts)
    leases, kv, watch = rpc.LeaseStub(channel), rpc.KVStub(channel), rpc.WatchStub(channel)
    lease = leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=int(ttl))).ID
    key = b"/bare/election/%d" % index

    def beats() -> Iterator[Any]:
        while True:
            yield rpc.LeaseKeepAliveRequest(ID=lease)
            time.sleep(ttl / 3)

    threading.Thread(target=lambda: list(leases.LeaseKeepAlive(beats())), daemon=True).start()
    compare = rpc.Compare
    absent = compare(result=compare.EQUAL, target=compare.CREATE, key=key, create_revision=0)
    put = rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=b"", lease=lease))
    request = rpc.TxnRequest(compare=[absent], success=[put])
    while not (answer := kv.Txn(request)).succeeded:
        create = rpc.WatchCreateRequest(key=key, start_revision=answer.header.revision + 1)
        over = threading.Event()

        def asking(create: Any = create, over: threading.Event = over) -> Iterator[Any]:
            yield rpc.WatchRequest(create_request=create)
            over.wait()

        stream = watch.Watch(asking())
        next(one for one in stream if one.events)
        over.set()
        stream.cancel()
    won()


def elect_by_kazoo(hosts: str, ttl: float, index: int, won: Callable[[], None]) -> None:
    """Run kazoo's `Election`."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts, timeout=ttl)
    client.start()

    def lead() -> None:
        won()
        threading.Event().wait()

    client.Election(f"/bare/election/{index}", "benchmark").run(lead)


ELECTIONS: dict[str, tuple[str, Callable[[str, float, int, Callable[[], None]], None]]] = {
    "etcd": ("a lease and a key that was absent", elect_by_lease),
    "zookeeper": ("kazoo's Election", elect_by_kazoo),
}


def main(kind: str, hosts: str, ttl: str, count: str) -> None:
    """Take part in all of them, joined evenly within a third of the ttl, the time of a heartbeat:
    those that lead are then killed at ten moments of it, by one signal."""
    saying = threading.Lock()

    def join(index: int) -> None:
        def won() -> None:
            with saying:
                print(json.dumps({"election": index, "at": time.time()}), flush=True)

        time.sleep(float(ttl) / 3 * index / int(count))
        ELECTIONS[kind][1](hosts, float(ttl), index, won)

    for index in range(int(count)):
        threading.Thread(target=join, args=(index,), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
