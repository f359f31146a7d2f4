"""The shared feed: one read for all streams, and none that misses an event or has one twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import attrs
import pytest

from jrs.backends.memory import MemoryBackend, Space
from jrs.contract.errors import NotFound, Unavailable
from jrs.sidecar.changes import Changes
from jrs.sidecar.shared_feed import Sent, SentPage, SharedFeed


@attrs.define
class Store:
    """What has happened: the events 1, 2, …, each with its number as its cursor."""

    newest: int = 0
    oldest: int = 1
    page: int = 4
    reads: list[str] = attrs.field(factory=list)
    errors: list[Exception] = attrs.field(factory=list)

    def read(self, cursor: str) -> SentPage:
        self.reads.append(cursor)
        if self.errors:
            raise self.errors.pop()
        first = int(cursor) + 1
        if first < self.oldest:
            raise NotFound("it was swept")
        last = min(self.newest, first + self.page - 1)
        events = tuple(Sent(b"%d " % at, str(at)) for at in range(first, last + 1))
        return SentPage(events, str(last), last < self.newest)


@pytest.fixture
def changes() -> Iterator[Changes]:
    with MemoryBackend(Space()) as backend:
        yield Changes(backend)


def test_one_read_for_all(changes: Changes) -> None:
    """All that ask at the same time share it, wherever each has come to."""
    store = Store(newest=3)
    feed = SharedFeed(changes, store.read)

    async def run() -> None:
        assert await feed.behind("3") is None
        feed.begin("3")
        feed.begin("2")
        assert await feed.behind("2") is None
        store.newest, changes.generation = 10, 1
        found = await asyncio.gather(*(feed.behind("3") for _ in range(20)))
        assert found == [Sent(b"4 5 6 7 8 9 10 ", "10")] * 20
        assert await feed.behind("8") == Sent(b"9 10 ", "10")
        assert await feed.behind("10") == Sent(b"", "10")

    asyncio.run(run())
    assert store.reads == ["3", "3", "7"]


def test_after_the_last_stream_has_gone(changes: Changes) -> None:
    """What happens while nobody follows is read by the next stream for itself; from then on all
    share one read again."""
    store = Store(newest=5, page=100)
    feed = SharedFeed(changes, store.read)

    async def run() -> None:
        feed.begin("5")
        store.newest, changes.generation = 6, 1
        assert await feed.behind("5") == Sent(b"6 ", "6")
        store.newest, changes.generation = 9, 2  # Nobody follows.
        feed.begin("9")
        store.newest, changes.generation = 10, 3
        store.reads.clear()
        found = await asyncio.gather(*(feed.behind("9") for _ in range(20)))
        assert found == [Sent(b"10 ", "10")] * 20

    asyncio.run(run())
    assert store.reads == ["6"]


def test_it_reads_after_each_change(changes: Changes) -> None:
    """A read that began before the change does not count."""
    store = Store(newest=1)
    feed = SharedFeed(changes, store.read)

    async def run() -> None:
        feed.begin("1")
        for newest in range(2, 30):
            early = asyncio.create_task(feed.behind("1"))
            await asyncio.sleep(0)
            store.newest, changes.generation = newest, newest
            found = await feed.behind(str(newest - 1))
            assert found == Sent(b"%d " % newest, str(newest))
            await early

    asyncio.run(run())


def test_only_the_newest_are_kept(changes: Changes) -> None:
    """A stream that is far behind reads for itself."""
    store = Store(newest=1)
    feed = SharedFeed(changes, store.read, most=5)

    async def run() -> None:
        feed.begin("1")
        store.newest, changes.generation = 12, 1
        assert await feed.behind("1") is None
        assert await feed.behind("6") is None
        assert await feed.behind("7") == Sent(b"8 9 10 11 12 ", "12")
        store.newest, changes.generation = 13, 2
        assert await feed.behind("7") is None
        assert await feed.behind("12") == Sent(b"13 ", "13")

    asyncio.run(run())


def test_what_was_swept(changes: Changes) -> None:
    """The feed begins again where the next stream has come to."""
    store = Store(newest=1)
    feed = SharedFeed(changes, store.read)

    async def run() -> None:
        feed.begin("1")
        store.newest, store.oldest, changes.generation = 20, 10, 1
        assert await feed.behind("1") is None
        feed.begin("20")
        store.newest, changes.generation = 21, 2
        assert await feed.behind("20") == Sent(b"21 ", "21")
        assert await feed.behind("1") is None

    asyncio.run(run())


def test_a_read_that_fails(changes: Changes) -> None:
    """All that share it are told, and the next one reads again."""
    store = Store(newest=2)
    feed = SharedFeed(changes, store.read)

    async def run() -> None:
        feed.begin("1")
        changes.generation = 1
        store.errors.append(Unavailable("away"))
        found = await asyncio.gather(*(feed.behind("1") for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [Unavailable] * 3
        assert await feed.behind("1") == Sent(b"2 ", "2")

    asyncio.run(run())
