"""Retention in the leader: what ended jobs left goes by policy, and nothing else ever does."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.contract.errors import Fenced, InvalidInput, Unavailable
from jrs.contract.operations import Create, Fence, Op
from jrs.contract.runtime import Runtime
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.history import HistoryKind
from jrs.records.model import Failure, JobResult, JobStatus
from jrs.records.snapshots import SnapshotFormat, SnapshotRecord, TakenBy
from jrs.recovery.files import closed_inputs
from jrs.recovery.leader import retention
from jrs.recovery.leader.age_clock import AgeClock
from jrs.recovery.leader.retention import Retention
from jrs.recovery.rules.retention import (
    APART,
    DAY,
    CleanJob,
    Kind,
    LogLimits,
    Now,
    RetentionPolicy,
    is_due,
)
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.recovery.snapshots import folders as snapshot_folders
from jrs.store import cluster_history, history
from jrs.store.historian import Historian
from jrs.store.jobs import JobCatalog
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import FaultyMemory, Leader, leader_context, spec
from tests.support import FakeClock, hold

NOTHING = RetentionPolicy(logs=None, failed_logs=None)


class World:
    """A leadership, and jobs that ended at chosen times."""

    def __init__(self, backend: FaultyMemory, root: Path) -> None:
        self.backend = backend
        self.leader = Leader(backend, root)
        self.storage = self.leader.storage
        self.store = self.leader.store
        # So that no wrong clock is suspected.
        for weeks in range(10):
            at = time.time() - 1.1 * APART - weeks * 7 * DAY
            cluster_history.record(backend, HistoryKind.ELECTED, "elected", lambda at=at: at)  # type: ignore[misc]

    def ended(
        self,
        job_id: str,
        days: float,
        status: JobStatus = JobStatus.FINISHED,
        *,
        clean: bool = True,
    ) -> None:
        at = time.time() - days * DAY
        failure = Failure("exit", "gone") if status is JobStatus.FAILED else None
        self.store.create_dirty(JobResult(job_id, status, None, failure, finished_at=at), None)
        if clean:
            self.store.mark_clean(job_id, None)
        self.files(job_id, at)

    def files(self, job_id: str, at: float, size: int = 10) -> None:
        for place in ("out/stage", "logs"):
            folder = self.storage.folder(job_id) / place
            folder.mkdir(parents=True)
            (folder / "file").write_bytes(b"x" * size)
            os.utime(folder / "file", (at, at))

    def retain(self, policy: RetentionPolicy) -> dict[Kind, int]:
        context = leader_context(self.leader.leadership, self.backend, self.storage)
        return dict(Retention(context, policy).run_once())

    def left(self, place: str) -> set[str]:
        return {path.parent.name for path in self.storage.root.glob(f"*/{place}")}


def list_snapshot(world: World, job_id: str, number: int = 1, by: TakenBy = TakenBy.SYSTEM) -> None:
    """List a snapshot that has no files."""
    record = SnapshotRecord(
        job_id, number, SnapshotFormat.FULL, time.time(), "0" * 64, 0, 0, 0, taken_by=by
    )
    world.backend.commit(Create(keys.snapshot(job_id, number), encode(record)))


@pytest.fixture
def world(memory: FaultyMemory, tmp_path: Path) -> Iterator[World]:
    made = World(memory, tmp_path)
    yield made
    made.leader.stop()
    made.leader.leadership.resign()


def test_logs_go_by_age_and_status(world: World) -> None:
    """U6: by default logs of failed jobs are kept for 30 days, others for 3; those of a job that
    has not ended, or is not cleaned up, are kept whatever their age."""
    world.ended("fresh", 2)
    world.ended("old", 4)
    world.ended("failed", 29, JobStatus.FAILED)
    world.ended("long-failed", 31, JobStatus.FAILED)
    world.ended("expired", 4)
    world.store.delete("expired")
    world.ended("dirty", 40, clean=False)
    world.files("unknown", 0.0)
    world.backend.commit(Create(keys.JOBS + "running", encode(spec("running"))))
    world.files("running", 0.0)
    removed = world.retain(RetentionPolicy())

    assert removed == {Kind.LOGS: 3}
    assert world.left("logs") == {"fresh", "failed", "dirty", "unknown", "running"}
    assert world.left("out") >= {"old", "expired"}
    assert world.retain(RetentionPolicy()) == {}


def test_an_unknown_end_is_no_age(world: World) -> None:
    """Nothing of a job is removed for its age if its result does not say when it ended."""
    world.store.create_dirty(JobResult("bare", JobStatus.FINISHED), None)
    world.store.mark_clean("bare", None)
    world.files("bare", 0.0)

    assert world.retain(RetentionPolicy(results=DAY, outputs=DAY, logs=DAY)) == {}
    assert world.store.has_clean("bare")
    assert world.left("out") == world.left("logs") == {"bare"}


def test_the_oldest_logs_go_for_their_size(world: World) -> None:
    """U6: over the limit of the cluster, the logs of the jobs that ended first go."""
    for number in range(5):
        world.ended(f"job-{number}", 5 - number)
    world.files("unknown", 0.0)
    policy = RetentionPolicy(logs=None, failed_logs=None, limits=LogLimits(cluster=4 * 4096))

    assert world.retain(policy) == {Kind.LOGS: 2}
    assert world.left("logs") == {"job-2", "job-3", "job-4", "unknown"}


def test_the_bound_of_logs_is_held(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if there are more logs than are remembered at once, and the oldest are of jobs that
    have not ended."""
    monkeypatch.setattr(retention, "_NAMES", 2)
    for number in range(6):
        world.ended(f"job-{number}", 6 - number)
    for name in ("held", "waiting"):
        world.files(name, 1.0)
    policy = RetentionPolicy(logs=None, failed_logs=None, limits=LogLimits(cluster=3 * 4096))

    assert world.retain(policy) == {Kind.LOGS: 5}
    assert world.left("logs") == {"job-5", "held", "waiting"}
    assert world.retain(attrs.evolve(policy, limits=LogLimits(cluster=1))) == {Kind.LOGS: 1}


