"""Blobs that no snapshot names: they go, and keep no snapshot from being taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import Unavailable
from jrs.records.snapshots import Manifest, SnapshotFormat
from jrs.recovery.cleanup.garbage import collect_garbage
from jrs.recovery.snapshots import SnapshotCatalog, find_orphans, folders, manifest
from jrs.recovery.snapshots.blobs import Blobs
from jrs.recovery.snapshots.unnamed_blobs import collect
from tests.recovery.snapshots.fabricate import FakeJob, tree

CAS = SnapshotFormat.CAS
CALLS: dict[str, Callable[[SnapshotCatalog], object]] = {
    "delete": lambda catalog: catalog.delete("job", 2),
    "gc": lambda catalog: collect_garbage(catalog, 0.0, dry_run=False),
    "fsck": lambda catalog: list(find_orphans(catalog.backend, catalog.storage)),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_snapshot_is_taken_while_manifests_are_read(
    catalog: SnapshotCatalog, job: FakeJob, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster has many, and a process that reads them may be stopped. Only one that has come
    meanwhile is read while the blobs are held, and what it names stays."""
    for _ in range(3):
        catalog.create("job", format=CAS)
        job.run()
    read, waited = manifest.read, list[bool]()

    def look(folder: Path, digest: str | None = None) -> Manifest:
        found = read(folder, digest)
        with folders.locked(Blobs(job.storage).folder, shared=True) as free:
            waited.append(not free)
        if len(waited) == 1:
            catalog.create("job", format=CAS)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "read", look)
        CALLS[call](catalog)

    assert waited.count(True) <= 1
    assert waited.count(False) >= 2
    assert catalog.verify("job", 4)


def test_a_snapshot_that_has_no_blobs_keeps_none(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Of its manifest only the beginning is read, so the rest may even be damaged; of one that does
    not begin as a manifest, nobody can tell."""
    for how in (CAS, SnapshotFormat.LINK, SnapshotFormat.FULL, SnapshotFormat.FULL):
        catalog.create("job", format=how)
    linked, copied = (
        next(iter(folders.of_number(job.storage, "job", number))) / folders.MANIFEST
        for number in (2, 3)
    )
    whole = copied.read_bytes()
    linked.write_bytes(linked.read_bytes()[:-10])
    copied.write_bytes(b"garbage")
    catalog.delete("job", 1)
    kept = tree(job.storage.root / ".blobs")
    copied.write_bytes(whole)
    collect(job.storage)

    assert kept
    assert tree(job.storage.root / ".blobs") == {}


def test_a_blob_that_is_named_again(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No manifest names it when all are read, and one does once the blobs are held."""
    catalog.create("job", format=CAS)
    catalog.create("job")
    alone = Blobs.alone

    def late(blobs: Blobs) -> Any:
        if len(catalog.list("job")) == 1:
            catalog.create("job", format=CAS)
        return alone(blobs)

    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "alone", late)
        catalog.delete("job", 1)

    assert [one.number for one in catalog.list("job")] == [2, 3]
    assert catalog.verify("job", 3)
    catalog.create("job")
    catalog.delete("job", 3)
    assert tree(job.storage.root / ".blobs") == {}


def test_a_collector_that_is_stopped(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot does not wait for it forever: it would keep its job from being recovered."""
    monkeypatch.setattr(folders, "_PATIENCE", 0.1)
    catalog.create("job", format=CAS)
    with Blobs(job.storage).alone() as mine:
        assert mine
        with pytest.raises(Unavailable, match="held by another process"):
            catalog.create("job", format=CAS)

    assert catalog.create("job", format=CAS).number == 2
