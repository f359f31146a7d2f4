"""Files into objects and back: many at a time, small ones together, never believed unseen."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from obstore.exceptions import GenericError

from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.records.objects import OutputManifest, StoredFile
from jrs.recovery.attempt.uploads import Uploads
from jrs.recovery.storage import objects as objects_module
from jrs.recovery.storage import packed_copies
from jrs.recovery.storage.objects import Objects
from jrs.recovery.storage.packed_copies import (
    PrefixWriter,
    fetch,
    problems,
    read_record,
    sha256_of,
)
from tests.recovery.storage.support import Store, objects


@pytest.fixture
def writer(store: Store) -> PrefixWriter:
    return PrefixWriter(objects(store), "job", "e1.a1.ff")


def written(folder: Path, **files: bytes) -> dict[str, Path]:
    found = {}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        found[f"below/{name}"] = path
    return found


@pytest.mark.parametrize("together", [True, False])
def test_there_and_back(writer: PrefixWriter, store: Store, tmp_path: Path, together: bool) -> None:
    """Empty files, too, which no range of an object can be asked for."""
    wanted = {"a": b"", "b": b"rows", "c": os.urandom(100_000), "d": b""}
    stored = writer.put_files("stage/ck", written(tmp_path / "in", **wanted), together=together)
    fetch(objects(store), stored, tmp_path / "out")

    assert [one.path for one in stored] == ["below/a", "below/b", "below/c", "below/d"]
    for name, content in wanted.items():
        assert (tmp_path / "out" / "below" / name).read_bytes() == content
    assert store.calls["put"] == (1 if together else 4)
    assert store.calls["get_ranges"] == (1 if together else 2)


def test_a_large_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no request takes long, and no file has to fit into memory."""
    store = Store()  # Servers know no parts of this size.
    writer = PrefixWriter(objects(store), "job", "e1.a1.ff")
    for module in (packed_copies, objects_module):
        monkeypatch.setattr(module, "ONE_PUT", 1000)
    monkeypatch.setattr(packed_copies, "_SMALL", 10)
    content = os.urandom(4500)
    stored = writer.put_files("stage/out", written(tmp_path / "in", a=content))
    fetch(objects(store), stored, tmp_path / "out")

    assert (tmp_path / "out/below/a").read_bytes() == content
    assert store.calls["get_ranges"] == 5
    assert packed_copies.contents(objects(store), stored) == [content]
    store.damage(stored[0].object)
    with pytest.raises(CorruptRecord, match="was changed"):
        fetch(objects(store), stored, tmp_path / "again")


def test_packs_have_a_size(
    writer: PrefixWriter, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_copies, "_PACK", 1000)
    files = written(tmp_path, **{f"f{number}": b"x" * 400 for number in range(7)})
    writer.put_files("stage/ck", files, together=True)

    assert store.calls["put"] == 3


@pytest.mark.parametrize("how", ["damage", "remove"])
@pytest.mark.parametrize("together", [True, False])
def test_an_object_that_was_changed(
    writer: PrefixWriter, store: Store, tmp_path: Path, how: str, together: bool
) -> None:
    """A byte that was changed, and an object that another user has deleted: one clear line."""
    stored = writer.put_files("s/ck", written(tmp_path / "in", a=b"rows"), together=together)
    getattr(store, how)(f"{stored[0].object}")

    where = re.escape(f"{objects(store).url}/job/data/e1.a1.ff/s/ck/0-")
    with pytest.raises(CorruptRecord, match=where):
        fetch(objects(store), stored, tmp_path / "out")


