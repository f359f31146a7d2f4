"""What a leader sweeps that leads for months, and not only once it is elected."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from jrs.contract.errors import Unavailable
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import MasterInfo
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.files import removal
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader import sweep
from jrs.recovery.leader.leader_task import running
from jrs.recovery.leader.sweep import Sweep
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.testing.contract import lead
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import FaultyMemory, leader_context, spec
from tests.support import until


@pytest.fixture
def storage(memory: FaultyMemory, tmp_path: Path) -> JobStorage:
    return JobStorage(tmp_path / "jobs", memory.cluster)


def test_a_deletion_that_failed_half_way(
    memory: FaultyMemory, storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a file that is open on NFS: its bytes go as soon as they can, under the same leader."""
    catalog = SnapshotCatalog(memory, storage)
    FakeJob(memory, storage).run(3)
    for _ in range(2):
        catalog.create("job", format=SnapshotFormat.FULL)
    trash, notes = storage.root / ".trash", storage.root / ".doomed"
    monkeypatch.setattr(sweep, "_FIRST", 0.01)
    monkeypatch.setattr(sweep, "_PAUSE", 0.01)
    said = list[str]()

    def busy(path: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(path))

    with lead(memory) as leadership:
        context = leader_context(
            leadership, memory, storage, report=lambda event: said.append(event.message)
        )
        with monkeypatch.context() as patch:
            patch.setattr(removal, "remove", busy)
            with pytest.raises(Unavailable):
                catalog.delete("job", 1)
            with running(Sweep(context)):
                until(lambda: said, "it has tried")
            assert context.health.facts().upkeep["sweep"] > 0
            assert list(trash.iterdir())
        with running(Sweep(context)):
            until(lambda: not [*trash.iterdir(), *notes.iterdir()], "nothing is left")
            until(lambda: not context.health.facts().upkeep["sweep"], "it works")

    assert [record.number for record in catalog.list("job")] == [2]
    assert len(said) == 1
    assert "Device or resource busy" in said[0]


def test_masters_and_epochs_that_are_long_gone(memory: FaultyMemory, storage: JobStorage) -> None:
    """Each leadership leaves a file in the folder of each job, and each master a record."""
    JobCatalog(memory).submit(spec("job"))
    folder = storage.folder("job")
    (folder / "e41").mkdir(parents=True)
    for epoch in range(1, 41):
        (folder / f"e{epoch}").touch()
    registry = Registry(memory)
    registry.put(MasterInfo("lives", "host", 1, 0.0, 0.0))
    memory.overwrite(keys.MASTERS + "gone", encode(MasterInfo("gone", "host", 2, 0.0, 0.0)))
    with lead(memory) as leadership:
        leadership.epoch = 41
        leadership.fence = type(leadership.fence)(41, leadership.fence.version)

        assert Sweep(leader_context(leadership, memory, storage))._work()

    assert {path.name for path in folder.iterdir()} == {f"e{epoch}" for epoch in range(25, 42)}
    assert [info.name for info in registry.masters()] == ["lives"]
