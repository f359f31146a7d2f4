"""The contract's test suite: subclass its classes with your fixtures, and every case runs.

::

    class MyStore(BackendFixtures):
        @pytest.fixture
        def opener(self, tmp_path):
            return lambda cluster: open_backend(f"mystore://{tmp_path}", cluster=cluster)

    class TestRead(MyStore, ReadContract): ...
    class TestCommit(MyStore, CommitContract): ...

A case that needs something the backend does not declare in its `capabilities` is skipped and says
what is missing. Cases wait for conditions with a generous bound; none asserts how long one took.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from jrs.backend import (
    EPOCH_KEY,
    Absent,
    Backend,
    Check,
    Create,
    Delete,
    Fence,
    Leadership,
    Op,
    Record,
    Update,
)
from jrs.errors import Conflict, Fenced, InvalidInput, JrsError, TooLarge, Unavailable
from jrs.testing.model import check_against_model
from jrs.testing.worker import Died, Worker

BOUND = 60.0
"""Seconds after which a condition that should hold soon is taken to never hold."""

Opener = Callable[[str], Backend]
"""Opens a handle on the cluster of that name, in the one store of the test."""

Hang = Callable[[Backend, float], Fence]
"""Makes somebody else the leader with that ttl, lets it hang, and returns its fence."""


class BackendFixtures:
    """The fixtures of every case. A backend overrides `opener`; its handles are closed for it."""

    @pytest.fixture
    def opener(self) -> Opener:
        raise NotImplementedError("override the fixture `opener`")

    @pytest.fixture
    def handles(self, opener: Opener) -> Iterator[Opener]:
        """Open like `opener`, and close everything when the test ends."""
        with ExitStack() as stack:
            yield lambda cluster: stack.enter_context(opener(cluster))

    @pytest.fixture
    def cluster(self) -> str:
        return f"contract-{uuid.uuid4().hex}"

    @pytest.fixture
    def backend(self, handles: Opener, cluster: str) -> Backend:
        return handles(cluster)

    @pytest.fixture
    def other(self, handles: Opener, cluster: str) -> Backend:
        """A second client of the same cluster."""
        return handles(cluster)

    @pytest.fixture
    def worker(self, backend: Backend) -> Iterator[Callable[[], Worker]]:
        """Start processes on the same cluster; killed when the test ends."""
        if not backend.capabilities.multi_process:
            pytest.skip("one process only, as its capabilities say")
        with ExitStack() as stack:
            yield lambda: stack.enter_context(Worker(backend.url, backend.cluster))

    @pytest.fixture
    def hang(self, request: pytest.FixtureRequest) -> Hang:
        """Override it where a process can not be stopped."""
        start: Callable[[], Worker] = request.getfixturevalue("worker")

        def stopped_process(backend: Backend, ttl: float) -> Fence:
            process = start()
            fence = process.lead("hung", ttl)
            process.stop()
            return fence

        return stopped_process


def contents(backend: Backend, prefix: str = "") -> dict[str, bytes]:
    """Return everything under `prefix`, the election's own record left out."""
    return {record.key: record.value for record in backend.scan(prefix) if record.key != EPOCH_KEY}


def present(backend: Backend, key: str) -> Record:
    """Return the record of a key that must be there."""
    record = backend.get(key)
    assert record is not None, f"{key} is absent"
    return record


def lead(backend: Backend, candidate: str = "me", ttl: float | None = None) -> Leadership:
    """Campaign until `candidate` leads."""
    limits = backend.capabilities
    if ttl is None:
        ttl = min(max(10.0, limits.min_ttl), limits.max_ttl)
    stop = threading.Event()
    timer = threading.Timer(BOUND, stop.set)
    timer.start()
    try:
        won = backend.campaign(candidate, ttl=ttl, stop=stop)
    finally:
        timer.cancel()
    assert won is not None, f"{candidate} did not lead within {BOUND:g} s"
    return won