def test_results_go_many_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader expires results as fast as `jrs expire`, and nothing waits until all are gone."""
    for number in range(20):
        world.ended(f"job-{number}", 10)
    commits: list[int] = []
    commit = world.backend.commit_async

    def counted(*ops: Op, fence: Fence | None = None) -> Future[None]:
        assert fence is not None
        commits.append(len(ops))
        return commit(*ops, fence=fence)

    monkeypatch.setattr(world.backend, "commit_async", counted)
    monkeypatch.setattr(retention, "_PAGE", 4)
    policy = RetentionPolicy(results=DAY, logs=DAY, failed_logs=None)

    assert world.retain(policy) == {Kind.RESULTS: 20, Kind.LOGS: 20}
    assert 0 < len(commits) < 5
    assert world.backend.get(keys.TOMBSTONES + "job-7") is not None


def test_each_kind_has_a_policy_of_its_own(world: World) -> None:
    """Results, outputs and logs go each by its own age; a removed result leaves its tombstone, so
    the job never runs again."""
    world.ended("old", 10)
    world.ended("new", 1)

    assert world.retain(NOTHING) == {}
    assert world.retain(RetentionPolicy(outputs=5 * DAY, logs=None, failed_logs=None)) == {
        Kind.OUTPUTS: 1
    }
    assert world.left("out") == {"new"}
    assert world.store.has_clean("old")
    assert world.retain(RetentionPolicy(results=5 * DAY, logs=None, failed_logs=None)) == {
        Kind.RESULTS: 1
    }
    assert not world.store.has_clean("old")
    assert world.store.has_entry("old")
    assert world.left("logs") == {"old", "new"}


def test_delete_on_commit(world: World) -> None:
    """An age of 0 removes all that a job left as soon as it is clean, and its tombstone stays."""
    world.ended("job", 0)
    everything: dict[str, Any] = dict.fromkeys(
        ("results", "outputs", "snapshots", "logs", "failed_logs", "history"), 0
    )
    removed = world.retain(RetentionPolicy(**everything))

    assert removed == {Kind.RESULTS: 1, Kind.OUTPUTS: 1, Kind.LOGS: 1}
    assert not world.storage.folder("job").exists()
    assert world.backend.get(keys.TOMBSTONES + "job") is not None


def test_an_output_that_is_read_stays(world: World) -> None:
    """The output of an ended job stays while an unfinished job has it as its closed input."""
    world.ended("source", 10)
    world.backend.commit(Create(keys.JOBS + "reader", encode(spec("reader"))))
    closed_inputs.close(world.storage, "reader", "stage", world.storage.folder("source") / "out")
    policy = RetentionPolicy(outputs=0, logs=None, failed_logs=None)

    assert world.retain(policy) == {}
    assert world.left("out") == {"source"}


def test_what_is_not_due_is_asked_for_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many jobs have ended, a pass reads those that it does not know. All are judged by the
    clock as it is then."""
    for number in range(5):
        world.ended(f"job-{number}", 10 + number)
    world.ended("failed", 10, JobStatus.FAILED)
    world.ended("expired", 10)
    world.store.delete("expired")
    context = leader_context(world.leader.leadership, world.backend, world.storage)
    policy = RetentionPolicy(outputs=12.5 * DAY, snapshots=DAY)
    task, asked = Retention(context, policy), list[str]()
    get_many, scan = world.backend.get_many, world.backend.scan

    def counted(names: Sequence[str]) -> Any:
        asked.extend(names)
        return get_many(names)

    def scanned(prefix: str, **how: Any) -> Any:
        asked.append(prefix)
        return scan(prefix, **how)

    monkeypatch.setattr(world.backend, "get_many", counted)
    monkeypatch.setattr(world.backend, "scan", scanned)
    assert dict(task.run_once()) == {Kind.OUTPUTS: 2, Kind.LOGS: 6}
    assert keys.RESULTS + "job-0" in asked
    world.ended("later", 14)
    asked.clear()
    assert dict(task.run_once()) == {Kind.OUTPUTS: 1, Kind.LOGS: 1}

    of_jobs = {keys.job_of(one) for one in asked if one.startswith(keys.RESULTS)}
    assert of_jobs - {""} == {"later"}
    tomorrow = time.time() + DAY
    monkeypatch.setattr(AgeClock, "now", lambda _: Now(tomorrow, tomorrow))
    assert dict(task.run_once()) == {Kind.OUTPUTS: 1}
    assert world.left("out") == {"job-0", "job-1", "failed", "expired"}


