"""A base with a flipped bit: what cannot be told is refused, and nothing else is wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.base_writer import write_next
from jrs.backends.file.compaction import Compaction
from jrs.contract.errors import CorruptRecord, Fenced, Unavailable
from jrs.contract.operations import EPOCH_KEY, Create, Delete, Update
from jrs.testing.chaos.late import LateCompaction
from jrs.testing.contract import contents, present
from tests.support import rot


def compacted(root: Path, names: Iterable[str]) -> FileBackend:
    backend = FileBackend(root)
    for name in names:
        backend.commit(Create(f"r/{name}", f"old-{name}".encode()))
    backend.compact()
    return backend


def flip(backend: FileBackend, part: bytes, at: int, bit: int) -> None:
    """Flip one bit in the base, `at` bytes into `part`."""
    path = backend.replica.segment.base.runs[0].path
    assert path is not None
    data = bytearray(path.read_bytes())
    data[data.index(part) + at] ^= bit
    path.write_bytes(bytes(data))


def test_a_scan_continues_behind_a_damaged_key(tmp_path: Path) -> None:
    """A key that was damaged beyond its place neither ends a scan nor hides what was changed."""
    with compacted(tmp_path, "012345678") as backend:
        flip(backend, b"\tr/3\t", 3, 0x40)  # r/3 becomes r/s
        backend.commit(Delete("r/5"))
        backend.commit(Update("r/6", b"new", present(backend, "r/6").version))

        assert [r.key for r in backend.scan("r/")] == [f"r/{i}" for i in "0124678"]
        assert dict(contents(backend, "r/"))["r/6"] == b"new"


def test_a_scan_yields_only_keys_that_can_be_read(tmp_path: Path) -> None:
    """Whichever bit of a key is flipped: a caller of a scan reads more of what it yields."""
    with compacted(tmp_path, ["a", "nn", "z"]) as backend:
        run = backend.replica.segment.base.runs[0].path
    assert run is not None
    sound = run.read_bytes()
    for at, bit in product(range(4), range(8)):
        data = bytearray(sound)
        data[data.index(b"\tr/nn\t") + 1 + at] ^= 1 << bit
        run.write_bytes(bytes(data))
        with FileBackend(tmp_path) as again:
            again.get_many([record.key for record in again.scan("")])
            assert again.damaged_under("r/nn")
            assert any("is held" in line for line in again.check())


def test_compaction_over_damage_revives_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """Compacting a base with a damaged line keeps what was deleted gone, what was changed changed,
    and what cannot be told as refused as before."""
    with compacted(tmp_path, "abcdef") as backend:
        flip(backend, b"\tr/b\t", 3, 0x10)  # r/b becomes r/r
        backend.commit(Delete("r/d"))
        backend.commit(Update("r/c", b"new", present(backend, "r/c").version))
        with pytest.raises(CorruptRecord):
            backend.get("r/b")
        backend.compact()

        assert backend.get("r/d") is None
        assert present(backend, "r/c").value == b"new"
        with pytest.raises(CorruptRecord):
            backend.get("r/b")
        assert list(backend.check())


def test_damage_under_a_commit_holds_what_it_wrote(tmp_path: Path) -> None:
    """D2: a commit that needs what a damaged line hides holds the keys that it writes, for a
    process that has not evaluated it before, and no others; what depends on them is held, too."""
    with compacted(tmp_path, "abcd") as backend:
        backend.commit(Update("r/b", b"new", present(backend, "r/b").version), Create("r/x", b""))
        backend.commit(Update("r/c", b"new", present(backend, "r/c").version))
        backend.commit(Update("r/x", b"2", present(backend, "r/x").version), Create("r/y", b""))
        flip(backend, b"\told-b", 5, 1)
    with FileBackend(tmp_path) as other:
        for held in ("r/b", "r/x", "r/y"):
            with pytest.raises(CorruptRecord):
                other.get(held)
            with pytest.raises(CorruptRecord):
                other.commit(Create(held, b""))
        assert present(other, "r/c").value == b"new"
        other.commit(Create("r/z", b""))
        other.commit(Update("r/d", b"new", present(other, "r/d").version))
        assert any("r/x" in line for line in other.check())
        other.compact()
    with FileBackend(tmp_path) as other:
        for held in ("r/b", "r/x", "r/y"):
            with pytest.raises(CorruptRecord):
                other.get(held)
        assert present(other, "r/d").value == b"new"
        assert other.get("a/1") is None


@pytest.mark.parametrize("small", [True, False], ids=["small", "pending"])
def test_a_damaged_epoch_divides_no_processes(tmp_path: Path, small: bool) -> None:
    """A process that knew the epoch before its line in the base was damaged, one that opens the
    folder afterwards, and the next base agree on every fenced commit, old fences included."""

    def compaction(folder: Path) -> Compaction:
        return Compaction(folder) if small else LateCompaction(folder, lambda: True)

    with FileBackend(tmp_path, compaction=compaction) as backend:
        old = backend.campaign("m1", ttl=60.0, stop=threading.Event())
        assert old is not None
        old.resign()
        leads = backend.campaign("m2", ttl=60.0, stop=threading.Event())
        assert leads is not None
        backend.compact()
        backend.commit(Create("r/1", b""), fence=leads.fence)
        rot(tmp_path, EPOCH_KEY)
        with FileBackend(tmp_path) as other:
            for number, handle in enumerate((backend, other), start=2):
                handle.commit(Create(f"r/{number}", b""), fence=leads.fence)
                with pytest.raises(Fenced):
                    handle.commit(Create(f"r/{number}", b""), fence=old.fence)
            write_sealed(backend)
            for handle in (backend, other, FileBackend(tmp_path)):
                with handle:
                    assert [record.key for record in handle.scan("r/")] == ["r/1", "r/2", "r/3"]
                    assert present(handle, EPOCH_KEY).version == leads.fence.version
                    assert handle.get("r/1") is not None
        leads.resign()


def write_sealed(backend: FileBackend) -> None:
    """Seal the log, and have a process that opens the folder write the next base."""
    backend.replica.segment.log.write_seal()
    write_next(backend.replica.folder)


def test_a_commit_held_by_damage_can_be_given_up(tmp_path: Path) -> None:
    """D2: once an operator has accepted it, a commit that cannot be evaluated holds no key."""
    with compacted(tmp_path, "abcd") as backend:
        backend.commit(Update("r/b", b"new", present(backend, "r/b").version), Create("r/x", b""))
        flip(backend, b"\told-b", 5, 1)
    with FileBackend(tmp_path) as other:
        with pytest.raises(CorruptRecord):
            other.get("r/x")
        assert other.accept_damage()
        assert other.get("r/x") is None
        with pytest.raises(CorruptRecord):
            other.get("r/b")
        other.commit(Create("r/x", b""))


def test_a_lost_base_is_no_empty_cluster(tmp_path: Path) -> None:
    """Where only a later segment's log is left, nothing is made again: the folder is refused."""
    with compacted(tmp_path, "a") as backend:
        path = backend.replica.segment.base.runs[0].path
    assert path is not None
    path.unlink()

    with pytest.raises(Unavailable, match="missing"):
        FileBackend(tmp_path)


def test_a_watch_sees_what_happened_in_a_segment_it_skipped(tmp_path: Path) -> None:
    """A change in a segment that came and went between two looks is still hinted at."""
    with FileBackend(tmp_path) as backend, FileBackend(tmp_path) as other:
        with backend.watch("a/") as watch:
            watch.wait(0)
            other.compact()
            other.commit(Create("a/1", b""))
            other.compact()

            assert watch.wait(30)


def test_a_short_ttl_deposes_no_healthy_leader(tmp_path: Path) -> None:
    """A candidate evaluates a leader by the leader's own ttl where that is longer."""
    with FileBackend(tmp_path) as backend, FileBackend(tmp_path) as other:
        leader = backend.campaign("long", ttl=30.0, stop=threading.Event())
        assert leader is not None
        stop = threading.Event()
        timer = threading.Timer(2.0, stop.set)
        timer.start()

        assert other.campaign("short", ttl=0.2, stop=stop) is None
        assert not leader.lost.is_set()
        timer.join()
        leader.resign()
