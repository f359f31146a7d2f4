"""Deleting a snapshot: the catalogue's entry goes first, under the fence, and then the files."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import Fenced, NoSuchSnapshot, OutcomeUnknown, SnapshotInUse, Unavailable
from jrs.contract.operations import Delete, Update
from jrs.records import keys
from jrs.records.snapshots import SnapshotRecord, TakenBy
from jrs.recovery.cleanup.garbage import collect_garbage
from jrs.recovery.cleanup.snapshots import Snapshots
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import (
    SnapshotCatalog,
    delete,
    deletion_notes,
    find_orphans,
    folders,
    reserve_and_swap,
)
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


# -- and restores that have begun ----------------------------------------------------------------


def begin(
    catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch, record: SnapshotRecord, **how: Any
) -> None:
    """Begin a restore that is interrupted right behind its reservation."""

    def away(*_: object) -> None:
        raise Unavailable("the network is away")

    with monkeypatch.context() as patch:
        patch.setattr(reserve_and_swap, "commit", away)
        with pytest.raises(Unavailable, match="until you repeat the restore"):
            catalog.restore(record, **how)


@pytest.mark.parametrize("claims", [(True, False), (False, True), (True, True)])
def test_a_claim_while_another_restore_is_incomplete(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch,
    claims: tuple[bool, bool],
) -> None:  # fmt: skip
    """It would take the source of the other away: the second is refused, and changes nothing."""
    record = catalog.create("job")
    first, second = claims
    begin(catalog, monkeypatch, record, as_job="copy", claim=first)

    with pytest.raises(SnapshotInUse, match="jrs snapshot restore --finish copy"):
        catalog.restore(record, claim=second)

    assert catalog.pending_restore("job") is None
    assert catalog.finish_restore("copy").number == record.number
    if not first:
        assert catalog.restore(record, claim=True).job_id == "job"
    assert catalog.list("job") == []


def test_a_claim_and_another_restore_at_once(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry decides: the claim has found no other, and looks again."""
    record, check = catalog.create("job"), delete.check_no_source

    def slow(*args: Any) -> None:
        check(*args)
        monkeypatch.setattr(delete, "check_no_source", check)
        begin(catalog, monkeypatch, record, as_job="copy")

    monkeypatch.setattr(delete, "check_no_source", slow)
    with pytest.raises(SnapshotInUse, match="the source of a restore"):
        catalog.restore(record, claim=True)

    assert catalog.pending_restore("job") is None
    assert catalog.finish_restore("copy").number == record.number


def test_a_claim_whose_entry_is_written_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the restore of an older version writes it: the last commit reads it again."""
    record, note = catalog.create("job"), deletion_notes.note
    key = keys.snapshot("job", record.number)

    def slow(*args: Any) -> Any:
        monkeypatch.setattr(deletion_notes, "note", note)
        stored = memory.get(key)
        assert stored is not None
        memory.commit(Update(key, stored.value, stored.version))
        return note(*args)

    monkeypatch.setattr(deletion_notes, "note", slow)
    assert catalog.restore(record, claim=True).job_id == "job"

    assert catalog.pending_restore("job") is None
    assert catalog.list("job") == []


@pytest.mark.parametrize("meanwhile", [False, True])
def test_several_need_one_search(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch,
    meanwhile: bool,
) -> None:  # fmt: skip
    """A search reads all specs. It is repeated if a restore begins behind it, for its source."""
    records = [catalog.create("job", taken_by=TakenBy.SYSTEM) for _ in range(4)]
    scan, unlist, seen = memory.scan, delete._unlist, Counter[str]()

    def counted(prefix: str = "", **how: Any) -> Any:
        seen[prefix] += 1
        return scan(prefix, **how)

    def slow(*args: Any) -> None:
        monkeypatch.setattr(delete, "_unlist", unlist)
        if meanwhile:
            begin(catalog, monkeypatch, records[1], as_job="copy")
            seen.clear()
        unlist(*args)

    snapshots = Snapshots(memory, job.storage)
    monkeypatch.setattr(snapshots, "_deletes", lambda job_id: True)
    monkeypatch.setattr(memory, "scan", counted)
    monkeypatch.setattr(delete, "_unlist", slow)
    if meanwhile:
        with pytest.raises(SnapshotInUse, match="--finish copy"):
            snapshots.clean_fenced("job", None)
    else:
        snapshots.clean_fenced("job", None)

    assert seen[keys.JOBS] == 1
    assert catalog.list("job") == ([records[1]] if meanwhile else [])
