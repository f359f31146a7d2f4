"""etcd's limits: compaction, operations and bytes of a request, large replies, a full store."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jrs.backends.etcd import backend as backend_module
from jrs.backends.etcd._etcd3 import grpc, rpc
from jrs.backends.etcd.backend import EtcdBackend
from jrs.backends.etcd.many_gets import ManyGets
from jrs.backends.etcd.page_sizes import PageSizes
from jrs.backends.etcd.transaction import MAX_BYTES, MAX_OPS
from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError, OutcomeUnknown, TooLarge, Unavailable
from jrs.contract.operations import Create, Op, Record, Update
from jrs.testing.servers import EtcdServer
from tests.backends.etcd.support import Counted, opened, stream_of
from tests.support import BOUND, until

MIB = 1 << 20


@pytest.fixture
def backend(etcd_server: EtcdServer) -> Iterator[EtcdBackend]:
    with opened(etcd_server.url()) as backend:
        yield backend


def compact(backend: EtcdBackend) -> None:
    """Forget all revisions but the newest, as operators have it done every hour."""
    status = backend.connection.each(
        lambda stubs: stubs.maintenance.Status, rpc.StatusRequest(), BOUND
    )[0]
    request = rpc.CompactionRequest(revision=status.header.revision, physical=True)
    backend.connection.read(lambda stubs: stubs.kv.Compact, request, Deadline.after(BOUND))


def fill(backend: EtcdBackend, count: int, value: bytes = b"v") -> list[str]:
    keys = [f"k/{index:05}" for index in range(count)]
    for future in [backend.commit_async(Create(key, value)) for key in keys]:
        future.result(BOUND)
    return keys


def test_a_compaction_under_a_scan(backend: EtcdBackend) -> None:
    """The revision of the first page is gone when the second one is asked for."""
    keys = fill(backend, 1200)
    scan = backend.scan("k/")
    first = next(scan)
    record = backend.get(keys[-1])
    assert record is not None
    backend.commit(Update(keys[-1], b"new", record.version))
    compact(backend)
    with pytest.raises(Unavailable, match="compacted"):
        backend._page_at("k/", None, 1, first.version, Deadline.after(BOUND))

    rest = list(scan)
    assert [one.key for one in (first, *rest)] == keys
    assert rest[-1].value == b"new"


def test_a_scan_sees_one_revision(backend: EtcdBackend) -> None:
    """What is written while it runs is left out, without a compaction."""
    keys = fill(backend, 1200)
    scan = backend.scan("k/")
    next(scan)
    backend.commit(Create("k/99999", b"v"))
    assert [one.key for one in scan] == keys[1:]


def test_a_compaction_under_a_watch(backend: EtcdBackend) -> None:
    """It asks for no past, so there is none to be gone."""
    with backend.watch("k/") as watch:
        until(lambda: stream_of(watch) is not None, "it listens")
        fill(backend, 3)
        compact(backend)
        while watch.wait(0.5):
            pass
        backend.commit(Create("k/a", b"v"))
        assert watch.wait(BOUND)


def test_a_server_takes_128_operations_and_we_send_fewer(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def puts(count: int) -> Any:
        key = uuid.uuid4().hex
        puts = [rpc.PutRequest(key=f"{key}/{index}".encode()) for index in range(count)]
        return rpc.TxnRequest(success=[rpc.RequestOp(request_put=put) for put in puts])

    stubs = backend.connection._members[0]
    stubs.kv.Txn(puts(128), timeout=BOUND)
    with pytest.raises(grpc.RpcError, match="too many operations"):
        stubs.kv.Txn(puts(129), timeout=BOUND)

    ops = [Create(f"k/{index}", b"v") for index in range(MAX_OPS + 1)]
    sent = Counted(monkeypatch, backend.connection, "write")
    with pytest.raises(TooLarge, match=f"{MAX_OPS + 1} operations"):
        backend.commit(*ops)
    assert sent.calls == 0
    backend.commit(*ops[:MAX_OPS])


def test_bytes_of_a_commit_are_counted_before_it_is_sent(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses 1.5 MiB, by which time they have crossed the network."""
    stubs = backend.connection._members[0]
    with pytest.raises(grpc.RpcError, match="too large"):
        stubs.kv.Put(rpc.PutRequest(key=b"k", value=bytes(1_600_000)), timeout=BOUND)

    sent = Counted(monkeypatch, backend.connection, "write")
    with pytest.raises(TooLarge, match=f"limit {MAX_BYTES:,}"):
        backend.commit(Create("a", bytes(MIB)), Create("b", bytes(MIB)))
    assert sent.calls == 0
    backend.commit(Create("a", bytes(MIB)), Create("b", bytes(300_000)))


