"""Layout and scanning: where keys live, in which order they come back, and from which moment."""

from __future__ import annotations

import random
import threading
import uuid
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jrs.backends.zookeeper import created
from jrs.backends.zookeeper import scan as scanning
from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.backends.zookeeper.layout import (
    Layout,
    directory_of,
    key_of,
    prefix_of,
    shards_of,
    touches,
)
from jrs.backends.zookeeper.protocol import codec
from jrs.backends.zookeeper.protocol.multi_read import fitting, read
from jrs.contract.errors import TooLarge
from jrs.contract.operations import EPOCH_KEY, Create, Delete, Op, Record, Update
from jrs.store.opening import open_backend
from jrs.testing.contract import contents, lead, present
from jrs.testing.servers import ZooKeeperServer

BOUND = 30.0
Open = Callable[..., ZooKeeperBackend]
LAYOUT = Layout("/jrs", "c")

names = st.text("ab.-_9Z", min_size=1, max_size=4)
keys = st.lists(names, min_size=1, max_size=4).map("/".join)


# -- layout ------------------------------------------------------------------------------------


@given(keys, keys)
def test_every_key_has_a_path_of_its_own(one: str, other: str) -> None:
    """The path leads back to the key, and no name in it is one that ZooKeeper does not take."""
    for key in (one, other):
        *_, directory, shard, name = LAYOUT.record(key).split("/")
        assert key == key_of(directory, name)
        assert directory == directory_of(key)
        assert shard in shards_of(directory)
        assert not {".", "..", ""} & set(LAYOUT.record(key)[1:].split("/"))
        assert key.startswith(prefix_of(directory))
    assert (one == other) == (LAYOUT.record(one) == LAYOUT.record(other))


@given(keys, st.integers(0, 8))
def test_the_directories_of_a_prefix(key: str, length: int) -> None:
    """Every prefix of a key touches the directory that the key lives in."""
    assert touches(directory_of(key), key[:length])


def test_only_the_epoch_lives_in_its_shard() -> None:
    """No deletion of another key can be taken for one of the fence's record."""
    shard = LAYOUT.shard(EPOCH_KEY)
    assert not any(LAYOUT.shard(f"leader/{number}") == shard for number in range(5000))
    assert shard.rpartition("/")[2] in shards_of(directory_of(EPOCH_KEY))


@pytest.mark.parametrize(
    "pattern", ["results/job-{}", "results/2026-11-{:08d}-daily", "results/{:032x}", "dirty/{}"]
)
def test_a_million_keys(pattern: str) -> None:
    """With a million keys in a directory no znode has 10,000 children, or a mebibyte of names."""
    counts: Counter[int] = Counter()
    lengths: Counter[int] = Counter()
    for number in range(10**6):
        key = pattern.format(number)
        counts[zlib.crc32(key.encode()) & 255] += 1
        if number % 100 == 0:
            lengths[zlib.crc32(key.encode()) & 255] += len(key) - key.index("/") - 1 + 4
            assert LAYOUT.shard(key).endswith(f"/{zlib.crc32(key.encode()) & 255:02x}")

    assert len(counts) == 256
    assert max(counts.values()) < 5000
    assert max(lengths.values()) * 100 < 1 << 20


def test_the_longest_job_ids() -> None:
    """Even with ids of 128 characters the names of a shard stay below a mebibyte."""
    chance = random.Random(7)
    counts: Counter[int] = Counter()
    for _ in range(10**6):
        counts[zlib.crc32(b"%d" % chance.getrandbits(64)) & 255] += 1

    assert max(counts.values()) * (128 + 4) < 1 << 20


# -- order -------------------------------------------------------------------------------------


