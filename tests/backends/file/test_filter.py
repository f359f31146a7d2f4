"""The filters of runs: which keys a run never had."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.base import filter as filters
from jrs.backends.file.base.filter import FilterWriter, hashes_of, load
from jrs.backends.file.base.index import Trailer
from jrs.backends.file.base.line_file import LineFile
from jrs.contract.errors import Conflict
from jrs.contract.operations import Create, Delete

TRAILER = Trailer(1000, 10, 100, b"0" * 32, 40, b"1" * 32)
OTHER = TRAILER._replace(digest=b"2" * 32)


def write(path: Path, keys: set[str], most: int, trailer: Trailer = TRAILER) -> None:
    writer = FilterWriter(most)
    for key in keys:
        writer.add(key.encode())
    with path.open("wb") as file:
        writer.write(file.fileno(), trailer)


@settings(max_examples=50)
@given(keys=st.sets(st.text(min_size=1, max_size=30), max_size=200), more=st.integers(0, 100))
def test_each_key_is_found(
    tmp_path_factory: pytest.TempPathFactory, keys: set[str], more: int
) -> None:
    path = tmp_path_factory.mktemp("filter") / "1.filter"
    write(path, keys, len(keys) + more)
    found, flaw = load(path, TRAILER)
    assert found is not None
    assert not flaw
    assert all(found.may_have(hashes_of(key.encode())) for key in keys)


def test_few_absent_keys_are_not_told(tmp_path: Path) -> None:
    path = tmp_path / "1.filter"
    write(path, {f"results/job-{n}" for n in range(5000)}, 5000)
    found, _ = load(path, TRAILER)
    assert found is not None
    absent = [f"results/job-{n}".encode() for n in range(5000, 15000)]
    assert sum(found.may_have(hashes_of(key)) for key in absent) < 200


def flip_of_each_byte(data: bytes) -> list[bytes]:
    return [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(len(data))]


def beginnings(data: bytes) -> list[bytes]:
    return [data[:size] for size in range(len(data))]


def longer(data: bytes) -> list[bytes]:
    return [data + b"\0", data + b"\n", data + data]


@pytest.mark.parametrize("damaged", [flip_of_each_byte, beginnings, longer])
def test_a_damaged_filter_is_not_used(
    tmp_path: Path, damaged: Callable[[bytes], list[bytes]]
) -> None:
    """A wrong bit would make a key absent that is there, and so let a finished job run again."""
    path = tmp_path / "1.filter"
    write(path, {"results/a"}, 4)
    for data in damaged(path.read_bytes()):
        path.write_bytes(data)
        found, flaw = load(path, TRAILER)
        assert found is None
        assert "1.filter" in flaw


def test_the_filter_of_another_run_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "1.filter"
    assert load(path, TRAILER) == (None, "")
    write(path, {"results/a"}, 4, OTHER)
    assert load(path, TRAILER) == (None, "")


# -- in a cluster ----------------------------------------------------------------------------


def test_creating_new_keys_reads_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of new keys costs the same next to few and next to many records."""
    with FileBackend(tmp_path, seal_at=20_000) as backend:
        numbers = random.Random(1).sample(range(10**6), 600)
        for number in numbers[:300]:
            backend.commit(Create(f"results/{number}", b"x" * 100))
        base = backend.replica.segment.base
        assert all(run.filter is not None for run in base.runs)
        reads = list[tuple[int, int]]()
        read = LineFile.read

        def counted(file: LineFile, begin: int, end: int) -> bytes:
            reads.append((begin, end))
            return read(file, begin, end)

        monkeypatch.setattr(LineFile, "read", counted)
        monkeypatch.setattr(backend.replica, "_seal_at", 1 << 40)
        for number in numbers[300:]:
            backend.commit(Create(f"results/{number}", b"x" * 100))
        assert len(reads) <= 15
        for number in numbers[:300]:
            with pytest.raises(Conflict):
                backend.commit(Create(f"results/{number}", b"again"))


def test_filters_go_with_their_runs(tmp_path: Path) -> None:
    with FileBackend(tmp_path, seal_at=4_000) as backend:
        for number in range(300):
            backend.commit(Create(f"jobs/{number:03}", b"x" * 100))
        for number in range(0, 300, 2):
            backend.commit(Delete(f"jobs/{number:03}"))
        backend.compact()
        assert not list(backend.check())
    folder = next(tmp_path.rglob("log"))
    runs, found = ({path.stem for path in folder.glob(f"*.{kind}")} for kind in ("run", "filter"))
    assert found == runs


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_cluster_without_a_filter_works(tmp_path: Path, how: str) -> None:
    with FileBackend(tmp_path, seal_at=4_000) as backend:
        for number in range(100):
            backend.commit(Create(f"jobs/{number:03}", b"x" * 100))
    path = max(tmp_path.rglob("*.filter"))
    if how == "missing":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    with FileBackend(tmp_path) as backend:
        with pytest.raises(Conflict):
            backend.commit(Create("jobs/000", b"again"))
        backend.commit(Create("jobs/new", b"x"))
        assert [path.name in line for line in backend.check()] == [True] * (how == "damaged")


@pytest.mark.parametrize("in_memory", [0, 8 << 20])
def test_a_filter_that_is_cut_off_while_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    """As by a copy over it: no process that has the folder open dies, or takes a key for absent."""
    monkeypatch.setattr(filters, "_IN_MEMORY", in_memory)
    with FileBackend(tmp_path, seal_at=4_000) as backend:
        for number in range(100):
            backend.commit(Create(f"jobs/{number:03}", b"x" * 100))
        backend.compact()
    with FileBackend(tmp_path) as backend:
        for path in tmp_path.rglob("*.filter"):
            os.truncate(path, 0)
        assert backend.get("jobs/new") is None
        for number in range(100):
            with pytest.raises(Conflict):
                backend.commit(Create(f"jobs/{number:03}", b"again"))


def test_a_wrong_filter_is_named(tmp_path: Path) -> None:
    """fsck compares each filter with its run."""
    with FileBackend(tmp_path, seal_at=4_000) as backend:
        for number in range(100):
            backend.commit(Create(f"jobs/{number:03}", b"x" * 100))
        start, trailer = backend.replica.segment.base.names[0]
    path = max(tmp_path.rglob("*.filter"))
    assert path.stem == f"{start:020}"
    write(path, {"jobs/other"}, 4, trailer)
    with FileBackend(tmp_path) as backend:
        assert any("its filter does not have jobs/" in line for line in backend.check())
