"""Whether a store and its storage are of the same age, told while leaders come and go."""

from __future__ import annotations

import contextlib
import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import Fenced, InvalidInput, WrongState
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Create, Delete
from jrs.contract.storage_place import WORK, place_of
from jrs.records import keys
from jrs.records.codec import encode
from jrs.recovery.files import storage_identity
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.files.storage_identity import StorageIdentity, storage_of
from jrs.recovery.files.storage_marker import COUNT, FOLDER, marker_of
from jrs.recovery.inspect.restore_epoch import restore_epoch
from jrs.store.opening import open_backend

During = Callable[[int, Callable[[], None]], None]

READS = range(1, 8)
"""The reads of the store and of the marker during which another master takes over."""


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with open_backend((tmp_path / "store").as_uri()) as backend:
        yield backend


@pytest.fixture
def storage(backend: Backend, tmp_path: Path) -> JobStorage:
    return JobStorage(tmp_path / "storage", backend.cluster)


def elected(backend: Backend, name: str = "m1") -> Leadership:
    leadership = backend.campaign(name, ttl=30.0, stop=threading.Event())
    assert leadership is not None
    return leadership


def record_use(backend: Backend, storage: JobStorage, leadership: Leadership) -> None:
    StorageIdentity(backend, storage).record_use(leadership.fence, "m1", 0.0)


def take_over(backend: Backend, storage: JobStorage, *, counts: int = 0) -> None:
    with elected(backend, "m2") as leadership:
        record_use(backend, storage, leadership)
        for _ in range(counts):
            StorageIdentity(backend, storage).count(leadership.fence)


@pytest.fixture
def during(backend: Backend, storage: JobStorage, monkeypatch: pytest.MonkeyPatch) -> During:
    """Do something after the n-th read of the store or of the marker's epochs, once."""

    def during(read: int, then: Callable[[], None]) -> None:
        left = [read]

        def watch(owner: object, name: str) -> None:
            real = getattr(owner, name)

            def reading(*args: object) -> object:
                answer = real(*args)
                left[0] -= 1
                if left[0] == 0:
                    then()
                return answer

            monkeypatch.setattr(owner, name, reading)

        watch(backend, "get")
        watch(type(marker_of(storage)), "newest")

    return during


@pytest.mark.parametrize("read", READS)
def test_a_take_over_is_no_restored_backup(
    backend: Backend, storage: JobStorage, during: During, read: int
) -> None:
    """A starting master, and `jrs fsck --repair`, do not take the newer marker for one."""
    take_over(backend, storage, counts=1)
    during(read, lambda: take_over(backend, storage, counts=3))
    identity = StorageIdentity(backend, storage)

    identity.check_epoch()
    assert list(identity.problems()) == []
    assert restore_epoch(backend, storage) is None


@pytest.mark.parametrize("read", READS)
def test_a_leader_that_was_replaced_is_fenced(
    backend: Backend, storage: JobStorage, during: During, read: int
) -> None:
    """It is not told that the store is older than the files."""
    take_over(backend, storage)
    late = elected(backend)
    late.resign()
    during(read, lambda: take_over(backend, storage))

    with contextlib.suppress(Fenced):  # Else the other one came after all.
        record_use(backend, storage, late)
    take_over(backend, storage)
    with pytest.raises(Fenced):
        record_use(backend, storage, late)


@pytest.mark.parametrize("first", [1, 2])
def test_a_restored_store_is_refused(tmp_path: Path, storage: JobStorage, first: int) -> None:
    """Before an election, and also after one that raises its epoch to that of the files."""
    url = (tmp_path / "restored").as_uri()
    with open_backend((tmp_path / "store").as_uri()) as backend:
        for _ in range(first + 1):
            take_over(backend, storage)
    with open_backend(url) as restored:
        for _ in range(first):
            with elected(restored):
                pass
        with pytest.raises(WrongState, match="the store is older than the files"):
            StorageIdentity(restored, storage).check_epoch()
        with elected(restored) as leadership, pytest.raises(WrongState, match="is older than"):
            record_use(restored, storage, leadership)


def copied(store: Path, name: str) -> Path:
    """Return a copy of a store, as a backup of it would be."""
    return shutil.copytree(store, store.with_name(name), symlinks=True)


@pytest.mark.parametrize("elections", [0, 2])
def test_a_store_restored_within_an_epoch_is_refused(
    backend: Backend, storage: JobStorage, tmp_path: Path, elections: int
) -> None:
    """One count tells, and elections in the restored store do not hide it; `fsck --repair` accepts
    the loss, once."""
    take_over(backend, storage, counts=1)
    backup = copied(tmp_path / "store", "backup")
    with elected(backend) as leadership:  # Of the same epoch as far as the storage knows.
        StorageIdentity(backend, storage).count(leadership.fence)

    with open_backend(backup.as_uri()) as restored:
        for _ in range(elections):
            with elected(restored):
                pass
        identity = StorageIdentity(restored, storage)
        with pytest.raises(
            WrongState, match=r"counted the ends of jobs 1 time,.* 2 times: the sto"
        ):
            identity.check_epoch()
        with elected(restored) as leadership, pytest.raises(WrongState, match="is older than"):
            record_use(restored, storage, leadership)
        with pytest.raises(WrongState, match="is older than"):
            identity.adopt("operator", 0.0)
        assert restore_epoch(restored, storage) is not None
        assert restore_epoch(restored, storage) is None
        assert list(identity.problems()) == []
        take_over(restored, storage, counts=1)


