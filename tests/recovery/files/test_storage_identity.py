"""Whether a store and its storage are of the same age, told while leaders come and go."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import Fenced, WrongState
from jrs.contract.leadership import Leadership
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.files.storage_identity import StorageIdentity
from jrs.recovery.inspect.restore_epoch import restore_epoch
from jrs.store.opening import open_backend

During = Callable[[int, Callable[[], None]], None]

READS = range(1, 7)
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


def take_over(backend: Backend, storage: JobStorage) -> None:
    with elected(backend, "m2") as leadership:
        record_use(backend, storage, leadership)


@pytest.fixture
def during(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> During:
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
        watch(StorageIdentity, "epoch")

    return during


@pytest.mark.parametrize("read", READS)
def test_a_take_over_is_no_restored_backup(
    backend: Backend, storage: JobStorage, during: During, read: int
) -> None:
    """A starting master, and `jrs fsck --repair`, do not take the newer marker for one."""
    take_over(backend, storage)
    during(read, lambda: take_over(backend, storage))
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
