"""Which objects of an ended job `gc` and retention remove, and which they keep."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jrs.contract.errors import WrongState
from jrs.contract.operations import Create, Delete
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import Failure, JobResult, JobStatus, Tombstone
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.cleanup.garbage import GarbageReport, collect_garbage
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.inspect.fsck import fsck
from jrs.recovery.leader.retention import Retention
from jrs.recovery.rules.retention import Kind, RetentionPolicy
from jrs.recovery.snapshots import SnapshotCatalog, create_in_objects
from jrs.recovery.snapshots.index import SnapshotIndex
from jrs.store.result_store import JobResultStore
from tests.recovery.attempt.objects_attempt import begin
from tests.recovery.lead import Lead
from tests.recovery.storage.support import Store
from tests.recovery.support import leader_context


def run(lead: Lead, batches: int = 3) -> None:
    stream = begin(lead)
    for _ in range(batches):
        stream.batch()


def write(stage: Any) -> None:
    (stage.output / "a.txt").write_text(stage.name)


def end(lead: Lead, status: JobStatus = JobStatus.FINISHED) -> JobResultStore:
    """Give the job its result, and clean it up."""
    results, fence = JobResultStore(lead.backend), lead.leadership.fence
    failure = Failure("exit", "gone") if status is JobStatus.FAILED else None
    results.create_dirty(JobResult("job", status, None, failure, finished_at=time.time()), fence)
    JobCleanup(lead.backend, default_resources(lead.backend, lead.storage)).run("job", fence)
    assert results.has_clean("job")
    return results


def gc(lead: Lead) -> GarbageReport:
    index = SnapshotIndex(lead.backend, lead.storage, now=lambda: time.time() + 10)
    return collect_garbage(index, 0.0, dry_run=False)


def retain(lead: Lead, **ages: float) -> dict[Kind, int]:
    context = leader_context(lead.leadership, lead.backend, lead.storage)
    policy: dict[str, Any] = {"logs": None, "failed_logs": None, **ages}
    return dict(Retention(context, RetentionPolicy(**policy)).run_once())


@pytest.fixture
def catalog(lead: Lead) -> SnapshotCatalog:
    return SnapshotCatalog(lead.backend, lead.storage)


# -- snapshots of jobs that have ended ------------------------------------------------------------


def test_a7_a_snapshot_outlives_its_jobs_result(
    lead: Lead, catalog: SnapshotCatalog, store: Store
) -> None:
    """A7: what a listed snapshot names stays when the result is expired; the rest goes, and all of
    it with the snapshot."""
    run(lead)
    record = catalog.create("job", name="mine")
    run(lead, 1)
    end(lead).delete("job")
    removed = {one.path.rpartition("/job/")[2] for one in gc(lead).removed}

    assert "outputs" in removed
    assert catalog.verify("job", "mine") == record
    catalog.delete("job", "mine")
    gc(lead)
    assert store.names() == []


def test_a_damaged_snapshot_keeps_all_objects_of_an_expired_job(
    lead: Lead, catalog: SnapshotCatalog, store: Store
) -> None:
    """It is not known what it names."""
    run(lead)
    catalog.create("job")
    end(lead).delete("job")
    store.remove(next(name for name in store.names() if "/snapshot/" in name))
    before = store.names()
    report = gc(lead)

    assert store.names() == before
    assert any("is missing" in line for line in report.left)


def test_no_snapshot_is_listed_of_an_expired_job(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that took one while the job ended finds that out, also if its result has already
    been expired: nothing keeps the objects any more."""
    run(lead)
    listed = create_in_objects._listed

    def slow(*arguments: Any) -> Any:
        for record in list(lead.backend.scan(keys.JOBS)):
            lead.backend.commit(Delete(record.key))
        lead.backend.commit(Create(keys.TOMBSTONES + "job", encode(Tombstone("job"))))
        return listed(*arguments)

    monkeypatch.setattr(create_in_objects, "_listed", slow)
    with pytest.raises(WrongState, match="has ended"):
        catalog.create("job")
    assert catalog.list("job") == []


