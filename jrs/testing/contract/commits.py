"""Committing: conditions, atomicity and the limits that a backend declares."""

from __future__ import annotations

import threading

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, InvalidInput, TooLarge
from jrs.contract.operations import EPOCH_KEY, Absent, Check, Create, Delete, Op, Update
from jrs.testing.contract.fixtures import BOUND, contents, lead, present


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
        """An update with an old version is refused, whichever client wrote the newer one."""
        backend.commit(Create("k", b"1"))
        old = present(backend, "k")
        other.commit(Update("k", b"2", old.version))

        with pytest.raises(Conflict) as caught:
            backend.commit(Update("k", b"3", old.version))
        assert caught.value.op.key == "k"
        assert present(backend, "k").value == b"2"

    def test_versions_grow(self, backend: Backend) -> None:
        """Every write of a key gives it a greater version, even after deletion and creation."""
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
        """A key that was deleted and created again does not get its old version again."""
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
        """One failing operation at any position undoes all others, and the error names it."""
        backend.commit(Create("there", b"1"), Create("also", b"2"))
        ops: list[Op] = [Create("new", b"3"), Delete("also")]
        ops.insert(at, losing)

        with pytest.raises(Conflict) as caught:
            backend.commit(*ops)
        assert losing == caught.value.op
        assert contents(other) == {"there": b"1", "also": b"2"}

    def test_the_first_losing_operation_is_named(self, backend: Backend) -> None:
        """Of several failing operations, the conflict names the first one."""
        backend.commit(Create("k", b""))

        with pytest.raises(Conflict) as caught:
            backend.commit(Absent("l"), Delete("m"), Create("k", b""))
        assert Delete("m") == caught.value.op

    def test_every_kind_in_one_commit(self, backend: Backend, other: Backend) -> None:
        """One commit can have all five kinds of operations."""
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


class LimitsContract:
    """A commit within the declared limits passes; one over a limit is refused before it is sent."""

    def test_the_largest_value(self, backend: Backend, other: Backend) -> None:
        """A value of the declared size passes with any bytes; one more byte is `TooLarge`."""
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
        """A value of one byte less than the limit passes, too."""
        value = b"z" * (backend.capabilities.max_value - 1)
        backend.commit(Create("k", value))

        assert value == present(other, "k").value

    def test_the_most_operations(self, backend: Backend, other: Backend) -> None:
        """A commit with the most operations passes, even with a fence; one more does not."""
        most = backend.capabilities.max_ops
        with lead(backend) as leadership:
            backend.commit(*(Create(f"a/{n}", b"") for n in range(most)), fence=leadership.fence)
            assert most == len(contents(other))
            with pytest.raises(TooLarge):
                backend.commit(*(Create(f"b/{n}", b"") for n in range(most + 1)))
        assert most == len(contents(other))

    def test_the_longest_key(self, backend: Backend, other: Backend) -> None:
        """The longest key can be written, read, scanned and removed; a longer one is refused."""
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
        """Values that are each within the limit pass together or are refused together."""
        value = b"v" * backend.capabilities.max_value
        ops = [Create(f"k/{n}", value) for n in range(4)]
        try:
            backend.commit(*ops)
        except TooLarge:
            assert contents(other) == {}
        else:
            assert {op.key: value for op in ops} == contents(other)

    def test_the_range_of_ttls(self, backend: Backend) -> None:
        """Both ends of the declared range are accepted; a ttl outside of it is refused at once."""
        limits = backend.capabilities
        for ttl in (limits.min_ttl, limits.max_ttl):
            lead(backend, ttl=ttl).resign()
        epoch = present(backend, EPOCH_KEY)
        for ttl in (limits.min_ttl * 0.99, limits.max_ttl * 1.01, 0.0, -1.0, float("nan")):
            with pytest.raises(InvalidInput):
                backend.campaign("me", ttl=ttl, stop=threading.Event())
        assert epoch == present(backend, EPOCH_KEY)