def test_an_output_that_is_read_by_a_former_path_stays(world: World, tmp_path: Path) -> None:
    """The storage was moved, and nothing has noted where it was when the input was closed."""
    world.ended("source", 10)
    world.ended("other", 10)
    world.backend.commit(Create(keys.JOBS + "reader", encode(spec("reader"))))
    closed = closed_inputs.place_of(world.storage, "reader", "stage", Path("/before"))
    former = tmp_path / "before" / "jobs" / "source" / "out" / "stage" / "file"
    closed_inputs.make(world.storage, "reader", closed, {"file": str(former)})
    policy = RetentionPolicy(outputs=0, logs=None, failed_logs=None)

    assert world.retain(policy) == {Kind.OUTPUTS: 1}
    assert world.left("out") == {"source"}


@pytest.mark.parametrize("how", ["unmounted", "damaged"])
def test_a_snapshot_that_cannot_be_read_keeps_outputs_only(
    world: World, memory: FaultyMemory, tmp_path: Path, how: str
) -> None:
    """It may need any output, so all stay, and that is said once; the rest goes by its policy."""
    catalog = SnapshotCatalog(memory, world.storage)
    FakeJob(memory, world.storage).run(2)
    record = catalog.create("job")
    elsewhere = tmp_path / "disk"
    if how == "unmounted":
        catalog.move("job", record.number, elsewhere)
        elsewhere.rename(tmp_path / "away")
    else:
        (snapshot_folders.listed(world.storage, record) / "manifest.json").write_bytes(b"{")
    world.ended("old", 10)
    said: list[str] = []
    leadership, report = world.leader.leadership, lambda event: said.append(event.message)
    context = leader_context(leadership, memory, world.storage, report=report)
    task = Retention(context, RetentionPolicy(outputs=DAY, results=DAY))

    assert dict(task.run_once()) == {Kind.RESULTS: 1, Kind.LOGS: 1}
    assert dict(task.run_once()) == {}
    assert world.left("out") >= {"old"}
    assert len(said) == 1
    assert ("cannot be read" if how == "unmounted" else "is damaged") in said[0]
    if how == "unmounted":
        (tmp_path / "away").rename(elsewhere)
        assert dict(task.run_once()) == {Kind.OUTPUTS: 1}


