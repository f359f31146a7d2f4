"""A record that the disk may have lost: what only it names is kept, and its job is held."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobResult, JobStatus, RunnerKind
from jrs.records.snapshots import RestoreRecord
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.cleanup.job_objects import JobObjects
from jrs.recovery.cleanup.object_garbage import ObjectGarbage
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.inspect.fsck import fsck
from jrs.recovery.leader.take_over import take_over
from jrs.store import restores
from jrs.store.jobs import JobCatalog
from jrs.store.migration import Migration
from jrs.store.result_store import JobResultStore
from tests.recovery.attempt.objects_attempt import begin
from tests.recovery.lead import Lead
from tests.recovery.storage.support import Store, storage
from tests.recovery.support import CLUSTER, Leader, spec
from tests.support import rot, until


class Killed(BaseException):
    """The end of a process."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def lose(backend: FileBackend, store: Path, key: str) -> FileBackend:
    """Close the backend, lose a record of its base, and open it again."""
    backend.compact()
    backend.close()
    rot(store, key)
    return FileBackend(store, CLUSTER)


@pytest.mark.parametrize("lost", [keys.stage("job", "kept"), keys.head("job", "sums")])
def test_objects_that_only_a_lost_record_names(tmp_path: Path, store: Path, lost: str) -> None:
    """D2: neither the cleanup of a job nor the sweep of replaced batches deletes an object that the
    lost record may name."""
    backend, objects = FileBackend(store, CLUSTER), Store()
    lead = Lead(backend, tmp_path / "jobs")
    lead.storage = storage(tmp_path / "jobs", objects, CLUSTER)
    stream = begin(lead)
    for _ in range(5):
        stream.batch()
    AttemptRun(lead.context(1)).job.stage("kept", lambda stage: (stage.output / "a").touch())
    with lose(backend, store, lost) as again:
        there = set(objects.names())
        assert lead.storage.objects is not None

        with pytest.raises(CorruptRecord, match="may be missing"):
            ObjectGarbage(again, lead.storage.objects).sweep_replaced("job", None)
        with pytest.raises(CorruptRecord, match="may be missing"):
            JobObjects(again, lead.storage.objects).clean("job")

        assert set(objects.names()) == there


def test_a_finished_stage_that_was_not_published(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: a take-over keeps a staging folder that a lost record may name: it is the only copy of
    what the stage wrote."""

    def killed(*_: object) -> None:
        raise Killed

    backend = FileBackend(store, CLUSTER)
    lead = Lead(backend, tmp_path / "jobs")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(JobStorage, "publish", killed)
        AttemptRun(lead.context(1)).job.stage("load", lambda stage: (stage.output / "r").touch())
    lead.leadership.resign()
    with lose(backend, store, keys.stage("job", "load")) as again:
        next_leader = again.campaign("next", ttl=10.0, stop=threading.Event())
        assert next_leader is not None
        take_over(again, lead.storage, "job", next_leader.fence)
        next_leader.resign()

    assert [path.parent.name for path in (tmp_path / "jobs").rglob("r")] == ["load.1"]


def test_a_restore_that_may_be_lost(store: Path) -> None:
    """D2: while a restore may be lost, no snapshot counts as needed by none."""
    backend = FileBackend(store, CLUSTER)
    restore = RestoreRecord("other", "3", "job", 1.0)
    backend.commit(Create(keys.RESTORES + "other", encode(restore)))
    with lose(backend, store, keys.RESTORES + "other") as again:
        with pytest.raises(CorruptRecord, match="restores/: a record may be missing"):
            list(restores.begun(again))


def test_a_new_leader_and_a_cancel_that_may_be_lost(tmp_path: Path, store: Path) -> None:
    """D2: a leader that finds a job does not start it because a scan shows no cancel."""
    backend = FileBackend(store, CLUSTER)
    JobCatalog(backend).submit(spec("job", runner=RunnerKind.THREAD))
    JobCatalog(backend).cancel("job")
    with lose(backend, store, keys.CANCEL + "job") as again, Leader(again, tmp_path) as leader:
        until(
            lambda: any("cannot be read" in event.message for event in leader.events), "it is held"
        )
        assert leader.runner.started == []


def test_a_new_leader_and_a_spec_that_may_be_lost(tmp_path: Path, store: Path) -> None:
    """D2: a leader carries out the cancel of a job whose spec no scan shows."""
    backend = FileBackend(store, CLUSTER)
    JobCatalog(backend).submit(spec("job"))
    JobCatalog(backend).cancel("job")
    with lose(backend, store, keys.JOBS + "job") as again, Leader(again, tmp_path) as leader:
        until(lambda: leader.store.has_entry("job"), "it is canceled")


def test_a_cluster_that_may_have_lost_a_record_is_not_migrated(tmp_path: Path, store: Path) -> None:
    """D2: a copy of what is left would hide that something is missing."""
    backend = FileBackend(store, CLUSTER)
    JobCatalog(backend).submit(spec("job"))
    with lose(backend, store, keys.JOBS + "job") as again:
        with FileBackend(tmp_path / "target", CLUSTER) as target:
            with pytest.raises(CorruptRecord, match="may be missing"):
                Migration(again, target, by="me").survey()


@pytest.mark.parametrize("other", [b"n)ghtly", b"nhghtly"])
def test_a_flipped_bit_in_the_key_of_a_marker(tmp_path: Path, store: Path, other: bytes) -> None:
    """A leader leads, says that a dirty result may be missing, and cleans up the others. fsck names
    that and all else."""
    with FileBackend(store, CLUSTER) as backend:
        results = JobResultStore(backend)
        for job_id in ("alpha", "nightly", "zeta"):
            results.create_dirty(JobResult(job_id, JobStatus.FINISHED, finished_at=1.0), None)
        backend.compact()
    (run,) = store.rglob("*.run")
    run.write_bytes(run.read_bytes().replace(b"\tdirty/nightly\t", b"\tdirty/%s\t" % other))

    with FileBackend(store, CLUSTER) as backend, Leader(backend, tmp_path / "jobs") as leader:
        leader.until_clean("alpha", "zeta")
        leader.until_said("held", "", "some dirty results may be missing")
        backend.commit(Create(keys.JOBS + "torn", b"no record"))
        report = fsck(backend, None)
    assert any("jobs/torn" in line for line in report.damaged)
    assert any("'torn'" in line for line in report.held)
    assert any("results/nightly" in line or "is held" in line for line in report.damaged)
