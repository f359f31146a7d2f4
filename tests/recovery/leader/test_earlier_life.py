"""A backend that was lost while the storage was kept: what a job's folder holds is of an earlier
life, and concerns that job alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.backends.memory import Space
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, StopMode, StopRecord
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import SnapshotCatalog, find_orphans, folders
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import CLUSTER, FaultyMemory, Leader, put, result, spec
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
    """The leader keeps leading, and the job resumes once it was restored from its folder."""
    storage = earlier_life(tmp_path / "jobs")
    put(memory, keys.ATTEMPTS + "job", AttemptRecord("job"))
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
    assert any(
        "snapshots/1: a snapshot that is not" in line for line in find_orphans(memory, storage)
    )


@pytest.mark.parametrize("what", ["out/live/batch=0", "out/table", "e1/streams", "snapshots/1"])
def test_files_under_a_new_id_hold_the_job(memory: FaultyMemory, tmp_path: Path, what: str) -> None:
    """A sink would drop the rows of batches that it finds, and a stage replace what it finds."""
    folder = JobStorage(tmp_path / "jobs", CLUSTER).folder("job")
    (folder / what / "inside").mkdir(parents=True)
    with Leader(memory, tmp_path / "jobs") as leader:
        JobCatalog(memory).submit(spec("job"))
        reason = held(memory, "job")
        assert f"{folder} has files of an earlier life: {what.partition('/')[0]}" in reason
        assert (folder / what / "inside").is_dir()

        folder.rename(tmp_path / "away")
        JobStops(memory).resume("job")
        assert leader.runner.of("job").context.attempt == 1


def test_what_holds_no_new_job(memory: FaultyMemory, tmp_path: Path) -> None:
    """Folders without anything in them, as of a start that was cut off, snapshots that are listed,
    and what a fork has of the job that it is of."""
    storage = JobStorage(tmp_path / "jobs", CLUSTER)
    catalog = SnapshotCatalog(memory, storage)
    (storage.take_over("plain", 0).parent / "out").mkdir()
    put(memory, keys.JOBS + "plain", spec("plain"))
    catalog.create("plain")
    FakeJob(memory, storage).run(2)
    catalog.fork("job", "fork")
    catalog.fork("plain", "empty")
    with Leader(memory, tmp_path / "jobs") as leader:
        for job_id in ("plain", "fork", "empty"):
            leader.runner.of(job_id)
