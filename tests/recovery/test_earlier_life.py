"""A backend that was lost while the storage was kept: what a job's folder holds is of an earlier
life, and concerns that job alone."""

from __future__ import annotations

from pathlib import Path

from jrs import JobCatalog, keys
from jrs.backends.memory import Space
from jrs.codec import decode
from jrs.model import StopMode, StopRecord
from jrs.recovery.cleanup import JobCleanup, default_resources
from jrs.recovery.snapshots import SnapshotCatalog, folders, left_over
from jrs.recovery.storage import JobStorage
from jrs.stops import JobStops
from jrs.store import JobResultStore
from tests.recovery.support import CLUSTER, FaultyMemory, Leader, put, result, spec
from tests.snapshots.fabricate import FakeJob
from tests.support import until


def earlier_life(root: Path) -> JobStorage:
    """Leave a job of epoch 40 and its snapshot, as a backend that was lost did."""
    storage = JobStorage(root, CLUSTER)
    with FaultyMemory(Space(), url="memory://lost", cluster=CLUSTER) as lost:
        job = FakeJob(lost, storage).run(2)
        SnapshotCatalog(lost, storage).create("job")
    job.epoch.rename(storage.folder("job") / "e40")
    return storage


def held(memory: FaultyMemory, job_id: str) -> str:
    """Wait until a job is held; return why."""

    def reason() -> str | None:
        stored = memory.get(keys.STOPS + job_id)
        stop = None if stored is None else decode(StopRecord, stored.value, stored.key)
        return stop.reason if stop is not None and stop.mode is StopMode.HOLD else None

    found: str = until(reason, f"{job_id} is held")
    return found


def test_a_folder_of_a_later_epoch_holds_its_job_alone(
    memory: FaultyMemory, tmp_path: Path
) -> None:
    """The leader goes on to lead, and the job goes on once it was restored from its folder."""
    storage = earlier_life(tmp_path / "jobs")
    with Leader(memory, tmp_path / "jobs") as leader:
        JobCatalog(memory).submit(spec("job"))
        assert f"{storage.folder('job')} has files of a later epoch than 1" in held(memory, "job")
        JobCatalog(memory).submit(spec("other"))
        leader.runner.of("other")
        assert not leader.leadership.lost.is_set()

        catalog = SnapshotCatalog(memory, storage)
        restored = catalog.restore(folders.snapshot(storage, "job", 1))
        assert restored.folder.name == "e1"
        JobStops(memory).resume("job")
        leader.runner.of("job")
    assert [path.name for path in storage.folder("job").glob("e*")] == ["e1"]


def test_restored_before_anybody_leads(memory: FaultyMemory, tmp_path: Path) -> None:
    """The first leader can take over what was restored."""
    storage = earlier_life(tmp_path / "jobs")

    restored = SnapshotCatalog(memory, storage).restore(folders.snapshot(storage, "job", 1))

    assert restored.folder.name == "e0"
    with Leader(memory, tmp_path / "jobs") as leader:
        leader.runner.of("job")
    assert (storage.folder("job") / "e1/streams/hourly/ck/commits/1").exists()


def test_a_cleanup_leaves_snapshots_that_are_not_listed(
    memory: FaultyMemory, tmp_path: Path
) -> None:
    """They may be all there is of the earlier life; fsck names them."""
    storage = earlier_life(tmp_path / "jobs")
    put(memory, keys.JOBS + "job", spec("job"))
    JobResultStore(memory).create_dirty(result("job"), None)
    cleanup = JobCleanup(memory, default_resources(memory, storage))
    assert cleanup.describe("job")["snapshots"] == []

    assert cleanup.run("job", None).problems == {}

    assert folders.whole(storage, "job") == {1}
    assert any("snapshots/1: a snapshot that is not" in line for line in left_over(memory, storage))