def test_an_output_that_cannot_be_removed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps no other one."""
    for name in ("one", "other"):
        world.ended(name, 10)
    discard = world.storage.discard

    def fail(job_id: str, path: Path) -> None:
        if job_id == "one":
            raise Unavailable(f"{path}: the disk is gone")
        discard(job_id, path)

    monkeypatch.setattr(world.storage, "discard", fail)
    assert world.retain(attrs.evolve(NOTHING, outputs=DAY)) == {Kind.OUTPUTS: 1}
    assert world.left("out") == {"one"}


def test_a_result_that_damage_holds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays and is named, once a day, and it keeps no other one."""
    for name, days in (("new", 8), ("held", 9), ("old", 10)):
        world.ended(name, days)
    clock, said = FakeClock(), list[str]()
    leadership, report = world.leader.leadership, lambda event: said.append(event.message)
    context = leader_context(
        leadership, world.backend, world.storage, report=report, runtime=Runtime(clock=clock)
    )
    task = Retention(context, attrs.evolve(NOTHING, results=DAY))
    hold(monkeypatch, world.backend, keys.TOMBSTONES + "held")

    assert task.run_once() == {Kind.RESULTS: 2}
    assert task.run_once() == {}

    assert [world.store.has_clean(name) for name in ("new", "held", "old")] == [False, True, False]
    assert len(said) == 1
    assert "the result of job 'held' stays: tombstones/held: held" in said[0]
    for _ in range(2):
        clock.now += DAY / 2
        assert not task._work()
    assert said == [said[0]] * 2


def test_the_history_of_what_has_not_ended(world: World) -> None:
    """Its old events go by their own age, and its newest one never; those of a job that has ended
    stay as long as its result."""
    now = time.time()
    for name, days in (("old", 9.0), ("young", 1.0)):
        JobCatalog(world.backend, now=lambda: now - days * DAY).submit(spec(name))  # noqa: B023
    with Historian(world.backend).recorded("old", HistoryKind.OTHER, "now") as event:
        world.backend.commit(*event)
    world.ended("done", 9)

    def told(name: str) -> list[str]:
        return [one.text for one in history.read(world.backend, name)]

    before = told("young"), told("done")
    assert world.retain(attrs.evolve(NOTHING, history=5 * DAY)) == {Kind.HISTORY: 1}
    assert world.retain(attrs.evolve(NOTHING, history=5 * DAY)) == {}
    assert told("old") == ["now"]
    assert (told("young"), told("done")) == before