def test_twenty_thousand_keys(handle: Open) -> None:
    """A directory of 20,000 keys comes back in order, from anywhere, and its shards are small."""
    backend = handle()
    made = [f"r/{number * 7919 % 100003:06d}" for number in range(20_500)]
    futures = [
        backend.commit_async(*(Create(key, key.encode()) for key in made[at : at + 128]))
        for at in range(0, len(made), 128)
    ]
    for future in futures:
        future.result(BOUND)
    made.sort()
    found = list(backend.scan("r/"))

    assert made == [record.key for record in found]
    assert all(record.value == record.key.encode() for record in found)
    assert made[7000:7005] == [r.key for r in backend.scan("r/", after=made[6999], limit=5)]
    assert [key for key in made if key.startswith("r/01")] == [r.key for r in backend.scan("r/01")]
    sizes = backend._connection
    shards = [f"{backend._planner.layout.directory('r')}/{shard}" for shard in shards_of("r")]
    nodes = read(sizes, [codec.get_data(path) for path in shards], backend._deadline())
    assert max(node.children for node in nodes if isinstance(node, codec.Node)) < 200


@pytest.mark.parametrize(("at_once", "window"), [(50, 10**6), (10**6, 30), (50, 30), (1, 1)])
def test_more_names_than_fit(
    handle: Open, monkeypatch: pytest.MonkeyPatch, at_once: int, window: int
) -> None:
    """Names that do not fit into one reply, or into memory, come in pieces, in order all the
    same."""
    backend, other = handle(), handle()
    made = sorted({f"{directory}{number % 97}-{number}" for number in range(150)
                   for directory in ("a/", "b/", "", "a/b/")})  # fmt: skip
    for at in range(0, len(made), 100):
        other.commit(*(Create(key, b"") for key in made[at : at + 100]))
    monkeypatch.setattr(scanning, "_AT_ONCE", at_once)
    monkeypatch.setattr(scanning, "_WINDOW", window)
    for prefix in ("a/b/9", "b/1") if window == 1 else ("", "a", "a/", "a/b", "b/", "1", "c"):
        expected = [key for key in made if key.startswith(prefix)]
        assert expected == [record.key for record in backend.scan(prefix)]
        assert expected[3:9] == [
            record.key for record in backend.scan(prefix, after=expected[2], limit=6)
        ] if len(expected) > 2 else True  # fmt: skip


def test_names_that_do_not_fit_into_one_request(
    zookeeper_server: ZooKeeperServer,
) -> None:
    """Where the cluster has a long name, a scan of everything asks for its names in pieces."""
    made = sorted(f"directory-{number:02}/key" for number in range(31))
    url = f"{zookeeper_server.url()}?timeout={BOUND}"
    with open_backend(url, cluster=uuid.uuid4().hex * 3) as backend:
        for key in made:
            backend.commit(Create(key, b""))
        for _ in "by their sizes", "by what was found":
            assert [record.key for record in backend.scan("")] == made
        assert [record.key for record in backend.scan("", after=made[20])] == made[21:]