class ReadContract:
    """`get` and `close`."""

    def test_an_absent_key_reads_as_none(self, backend: Backend) -> None:
        """A key that was never written has no record."""
        assert backend.get("no/such/key") is None

    def test_what_was_created_is_read_back(self, backend: Backend, other: Backend) -> None:
        """A committed value is read back byte for byte by every client."""
        value = bytes(range(256)) + b"\\n\\t\\0\\\\~\n\t\0\\\r\n~\n"
        backend.commit(Create("a/b", value))

        for client in (backend, other):
            record = present(client, "a/b")
            assert ("a/b", value) == (record.key, record.value)

    @pytest.mark.parametrize("value", [b"", b"\n", b"\\", b"\0", b"~", b"~\n", b"\t-\t", b"\xff"])
    def test_short_awkward_values(self, backend: Backend, other: Backend, value: bytes) -> None:
        """Values that could be mistaken for a format's own signs are kept as they are."""
        backend.commit(Create("k", value), Create("l", value * 3))

        assert {"k": value, "l": value * 3} == contents(other)

    def test_a_read_is_linearizable(self, backend: Backend, other: Backend) -> None:
        """A client sees what another one was told is committed, every time."""
        for number in range(50):
            writer, reader = (backend, other) if number % 2 else (other, backend)
            writer.commit(Create(f"n/{number}", b"%d" % number))

            assert b"%d" % number == present(reader, f"n/{number}").value

    def test_both_clients_agree_on_the_version(self, backend: Backend, other: Backend) -> None:
        """A version read by one client is good for a commit of the other."""
        backend.commit(Create("k", b"1"))
        other.commit(Update("k", b"2", present(backend, "k").version))

        assert present(backend, "k") == present(other, "k")

    def test_clusters_are_apart(self, handles: Opener, backend: Backend, cluster: str) -> None:
        """What one cluster stores is invisible to another one of the same store."""
        neighbour = handles(f"{cluster}-2")
        backend.commit(Create("k", b"mine"))
        neighbour.commit(Create("k", b"yours"))

        assert contents(backend) == {"k": b"mine"}
        assert contents(neighbour) == {"k": b"yours"}

    @pytest.mark.parametrize("key", ["", "/", "a/", "/a", "a//b", "ä", "a b", "a\n", "a\0", "a*"])
    def test_what_is_no_key_is_refused(self, backend: Backend, key: str) -> None:
        """A key outside of the declared alphabet is refused by `get` and `commit` alike."""
        with pytest.raises(InvalidInput):
            backend.get(key)
        with pytest.raises(InvalidInput):
            backend.commit(Create(key, b""))
        assert contents(backend) == {}

    def test_close_is_idempotent_and_final(self, backend: Backend, other: Backend) -> None:
        """A closed handle refuses every call with a typed error and harms no other handle."""
        backend.commit(Create("k", b""))
        backend.close()
        backend.close()

        with pytest.raises(Unavailable):
            backend.get("k")
        with pytest.raises(Unavailable):
            list(backend.scan(""))
        with pytest.raises(Unavailable):
            backend.commit(Create("l", b""))
        with pytest.raises(Unavailable):
            backend.commit_async(Create("l", b"")).result(BOUND)
        assert contents(other) == {"k": b""}


