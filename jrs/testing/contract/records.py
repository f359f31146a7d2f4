"""Reading, committing, fencing, paging and limits: what one caller at a time can tell."""

from __future__ import annotations

import threading

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, Fenced, InvalidInput, TooLarge, Unavailable
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Absent, Check, Create, Delete, Fence, Op, Update
from jrs.testing.contract.fixtures import BOUND, Opener, contents, lead, present


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

    def test_many_at_once(self, backend: Backend) -> None:
        """Many keys give what each of them alone gives, in the order they were asked for."""
        for name in ("m/b", "m/a"):
            backend.commit(Create(name, name.encode()))
        asked = ["m/b", "m/none", "m/a", "m/b"]

        assert backend.get_many(asked) == [backend.get(name) for name in asked]
        assert backend.get_many([]) == []
        with pytest.raises(InvalidInput):
            backend.get_many(["m/a", "no key"])


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
        """An update with an old version is refused, no matter who made the newer one."""
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


def attempt_of(backend: Backend, leadership: Leadership) -> tuple[Fence, Check]:
    """Let an attempt in; return its fence, and the condition of its own that is in it."""
    backend.commit(Create("fence/j", b"1.1.a"))
    let_in = Check("fence/j", present(backend, "fence/j").version)
    return attrs.evolve(leadership.fence, attempt=let_in), let_in


class FencingContract:
    """A fence is a condition of the commit like any other."""

    def test_a_fence_that_holds(self, backend: Backend, other: Backend) -> None:
        """The newest epoch's fence lets a commit through, from every client."""
        with lead(backend) as leadership:
            backend.commit(Create("k", b"1"), fence=leadership.fence)
            other.commit(Create("l", b"1"), fence=leadership.fence)
            assert backend.is_current(leadership.fence)
            assert other.is_current(leadership.fence)

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
                assert not client.is_current(old)

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

    def test_the_fence_of_an_attempt(self, backend: Backend, other: Backend) -> None:
        """An attempt's write is refused on every client, and changes nothing, once the record that
        let it in has changed or is gone; also under an epoch that still holds."""
        with lead(backend) as leadership:
            fence, let_in = attempt_of(backend, leadership)
            backend.commit(Create("k", b""), fence=fence)
            other.commit_async(Create("l", b""), fence=fence).result(BOUND)
            assert other.is_current(fence)
            with pytest.raises(Conflict):
                backend.commit(Create("k", b""), fence=fence)
            for op in (Update("fence/j", b"none", let_in.version), Delete("fence/j")):
                backend.commit(op, fence=leadership.fence)
                for client in (backend, other):
                    with pytest.raises(Fenced):
                        client.commit(Create("m", b""), fence=fence)
                    with pytest.raises(Fenced):
                        client.commit_async(Create("k", b""), fence=fence).result(BOUND)
                    assert not client.is_current(fence)
                    assert client.is_current(leadership.fence)

        assert contents(backend) == {"k": b"", "l": b""}

    def test_an_attempt_closes_its_own_fence(self, backend: Backend) -> None:
        """A commit may change the record that lets its writer in: once, and then no more."""
        with lead(backend) as leadership:
            fence, let_in = attempt_of(backend, leadership)
            last = Update("fence/j", b"none", let_in.version)
            backend.commit(Create("k", b""), last, fence=fence)
            with pytest.raises(Fenced):
                backend.commit(Create("l", b""), last, fence=fence)

        assert contents(backend) == {"fence/j": b"none", "k": b""}

    def test_the_fence_of_an_attempt_has_room(self, backend: Backend) -> None:
        """The largest commit fits under an attempt's fence, too."""
        with lead(backend) as leadership:
            fence, _ = attempt_of(backend, leadership)
            most = backend.capabilities.max_ops
            backend.commit(*(Create(f"k/{number}", b"") for number in range(most)), fence=fence)
            backend.commit_async(Create("l", b""), fence=fence).result(BOUND)

        assert len(contents(backend, "k/")) == most

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