def test_an_older_copy_of_the_storage_is_refused(
    backend: Backend, storage: JobStorage, tmp_path: Path
) -> None:
    """Made while the same leader led; an operator may adopt it."""
    with elected(backend) as leadership:
        record_use(backend, storage, leadership)
        identity = StorageIdentity(backend, storage)
        identity.count(leadership.fence)
        older = JobStorage(copied(tmp_path / "storage", "older"), backend.cluster)
        for _ in range(2):
            identity.count(leadership.fence)

    with elected(backend) as leadership, pytest.raises(WrongState, match=r"1 time,.* 3 times"):
        record_use(backend, older, leadership)
    StorageIdentity(backend, older).adopt("operator", 0.0)
    take_over(backend, older, counts=1)
    assert list(StorageIdentity(backend, older).problems()) == []


def test_a_crash_between_the_two_counts_blocks_nobody(
    backend: Backend, storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of times: the next leader's first count mends the marker."""
    take_over(backend, storage, counts=1)
    for count in range(2, 5):
        with elected(backend) as leadership, monkeypatch.context() as disk:
            record_use(backend, storage, leadership)
            real = type(marker_of(storage)).add

            def fails(marker: object, kind: str, number: int, *, newest: int = count) -> None:
                if number == newest:
                    raise OSError(errno.EIO, "Input/output error")
                real(marker, kind, number)  # type: ignore[arg-type]  # noqa: B023

            disk.setattr(type(marker_of(storage)), "add", fails)
            with pytest.raises(OSError, match="Input/output"):
                StorageIdentity(backend, storage).count(leadership.fence)
        assert list(StorageIdentity(backend, storage).problems()) == []
    take_over(backend, storage, counts=1)
    assert marker_of(storage).newest(COUNT) == 5


def test_a_marker_without_a_count(backend: Backend, storage: JobStorage) -> None:
    """Versions that do not count leave the record's count and the marker's as they are, and a
    marker that has lost its count is no older copy."""
    take_over(backend, storage, counts=2)
    (storage.root / FOLDER / "n2").unlink()

    assert list(StorageIdentity(backend, storage).problems()) == []
    take_over(backend, storage, counts=1)
    assert marker_of(storage).newest(COUNT) == 3


def test_a_leader_that_was_replaced_does_not_count(backend: Backend, storage: JobStorage) -> None:
    late = elected(backend)
    record_use(backend, storage, late)
    late.resign()
    take_over(backend, storage, counts=2)

    with pytest.raises(Fenced):
        StorageIdentity(backend, storage).count(late.fence)
    assert marker_of(storage).newest(COUNT) == 2


def test_a_lost_record_has_the_count_of_the_marker(backend: Backend, storage: JobStorage) -> None:
    """`fsck --repair` records the storage from its marker."""
    take_over(backend, storage, counts=3)
    recorded = StorageIdentity(backend, storage).marked()
    assert recorded is not None
    backend.overwrite(keys.STORAGE, encode(recorded))

    assert list(StorageIdentity(backend, storage).problems()) == []
    take_over(backend, storage, counts=1)


class Objects:
    """The marker of a bucket, and of its replica."""

    def __init__(self) -> None:
        self.content: bytes | None = None
        self.numbers: dict[str, int] = {}

    def read(self) -> bytes | None:
        return self.content

    def write(self, content: bytes) -> None:
        self.content = content

    def newest(self, kind: str) -> int:
        return self.numbers.get(kind, 0)

    def add(self, kind: str, number: int) -> None:
        self.numbers[kind] = number


def test_objects_in_another_bucket(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hosts keep using the folder for the copies that Spark has recorded paths in; one that has
    another is told before it campaigns, and also after an operator has adopted the storage."""
    marker = Objects()
    monkeypatch.setattr(storage_identity, "marker_of", lambda storage: marker)
    monkeypatch.setenv(WORK, str(tmp_path / "work"))
    bucket = storage_of(backend, place_of("s3://bucket/jrs"))
    take_over(backend, bucket)
    replica = storage_of(backend, place_of("s3://replica/jrs"))
    assert replica.root == bucket.root
    StorageIdentity(backend, replica).check(to_lead=True)
    take_over(backend, replica)

    monkeypatch.setenv(WORK, str(tmp_path / "elsewhere"))
    elsewhere = StorageIdentity(backend, storage_of(backend, place_of("s3://replica/jrs")))
    backend.commit(Create(f"{keys.JOBS}job", b"{}"))
    for _ in range(2):
        with pytest.raises(InvalidInput, match=f"set {WORK}={tmp_path / 'work'} here"):
            elsewhere.check(to_lead=True)
        elsewhere.adopt("operator", 0.0)
    backend.commit(Delete(f"{keys.JOBS}job"))
    elsewhere.adopt("operator", 0.0)
    elsewhere.check(to_lead=True)
