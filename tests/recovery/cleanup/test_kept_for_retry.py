"""What the cleanup of a job that did not finish keeps, so that the job can be retried (U3)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jrs.contract.errors import Unavailable
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import CleanupJournal, JobStatus
from jrs.records.snapshots import RestoreRecord, TakenBy
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.cleanup.snapshots import KeptForRetry
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import SnapshotCatalog, create
from jrs.store.result_store import JobResultStore
from tests.recovery.snapshots.fabricate import FakeJob, put
from tests.recovery.support import CLUSTER, FaultyMemory, Leader, Thing, result


@pytest.fixture
def storage(root: Path) -> JobStorage:
    return JobStorage(root, CLUSTER)


@pytest.fixture
def catalog(memory: FaultyMemory, storage: JobStorage) -> SnapshotCatalog:
    return SnapshotCatalog(memory, storage)


@pytest.fixture
def failed(memory: FaultyMemory, storage: JobStorage) -> FakeJob:
    """A job with a finished stage and a stream, which has just FAILED."""
    job = FakeJob(memory, storage).run(3)
    memory.commit(
        Create(keys.RESULTS + "job", encode(result("job", status=JobStatus.FAILED))),
        Create(keys.DIRTY + "job", b""),
    )
    return job


def cleanup(job: FakeJob, *more: Thing) -> JobCleanup:
    return JobCleanup(job.backend, [*default_resources(job.backend, job.storage), *more])


def test_the_state_at_the_end(failed: FakeJob, catalog: SnapshotCatalog) -> None:
    """Its finished stage with its output, and its stream at the newest batch; taken once, however
    often the cleanup runs."""
    broken = Thing()
    broken.broken = OSError("not yet")
    assert set(cleanup(failed, broken).run("job", None).problems) == {"thing"}
    assert set(cleanup(failed, broken).run("job", None).problems) == {"thing"}
    assert cleanup(failed).run("job", None).problems == {}

    (record,) = catalog.list("job")
    assert (record.at_end, record.taken_by) == (True, TakenBy.SYSTEM)
    assert [(stage.name, stage.batch) for stage in record.stages] == [("hourly", 2)]
    kept = catalog.manifest("job", catalog.verify("job", 1).number)
    assert set(kept.records) == {"spec", "stages/typed", "streams/hourly"}
    assert "out/typed/table.parquet" in {file.path for file in kept.files}


def test_nothing_is_taken_of_what_is_half_removed(
    failed: FakeJob, catalog: SnapshotCatalog
) -> None:
    """Also if a user deletes it while another resource is left."""
    broken = Thing()
    broken.broken = OSError("not yet")
    cleanup(failed, broken).run("job", None)
    catalog.delete("job", 1)
    cleanup(failed).run("job", None)

    assert JobResultStore(failed.backend).has_clean("job")
    assert catalog.list("job") == []


def test_a_disk_that_is_full(
    failed: FakeJob, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again, and nothing is removed meanwhile; in the end the cleanup goes without."""

    monkeypatch.setattr(create, "take", lambda *args: full())
    removed = Thing()
    tries = 0
    while (journal := cleanup(failed, removed).run("job", None)).problems:
        tries += 1
        assert journal.problems == {"what a retry needs": "Unavailable: no space left"}
        assert removed.calls == []
        assert failed.backend.get(keys.stage("job", "typed")) is not None

    assert tries + 1 == KeptForRetry.most_tries
    assert journal.given_up == {"what a retry needs": "Unavailable: no space left"}
    assert JobResultStore(failed.backend).has_clean("job")


def test_what_fails_before_it_costs_no_try(
    failed: FakeJob, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not die ends passes in which no snapshot was tried."""
    process = Thing("process")
    process.prioritised = True
    process.broken = OSError("process 77 does not die")

    def run() -> CleanupJournal:
        resources = default_resources(failed.backend, failed.storage)
        return JobCleanup(failed.backend, [process, *resources]).run("job", None)

    for _ in range(2 * KeptForRetry.most_tries):
        assert set(run().problems) == {"process"}
    process.broken = None
    with monkeypatch.context() as patch:
        patch.setattr(create, "take", lambda *args: full())
        assert run().problems == {"what a retry needs": "Unavailable: no space left"}
    assert run().problems == {}

    assert [record.at_end for record in catalog.list("job")] == [True]


def full() -> None:
    raise Unavailable("no space left")


def test_a_state_that_is_not_whole(failed: FakeJob, memory: FaultyMemory, root: Path) -> None:
    """What can never be taken holds nothing up, and the leader says why."""
    shutil.rmtree(failed.query.ck)
    with Leader(memory, root) as leader:
        leader.until_clean("job")
        said = leader.said("cleanup", "job")

    assert len(said) == 1
    assert "what a retry needs: the job cannot be retried from its end" in said[0].message
    assert "is missing" in said[0].message


def test_given_up_before_anything_is_removed(
    failed: FakeJob, catalog: SnapshotCatalog, memory: FaultyMemory
) -> None:
    """A leader that dies right behind leaves a journal that says so: the next one takes nothing of
    what is half removed."""
    shutil.rmtree(failed.query.ck)
    memory.fault(keys.STAGES, Unavailable)
    with pytest.raises(Unavailable):
        cleanup(failed).run("job", None)
    stored = memory.get(keys.CLEANUP + "job")
    assert stored is not None
    assert "what a retry needs" in decode(CleanupJournal, stored.value, stored.key).given_up
    put(failed.query.ck / "metadata", "{}")
    memory.faults.clear()
    cleanup(failed).run("job", None)

    assert catalog.list("job") == []


def test_a_job_that_was_canceled_in_a_restore(failed: FakeJob, catalog: SnapshotCatalog) -> None:
    """It has no state of its own: the snapshot that it was restored from has."""
    failed.record(keys.RESTORES + "job", RestoreRecord("job", "7", "other", 1.0))

    assert cleanup(failed).run("job", None) == CleanupJournal(
        "job", done=tuple(r.name for r in default_resources(failed.backend, failed.storage)),
        tries=1,
    )  # fmt: skip
    assert catalog.list("job") == []
