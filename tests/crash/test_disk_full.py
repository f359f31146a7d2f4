"""A disk that is full in the middle of a commit, and of a compaction."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.errors import InvalidInput, Unavailable
from jrs.contract.operations import Create, Delete
from jrs.testing.contract import contents
from tests.small_disk import fill, small_disk

SIZE = 1 << 20
NEVER = 1 << 40


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of one MiB, of its own."""
    with small_disk(tmp_path / "disk", SIZE) as mount:
        yield mount


@pytest.mark.parametrize("size", [100, 5_000, 60_000])
def test_full_in_the_middle_of_a_commit(disk: Path, size: int) -> None:
    """A full disk is Unavailable, loses nothing acknowledged, and work continues with space."""
    (disk / "store").mkdir()
    with FileBackend(disk / "store", seal_at=NEVER) as backend:
        backend.commit(Create("first", b"1"))
        ballast = fill(disk, 40_960)
        acknowledged = {"first"}
        with pytest.raises(Unavailable, match="full; nothing was changed"):
            for number in range(1000):
                backend.commit(Create(f"k/{number}", b"v" * size))
                acknowledged.add(f"k/{number}")
        assert contents(backend).keys() == acknowledged
        for _ in range(3):
            with pytest.raises(Unavailable):
                backend.commit(Create("again", b"v" * size))
        with FileBackend(disk / "store", seal_at=NEVER) as other:
            assert contents(other).keys() == acknowledged

        ballast.unlink()
        backend.commit(Create("on", b""))
        acknowledged.add("on")
        assert contents(backend).keys() == acknowledged
        with FileBackend(disk / "store", seal_at=NEVER) as other:
            assert contents(other).keys() == acknowledged
            other.commit(Create("other", b""))
            other.compact()
        assert contents(backend).keys() == acknowledged | {"other"}


def test_full_with_many_in_flight(disk: Path) -> None:
    """Of many commits in one write that did not fit, each one is truly done or Unavailable."""
    (disk / "store").mkdir()
    with FileBackend(disk / "store", seal_at=NEVER) as backend:
        ballast = fill(disk, 60_000)
        futures = [backend.commit_async(Create(f"k/{n}", b"v" * 700)) for n in range(300)]
        outcomes = [future.exception(60) for future in futures]
        done = {f"k/{n}" for n, error in enumerate(outcomes) if error is None}
        assert {type(error) for error in outcomes} - {type(None)} == {Unavailable}
        assert contents(backend).keys() == done
        with FileBackend(disk / "store", seal_at=NEVER) as other:
            assert contents(other).keys() == done
        ballast.unlink()
        backend.commit(Create("on", b""))


def test_full_in_the_middle_of_a_compaction(disk: Path) -> None:
    """A base that does not fit is not published; reads and commits continue once there is space."""
    (disk / "store").mkdir()
    with FileBackend(disk / "store", seal_at=NEVER) as backend:
        for number in range(30):
            backend.commit(Create(f"k/{number:02}", b"v" * 10_000))
        backend.commit(Delete("k/00"))
        before = contents(backend)
        ballast = fill(disk, 100_000)
        with pytest.raises(Unavailable, match="full"):
            backend.compact()
        log = disk / "store/clusters/default/log"
        assert list(log.glob("*.run")) == []
        assert [p for p in log.iterdir() if p.name.startswith(".")] == []

        ballast.unlink()
        assert before == contents(backend)
        backend.commit(Create("on", b""))
        with FileBackend(disk / "store", seal_at=NEVER) as other:
            assert before | {"on": b""} == contents(other)
        assert len(list(log.glob("*.run"))) == 1


def test_full_before_there_is_a_store(disk: Path) -> None:
    """A store that cannot be made for want of space is refused, and made once there is some."""
    ballast = fill(disk, 0)
    with pytest.raises((Unavailable, InvalidInput)):
        FileBackend(disk / "store")
    ballast.unlink()
    with FileBackend(disk / "store") as backend:
        backend.commit(Create("k", b""))
