"""The history of a job says what happens to its snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.contract.operations import Delete
from jrs.records.model import JobResult, JobStatus
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.store import history
from jrs.store.historian import because
from jrs.store.result_store import JobResultStore
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import FaultyMemory


def told(catalog: SnapshotCatalog, job_id: str = "job") -> list[str]:
    return [one.text for one in history.read(catalog.backend, job_id) if one.kind != "submitted"]


def test_moved_converted_used_up_and_deleted(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path
) -> None:
    """Each once, in the commit that does it; a repeat that changes nothing is no event."""
    for _ in range(3):
        catalog.create("job", format=SnapshotFormat.FULL)
    with because("the disk is full"):
        catalog.move("job", 1, tmp_path / "far")
        for _ in range(2):
            catalog.convert("job", 2, SnapshotFormat.LINK)
        catalog.delete("job", 2)
    catalog.restore(catalog.get("job", 1), as_job="copy", claim=True)

    assert told(catalog) == [
        "snapshot 1 was taken",
        "snapshot 2 was taken",
        "snapshot 3 was taken",
        f"snapshot 1 was moved to {tmp_path / 'far'}: the disk is full",
        "snapshot 2 was converted from full to link: the disk is full",
        "snapshot 2 was deleted: the disk is full",
    ]
    assert told(catalog, "copy")[-1] == "restored from snapshot 1 of job job, which is used up"


@pytest.mark.parametrize("meanwhile", [False, True])
@pytest.mark.parametrize("what", ["move", "convert", "delete"])
def test_nothing_is_recorded_of_a_job_whose_result_was_expired(
    catalog: SnapshotCatalog,
    job: FakeJob,
    memory: FaultyMemory,
    tmp_path: Path,
    what: str,
    meanwhile: bool,
) -> None:
    """Its history is gone, and nothing would remove what is recorded now."""
    catalog.create("job", format=SnapshotFormat.FULL)
    store = JobResultStore(memory)
    store.create_dirty(JobResult("job", JobStatus.FINISHED, finished_at=1.0), None)
    store.mark_clean("job", None)
    for key in [record.key for record in memory.scan("jobs/")]:
        memory.commit(Delete(key))
    if meanwhile:
        memory.before_commit("history/job/", lambda: store.delete("job"))
    else:
        store.delete("job")
    if what == "move":
        catalog.move("job", 1, tmp_path / "far")
    elif what == "convert":
        catalog.convert("job", 1, SnapshotFormat.LINK)
    else:
        catalog.delete("job", 1)

    assert not store.has_clean("job")
    assert list(memory.scan("history/job/")) == []