def test_a_server_that_takes_less_than_the_usual(start_etcd: Callable[..., EtcdServer]) -> None:
    """Then a batch is refused, and each commit of it is sent alone."""
    server = start_etcd(flags=["--max-txn-ops=8", "--max-request-bytes=65536"])
    with opened(server.url()) as backend:
        keys = fill(backend, 40)
        assert [one.key for one in backend.scan("")] == keys
        for _ in range(2):
            assert [isinstance(one, Record) and one.key for one in backend.get_many(keys)] == keys
        assert backend._gets.most <= 8
        with pytest.raises(TooLarge, match="too many operations"):
            backend.commit(*(Create(f"l/{index}", b"v") for index in range(9)))
        with pytest.raises(TooLarge, match="too large"):
            backend.commit(Create("l", bytes(70_000)))
        with pytest.raises(TooLarge, match="larger than max"):  # By gRPC, half a MiB above that.
            backend.commit(Create("l", bytes(700_000)))
        assert list(backend.scan("l")) == []


def test_replies_of_many_megabytes(backend: EtcdBackend) -> None:
    """gRPC's own limit is 4 MiB. And no page is larger than it has to be."""
    stubs = backend.connection._members[0]
    keys = [f"k/{index:02}" for index in range(24)]
    for key in keys:
        backend.commit(Create(key, bytes(MIB)))
    assert len(backend.get_many(keys)) == 24
    sizes: list[int] = []
    for record in backend.scan("k/"):
        sizes.append(len(record.value))
    assert sizes == [MIB] * 24

    with grpc.insecure_channel(backend.connection.address.hosts) as stock:
        request = rpc.RangeRequest(key=backend.name("k/"), range_end=backend.name("k0"))
        with pytest.raises(grpc.RpcError, match="larger than max"):
            rpc.KVStub(stock).Range(request, timeout=BOUND)
    assert stubs.answers