class CommitContract:
    """Conditions, atomicity and versions."""

    def test_create_is_refused_where_the_key_is_present(self, backend: Backend) -> None:
        """The first value stays when the key is created again."""
        backend.commit(Create("k", b"1"))

        with pytest.raises(Conflict) as caught:
            backend.commit(Create("k", b"2"))
        assert Create("k", b"2") == caught.value.op
        assert contents(backend) == {"k": b"1"}

    def test_update_needs_the_current_version(self, backend: Backend, other: Backend) -> None:
        """An update with an old version is refused whoever made the newer one."""
        backend.commit(Create("k", b"1"))
        old = present(backend, "k")
        other.commit(Update("k", b"2", old.version))

        with pytest.raises(Conflict) as caught:
            backend.commit(Update("k", b"3", old.version))
        assert caught.value.op.key == "k"
        assert present(backend, "k").value == b"2"

    def test_versions_grow(self, backend: Backend) -> None:
        """Every write of a key gives it a greater version, through deletion and creation too."""
        backend.commit(Create("k", b"same"))
        seen = [present(backend, "k").version]
        for _ in range(3):
            backend.commit(Update("k", b"same", seen[-1]))
            seen.append(present(backend, "k").version)
            backend.commit(Delete("k"))
            backend.commit(Create("k", b"same"))
            seen.append(present(backend, "k").version)

        assert sorted(set(seen)) == seen

    def test_a_version_does_not_survive_deletion(self, backend: Backend) -> None:
        """A key that was deleted and created again is not at its old version."""
        backend.commit(Create("k", b"1"))
        old = present(backend, "k").version
        backend.commit(Delete("k"))
        backend.commit(Create("k", b"1"))

        for op in (Update("k", b"2", old), Delete("k", old), Check("k", old)):
            with pytest.raises(Conflict):
                backend.commit(op)
        assert contents(backend) == {"k": b"1"}

    def test_a_check_and_an_absent_write_nothing(self, backend: Backend) -> None:
        """Conditions alone leave the key at its version."""
        backend.commit(Create("k", b"1"))
        before = present(backend, "k")
        backend.commit(Check("k", before.version), Absent("l"))

        assert before == present(backend, "k")
        assert backend.get("l") is None

    def test_delete_with_and_without_a_version(self, backend: Backend) -> None:
        """Deleting removes the key under its condition and refuses an absent one."""
        backend.commit(Create("k", b""), Create("l", b""))
        backend.commit(Delete("k"), Delete("l", present(backend, "l").version))
        assert contents(backend) == {}

        for op in (Delete("k"), Delete("l", 1)):
            with pytest.raises(Conflict):
                backend.commit(op)

    @pytest.mark.parametrize("at", [0, 1, 2])
    @pytest.mark.parametrize(
        "losing",
        [
            Create("there", b"x"),
            Update("there", b"x", 10**15),
            Update("gone", b"x", 1),
            Delete("there", 10**15),
            Delete("gone"),
            Check("there", 10**15),
            Check("gone", 1),
            Absent("there"),
        ],
        ids=repr,
    )
    def test_all_or_nothing(self, backend: Backend, other: Backend, losing: Op, at: int) -> None:
        """One losing operation, wherever it stands, leaves every other one undone; it is named."""
        backend.commit(Create("there", b"1"), Create("also", b"2"))
        ops: list[Op] = [Create("new", b"3"), Delete("also")]
        ops.insert(at, losing)

        with pytest.raises(Conflict) as caught:
            backend.commit(*ops)
        assert losing == caught.value.op
        assert contents(other) == {"there": b"1", "also": b"2"}

    def test_the_first_losing_operation_is_named(self, backend: Backend) -> None:
        """Of several losing operations the first one is the conflict's."""
        backend.commit(Create("k", b""))

        with pytest.raises(Conflict) as caught:
            backend.commit(Absent("l"), Delete("m"), Create("k", b""))
        assert Delete("m") == caught.value.op

    def test_every_kind_in_one_commit(self, backend: Backend, other: Backend) -> None:
        """All five operations can stand in one commit."""
        backend.commit(*(Create(key, b"1") for key in "abc"))
        a, b, c = (present(backend, key).version for key in "abc")
        backend.commit(Update("a", b"2", a), Delete("b", b), Check("c", c), Absent("d"),
                       Create("e", b"5"))  # fmt: skip

        assert contents(other) == {"a": b"2", "c": b"1", "e": b"5"}

    def test_a_key_twice_in_one_commit_is_refused(self, backend: Backend) -> None:
        """Two operations on one key have no defined order and are refused before they are sent."""
        with pytest.raises(InvalidInput):
            backend.commit(Create("k", b"1"), Delete("k"))
        assert contents(backend) == {}

    def test_a_commit_of_nothing(self, backend: Backend) -> None:
        """A commit without operations succeeds and changes nothing."""
        backend.commit()

        assert contents(backend) == {}


class FencingContract:
    """A fence is a condition of the commit like any other."""

    def test_a_fence_that_holds(self, backend: Backend, other: Backend) -> None:
        """The newest epoch's fence lets a commit through, from every client."""
        with lead(backend) as leadership:
            backend.commit(Create("k", b"1"), fence=leadership.fence)
            other.commit(Create("l", b"1"), fence=leadership.fence)
            assert backend.holds(leadership.fence)
            assert other.holds(leadership.fence)

        assert contents(other) == {"k": b"1", "l": b"1"}

    def test_an_old_fence_is_refused(self, backend: Backend, other: Backend) -> None:
        """A write under an older epoch is `Fenced` on every client and changes nothing."""
        with lead(backend) as leadership:
            old = leadership.fence
        with lead(other) as leadership:
            assert leadership.epoch > old.epoch
            for client in (backend, other):
                with pytest.raises(Fenced):
                    client.commit(Create("k", b""), fence=old)
                with pytest.raises(Fenced):
                    client.commit_async(Create("k", b""), fence=old).result(BOUND)
                assert not client.holds(old)

        assert contents(backend) == {}

    def test_the_fence_comes_before_the_conditions(self, backend: Backend) -> None:
        """A fenced write is `Fenced` even where its operations would conflict as well."""
        backend.commit(Create("k", b""))
        with lead(backend) as leadership:
            old = leadership.fence
        with lead(backend), pytest.raises(Fenced):
            backend.commit(Create("k", b""), fence=old)

    def test_a_losing_commit_under_a_good_fence(self, backend: Backend) -> None:
        """A conflict under a fence that holds is a `Conflict` that names the caller's operation."""
        backend.commit(Create("k", b""))
        with lead(backend) as leadership:
            with pytest.raises(Conflict) as caught:
                backend.commit(Absent("l"), Create("k", b""), fence=leadership.fence)

        assert Create("k", b"") == caught.value.op

    def test_resigning_does_not_lower_the_fence(self, backend: Backend) -> None:
        """A resigned leader's fence holds until another epoch begins: it alone can be harmed."""
        with lead(backend) as leadership:
            pass

        assert present(backend, EPOCH_KEY).version == leadership.fence.version

    def test_a_fence_that_never_was(self, backend: Backend) -> None:
        """A fence is refused where no epoch has begun."""
        with pytest.raises(Fenced):
            backend.commit(Create("k", b""), fence=Fence(1, 1))
        assert contents(backend) == {}


