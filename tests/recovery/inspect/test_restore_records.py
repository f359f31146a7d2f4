"""The records of a cluster as a whole, when the base that holds them is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.cluster import ClosedRecord, MigrationRecord
from jrs.records.codec import encode
from jrs.recovery.inspect.restore_epoch import restore_cluster_records
from jrs.store.opening import open_backend
from jrs.store.steering import Steering

CLOSED = ClosedRecord("id", "file:///elsewhere", at=1.0, by="me@here")


def damaged(root: Path, key: str, *first: Create) -> None:
    """Write records, and damage the one of `key` in the base."""
    with FileBackend(root) as backend:
        around = (Create(name, b"") for name in ("cluster/a", "cluster/z", "jobs/a", "zzz"))
        backend.commit(*around, *first)
        backend.compact()
        path = backend.replica.segment.base.runs[0].path
        assert path is not None
        data = bytearray(path.read_bytes())
        data[data.index(key.encode()) + len(key) + 20] ^= 1
        path.write_bytes(bytes(data))


def test_damage_that_hides_no_closing(tmp_path: Path) -> None:
    """D2: the filter of a damaged run tells that the cluster was never closed."""
    damaged(tmp_path, keys.SWITCHOVER, Create(keys.SWITCHOVER, b"x" * 100))
    with open_backend(tmp_path.as_uri()) as backend:
        backend.commit(Create("jobs/one", b""))


def test_damage_that_may_hide_a_closing(tmp_path: Path) -> None:
    """D2: until it is repaired, what hides whether the cluster is closed refuses what has no fence;
    a cluster that was never to leave is open then."""
    damaged(tmp_path, keys.SWITCHOVER, Create(keys.SWITCHOVER, b"x" * 100))
    for path in tmp_path.rglob("*.filter"):
        path.unlink()
    with open_backend(tmp_path.as_uri()) as backend:
        with pytest.raises(CorruptRecord):
            backend.commit(Create("jobs/one", b""))
        assert keys.CLOSED in restore_cluster_records(backend, None)
        backend.commit(Create("jobs/one", b""))
        Steering(backend).pause("me@here", "")


def test_a_cluster_that_may_have_left_stays_closed(tmp_path: Path) -> None:
    """A repair opens no cluster whose records say that it was to be moved."""
    damaged(tmp_path, keys.CLOSED, Create(keys.CLOSED, encode(CLOSED)))
    with FileBackend(tmp_path) as backend:
        record = MigrationRecord("", "id", leaves_to="file:///elsewhere")
        backend.overwrite(keys.MIGRATION, encode(record))
    with open_backend(tmp_path.as_uri()) as backend:
        assert keys.CLOSED not in restore_cluster_records(backend, None)
        with pytest.raises(CorruptRecord):
            backend.commit(Create("jobs/one", b""))