def test_a_read_that_no_server_takes_is_refused(handle: Open) -> None:
    """It would end the connection, again and again until the deadline."""
    backend = handle()
    path = backend._planner.layout.map
    parts = [codec.get_data(path)] * (1 + 1_048_576 // len(codec.get_data(path)))
    with pytest.raises(TooLarge, match="limit"):
        read(backend._connection, parts, backend._deadline())
    some = parts[: fitting(parts)]
    assert len(read(backend._connection, some, backend._deadline())) == len(some)


def test_values_of_all_sizes(handle: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large values make small replies, and none is left out."""
    backend = handle()
    monkeypatch.setattr(scanning, "_BYTES", 1000)
    made = {f"v/{number:03d}": b"x" * (number * 37 % 3000) for number in range(200)}
    for at in range(0, 200, 50):
        backend.commit(*(Create(key, made[key]) for key in sorted(made)[at : at + 50]))

    assert made == contents(backend)
    assert [record.value for record in backend.scan("v/", limit=120)] == [
        made[key] for key in sorted(made)[:120]
    ]
    found = backend.get_many([*made, "v/none"])
    assert [one.value if isinstance(one, Record) else one for one in found] == [
        *made.values(),
        None,
    ]


def test_listing_the_dirty_ones_reads_nothing_of_the_clean(handle: Open) -> None:
    """A scan of one directory asks for as much whatever lies in the others."""
    backend = handle()
    backend.commit(*(Create(f"dirty/{number}", b"") for number in range(100)))

    def requests() -> int:
        seen: list[Any] = []
        submit = backend._connection.submit

        def counted(*some: Any) -> None:
            seen.extend(some)
            submit(*some)

        backend._connection.submit = counted
        assert len(list(backend.scan("dirty/"))) == 100
        backend._connection.submit = submit
        return sum(len(one._body) for one in seen)

    requests()
    before = requests()
    for at in range(0, 3000, 100):
        backend.commit(*(Create(f"results/{number}", b"") for number in range(at, at + 100)))

    assert before == requests()


# -- moments -----------------------------------------------------------------------------------


def test_a_page_is_of_one_moment(handle: Open) -> None:
    """Keys that are always written together, and one that moves to and fro, look so in a page."""
    writer, reader = handle(), handle()
    writer.commit(*(Create(f"p/pair-{n}", b"0") for n in range(6)), Create("p/here", b""))
    stop = threading.Event()

    def write() -> None:
        count, here = 0, True
        while not stop.is_set():
            count += 1
            pair = [present(writer, f"p/pair-{n}") for n in range(6)]
            old, new = ("p/here", "p/there") if here else ("p/there", "p/here")
            ops: list[Op] = [Update(one.key, b"%d" % count, one.version) for one in pair]
            writer.commit(*ops, Delete(old), Create(new, b""))
            here = not here

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen = set()
        for _ in range(150):
            page = {record.key: record.value for record in reader.scan("p/")}
            values = {page[f"p/pair-{n}"] for n in range(6)}
            assert len(values) == 1
            assert ("p/here" in page) != ("p/there" in page)
            seen |= values
    finally:
        stop.set()
        thread.join()
    assert len(seen) > 10


def test_a_scan_ends_whatever_changes(handle: Open) -> None:
    """A directory in which everything changes all the time is scanned all the same."""
    writer, reader = handle(), handle()
    writer.commit(*(Create(f"p/{n:03d}", b"") for n in range(100)))
    stop = threading.Event()

    def write(number: int) -> None:
        chance = random.Random(number)
        while not stop.is_set():
            key = f"p/{chance.randrange(100):03d}"
            writer.commit_async(Delete(key))
            writer.commit_async(Create(key, b"")).exception(BOUND)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            found = [record.key for record in reader.scan("p/")]
            assert sorted(set(found)) == found
            assert len(found) > 90
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_scan_sees_a_directory_that_appears(handle: Open) -> None:
    """What another client commits to a new directory is there for the next scan of everything."""
    one, other = handle(), handle()
    assert contents(one) == {}
    with lead(other):
        pass
    for name in ("x", "y", "z"):
        other.commit(Create(f"{name}/k", b""), Create(f"{name}-loose", b""))
        assert contents(one) == contents(other)
    assert len(contents(one)) == 6


def test_what_is_new_costs_the_shards_that_have_changed(
    handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper cannot list by transaction: `created_since` asks each shard whether it has changed,
    and reads those shards alone that have."""
    backend = handle()
    kept, new = 600, 3
    for number in range(kept):
        backend.commit(Create(f"feed/job/{number:04}", b""))
    newest = backend.created_since("feed/", 0)[-1].version
    for number in range(new):
        backend.commit(Create(f"feed/job/new-{number}", b""))
    asked: list[bytes] = []

    def counted(connection: Any, requests: list[Any], deadline: Any) -> Any:
        asked.extend(requests)
        return read(connection, requests, deadline)

    monkeypatch.setattr(created, "read", counted)
    found = backend.created_since("feed/", newest + 1)

    assert [one.key for one in found] == [f"feed/job/new-{number}" for number in range(new)]
    shards = len(shards_of("feed"))
    sizes = Counter(
        LAYOUT.record(f"feed/job/{number:04}").rpartition("/")[0] for number in range(kept)
    )
    assert shards + new < len(asked) <= shards + new * (1 + 1 + max(sizes.values()))