class PagingContract:
    """`scan` in order, from anywhere, of any size."""

    @pytest.fixture
    def keys(self, backend: Backend) -> list[str]:
        """2,500 keys among neighbours of the prefix, written in no order; more than two pages."""
        keys = [f"p/{number * 7919 % 10007:05d}" for number in range(2500)]
        ops: list[Op] = [Create(key, key.encode()) for key in keys]
        ops += [Create(key, b"") for key in ("o", "p", "p.", "p-", "p0", "pp/1", "q/1")]
        size = min(backend.capabilities.max_ops, 100)
        for at in range(0, len(ops), size):
            backend.commit(*ops[at : at + size])
        return sorted(keys)

    def test_a_scan_is_ordered_and_whole(self, keys: list[str], other: Backend) -> None:
        """A scan yields every key of the prefix once, in order, with its own value."""
        found = list(other.scan("p/"))

        assert keys == [record.key for record in found]
        assert keys == [record.value.decode() for record in found]

    def test_after_and_limit(self, keys: list[str], backend: Backend) -> None:
        """A scan continues behind any key, present or not, for any number of records."""
        for after, limit in (
            (None, 0),
            (None, 1),
            (keys[0], 3),
            (keys[998], 1002),
            (keys[999], 1000),
            (keys[-2], 5),
            (keys[-1], 5),
            (keys[1500], None),
        ):
            start = 0 if after is None else keys.index(after) + 1
            expected = keys[start:][:limit]
            assert expected == [r.key for r in backend.scan("p/", after=after, limit=limit)]

    def test_after_a_key_that_is_not_there(self, keys: list[str], backend: Backend) -> None:
        """`after` need not exist: a deleted key is a good place to continue behind."""
        middle = keys[1200]
        backend.commit(Delete(middle))
        assert keys[1201:1204] == [r.key for r in backend.scan("p/", after=middle, limit=3)]
        for before in ("a", "p", "p/"):
            assert keys[:2] == [r.key for r in backend.scan("p/", after=before, limit=2)]
        for behind in ("p/99999", "q", "z"):
            assert list(backend.scan("p/", after=behind)) == []

    def test_prefixes_are_literal(self, backend: Backend) -> None:
        """A prefix is a string, no folder and no pattern: `a/b` matches `a/bc`, `a.` no `ab`."""
        keys = ["a-b", "a.b", "a/b", "a/b/c", "a/bc", "a/c", "ab", "aXb"]
        backend.commit(*(Create(key, b"") for key in keys))

        for prefix in ("", "a", "a/", "a/b", "a/b/", "a.", "a-", "b", "a/b/c", "a/b/c/"):
            expected = sorted(key for key in keys if key.startswith(prefix))
            assert expected == [record.key for record in backend.scan(prefix)]

    def test_a_scan_over_changes(self, keys: list[str], backend: Backend, other: Backend) -> None:
        """What is not touched while a scan runs is yielded exactly once, in order."""
        found = []
        for count, record in enumerate(backend.scan("p/")):
            found.append(record.key)
            if count % 100 == 0:
                other.commit(Delete(keys[-1 - count // 100]), Create(f"p/-{count}", b""))

        touched = set(keys[-25:])
        assert sorted(set(found)) == found
        assert set(keys) - touched <= set(found)


class LimitsContract:
    """Declared limits, both ways: what is within passes, what is over is refused unsent."""

    def test_the_largest_value(self, backend: Backend, other: Backend) -> None:
        """A value of the declared size passes whatever its bytes; one more byte is `TooLarge`."""
        size = backend.capabilities.max_value
        for key, byte in (("text", b"x"), ("escaped", b"\n"), ("high", b"\xff")):
            backend.commit(Create(key, byte * size))
            assert byte * size == present(other, key).value
        before = contents(other)

        record = present(backend, "text")
        for op in (Create("more", b"x" * (size + 1)), Update("text", b"y" * (size + 1),
                                                             record.version)):  # fmt: skip
            for commit in (backend.commit, lambda *ops: backend.commit_async(*ops).result(BOUND)):
                with pytest.raises(TooLarge):
                    commit(Create("with", b""), op)
        assert before == contents(other)

    def test_one_byte_less_than_the_largest_value(self, backend: Backend, other: Backend) -> None:
        """The byte below the limit is as good as the limit."""
        value = b"z" * (backend.capabilities.max_value - 1)
        backend.commit(Create("k", value))

        assert value == present(other, "k").value

    def test_the_most_operations(self, backend: Backend, other: Backend) -> None:
        """A commit of the declared size passes, under a fence too; one operation more does not."""
        most = backend.capabilities.max_ops
        with lead(backend) as leadership:
            backend.commit(*(Create(f"a/{n}", b"") for n in range(most)), fence=leadership.fence)
            assert most == len(contents(other))
            with pytest.raises(TooLarge):
                backend.commit(*(Create(f"b/{n}", b"") for n in range(most + 1)))
        assert most == len(contents(other))

    def test_the_longest_key(self, backend: Backend, other: Backend) -> None:
        """A key of the declared length is written, read, scanned and removed; a longer one not."""
        longest = "k" * backend.capabilities.max_key
        backend.commit(Create(longest, b"1"))
        assert {longest: b"1"} == contents(other)
        for op in (Create(longest + "k", b""), Absent(longest + "k")):
            with pytest.raises(TooLarge):
                backend.commit(op)
        with pytest.raises(TooLarge):
            backend.get(longest + "k")
        assert {longest: b"1"} == contents(other)
        backend.commit(Delete(longest))
        assert contents(other) == {}

    def test_a_commit_of_large_values(self, backend: Backend, other: Backend) -> None:
        """Values that are each within the limit pass together, or are refused together."""
        value = b"v" * backend.capabilities.max_value
        ops = [Create(f"k/{n}", value) for n in range(4)]
        try:
            backend.commit(*ops)
        except TooLarge:
            assert contents(other) == {}
        else:
            assert {op.key: value for op in ops} == contents(other)

    def test_the_range_of_ttls(self, backend: Backend) -> None:
        """Both ends of the declared range lead; beyond them a campaign is refused at once."""
        limits = backend.capabilities
        for ttl in (limits.min_ttl, limits.max_ttl):
            lead(backend, ttl=ttl).resign()
        epoch = present(backend, EPOCH_KEY)
        for ttl in (limits.min_ttl * 0.99, limits.max_ttl * 1.01, 0.0, -1.0, float("nan")):
            with pytest.raises(InvalidInput):
                backend.campaign("me", ttl=ttl, stop=threading.Event())
        assert epoch == present(backend, EPOCH_KEY)


class WatchContract:
    """Level-triggered hints."""

    def test_a_new_watch_fires_at_once(self, backend: Backend) -> None:
        """What happened before the watch began is not missed."""
        with backend.watch("w/") as watch:
            assert watch.wait(BOUND)

    def test_a_change_fires(self, backend: Backend, other: Backend) -> None:
        """Creation, update and deletion by any client wake the watch."""
        with backend.watch("w/") as watch:
            assert watch.wait(BOUND)
            for client in (backend, other):
                client.commit(Create("w/k", b"1"))
                assert watch.wait(BOUND)
                client.commit(Update("w/k", b"2", present(client, "w/k").version))
                assert watch.wait(BOUND)
                client.commit(Delete("w/k"))
                assert watch.wait(BOUND)

    def test_a_quiet_watch_gives_up(self, backend: Backend) -> None:
        """A wait in which nothing happens returns False in the end."""
        with backend.watch("w/") as watch:
            while watch.wait(0.01):
                pass

    def test_a_sleeper_is_woken(self, backend: Backend, other: Backend) -> None:
        """A thread that waits is woken by a commit of another client."""
        woken = threading.Event()
        ready = threading.Event()

        def sleep() -> None:
            with backend.watch("w/") as watch:
                while backend.get("w/k") is None:
                    ready.set()
                    watch.wait(BOUND)
                woken.set()

        thread = threading.Thread(target=sleep)
        thread.start()
        assert ready.wait(BOUND)
        other.commit(Create("w/k", b""))
        assert woken.wait(BOUND)
        thread.join(BOUND)

    def test_no_last_change_is_missed(self, backend: Backend, other: Backend) -> None:
        """Whoever re-reads after each hint always ends at the newest state."""
        last = 200

        def write() -> None:
            other.commit(Create("w/n", b"0"))
            for number in range(1, last + 1):
                other.commit(Update("w/n", b"%d" % number, present(other, "w/n").version))

        thread = threading.Thread(target=write)
        with backend.watch("w/") as watch:
            thread.start()
            seen = -1
            while seen < last:
                assert watch.wait(BOUND), f"no hint after {seen}"
                record = backend.get("w/n")
                seen = int(record.value) if record else -1
        thread.join(BOUND)

    def test_closing_twice_and_many_watches(self, backend: Backend) -> None:
        """Watches are independent of each other and closing one again is harmless."""
        watches = [backend.watch("w/") for _ in range(20)]
        for watch in watches[::2]:
            watch.close()
            watch.close()
        backend.commit(Create("w/k", b""))

        assert all(watch.wait(BOUND) for watch in watches[1::2])
        for watch in watches:
            watch.close()

    def test_iterating(self, backend: Backend, other: Backend) -> None:
        """A watch is an iterator of hints."""
        with backend.watch("w/") as watch:
            for count, _ in enumerate(watch):
                if count == 3:
                    break
                other.commit(Create(f"w/{count}", b""))


class ElectionContract:
    """`campaign`: liveness by election, safety by the epoch."""

    def test_epochs_only_grow(self, backend: Backend, other: Backend) -> None:
        """Each leadership's epoch is greater than every earlier one, whoever leads."""
        epochs = []
        for number in range(6):
            with lead((backend, other)[number % 2], f"c{number}") as leadership:
                epochs.append(leadership.epoch)
                assert not leadership.lost.is_set()
                assert leadership.epoch == leadership.fence.epoch

        assert sorted(set(epochs)) == epochs

    def test_one_leader_at_a_time(self, handles: Opener, backend: Backend, cluster: str) -> None:
        """Of many candidates one leads at a time, and each one has its turn."""
        leading: list[int] = []
        overlaps: list[int] = []
        epochs: list[int] = []

        def candidate(number: int) -> None:
            with lead(handles(cluster), f"c{number}") as leadership:
                leading.append(number)
                overlaps.append(len(leading))
                epochs.append(leadership.epoch)
                backend.commit(Create(f"turn/{number}", b""), fence=leadership.fence)
                leading.remove(number)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(candidate, range(8)))

        assert overlaps == [1] * 8
        assert sorted(set(epochs)) == epochs
        assert len(contents(backend, "turn/")) == 8

    def test_a_second_campaign_waits_for_resignation(
        self, backend: Backend, other: Backend
    ) -> None:
        """A candidate leads once the leader resigns, and the old leader's fence is refused then."""
        first = lead(backend, ttl=backend.capabilities.max_ttl)
        won: list[Leadership] = []
        thread = threading.Thread(target=lambda: won.append(lead(other, "next")))
        thread.start()
        backend.commit(Create("k", b""), fence=first.fence)
        assert not won
        first.resign()
        thread.join(BOUND)

        assert first.lost.is_set()
        assert won[0].epoch > first.epoch
        with pytest.raises(Fenced):
            backend.commit(Create("l", b""), fence=first.fence)
        other.commit(Create("l", b""), fence=won[0].fence)
        won[0].resign()

    def test_resigning_twice(self, backend: Backend, other: Backend) -> None:
        """Resigning again, even after another one leads, takes nothing from the other one."""
        first = lead(backend)
        first.resign()
        first.resign()
        with lead(other) as second:
            first.resign()
            assert not second.lost.is_set()
            other.commit(Create("k", b""), fence=second.fence)

    def test_a_stop_ends_the_campaign(self, backend: Backend, other: Backend) -> None:
        """A campaign ends with None once its stop event is set, before or while it waits."""
        stop = threading.Event()
        stop.set()
        ttl = backend.capabilities.max_ttl
        assert backend.campaign("never", ttl=ttl, stop=stop) is None

        stop = threading.Event()
        with lead(backend) as leadership, ThreadPoolExecutor(1) as pool:
            ended = pool.submit(other.campaign, "waits", ttl=ttl, stop=stop)
            assert not ended.done()
            stop.set()
            assert ended.result(BOUND) is None
            assert not leadership.lost.is_set()
            backend.commit(Create("k", b""), fence=leadership.fence)

    def test_a_hung_leader_is_replaced(self, backend: Backend, hang: Hang) -> None:
        """A leader that hangs is replaced after its ttl, and its fence is refused from then on."""
        ttl = max(1.0, backend.capabilities.min_ttl)
        old = hang(backend, ttl)
        with lead(backend, ttl=ttl) as leadership:
            assert leadership.epoch > old.epoch
            with pytest.raises(Fenced):
                backend.commit(Create("k", b""), fence=old)
            backend.commit(Create("k", b""), fence=leadership.fence)

    def test_a_healthy_leader_outlives_its_ttl(self, backend: Backend, other: Backend) -> None:
        """A leader that does not hang stays for many ttls while a candidate waits."""
        ttl = max(1.0, backend.capabilities.min_ttl)
        stop = threading.Event()
        with lead(backend, ttl=ttl) as leadership, ThreadPoolExecutor(1) as pool:
            ended = pool.submit(other.campaign, "waits", ttl=ttl, stop=stop)
            assert not leadership.lost.wait(3 * ttl)
            assert not ended.done()
            stop.set()
            assert ended.result(BOUND) is None


class ConcurrencyContract:
    """One handle, many threads, many commits in flight."""

    def test_many_threads_many_keys(self, backend: Backend, other: Backend) -> None:
        """Commits of many threads through one handle are all there."""

        def write(thread: int) -> None:
            for number in range(50):
                backend.commit(Create(f"t/{thread}-{number}", b"%d" % number))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))

        expected = {f"t/{t}-{n}": b"%d" % n for t in range(8) for n in range(50)}
        assert expected == contents(other)

    def test_contended_updates_lose_nothing(self, backend: Backend, other: Backend) -> None:
        """Read-modify-write of one key by many threads counts every acknowledged success."""
        backend.commit(Create("n", b"0"))

        def count(thread: int) -> int:
            client = (backend, other)[thread % 2]
            done = 0
            for _ in range(40):
                record = present(client, "n")
                try:
                    client.commit(Update("n", b"%d" % (int(record.value) + 1), record.version))
                    done += 1
                except Conflict:
                    pass
            return done

        with ThreadPoolExecutor(8) as pool:
            done = sum(pool.map(count, range(8)))

        assert b"%d" % done == present(backend, "n").value

    def test_one_creator_wins(self, backend: Backend, other: Backend) -> None:
        """Of many threads that create one key exactly one succeeds, and its value is the stored."""
        barrier = threading.Barrier(8)

        def create(thread: int) -> int | None:
            barrier.wait(BOUND)
            try:
                (backend, other)[thread % 2].commit(Create("k", b"%d" % thread))
            except Conflict:
                return None
            return thread

        with ThreadPoolExecutor(8) as pool:
            winners = [w for w in pool.map(create, range(8)) if w is not None]

        assert len(winners) == 1
        assert b"%d" % winners[0] == present(other, "k").value

    def test_pipelined_commits_keep_their_order(self, backend: Backend, other: Backend) -> None:
        """Commits in flight from one caller are applied in the order of the calls."""
        futures = []
        for _ in range(150):
            futures.append(backend.commit_async(Create("k", b"")))
            futures.append(backend.commit_async(Delete("k")))
        futures.append(backend.commit_async(Create("k", b"last")))
        for future in futures:
            assert future.result(BOUND) is None

        assert contents(other) == {"k": b"last"}

    def test_each_pipelined_commit_has_its_own_outcome(self, backend: Backend) -> None:
        """A refused commit among many in flight fails alone."""
        futures = [backend.commit_async(Create(f"k/{n // 2}", b"%d" % n)) for n in range(200)]
        outcomes = [future.exception(BOUND) for future in futures]

        assert outcomes[::2] == [None] * 100
        assert all(isinstance(error, Conflict) for error in outcomes[1::2])
        assert [error.op for error in outcomes[1::2] if isinstance(error, Conflict)] == [
            Create(f"k/{n // 2}", b"%d" % n) for n in range(1, 200, 2)
        ]
        assert {f"k/{n}": b"%d" % (2 * n) for n in range(100)} == contents(backend)

    def test_pipelined_and_waiting_callers_mix(self, backend: Backend, other: Backend) -> None:
        """A caller that waits and one that does not share the log without starving each other."""

        def flow(thread: int) -> None:
            futures = [backend.commit_async(Create(f"a/{thread}-{n}", b"")) for n in range(50)]
            for number in range(20):
                backend.commit(Create(f"b/{thread}-{number}", b""))
            for future in futures:
                future.result(BOUND)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(flow, range(4)))

        assert len(contents(other, "a/")) == 4 * 50
        assert len(contents(other, "b/")) == 4 * 20

    def test_a_future_is_settled_when_its_handle_closes(
        self, backend: Backend, other: Backend
    ) -> None:
        """Closing leaves no commit in flight undecided, and none that failed is stored."""
        futures = [backend.commit_async(Create(f"k/{n}", b"")) for n in range(100)]
        backend.close()
        outcomes = [future.exception(BOUND) for future in futures]

        assert all(error is None or isinstance(error, JrsError) for error in outcomes)
        stored = contents(other)
        for number, error in enumerate(outcomes):
            if error is None:
                assert f"k/{number}" in stored
            elif isinstance(error, Unavailable):
                assert f"k/{number}" not in stored


