"""Which scheduled snapshots a leader takes, and when it takes none."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.contract.errors import JobHeld, Unavailable
from jrs.contract.operations import Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import AttemptRecord, StageRecord, StreamRecord, StreamSink
from jrs.records.policies import SnapshotPolicy
from jrs.records.snapshots import SnapshotFormat, TakenBy
from jrs.recovery.checkpoint_format import checkpoint, offset_log
from jrs.recovery.checkpoint_format import position as positions
from jrs.recovery.checkpoint_format.position import END_OF_TIME
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader.recovery_point import RecoveryPoints
from jrs.recovery.snapshots import SnapshotCatalog, scheduled
from jrs.store import history
from jrs.store.stops import JobStops
from tests.recovery.snapshots.fabricate import FakeJob, file_sink, jrs_sink, put
from tests.recovery.snapshots.test_retry import update
from tests.recovery.support import FaultyMemory, leader_context


@pytest.fixture
def state(memory: FaultyMemory, storage: JobStorage, job: FakeJob) -> RecoveryPoints:
    leader = memory.campaign("m", ttl=10.0, stop=threading.Event())
    assert leader is not None
    job.epoch = storage.take_over("job", leader.epoch)
    job.query.ck = job.epoch / "streams" / "hourly" / "ck"
    return RecoveryPoints(leader_context(leader, memory, storage))


def test_the_newest_are_kept(state: RecoveryPoints, catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Each pin is one more snapshot, and as many stay as are to be kept."""
    for _ in range(3):
        job.run()
        state.take_scheduled_snapshot("job", SnapshotPolicy(keep=2))

    assert [one.stages[0].batch for one in catalog.list("job")] == [6, 7]


def test_when_the_next_one_is_due(
    state: RecoveryPoints, catalog: SnapshotCatalog, job: FakeJob
) -> None:
    """An interval after the newest one that jrs took, or after the first start. A time that a clock
    recorded which was far ahead does not count: it would keep all later leaders from it."""

    def until_next(now: float) -> float:
        state._catalog.now = lambda: now
        return scheduled.until_scheduled_snapshot(state._catalog, "job", 60.0)

    job.record(keys.ATTEMPTS + "job", AttemptRecord("job", first_started_at=500.0))
    assert [until_next(now) for now in (480.0, 510.0, 600.0)] == [60.0, 50.0, 0.0]

    taken = catalog.create("job", taken_by=TakenBy.SYSTEM).created_at
    assert catalog.create("job").created_at > taken
    assert [until_next(taken + later) for later in (-9.0, 10.0, 61.0)] == [60.0, 50.0, 0.0]

    month = 30 * 86400.0
    catalog.now = lambda: taken + month
    catalog.create("job", taken_by=TakenBy.SYSTEM)
    assert [until_next(taken + later) for later in (10.0, 61.0, month)] == [50.0, 0.0, 60.0]

    key = keys.snapshot("job", 1)
    stored = job.backend.get(key)
    assert stored is not None
    job.backend.commit(Update(key, b"no record", stored.version))
    assert until_next(taken) == 0.0


@pytest.mark.parametrize("by", TakenBy)
def test_none_while_nothing_is_committed(
    state: RecoveryPoints, catalog: SnapshotCatalog, job: FakeJob, by: TakenBy
) -> None:
    """U9: a stream that hangs rotates no older point out, no matter who took the newest. A batch or
    a finished stage is something new, and so is the same batch of another history."""
    policy = SnapshotPolicy(keep=2)

    def pins() -> bool:
        before = len(catalog.list("job")) and catalog.list("job")[-1].number
        state.take_scheduled_snapshot("job", policy)
        return catalog.list("job")[-1].number > before

    catalog.create("job", taken_by=by)
    assert not pins()
    job.run()
    assert pins()
    assert not pins()
    job.query.plan()
    assert not pins()
    job.run()
    assert pins()
    commit = job.query.ck / "commits" / str(job.query.batch)
    os.utime(commit, ns=(1, 1))
    assert pins()
    job.record(keys.stage("job", "late"), StageRecord("job", "late", 1, 1, 3, 0.5, 10.0))
    assert pins()
    assert not pins()