def test_results_of_a_running_application_are_read_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay, however many there are, and go once the application has ended."""
    for number in range(3):
        mine = JobResult(f"job-{number}", JobStatus.FINISHED, finished_at=time.time() - 9 * DAY)
        world.store.create_dirty(attrs.evolve(mine, application="app"), None)
        world.store.mark_clean(mine.job_id, None)
    get_many, asked = world.backend.get_many, list[str]()

    def counted(names: Sequence[str]) -> Any:
        asked.extend(names)
        return get_many(names)

    monkeypatch.setattr(world.backend, "get_many", counted)
    context = leader_context(world.leader.leadership, world.backend, world.storage)
    task = Retention(context, attrs.evolve(NOTHING, results=DAY))
    assert task.run_once() == {}
    assert keys.RESULTS + "job-0" in asked
    asked.clear()
    assert task.run_once() == {}
    assert [one for one in asked if one.startswith(keys.RESULTS + "job-")] == []

    world.ended("app", 0)
    world.store.delete("job-0")  # By a user: it is not remembered any more, either.
    assert task.run_once() == {Kind.RESULTS: 2}
    assert not task._lent
    assert world.store.has_clean("app")


def test_a_snapshot_that_is_listed_after_its_job_has_ended(world: World) -> None:
    """It was taken as the job ended; an earlier pass has found none."""
    world.ended("job", 2)
    context = leader_context(world.leader.leadership, world.backend, world.storage)
    task = Retention(context, attrs.evolve(NOTHING, snapshots=DAY))
    assert task.run_once() == {}
    list_snapshot(world, "job")
    assert task.run_once() == {Kind.SNAPSHOTS: 1}


def test_snapshots_are_listed_once_for_all_jobs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the restores that may need them are searched for once: that reads all specs. What is
    not due, a user has taken, cannot be read, or is of a job without a folder, changes nothing."""
    for name in ("a", "b", "c", "without"):
        world.ended(name, 2)
        list_snapshot(world, name)
    world.ended("fresh", 0)
    list_snapshot(world, "fresh")
    list_snapshot(world, "a", 2, TakenBy.USER)
    world.backend.commit(Create(keys.snapshot("b", 2), b"{"))
    shutil.rmtree(world.storage.folder("c"))
    context = leader_context(world.leader.leadership, world.backend, world.storage)
    task, scan, seen = (
        Retention(context, attrs.evolve(NOTHING, snapshots=DAY)),
        world.backend.scan,
        Counter[str](),
    )

    def counted(prefix: str, **how: Any) -> Any:
        seen[prefix] += 1
        return scan(prefix, **how)

    monkeypatch.setattr(world.backend, "scan", counted)
    assert task.run_once() == {Kind.SNAPSHOTS: 4}
    assert (seen[keys.JOBS], seen[keys.SNAPSHOTS]) == (1, 1)
    seen.clear()
    assert task.run_once() == {}
    assert {name for name in seen if name.startswith((keys.JOBS, keys.SNAPSHOTS))} == {
        keys.SNAPSHOTS
    }
    left = [record.key for record in scan(keys.SNAPSHOTS)]
    assert left == [keys.snapshot("a", 2), keys.snapshot("b", 2), keys.snapshot("fresh", 1)]


def test_a_history_is_read_once_it_may_be_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of a job tells from when on it is to be read again."""
    now, asked, scan = time.time(), list[str](), world.backend.scan
    JobCatalog(world.backend, now=lambda: now - 9 * DAY).submit(spec("job"))
    for days in (4.0, 3.0, 2.0):
        historian = Historian(world.backend, now=lambda days=days: now - days * DAY)  # type: ignore[misc]
        with historian.recorded("job", HistoryKind.OTHER, str(days)) as event:
            world.backend.commit(*event)

    def scanned(prefix: str, **how: Any) -> Any:
        asked.append(prefix)
        return scan(prefix, **how)

    context = leader_context(world.leader.leadership, world.backend, world.storage)
    task = Retention(context, attrs.evolve(NOTHING, history=5 * DAY))
    assert [task.run_once() for _ in range(2)] == [{Kind.HISTORY: 1}, {}]
    monkeypatch.setattr(world.backend, "scan", scanned)
    assert task.run_once() == {}
    assert keys.JOBS in asked
    assert keys.history("job") not in asked
    tomorrow = now + 1.5 * DAY
    monkeypatch.setattr(AgeClock, "now", lambda _: Now(tomorrow, tomorrow))
    assert task.run_once() == {Kind.HISTORY: 1}


def test_a_replaced_leader_removes_nothing(world: World, tmp_path: Path) -> None:
    """Retention checks the fence before each removal."""
    world.ended("job", 10)
    world.leader.leadership.resign()
    world.leader.leadership.lost.clear()  # It has not noticed.
    other = Leader(world.backend, tmp_path, candidate="other")
    try:
        for policy in (RetentionPolicy(), RetentionPolicy(outputs=0), RetentionPolicy(results=0)):
            with pytest.raises(Fenced):
                world.retain(policy)
    finally:
        other.stop()
        other.leadership.resign()

    assert world.left("logs") == world.left("out") == {"job"}
    assert world.store.has_clean("job")


def test_the_policy_is_checked() -> None:
    """An age is a number of seconds or None, a limit a whole number."""
    for wrong in (-1, float("nan"), float("inf"), "3d", True):
        with pytest.raises(InvalidInput, match="results must be a number of seconds"):
            RetentionPolicy(results=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="limit of logs per stream"):
        LogLimits(stream=0)
    assert not is_due(NOTHING, Kind.LOGS, CleanJob("job", JobStatus.FINISHED, 0.0), Now(1e12, 1e12))
