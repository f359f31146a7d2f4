"""Converting a snapshot: another format, the same number, name and contents (U11)."""

from __future__ import annotations

import os
from itertools import permutations
from pathlib import Path

import pytest

from jrs import Client, WrongState
from jrs.contract.errors import DamagedSnapshot, InvalidInput, NoSuchSnapshot, SnapshotInUse
from jrs.contract.operations import Delete
from jrs.records import keys
from jrs.records.model import FormatRecord
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.snapshots import SnapshotCatalog, find_orphans, folders
from tests.recovery.snapshots.fabricate import FakeJob, put, tree
from tests.recovery.support import FaultyMemory
from tests.recovery.support import put as put_record

LINK, FULL, CAS = SnapshotFormat.LINK, SnapshotFormat.FULL, SnapshotFormat.CAS


def listed_files(catalog: SnapshotCatalog) -> dict[str, str]:
    return {file.path: file.sha256 for file in catalog.manifest("job", "mine").files}


@pytest.mark.parametrize(("before", "to"), [*permutations([LINK, FULL, CAS], 2)])
def test_from_each_format_to_each(
    catalog: SnapshotCatalog, job: FakeJob, before: SnapshotFormat, to: SnapshotFormat
) -> None:
    """Nothing of the former form is left, and a job is restored from the new one."""
    first = catalog.create("job", name="mine", format=before)
    files = listed_files(catalog)
    record = catalog.convert("job", "mine", to)

    assert (record.number, record.name, record.format) == (1, "mine", to)
    assert record.created_at == first.created_at
    assert catalog.verify("job", 1) == record
    assert listed_files(catalog) == files
    assert list(find_orphans(catalog.backend, catalog.storage)) == []
    assert bool(list((catalog.storage.root / ".blobs").glob("*/*"))) is (to is CAS)
    assert (record.new_bytes == record.bytes) is (to is FULL)
    restored = catalog.restore(record, as_job="copy")
    assert restored.stages[0].batch == 4
    ck = restored.folder / "streams" / "hourly" / "ck"
    assert tree(ck / "state").items() < tree(job.query.ck / "state").items()
    assert catalog.create("job").number == 2


def test_again_and_on(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    """A repeat changes nothing; a converted snapshot is converted, moved and deleted as any."""
    catalog.create("job", format=FULL, name="mine")
    once = catalog.convert("job", 1, CAS)
    assert catalog.convert("job", 1, CAS) == once
    catalog.create("job")
    catalog.convert("job", 1, LINK)
    moved = catalog.move("job", 1, tmp_path / "far")
    assert catalog.verify("job", 1) == moved
    there = catalog.convert("job", 1, CAS)
    assert (there.storage, catalog.verify("job", 1)) == (moved.storage, there)
    catalog.delete("job", 1)

    assert [record.number for record in catalog.list("job")] == [2]
    assert list(find_orphans(catalog.backend, catalog.storage)) == []
    assert tree(tmp_path / "far") == {}
    assert folders.whole(catalog.storage, "job") == {2}


def test_what_a_source_of_others_writes(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Not even a snapshot of links has the file that the running job continues."""
    cursor = put(job.query.ck / "sources/1/cursor", "offset 5")
    catalog.create("job", format=SnapshotFormat.FULL)
    catalog.convert("job", 1, SnapshotFormat.LINK)
    with cursor.open("a") as file:
        file.write("\noffset 6")

    assert catalog.verify("job", 1).format is SnapshotFormat.LINK


def test_refusals(catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory) -> None:
    """What has no meaning is refused in one line, and nothing is changed."""
    record = catalog.create("job")
    with pytest.raises(InvalidInput, match="has rows to read and no state"):
        catalog.convert("job", 1, SnapshotFormat.LOGICAL)
    with pytest.raises(NoSuchSnapshot):
        catalog.convert("job", 2, FULL)
    put(folders.snapshot(catalog.storage, "job", 1) / "files/out/typed/table.parquet", "changed")
    with pytest.raises(DamagedSnapshot):
        catalog.convert("job", 1, FULL)
    assert catalog.get("job", 1) == record
    assert list(find_orphans(catalog.backend, catalog.storage)) == []
    put_record(memory, keys.FORMAT, FormatRecord(4))
    memory.marked_format = 4
    with pytest.raises(WrongState, match="jrs cluster-format --raise"):
        catalog.convert("job", 1, FULL)


def test_while_it_is_read(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """The reader keeps what it has opened; a repeat removes it. Two conversions exclude each
    other."""
    catalog.create("job")
    folder = folders.snapshot(catalog.storage, "job", 1)
    with folders.locked(folder, shared=True):
        with pytest.raises(SnapshotInUse, match="is being read"):
            catalog.convert("job", 1, FULL)
        assert catalog.verify("job", 1).format is FULL
        assert folder.is_dir()
    (orphan,) = find_orphans(catalog.backend, catalog.storage)
    assert "left over by a conversion" in orphan
    catalog.convert("job", 1, FULL)
    assert not folder.exists()
    building = folders.building(catalog.storage, "job", 1)
    building.mkdir()
    with folders.locked(building):
        with pytest.raises(SnapshotInUse, match="is being converted"):
            catalog.convert("job", 1, CAS)


def test_deleted_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversion that loses leaves nothing."""
    catalog.create("job")
    catalog.create("job")

    rename = os.rename

    def rename_and_delete(source: Path, target: Path) -> None:
        rename(source, target)
        monkeypatch.undo()
        catalog.backend.commit(Delete(keys.snapshot("job", 1)))

    monkeypatch.setattr(os, "rename", rename_and_delete)
    with pytest.raises(NoSuchSnapshot):
        catalog.convert("job", 1, FULL)

    assert not list(folders.snapshots(catalog.storage, "job").glob("1-*"))


def test_interrupted_while_it_is_listed(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """Ctrl-C ends the wait for the commit, and not the commit: the files stay until a repeat."""
    catalog.create("job")
    memory.fault(keys.SNAPSHOTS, KeyboardInterrupt, times=1)
    with pytest.raises(KeyboardInterrupt):
        catalog.convert("job", 1, FULL)
    folder = folders.snapshots(catalog.storage, "job")
    assert sorted(path.name.partition("-")[0] for path in folder.iterdir()) == ["1", "1"]

    catalog.convert("job", 1, FULL)
    assert len(os.listdir(folder)) == 1
    assert catalog.verify("job", 1).format is FULL


def test_by_its_handle(memory: FaultyMemory, job: FakeJob) -> None:
    """U11: users convert by the handle; its progress counts files."""
    client = Client(memory, storage=job.storage.root.parent)
    snapshots = client.job("job").snapshots
    snapshots.create("mine")
    steps: list[tuple[int, int]] = []
    record = snapshots.convert("mine", FULL, progress=lambda *at: steps.append(at))

    assert record == snapshots.get("mine")
    assert steps[-1][0] == steps[-1][1] > 0