def test_large_objects_are_told_of_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read a page of them would take long, and a caller that has gone would not be noticed."""
    store = Store()  # Servers know no parts of this size.
    monkeypatch.setattr(packed_copies, "_SMALL", 1)
    monkeypatch.setattr(packed_copies, "ONE_PUT", 2)
    names = [f"job/data/a/{number}" for number in range(5)]
    files = [StoredFile(name[-1], name, 3, sha256_of(b"abc")) for name in names]
    for name in names:
        objects(store).put(name, b"abc")
    told: list[int] = []

    assert problems(objects(store), files, lambda done, _: told.append(done)) == []
    assert told == [0, 2, 4, 5]


@pytest.mark.parametrize("how", ["damage", "remove"])
def test_a_manifest_that_was_changed(writer: PrefixWriter, store: Store, how: str) -> None:
    named = writer.put_record("s/out", OutputManifest("job", "s"))
    assert read_record(objects(store), OutputManifest, named) == OutputManifest("job", "s")
    getattr(store, how)(named.name)

    with pytest.raises(CorruptRecord, match="a record name"):
        read_record(objects(store), OutputManifest, named)


@pytest.mark.parametrize(
    "name",
    ["job/../other/data/a/b", "/job/data/a/b", "job/data/a", "job/data/a/../b", "job/a/b", ""],
)
def test_a_name_that_leads_out_of_its_place(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of an object"):
        StoredFile("a", name, 1, "0" * 64)


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "a//b", "."])
def test_a_path_that_leads_out_of_its_folder(path: str) -> None:
    with pytest.raises(ValueError, match=r"leads out|absolute"):
        StoredFile(path, "job/data/a/b", 1, "0" * 64)


def test_no_name_is_used_twice(writer: PrefixWriter, store: Store, tmp_path: Path) -> None:
    """Also after a try that failed: what it wrote may still arrive."""
    files = written(tmp_path, a=b"1", b=b"2")
    store.fail(1)
    with pytest.raises(Unavailable, match=r"PUT [a-z0-9]+://.*: 503 Slow Down"):
        writer.put_files("s/out", files)
    writer.put_files("s/out", files)

    assert len(set(store.names())) == store.calls["put"] - 1


class InFlight:
    """A store that counts the bytes that are in flight for one object, at most."""

    def __init__(self) -> None:
        self.most = 0
        self.parts = 0

    def put(
        self, name: str, content: bytes | Path, *, chunk_size: int, max_concurrency: int
    ) -> None:
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        self.most = max(self.most, min(size, chunk_size * max_concurrency))
        self.parts = max(self.parts, -(-size // chunk_size))

    def get_ranges(self, name: str, *, starts: list[int], lengths: list[int]) -> list[bytes]:
        self.most = max(self.most, sum(lengths))
        return [bytes(length) for length in lengths]


@pytest.mark.parametrize("together", [True, False])
def test_little_is_in_flight_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    """All requests share one connection, and each has to end within its time limit."""
    store, found = InFlight(), list[int]()
    calls_made = packed_copies.in_threads

    def in_threads(calls: Any, most: int = packed_copies._AT_ONCE) -> Any:
        store.most = 0
        made = calls_made(calls, most)
        found.append(store.most * min(most, len(calls)))
        return made

    monkeypatch.setattr(packed_copies, "in_threads", in_threads)
    files = {}
    for count, size in ((70, 2**20 - 1), (10, 2**22), (8, 40 * 2**20)):
        for number in range(count):
            path = files[f"{size}/{number}"] = tmp_path / f"{size}-{number}"
            path.touch()
            os.truncate(path, size)
    there = Objects("s3://bucket", "c", lambda url, options: store)
    stored = PrefixWriter(there, "job", "x").put_files("s/out", files, together=together)
    fetch(there, stored, tmp_path / "out")

    in_time = 9e6 / 8 * objects_module._TIMEOUT.total_seconds()
    assert 0 < max(found) <= in_time


def test_a_file_that_needs_many_parts(tmp_path: Path) -> None:
    """Stores take no more than 10,000 parts of one object."""
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", 2**40)
    store = InFlight()
    Objects("s3://bucket", "c", lambda url, options: store).put("job/a", tmp_path / "file")

    assert 9_000 < store.parts <= 10_000


def test_a_repeated_output_writes_what_is_missing(store: Store, tmp_path: Path) -> None:
    """Else a large one would begin again from its first file, each time that the store fails. A
    file that was changed meanwhile is written."""
    for number in range(10, 50):
        (tmp_path / f"f{number}").write_text(f"{number}")
    uploads = Uploads(objects(store), "job", 1, 1, "ff" * 8)
    refused = iter(range(1))

    def refuse(method: str, arguments: tuple[Any, ...]) -> None:
        if store.calls["put"] >= 30 and next(refused, None) is not None:
            raise GenericError("Server returned non-2xx status code: 503 Slow Down: <Error/>")

    store.refuse = refuse
    with pytest.raises(Unavailable):
        uploads.put_output("s", tmp_path)
    assert store.calls["put"] >= 30
    (tmp_path / "f10").write_text("changed")
    named = uploads.put_output("s", tmp_path)

    # Each, the one that failed once more, the one that was changed, and the manifest.
    assert store.calls["put"] <= 40 + 3
    found = read_record(objects(store), OutputManifest, named).files
    content = [packed_copies.contents(objects(store), [one])[0] for one in found]
    assert content == [b"changed", *(f"{number}".encode() for number in range(11, 50))]


def test_no_call_begins_after_an_error() -> None:
    """In a network that is cut off, each takes its whole patience; and each place of the error
    would come after all of them."""
    made = list[int]()

    def fail(number: int) -> None:
        made.append(number)
        raise Unavailable(f"{number}")

    with pytest.raises(Unavailable):
        packed_copies.in_threads([partial(fail, number) for number in range(100)], 4)
    assert 1 <= len(made) <= 4

    squares = packed_copies.in_threads([partial(pow, number, 2) for number in range(100)], 4)
    assert squares == [number**2 for number in range(100)]
