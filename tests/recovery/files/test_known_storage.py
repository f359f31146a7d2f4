"""Which storage a client uses, and that a store which is older than it removes no files there."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jrs import Client, connect
from jrs.contract.errors import WrongState
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.files.known_storage import known_storage
from jrs.recovery.files.storage_identity import StorageIdentity
from jrs.recovery.inspect.doctor import examine
from jrs.store.opening import open_backend


def lead(store: Path, storage: Path) -> None:
    """Lead once with a storage."""
    with open_backend(store.as_uri()) as backend:
        leadership = backend.campaign("m1", ttl=30.0, stop=threading.Event())
        assert leadership is not None
        with leadership:
            identity = StorageIdentity(backend, JobStorage(storage, backend.cluster))
            identity.record_use(leadership.fence, "m1", 0.0)


def copied(folder: Path, name: str) -> Path:
    return shutil.copytree(folder, folder.with_name(name), symlinks=True)


def known(store: Path) -> Path | None:
    with open_backend(store.as_uri()) as backend:
        storage = known_storage(backend, None)
        return None if storage is None else storage.place.root


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A store with the default storage, which has led."""
    store = tmp_path / "live"
    lead(store, store / "storage")
    return store


def test_a_copy_of_both_uses_its_own(live: Path) -> None:
    """Also while the original, whose path it has recorded, continues; nothing is wrong with it."""
    copy = copied(live, "copy")
    lead(live, live / "storage")

    assert known(copy) == copy / "storage"
    assert known(live) == live / "storage"
    with connect(copy.as_uri()) as client:
        assert client.fsck().damaged == ()
        with open_backend(copy.as_uri()) as other:
            found = list(examine(client.backend, other, ttl=4.0))
    assert [one for one in found if one.what == "storage" and one.remedy] == []


def test_what_a_move_left_behind_is_not_used(live: Path, tmp_path: Path) -> None:
    moved = copied(live / "storage", "moved")
    lead(live, moved)

    assert known(live) == moved


@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.gc(),
        lambda client: client.restore("/nowhere"),
        lambda client: client.job("job").fork("other"),
        lambda client: client.job("job").retry(),
        lambda client: client.job("job").snapshots.create(),
        lambda client: client.job("job").snapshots.delete(1),
        lambda client: client.job("job").snapshots.convert(1, "full"),
        lambda client: client.job("job").snapshots.move(1, "/nowhere"),
        lambda client: client.job("job").snapshots.restore(Path("/nowhere")),
        lambda client: client.job("job").snapshots.finish_restore(),
        lambda client: client.job("job").snapshots.fork(Path("/nowhere"), "other"),
    ],
)
def test_an_older_store_changes_no_files(live: Path, change: Callable[[Client], object]) -> None:
    """Its storage was not copied with it, so that it finds that of the original."""
    copy = copied(live, "copy")
    shutil.rmtree(copy / "storage")
    lead(live, live / "storage")

    assert known(copy) == live / "storage"
    with (
        connect(copy.as_uri()) as client,
        pytest.raises(WrongState, match="the store is older than the files"),
    ):
        change(client)