@pytest.mark.parametrize("together", [True, False])
def test_retention_next_to_snapshots(
    lead: Lead, catalog: SnapshotCatalog, store: Store, together: bool
) -> None:
    """The output of a failed job goes, except what the snapshot of its end names. That goes with
    the snapshot."""
    run(lead)
    end(lead, JobStatus.FAILED)
    assert [one.at_end for one in catalog.list("job")] == [True]
    if not together:
        assert retain(lead, outputs=0.0) == {Kind.OUTPUTS: 1}
        assert catalog.verify("job", 1).at_end
        assert fsck(lead.backend, lead.storage).damaged == ()
        assert retain(lead, outputs=0.0) == {}
    removed = retain(lead, outputs=0.0, snapshots=0.0)

    assert removed == {Kind.OUTPUTS: 1, Kind.SNAPSHOTS: 1}
    assert store.names() == []


def test_output_that_retention_removed_is_no_damage(
    lead: Lead, catalog: SnapshotCatalog, store: Store
) -> None:
    """The objects that only a snapshot named are garbage once that is deleted, also where retention
    has stopped halfway, or runs no more."""
    run(lead)
    catalog.create("job")
    AttemptRun(lead.context(1)).job.stage("kept", write)
    end(lead)
    store.fail(1, "delete")
    assert retain(lead, outputs=0.0) == {}
    assert fsck(lead.backend, lead.storage).damaged == ()
    assert retain(lead, outputs=0.0) == {Kind.OUTPUTS: 1}
    assert fsck(lead.backend, lead.storage).damaged == ()
    catalog.delete("job", 1)

    assert gc(lead).left == ()
    assert store.names() == ["job/outputs"]


def test_retention_of_snapshots_leaves_the_output(
    lead: Lead, catalog: SnapshotCatalog, store: Store
) -> None:
    run(lead)
    end(lead, JobStatus.FAILED)
    assert retain(lead, snapshots=0.0) == {Kind.SNAPSHOTS: 1}
    left = store.names()

    assert "job/outputs" in left
    assert any("/rows/" in name for name in left)
    assert not any("/ck/" in name or "/snapshot/" in name for name in left)


# -- what a cleanup has kept ----------------------------------------------------------------------


def test_what_a_cleanup_kept_stays(lead: Lead, store: Store) -> None:
    """A record that cannot be read makes the cleanup keep all objects. Its records are gone
    afterwards, and nothing names the output."""
    run(lead)
    lead.backend.commit(Create(keys.stage("job", "damaged"), b"?"))
    before = store.names()
    results = end(lead)
    report = gc(lead)

    assert store.names() == sorted([*before, "job/outputs"])
    assert any("all its objects are kept" in line for line in report.left)
    results.delete("job")
    gc(lead)
    assert store.names() == []


def test_what_a_cleanup_keeps_stays_before_its_end(lead: Lead, store: Store) -> None:
    """The same while the job is dirty, and its records go one after the other."""
    run(lead)
    before = store.names()
    for prefix in (keys.JOBS, keys.HEADS, keys.STREAMS, keys.FENCES):
        for record in list(lead.backend.scan(prefix)):
            lead.backend.commit(Delete(record.key))
    results = JobResultStore(lead.backend)
    results.create_dirty(JobResult("job", JobStatus.CANCELED, finished_at=1.0), None)
    gc(lead)

    assert store.names() == before


def test_late_objects_of_a_job_without_output(lead: Lead, store: Store) -> None:
    """Its cleanup lists that it has none, so what a zombie uploads behind it goes."""
    assert lead.storage.objects is not None
    lead.storage.objects.put("job/data/e1.a1.ffff/gone/out/0-part", b"no record names it")
    end(lead)
    assert store.names() == ["job/outputs"]
    lead.storage.objects.put("job/data/e1.a1.ffff/gone/out/1-part", b"a zombie's")
    gc(lead)

    assert store.names() == ["job/outputs"]
