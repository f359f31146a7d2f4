"""Reading: single records, pages and scans."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import ClusterMoved, HandleClosed, InvalidInput
from jrs.contract.guards import Closing
from jrs.contract.operations import Create, Delete, Op, Record, Update
from jrs.testing.contract.fixtures import BOUND, Opener, contents, present


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
        """Values that look like parts of a storage format are stored unchanged."""
        backend.commit(Create("k", value), Create("l", value * 3))

        assert {"k": value, "l": value * 3} == contents(other)

    def test_a_read_is_linearizable(self, backend: Backend, other: Backend) -> None:
        """A client always sees what another client was told is committed."""
        for number in range(50):
            writer, reader = (backend, other) if number % 2 else (other, backend)
            writer.commit(Create(f"n/{number}", b"%d" % number))

            assert b"%d" % number == present(reader, f"n/{number}").value

    def test_both_clients_agree_on_the_version(self, backend: Backend, other: Backend) -> None:
        """A version that one client has read is valid in a commit of another one."""
        backend.commit(Create("k", b"1"))
        other.commit(Update("k", b"2", present(backend, "k").version))

        assert present(backend, "k") == present(other, "k")

    def test_versions_are_in_the_order_of_the_commits(
        self, backend: Backend, other: Backend
    ) -> None:
        """Also those of different keys, by different handles."""
        for number in range(8):
            (backend, other)[number % 2].commit(Create(f"v{number * 5 % 8}/k", b""))
        other.commit(Update("v0/k", b"", present(other, "v0/k").version))

        found = [present(backend, f"v{number * 5 % 8}/k").version for number in range(8)]
        assert found[1:] == sorted({*found[1:]})
        assert found[0] > max(found[1:])

    @pytest.mark.parametrize("read", ["get", "get_many", "scan", "created_since"])
    def test_every_read_notices_that_the_cluster_was_closed(
        self, backend: Backend, other: Backend, read: str
    ) -> None:
        """A process that only reads is told, too, whichever reads it makes."""
        backend.closing = Closing("cluster/closed", lambda _: ClusterMoved("moved elsewhere"))
        arguments: dict[str, tuple[Any, ...]] = {
            "get": ("k",), "get_many": (["k"],), "scan": ("",), "created_since": ("", 0)
        }  # fmt: skip
        for closed in (False, True):
            backend._next_look = 0.0  # As some seconds after the latest look.
            with pytest.raises(ClusterMoved) if closed else nullcontext():
                list(getattr(backend, read)(*arguments[read]) or ())
            other.commit(Create("cluster/closed", b"")) if not closed else None

    def test_clusters_are_apart(self, handles: Opener, backend: Backend, cluster: str) -> None:
        """Clusters in one store do not see each other's records."""
        neighbour = handles(f"{cluster}-2")
        backend.commit(Create("k", b"mine"))
        neighbour.commit(Create("k", b"yours"))

        assert contents(backend) == {"k": b"mine"}
        assert contents(neighbour) == {"k": b"yours"}

    @pytest.mark.parametrize("key", ["", "/", "a/", "/a", "a//b", "ä", "a b", "a\n", "a\0", "a*"])
    def test_what_is_no_key_is_refused(self, backend: Backend, key: str) -> None:
        """`get` and `commit` refuse a key outside of the declared alphabet."""
        with pytest.raises(InvalidInput):
            backend.get(key)
        with pytest.raises(InvalidInput):
            backend.commit(Create(key, b""))
        assert contents(backend) == {}

    @pytest.mark.parametrize(
        ("prefix", "how"),
        [
            (5, {}),
            (None, {}),
            (b"k", {}),
            ("", {"after": 5}),
            ("", {"limit": -1}),
            ("", {"limit": "3"}),
            ("", {"limit": 1.5}),
            ("", {"limit": True}),
        ],
    )
    def test_what_is_no_range_is_refused(
        self, backend: Backend, prefix: Any, how: dict[str, Any]
    ) -> None:
        """`scan` refuses a prefix, a begin or a limit that it cannot use; it is not taken for an
        empty range."""
        backend.commit(Create("k", b""))
        with pytest.raises(InvalidInput):
            list(backend.scan(prefix, **how))

    def test_close_is_idempotent_and_final(self, backend: Backend, other: Backend) -> None:
        """A closed handle refuses every call and harms no other handle."""
        backend.commit(Create("k", b""))
        backend.close()
        backend.close()

        with pytest.raises(HandleClosed):
            backend.get("k")
        with pytest.raises(HandleClosed):
            list(backend.scan(""))
        with pytest.raises(HandleClosed):
            backend.commit(Create("l", b""))
        with pytest.raises(HandleClosed):
            backend.commit_async(Create("l", b"")).result(BOUND)
        assert contents(other) == {"k": b""}

    def test_many_at_once(self, backend: Backend) -> None:
        """Reading many keys at once gives the same as reading each of them, in the same order."""
        for name in ("m/b", "m/a"):
            backend.commit(Create(name, name.encode()))
        asked = ["m/b", "m/none", "m/a", "m/b"]

        assert backend.get_many(asked) == [backend.get(name) for name in asked]
        assert backend.get_many([]) == []
        with pytest.raises(InvalidInput):
            backend.get_many(["m/a", "no key"])