def replies(backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of records in each reply."""
    asked: list[int] = []
    inner = backend._range

    def ranged(*args: Any, **fields: Any) -> Any:
        found = inner(*args, **fields)
        asked.append(len(found.kvs))
        return found

    monkeypatch.setattr(backend, "_range", ranged)
    return asked


def test_the_first_page_is_small(backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """How large the records are is known only behind it; a listing may need the first one alone."""
    fill(backend, 100)
    asked = replies(backend, monkeypatch)
    next(backend.scan("k/"))
    assert asked == [64]


def test_a_further_listing_takes_one_request(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took three for a thousand records. Those of another kind may weigh more, and huge ones
    still come in small pages."""
    keys = fill(backend, 900)
    for number in range(100):
        backend.commit(Create(f"huge/{number:03}", bytes(MIB // 4)))
    for _ in range(2):
        assert [one.key for one in backend.scan("k/")] == keys
        assert len(list(backend.scan("huge/"))) == 100
    asked = replies(backend, monkeypatch)
    assert [one.key for one in backend.scan("k/")] == keys
    assert asked == [900]
    asked.clear()
    next(backend.scan("huge/"))
    assert asked == [31]


def test_the_weight_of_one_prefix_says_nothing_about_another_one() -> None:
    """A first page of the huge records of another job was a thousand of them."""
    sizes, light = PageSizes(), [Record("k/a/1", b"v", 1)] * 64
    heavy = [Record("k/a/1", bytes(MIB // 2), 1)] * 16
    sizes.after("k/a/", 64, light, first=True)
    assert sizes.first("k/a/") == 1000
    assert sizes.first("k/b/") == 64

    sizes.after("k/a/", 64, heavy, first=False)
    sizes.after("k/a/", 16, light, first=True)  # The next scan does not forget them at once.
    assert sizes.first("k/a/") < 64
    for _ in range(20):
        sizes.after("k/a/", 16, light, first=True)
    assert sizes.first("k/a/") == 1000


def test_the_first_page_of_created_since_has_the_whole_time(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reads as much for a small page, which failed as well."""
    fill(backend, 3)
    given: list[Deadline] = []
    inner = backend._page_at

    def page_at(*args: Any) -> Any:
        given.append(args[4])
        return inner(*args)

    monkeypatch.setattr(backend, "_page_at", page_at)
    deadline = Deadline.after(BOUND)
    assert len(backend.created_since("k/", 1, deadline=deadline)) == 3
    assert given == [deadline]


def test_created_since_comes_in_pages(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All from one revision, so that nothing is missed that was created before what is found; it
    was one reply, however large."""
    old = fill(backend, 3)
    since = backend.get(old[-1])
    assert since is not None
    keys = [f"k/later/{number:03}" for number in range(200)]
    for key in keys:
        backend.commit(Create(key, b"v"))
    asked = replies(backend, monkeypatch)
    assert [one.key for one in backend.created_since("k/", since.version + 1)] == keys
    assert asked == [64, 136]

    inner = backend._page_at

    def compacted_once(*args: Any) -> Any:
        found = inner(*args)
        monkeypatch.setattr(backend, "_page_at", inner)
        backend.commit(Create("k/a", b"v"))  # It sorts before what has been read.
        compact(backend)
        return found

    backend._page_sizes = PageSizes()
    monkeypatch.setattr(backend, "_page_at", compacted_once)
    found = {one.key for one in backend.created_since("k/", since.version + 1)}
    assert found == {*keys, "k/a"}


def test_a_page_that_is_too_large_to_come_in_time(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is asked for in small ones, which grow again; a server that is gone is not asked forever."""
    asked: list[int] = []
    most = 100
    inner = backend_module.EtcdBackend._page_at

    def page_at(self: Any, prefix: str, after: Any, limit: int, *rest: Any) -> Any:
        asked.append(limit)
        if limit > most:
            raise Unavailable("not in time")
        return inner(self, prefix, after, limit, *rest)

    monkeypatch.setattr(backend_module.EtcdBackend, "_page_at", page_at)
    keys = fill(backend, 150)
    assert [one.key for one in backend.scan("k/")] == keys
    assert asked[:4] == [64, 256, 16, 64]

    # The weight is known, but not whether so many come in time.
    asked.clear()
    backend._page_sizes.failed("k/")
    next(backend.scan("k/"))
    assert asked == [16]

    most = 0
    with pytest.raises(Unavailable, match="not in time"):
        list(backend.scan("k/"))


def test_many_records_that_are_too_large_to_come_in_time(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Are asked for in fewer at a time, and in more again; alone as the last resort."""
    asked: list[int] = []
    most = 10
    inner = ManyGets._request

    def gets(self: Any, keys: Any, deadline: Any) -> Any:
        asked.append(len(keys))
        if len(keys) > most:
            raise Unavailable("not in time")
        return inner(self, keys, deadline)

    monkeypatch.setattr(ManyGets, "_request", gets)
    keys = fill(backend, 150)
    assert [one.key for one in backend.get_many(keys) if isinstance(one, Record)] == keys
    assert asked[:4] == [128, 32, 8, 32]
    assert sum(size for size in asked if size <= most) == 150

    most = 0
    with pytest.raises(Unavailable, match="not in time"):
        backend.get_many(keys)


def test_a_store_that_is_full(start_etcd: Callable[..., EtcdServer]) -> None:
    """A write says so, and may have happened: etcd carries out the one that hits the limit. Reads
    continue. So does everything else, once it was compacted and defragmented."""
    server = start_etcd(flags=["--quota-backend-bytes=8388608"])
    with opened(server.url()) as backend:
        full: JrsError | None = None
        written: list[str] = []
        for index in range(400):  # It looks at its size every now and then.
            op: Op = Create(f"k/{index:03}", bytes(MIB // 2))
            try:
                backend.commit(op)
            except OutcomeUnknown as error:
                full = error
                break
            written.append(op.key)
        assert full is not None
        assert "out of space" in str(full)
        with pytest.raises(OutcomeUnknown, match="alarm disarm"):
            backend.commit(Create("l", b"v"))
        assert {one.key for one in backend.scan("k/")} >= set(written)
        assert backend.get("l") is None
        with pytest.raises(Unavailable, match="out of space"):
            opened(server.url())

        for key in written:
            _delete(server, backend.name(key))
        compact(backend)
        server.ask("/v3/maintenance/defragment", {})
        alarms = server.ask("/v3/maintenance/alarm", {"action": "GET"})["alarms"]
        for alarm in alarms:
            server.ask("/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})
        backend.commit(Create("l", b"v"))


def _delete(server: EtcdServer, key: bytes) -> None:
    server.ask("/v3/kv/deleterange", {"key": base64.b64encode(key).decode()})
