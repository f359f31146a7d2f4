"""A restore names what the job has done elsewhere since, and asks (A4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.contract.errors import WrongState
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.heads import StreamPlan
from jrs.records.model import StageRecord
from jrs.recovery.snapshot_catalog import SnapshotCatalog
from jrs.store import heads, restores
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import FaultyMemory


def called(job: FakeJob, stage: str, batch: int, generation: int = 1) -> None:
    job.record(keys.plan("job", stage), StreamPlan("job", stage, generation, batch, 1, 1))


def published(job: FakeJob, stage: str, target: str) -> None:
    record = StageRecord("job", stage, None, 1, 1, 0.5, 9.0, target=target)
    job.record(keys.stage("job", stage), record)


def test_a4_calls_of_functions(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """A4: the rows that a function has put into a database stay there."""
    job.suspend()
    record = catalog.create("job")
    batch = record.stages[0].batch
    assert (record.stages[0].name, batch) == ("hourly", 4)
    called(job, "hourly", 7)
    called(job, "later", 0)
    before = list(memory.scan(""))

    with pytest.raises(WrongState) as refused:
        catalog.restore(record)
    assert str(refused.value) == (
        "a restore of job 'job' from snapshot 1 does not take back what the job has done elsewhere "
        "since: stage 'hourly' has called its function for batches 5 to 7; stage 'later' has "
        "called its function for batch 0. Restore it with --accept-published "
        "(accept_published=True) if that may stay, or as a new job with --as"
    )
    assert list(memory.scan("")) == before
    catalog.restore(record, as_job="new")
    catalog.restore(record, accept_published=True)
    assert heads.generation_of(memory, "job") == 2
    catalog.restore(record)  # Those calls were of the generation before.


@pytest.mark.parametrize("batch", [0, 4])
def test_a4_calls_before_the_snapshot(catalog: SnapshotCatalog, job: FakeJob, batch: int) -> None:
    """A restore takes nothing of them back."""
    job.suspend()
    record = catalog.create("job")
    called(job, "hourly", batch)
    assert catalog.restore(record).job_id == "job"


def test_a4_what_was_published(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    job.suspend()
    published(job, "early", str(tmp_path / "early"))
    record = catalog.create("job")
    for number in range(5):
        published(job, f"t{number}", f"/warehouse/{number}")
    named = "/warehouse/0 was published; /warehouse/1 was published; /warehouse/2 was published; "
    with pytest.raises(WrongState, match=f"{named}and 2 more. Restore it with"):
        catalog.restore(record)
    assert catalog.restore(record, accept_published=True).job_id == "job"


def test_a4_a_plan_that_cannot_be_read(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    job.suspend()
    record = catalog.create("job")
    memory.commit(Create(keys.plan("job", "hourly"), b"{"))
    with pytest.raises(WrongState, match="it is not known for which batches"):
        catalog.restore(record)


def test_a4_a_generation_that_cannot_be_read(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """It may be that of the plan."""
    job.suspend()
    record = catalog.create("job")
    memory.commit(Create(keys.GENERATIONS + "job", b"{"))
    called(job, "hourly", 7, generation=7)
    with pytest.raises(WrongState, match="for batches 5 to 7"):
        catalog.restore(record)


def test_a4_a_restore_that_is_finished(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller that began it has accepted that; another process carries it out."""
    job.suspend()
    record = catalog.create("job")
    called(job, "hourly", 7)
    with monkeypatch.context() as patch:
        patch.setattr("jrs.recovery.snapshots.swap.swap", lambda *_: died())
        with pytest.raises(KeyboardInterrupt):
            catalog.restore(record, accept_published=True)
    assert restores.stored(memory, "job") is not None
    assert catalog.finish_restore("job").number == record.number


def died() -> None:
    raise KeyboardInterrupt