class MultiProcessContract:
    """Several processes on one cluster. Skipped where the backend declares that it is for one."""

    def test_processes_see_each_other(self, backend: Backend, worker: Callable[[], Worker]) -> None:
        """What one process was told is committed is read by every other one."""
        one, two = worker(), worker()
        one.commit(Create("k", b"1"))
        record = two.get("k")
        assert record is not None
        two.commit(Update("k", b"2", record.version))

        assert present(backend, "k").value == b"2"
        assert one.scan("") == two.scan("") == list(backend.scan(""))
        with pytest.raises(Conflict):
            one.commit(Update("k", b"3", record.version))

    def test_contended_updates(self, backend: Backend, worker: Callable[[], Worker]) -> None:
        """Processes that add to one number until each succeeded N times lose no addition."""
        backend.commit(Create("n", b"0"))
        workers = [worker() for _ in range(4)]
        for process in workers:
            process.send("count", "n", 50)
        for process in workers:
            process.receive()

        assert present(backend, "n").value == b"200"

    def test_a_killed_process_loses_nothing(
        self, backend: Backend, worker: Callable[[], Worker]
    ) -> None:
        """What a process acknowledged before kill -9 is there; at most one more, and no gap."""
        process = worker()
        process.send("pour", "k/")
        acknowledged = max(process.receive() for _ in range(100))
        process.kill()
        stored = contents(backend, "k/")

        assert {f"k/{n}" for n in range(acknowledged + 1)} <= stored.keys()
        assert {f"k/{n}" for n in range(len(stored))} == stored.keys()
        backend.commit(Create("on", b""))

    def test_a_killed_leader_is_replaced(
        self, backend: Backend, worker: Callable[[], Worker]
    ) -> None:
        """Another process leads after kill -9 of the leader, whose fence is refused then."""
        process = worker()
        old = process.lead("killed", backend.capabilities.min_ttl)
        process.commit(Create("k", b""), fence=old)
        process.kill()
        with lead(backend) as leadership:
            assert leadership.epoch > old.epoch
            with pytest.raises(Fenced):
                backend.commit(Create("l", b""), fence=old)

        with pytest.raises(Died):
            process.receive()

    def test_one_leader_among_processes(
        self, backend: Backend, worker: Callable[[], Worker]
    ) -> None:
        """Processes that campaign at once lead one after another with growing epochs."""
        workers = {worker(): name for name in ("a", "b", "c")}
        fences: list[Fence] = []
        for process, name in workers.items():
            process.send("lead_briefly", name, 5.0)
        for process in workers:
            epoch, version = process.receive()
            fences.append(Fence(epoch, version))

        assert len({fence.epoch for fence in fences}) == 3
        newest = max(fences, key=lambda fence: fence.epoch)
        assert [fence == newest for fence in fences] == [backend.holds(fence) for fence in fences]


class StatefulContract:
    """The backend against a dict: random histories of all operations through two clients."""

    def test_behaves_like_a_dict(self, handles: Opener, cluster: str) -> None:
        """Every history gives the outcomes and the contents that a plain dict gives."""
        numbers = iter(range(10**9))

        def fresh() -> tuple[Opener, str]:
            return handles, f"{cluster}-{next(numbers)}"

        check_against_model(fresh)


ALL = (ReadContract, CommitContract, FencingContract, PagingContract, LimitsContract,
       WatchContract, ElectionContract, ConcurrencyContract, MultiProcessContract,
       StatefulContract)  # fmt: skip
"""Every class of the suite; a backend that does not run all of them says why."""