def test_the_system_deletes_its_own(
    state: RecoveryPoints, catalog: SnapshotCatalog, job: FakeJob
) -> None:
    """U10: retention spares what a user has taken, named or not, and what an older version has
    taken under a name (seed FLIP-47: "they will not be automatically deleted")."""
    catalog.create("job")
    catalog.create("job", name="older", taken_by=TakenBy.UNKNOWN)
    catalog.create("job", taken_by=TakenBy.UNKNOWN)
    policy = SnapshotPolicy(keep=1, format=SnapshotFormat.FULL)
    update(job, snapshots=policy)
    for _ in range(2):
        job.run()
        state.take_scheduled_snapshot("job", policy)

    listed = [(one.number, one.taken_by.value, one.format.value) for one in catalog.list("job")]
    assert listed == [(1, "user", "link"), (2, "", "link"), (5, "system", "full")]


def test_none_behind_the_end(state: RecoveryPoints, catalog: SnapshotCatalog, job: FakeJob) -> None:
    """N1: at the end of a stream nothing is pinned: the last snapshot that is of use stays."""
    state.take_scheduled_snapshot("job", SnapshotPolicy(keep=1))
    end = json.dumps({"batchWatermarkMs": END_OF_TIME})
    put(job.query.ck / "offsets" / "5", f"v1\n{end}\n" + '{"logOffset":5}')
    state.take_scheduled_snapshot("job", SnapshotPolicy(keep=1))

    assert [(one.number, one.stages[0].batch) for one in catalog.list("job")] == [(1, 4)]


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("no date")])
@pytest.mark.parametrize("where", ["create", "_is_at_its_end"])
def test_a_failure_is_only_said(
    state: RecoveryPoints, error: Exception, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot is one more point to resume from: a failure to take one ends nothing."""

    def fail(*args: object, **how: object) -> None:
        raise error

    said: list[tuple[str, str, str]] = []
    monkeypatch.setattr(state, "_emit", lambda *what: said.append(what))
    monkeypatch.setattr(scheduled if where != "create" else state._catalog, where, fail)

    state.take_scheduled_snapshot("job", SnapshotPolicy())

    assert said == [("snapshot", "job", f"could not be taken: {error}")]


def test_an_older_one_that_cannot_be_deleted(
    state: RecoveryPoints, catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The new one is taken all the same, and the message says both."""
    said: list[tuple[str, str, str]] = []
    monkeypatch.setattr(state, "_emit", lambda *what: said.append(what))
    catalog.create("job", taken_by=TakenBy.SYSTEM)
    catalog.move("job", 1, tmp_path / "far")
    (tmp_path / "far").rename(tmp_path / "away")
    job.run()

    state.take_scheduled_snapshot("job", SnapshotPolicy(keep=1))

    assert said[0][2].startswith("snapshot 2 is taken; an older one could not be deleted: ")
    assert f"{tmp_path / 'far'}" in said[0][2]


@pytest.mark.parametrize("change", [{"entry_point": "m:g"}, {"partitions": 4}])
def test_a_change_is_pinned_first(
    state: RecoveryPoints, catalog: SnapshotCatalog, job: FakeJob, change: dict[str, Any]
) -> None:
    """N6: a job that is upgraded or rescaled has a snapshot of what it was, and its state is still
    known to be its own.
    """
    job.record(keys.ATTEMPTS + "job", AttemptRecord("job"))
    JobStops(job.backend).reconfigure("job", **change)
    state.take_scheduled_snapshot("job", SnapshotPolicy())
    assert [one.stages[0].batch for one in catalog.list("job")] == [4]

    catalog.remove(catalog.get("job", 1))
    shutil.rmtree(job.query.ck)
    with pytest.raises(JobHeld):
        state.ensure_recoverable("job")


def test_back_to_before_an_upgrade(
    state: RecoveryPoints, catalog: SnapshotCatalog, job: FakeJob
) -> None:
    """S7: a job that was upgraded goes back to a snapshot of the code before as the code it is now:
    what that does may be another query.
    """
    record = catalog.create("job")
    job.record(keys.ATTEMPTS + "job", AttemptRecord("job"))
    JobStops(job.backend).reconfigure("job", entry_point="m:g")
    catalog.restore(record, is_stopped=lambda job_id: True)
    stored = job.backend.get(keys.stream("job", "hourly"))
    assert stored is not None

    assert decode(StreamRecord, stored.value, stored.key).plan == ""


@pytest.mark.parametrize("lost", ["ck", "."])
def test_a_file_sink_ahead_of_nothing(state: RecoveryPoints, job: FakeJob, lost: str) -> None:
    """A checkpoint that is gone next to what a file sink has published is damage: Spark would start
    from zero, and its sink would pass over the first batches.
    """
    shutil.rmtree(job.epoch / "streams" / "hourly" / lost)
    with pytest.raises(JobHeld, match="'hourly'"):
        state.ensure_recoverable("job")
    assert (job.out("hourly") / "_spark_metadata").is_dir()


def test_a_start_lists_only_the_newest_batch(
    state: RecoveryPoints, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream of months has a million of them, and a failover waits for that."""
    shutil.rmtree(job.out("hourly"))
    jrs_sink(job.out("hourly"), 5)
    listed: list[Path] = []

    def noted(real: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def listing(folder: Any) -> Any:
            listed.append(Path(folder))
            return real(folder)

        return listing

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, noted(getattr(os, name)))
    state.ensure_recoverable("job")

    below = [path.name for path in listed if path.parent == job.out("hourly")]
    assert below == ["batch=4"]


def test_a_log_of_an_earlier_sink_counts(state: RecoveryPoints, job: FakeJob) -> None:
    """The stage may have had either sink before."""
    jrs_sink(job.out("hourly"), 2)
    shutil.rmtree(job.query.ck)
    with pytest.raises(JobHeld, match="batch -1, and batch 4 of it was published"):
        state.ensure_recoverable("job")
    jrs_sink(job.out("hourly"), 9)
    with pytest.raises(JobHeld, match="batch -1, and batch 8 of it was published"):
        state.ensure_recoverable("job")


@pytest.mark.parametrize("sink", [file_sink, jrs_sink])
def test_a_sink_ahead_by_its_first_batch(
    state: RecoveryPoints, job: FakeJob, sink: Callable[[Path, int], None]
) -> None:
    """A lost checkpoint is damage also if no more than batch 0 was published. One that was cut off
    between its sink's commit of that batch and its own is not: it hands it over again."""
    shutil.rmtree(job.out("hourly"))
    sink(job.out("hourly"), 1)
    shutil.rmtree(job.query.ck)
    with pytest.raises(JobHeld, match="batch -1, and batch 0 of it was published"):
        state.ensure_recoverable("job")

    job.query.batch = -1
    job.query.start().plan()
    state.ensure_recoverable("job")


@pytest.mark.parametrize(("number", "error"), [(errno.EIO, JobHeld), (errno.ESTALE, Unavailable)])
def test_a_disk_that_fails(
    state: RecoveryPoints, number: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a disk has lost is damage; whatever else it cannot do now, it is asked again."""

    def fail(folder: Path) -> None:
        raise OSError(number, os.strerror(number), str(folder))

    monkeypatch.setattr(checkpoint, "select", fail)

    with pytest.raises(error, match=f"ck cannot be read: {os.strerror(number)}"):
        state.ensure_recoverable("job")


def test_a_plan_that_cannot_be_read_now(
    state: RecoveryPoints,
    catalog: SnapshotCatalog,
    job: FakeJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R6: no job with an intact checkpoint goes back to a snapshot because its leader had no
    descriptor left to read the plan with."""
    state.take_scheduled_snapshot("job", SnapshotPolicy(keep=1))
    job.run(2)
    committed = positions.position(job.query.ck).committed

    def fail(plan: Path) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(plan))

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "select", lambda live: None)
        patched.setattr(offset_log, "read", fail)
        with pytest.raises(Unavailable, match=r"offsets/\d+ cannot be read: Too many open files"):
            state.ensure_recoverable("job")
    state.ensure_recoverable("job")

    assert len(catalog.list("job")) == 1
    assert positions.position(job.query.ck).committed == committed


def test_a_table_with_partitions_that_are_called_batch(state: RecoveryPoints, job: FakeJob) -> None:
    """A folder of the table's own is no batch of its sink's."""
    put(job.out("hourly") / "batch=2026" / "part-0.parquet", "rows")
    state.ensure_recoverable("job")


def test_a_sink_that_knows_what_a_snapshot_does_not(
    state: RecoveryPoints, catalog: SnapshotCatalog, storage: JobStorage, job: FakeJob
) -> None:
    """A leader does not go back behind such a sink by itself: it would leave out the next batches.
    It does once nothing was written since, or the user has taken the job back."""
    sink = StreamSink("delta", "s3a://bucket/orders", knows_batches=True)
    stored = job.backend.get(keys.stream("job", "hourly"))
    assert stored is not None
    record = attrs.evolve(decode(StreamRecord, stored.value, stored.key), sink=sink)
    job.backend.commit(Update(stored.key, encode(record), stored.version))
    state.take_scheduled_snapshot("job", SnapshotPolicy())
    job.run()
    (number,) = (one.number for one in catalog.list("job"))
    how = f"jrs snapshot restore job {number} --accept-published and jrs resume job"
    for _ in range(2):
        storage.report_damage("job", int(job.epoch.name[1:]), "hourly", "bad sectors")
        with pytest.raises(JobHeld) as held:
            state.ensure_recoverable("job")
        assert how in str(held.value)
        assert "batch 5 to delta at s3a://bucket/orders" in str(held.value)
        assert "bad sectors" in str(held.value)
    assert positions.position(job.query.ck).committed == 5
    state.ensure_recoverable("job")  # After a resume, the stored state is tried once more.

    catalog.restore(catalog.get("job", number), accept_published=True, is_stopped=lambda _: True)
    storage.report_damage("job", int(job.epoch.name[1:]), "hourly", "bad sectors")
    state.ensure_recoverable("job")
    assert positions.position(job.query.ck).committed == 4


def test_a_resume_tries_what_was_damaged(
    state: RecoveryPoints, storage: JobStorage, job: FakeJob
) -> None:
    """N1: a job whose checkpoint could not be loaded is held if it has no snapshot. A resume
    loads it once more: what was in the way may be gone."""
    storage.report_damage("job", int(job.epoch.name[1:]), "hourly", "no such host")
    with pytest.raises(JobHeld, match="no such host"):
        state.ensure_recoverable("job")

    state.ensure_recoverable("job")


@pytest.mark.parametrize("known", [True, False])
def test_a_checkpoint_that_is_gone(
    state: RecoveryPoints, storage: JobStorage, job: FakeJob, known: bool
) -> None:
    """A stream whose attempts have found batches does not begin again: its sink may leave out the
    batches that it would count again. One of which none is known may be new."""
    shutil.rmtree(job.out("hourly"))
    key = keys.stream("job", "hourly")
    stored = job.backend.get(key)
    assert stored is not None
    record = attrs.evolve(decode(StreamRecord, stored.value, key), has_batches=known)
    job.backend.commit(Update(key, encode(record), stored.version))
    state.take_scheduled_snapshot("job", SnapshotPolicy())
    shutil.rmtree(job.query.ck)
    state.ensure_recoverable("job")
    (restored,) = storage.folder("job").glob("e*/streams/hourly")
    assert (restored / "ck").exists() == known


def test_failures_in_a_row_are_in_the_history(
    state: RecoveryPoints,
    memory: FaultyMemory,
    catalog: SnapshotCatalog,
    job: FakeJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of them, and their end: for months nobody may read the log of the masters."""
    policy, failures = SnapshotPolicy(every=60.0), 0
    job.run()

    def full(*args: object, **how: object) -> None:
        raise Unavailable("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotCatalog, "create", full)
        for _ in range(3):
            assert state.take_snapshot_if_due("job", policy, failures) is None
            failures += 1
    assert state.take_snapshot_if_due("job", policy, failures) == 60.0

    said = [event.text for event in history.read(memory, "job") if event.kind == "snapshot"]
    assert said == [
        "a scheduled snapshot could not be taken: no space left on device; trying again",
        "snapshot 1 was taken",
        "scheduled snapshots are taken again",
    ]
    assert [record.number for record in catalog.list("job")] == [1]