class CreatedContract:
    """`created_since`: what was created since a version, in the order of the commits."""

    def test_what_was_created_since_a_version(self, backend: Backend, other: Backend) -> None:
        """From that version on, under that prefix alone, without what was deleted."""
        assert backend.created_since("f/", 0) == []
        for number in range(6):
            (backend, other)[number % 2].commit(
                Create(f"f/{number * 5 % 6}", b"%d" % number), Create(f"g/{number}", b"")
            )
        other.commit(Delete("f/3"))
        all_of_them = [present(other, f"f/{number * 5 % 6}") for number in (0, 1, 2, 4, 5)]

        for client in (backend, other):
            assert client.created_since("f/", 0) == all_of_them
            for at, record in enumerate(all_of_them):
                assert client.created_since("f/", record.version) == all_of_them[at:]
            assert client.created_since("f/", all_of_them[-1].version + 1) == []
            assert client.created_since("h/", 0) == []

    def test_records_of_one_commit_are_in_the_order_of_their_keys(self, backend: Backend) -> None:
        """They may share a version."""
        backend.commit(*(Create(f"f/{number}", b"") for number in (3, 1, 2)))
        found = backend.created_since("f/", 0)

        assert found == sorted(found, key=lambda one: (one.version, one.key))
        assert {one.key for one in found} == {"f/1", "f/2", "f/3"}

    def test_a_key_that_is_created_again_is_new(self, backend: Backend) -> None:
        """It has the version of its last creation."""
        backend.commit(Create("f/1", b""))
        backend.commit(Create("f/2", b""))
        second = present(backend, "f/2").version
        backend.commit(Delete("f/1"))
        backend.commit(Create("f/1", b"again"))

        assert [one.key for one in backend.created_since("f/", second)] == ["f/2", "f/1"]

    def test_a_reader_sees_each_commit_of_many_writers_once_and_in_order(
        self, backend: Backend, other: Backend
    ) -> None:
        """Nothing appears behind a reader that has read further, while two handles write."""
        writers, each = 8, 25

        def write(writer: int) -> None:
            for number in range(each):
                (backend, other)[writer % 2].commit(
                    Create(f"f/{writer}-{number}", b""), Create(f"g/{writer}-{number}", b"")
                )

        seen: list[Record] = []
        with ThreadPoolExecutor(writers) as pool:
            writing = [pool.submit(write, writer) for writer in range(writers)]
            done = False
            while not done:
                done = all(one.done() for one in writing)  # First: then one more look sees all.
                since = seen[-1].version if seen else 0
                known = {(one.version, one.key) for one in seen}
                new = backend.created_since("f/", since)
                seen += [one for one in new if (one.version, one.key) not in known]
            for one in writing:
                one.result()

        assert seen == sorted(seen, key=lambda one: (one.version, one.key))
        assert len(seen) == writers * each
        assert seen == other.created_since("f/", 0)


class PagingContract:
    """`scan` in order, from anywhere, of any size."""

    @pytest.fixture
    def keys(self, backend: Backend) -> list[str]:
        """2,500 keys among neighbors of the prefix, in random order; more than two pages."""
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
        """`after` need not exist: a scan can continue behind a deleted key."""
        middle = keys[1200]
        backend.commit(Delete(middle))
        assert keys[1201:1204] == [r.key for r in backend.scan("p/", after=middle, limit=3)]
        for before in ("a", "p", "p/"):
            assert keys[:2] == [r.key for r in backend.scan("p/", after=before, limit=2)]
        for behind in ("p/99999", "q", "z"):
            assert list(backend.scan("p/", after=behind)) == []

    def test_prefixes_are_literal(self, backend: Backend) -> None:
        """A prefix is a string, not a folder or a pattern: `a/b` matches `a/bc`, and `a.` does not
        match `ab`."""
        keys = ["a-b", "a.b", "a/b", "a/b/c", "a/bc", "a/c", "ab", "aXb"]
        backend.commit(*(Create(key, b"") for key in keys))

        for prefix in ("", "a", "a/", "a/b", "a/b/", "a.", "a-", "b", "a/b/c", "a/b/c/"):
            expected = sorted(key for key in keys if key.startswith(prefix))
            assert expected == [record.key for record in backend.scan(prefix)]

    def test_a_scan_over_changes(self, keys: list[str], backend: Backend, other: Backend) -> None:
        """A scan yields all records that do not change meanwhile exactly once, in order."""
        found = []
        for count, record in enumerate(backend.scan("p/")):
            found.append(record.key)
            if count % 100 == 0:
                other.commit(Delete(keys[-1 - count // 100]), Create(f"p/-{count}", b""))

        touched = set(keys[-25:])
        assert sorted(set(found)) == found
        assert set(keys) - touched <= set(found)
