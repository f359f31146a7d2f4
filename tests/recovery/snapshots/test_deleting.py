"""Deleting a snapshot: the catalogue's entry goes first, under the fence, and then the files."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from jrs.contract.errors import Fenced, NoSuchSnapshot, OutcomeUnknown, SnapshotInUse, Unavailable
from jrs.contract.operations import Delete
from jrs.records import keys
from jrs.recovery.cleanup.garbage import collect_garbage
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import SnapshotCatalog, find_orphans, folders
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import FaultyMemory


def test_replaced_behind_the_look(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S9: a leader that is replaced once it has looked deletes no file: the commit decides."""
    old = memory.campaign("old", ttl=10.0, stop=threading.Event())
    assert old is not None
    catalog.create("job")
    catalog.create("job")
    is_current = memory.is_current

    def replaced(fence: object) -> bool:
        held = is_current(old.fence)
        old.resign()
        assert memory.campaign("new", ttl=10.0, stop=threading.Event())
        return held

    monkeypatch.setattr(memory, "is_current", replaced)

    with pytest.raises(Fenced):
        catalog.remove(catalog.get("job", 1), fence=old.fence)
    assert catalog.verify("job", 1)


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
@pytest.mark.parametrize("after", [False, True])
def test_backend_away(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, error: type[Exception],
    after: bool,
) -> None:  # fmt: skip
    """S9: what is listed is whole, whatever became of the commit; the orphan is named, and goes."""
    catalog.create("job")
    catalog.create("job")
    memory.fault(keys.snapshot("job", 1), error, after=after, times=1)

    with pytest.raises(error):
        catalog.delete("job", 1)

    if after:
        assert "jrs snapshot delete job 1" in "\n".join(find_orphans(memory, job.storage))
    else:
        assert catalog.verify("job", 1)
    catalog.delete("job", 1)
    assert folders.whole(job.storage, "job") == {2}
    assert not list(find_orphans(memory, job.storage))


def cut_off(catalog: SnapshotCatalog, memory: FaultyMemory, far: Path) -> JobStorage:
    """Have a deletion in another storage end behind its commit; return that storage."""
    catalog.create("job")
    catalog.create("job")
    catalog.move("job", 1, far)
    memory.fault(keys.snapshot("job", 1), OutcomeUnknown, kind=Delete, after=True, times=1)
    with pytest.raises(OutcomeUnknown):
        catalog.delete("job", 1)
    there = JobStorage(far, catalog.storage.root.name)
    assert folders.whole(there, "job") == {1}
    catalog.now = time.time  # `gc` compares it with the time of files.
    return there


def test_cut_off_elsewhere(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, tmp_path: Path
) -> None:
    """N3: `fsck` names what is left in another storage, and `gc` removes it once that is there."""
    there = cut_off(catalog, memory, tmp_path / "far")
    assert "jrs gc completes it" in "\n".join(find_orphans(memory, job.storage))
    there.root.rename(tmp_path / "away")

    assert "mount it" in "\n".join(collect_garbage(catalog, 0.0, dry_run=False).left)

    (tmp_path / "away").rename(there.root)
    collect_garbage(catalog, 0.0, dry_run=False)

    assert folders.whole(there, "job") == set()
    assert not list(find_orphans(memory, job.storage))


def test_cut_off_where_another_cluster_has_one(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, tmp_path: Path
) -> None:
    """S9: a snapshot that another cluster has moved to the same place meanwhile stays."""
    there = cut_off(catalog, memory, tmp_path / "far")
    manifest = folders.snapshot(there, "job", 1) / folders.MANIFEST
    manifest.write_bytes(manifest.read_bytes() + b"\n")

    collect_garbage(catalog, 0.0, dry_run=False)

    assert folders.whole(there, "job") == {1}
    assert not list(find_orphans(memory, job.storage))


def test_a_deletion_waits_for_no_disk(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut may lose of it `gc` names. The note of a new snapshot is synced, once."""
    synced: list[str] = []
    fsync = os.fsync

    def sync(fd: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    catalog.create("job")
    monkeypatch.setattr(os, "fsync", sync)
    catalog.create("job")
    assert synced.count(".doomed") == 1
    synced.clear()
    catalog.delete("job", 1)
    assert synced == []


def test_read_in_this_moment(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """S9: one that is being read keeps its entry, as it keeps its files."""
    first = catalog.create("job")
    catalog.create("job")

    with folders.locked(folders.snapshot(job.storage, "job", 1), shared=True):
        with pytest.raises(SnapshotInUse):
            catalog.delete("job", 1)

    assert catalog.verify("job", 1) == first


@pytest.mark.parametrize("which", ["²", "9" * 5000, "01"], ids=lambda which: which[:2])
def test_what_only_looks_like_a_number(catalog: SnapshotCatalog, job: FakeJob, which: str) -> None:
    catalog.create("job")
    with pytest.raises(NoSuchSnapshot):
        catalog.delete("job", which)
