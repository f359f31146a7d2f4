"""Restores that two processes run at once, or that continue late: nothing live is taken away."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import DuplicateJob, JobIsRunning, Unavailable, WrongState
from jrs.contract.operations import Delete, Update
from jrs.records import keys
from jrs.records.snapshots import TakenBy
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.inspect.explain import explain
from jrs.recovery.rules.decision import Action
from jrs.recovery.snapshots import SnapshotCatalog, contents, folders, reserve_and_swap, restore
from jrs.store import restores
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops
from tests.recovery.snapshots.fabricate import FakeJob, put, tree
from tests.recovery.support import FaultyMemory, Leader, result


@pytest.fixture(autouse=True, params=[restores.SINCE_FORMAT - 1, restores.SINCE_FORMAT])
def cluster_format(request: pytest.FixtureRequest, memory: FaultyMemory) -> None:
    """The format of the cluster: a restore is stored in its former form, or under its own key."""
    memory.marked_format = request.param


class Died(BaseException):
    """The death of the process that restores."""


def dies(*args: object) -> Any:
    raise Died


def first(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, do: Callable[[], object]
) -> None:
    """Have `do` done once, right before a function is called for the first time."""
    real = getattr(module, name)

    def wrapped(*args: Any, **how: Any) -> Any:
        monkeypatch.setattr(module, name, real)
        do()
        return real(*args, **how)

    monkeypatch.setattr(module, name, wrapped)


def cut_off(
    catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch, number: int, **how: Any
) -> None:
    """Begin a restore that dies right behind its claim."""
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(reserve_and_swap, "swap", dies)
        catalog.restore(catalog.get("job", number), **how)


def test_a_finish_that_comes_late_reverts_no_later_restore(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process finishes the restore whose record it has read, and no other."""
    catalog.create("job")
    job.run(2)
    catalog.create("job")
    job.suspend()
    cut_off(catalog, monkeypatch, 2)

    def another_process() -> None:
        catalog.finish_restore("job")
        catalog.restore(catalog.get("job", 1))

    first(monkeypatch, restore, "opened", another_process)
    with pytest.raises(WrongState, match="another process has finished it"):
        catalog.finish_restore("job", is_stopped=lambda job_id: True)

    assert not (job.query.ck / "commits/5").exists()
    assert catalog.pending_restore("job") is None


def test_a_restore_outlives_the_raising_of_the_format(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore that was interrupted in the former form is finished in the present one."""
    catalog.create("job")
    job.run(2)
    job.suspend()
    spec = memory.get(keys.JOBS + "job")
    cut_off(catalog, monkeypatch, 1)
    memory.marked_format = restores.SINCE_FORMAT
    cut_off(catalog, monkeypatch, 1)

    assert memory.get(keys.RESTORES + "job") is not None
    assert catalog.finish_restore("job").number == 1

    after = memory.get(keys.JOBS + "job")
    assert spec is not None
    assert after is not None
    assert after.value == spec.value
    assert not list(restores.scan(memory))


def test_a_reserved_job_is_explained(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advice is not to resume it, which is refused."""
    catalog.create("job")
    job.suspend()
    cut_off(catalog, monkeypatch, 1)
    found = explain(memory, JobCatalog(memory).view("job"))

    assert found.action is Action.RESTORE
    assert not [line for line in found.details if "resume" in line]


def test_no_snapshot_across_a_reservation(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot whose files are gathered while the job is reserved could mix two states."""
    catalog.create("job")
    job.run(2)
    job.suspend()
    first(monkeypatch, contents, "gather", lambda: cut_off(catalog, monkeypatch, 1))

    with pytest.raises(Unavailable, match="is being restored"):
        catalog.create("job")
    assert [record.number for record in catalog.list("job")] == [1]


def test_no_snapshot_across_a_whole_restore(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records may be the same before and after a restore, and the files are others."""
    catalog.create("job")
    job.suspend()
    gather, calls = contents.gather, []

    def gathers(*args: Any, **how: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            catalog.restore(catalog.get("job", 1))
        return gather(*args, **how)

    monkeypatch.setattr(contents, "gather", gathers)
    catalog.create("job")

    assert len(calls) == 2


def test_a_reservation_that_overlaps_the_raising_of_the_format(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two processes that reserve a job, one before and one after, only one succeeds."""
    catalog.create("job")
    job.suspend()
    key_for = restores.key_for

    def before_and_after(*args: Any) -> str:
        key = key_for(*args)
        monkeypatch.setattr(restores, "key_for", key_for)
        memory.marked_format = restores.SINCE_FORMAT
        with pytest.raises(Died):
            with monkeypatch.context() as patch:
                patch.setattr(reserve_and_swap, "swap", dies)
                patch.setattr(restore, "_building", lambda *args: nullcontext(elsewhere))
                catalog.restore(catalog.get("job", 1))
        return key

    elsewhere = job.storage.folder("job") / "of-another-host"
    elsewhere.mkdir()
    monkeypatch.setattr(restores, "key_for", before_and_after)
    with pytest.raises(JobIsRunning, match="nothing was changed"):
        catalog.restore(catalog.get("job", 1))

    assert len(list(restores.scan(memory))) == 1


def test_resumed_while_it_is_put_together(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was suspended at the first look, and resumed since, keeps its files."""
    catalog.create("job")
    job.suspend()
    first(monkeypatch, restore, "_build", lambda: memory.commit(Delete(keys.STOPS + "job")))

    with pytest.raises(JobIsRunning, match="nothing was changed"):
        catalog.restore(catalog.get("job", 1))
    assert catalog.pending_restore("job") is None
    assert memory.get(keys.ATTEMPTS + "job") is not None


def test_a_leader_leaves_the_epoch_to_a_restore(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A leader that sees the claim makes no folder of its epoch while the old one is replaced:
    the job would resume from that one, which is empty."""
    catalog.create("job")
    job.run(2)
    job.suspend()
    leader = Leader(memory, tmp_path / "jobs")
    discard = job.storage.discard
    looked: list[Path] = []

    def discarding(job_id: str, path: Path) -> None:
        discard(job_id, path)
        if path == job.epoch and not looked:
            looked.append(path)
            leader.dispatcher._actions.finish_restore("job")

    monkeypatch.setattr(job.storage, "discard", discarding)
    restored = catalog.restore(catalog.get("job", 1))

    assert (looked, restored.folder) == ([job.epoch], job.epoch)
    assert (job.storage.take_over("job", 4) / "streams/hourly/ck/commits/4").exists()


def test_a_leader_finishes_what_was_cut_off(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """No process works on it any more: the state is in the folder of the leader's own epoch."""
    catalog.create("job")
    job.run(2)
    job.suspend()
    cut_off(catalog, monkeypatch, 1)
    leader = Leader(memory, tmp_path / "jobs")

    leader.dispatcher._actions.finish_restore("job")

    assert leader.said("restored", "job")
    commits = job.storage.folder("job") / "e4/streams/hourly/ck/commits"
    assert ((commits / "4").exists(), (commits / "5").exists()) == (True, False)


def test_a_cut_off_restore_makes_no_id_free(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is held by its own restore is not replaced by another one."""
    catalog.create("job")
    FakeJob(job.backend, job.storage, "other").run(2)
    other = catalog.create("other")
    job.suspend()
    cut_off(catalog, monkeypatch, 1)

    with pytest.raises(DuplicateJob):
        catalog.restore(other, as_job="job")
    cut_off(catalog, monkeypatch, 1, as_job="new")
    assert catalog.restore(catalog.get("job", 1), as_job="new").from_job == "job"


# -- where locks exclude nobody ---------------------------------------------------------------


@contextmanager
def no_lock(path: Path, *, shared: bool = False, wait: bool = False) -> Iterator[bool]:
    """As between hosts whose filesystem passes no locks on."""
    yield path.is_dir()


@pytest.mark.parametrize("epoch", [3, 4])
def test_late_operator(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    """An operator that slept behind the claim, while a leader has finished the restore and the job
    runs, takes nothing of it away."""
    catalog.create("job")
    job.run(2)
    job.suspend()
    live: dict[str, bytes] = {}

    def runs() -> None:
        job.storage.take_over("job", epoch)
        catalog.finish_restore("job", is_stopped=lambda job_id: True)
        JobStops(catalog.backend).resume("job")
        put(job.out("hourly") / "new", "rows")
        live.update(tree(job.storage.folder("job"), without=(".restore",)))

    monkeypatch.setattr(folders, "locked", no_lock)
    first(monkeypatch, reserve_and_swap, "swap", runs)
    with pytest.raises(JobIsRunning):
        catalog.restore(catalog.get("job", 1))

    assert tree(job.storage.folder("job")) == live


def test_the_reservation_is_checked_before_each_removal(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be lost between one folder and the next."""
    catalog.create("job")
    job.suspend()
    discard, removed = job.storage.discard, []

    def discarding(job_id: str, path: Path) -> None:
        removed.append(path.name)
        discard(job_id, path)
        stored = restores.stored(memory, "job")
        assert stored is not None
        # Another process reserves it.
        memory.commit(Update(stored.key, stored.value, stored.version))

    with (
        monkeypatch.context() as patch,
        pytest.raises(JobIsRunning, match="another process carried out"),
    ):
        patch.setattr(job.storage, "discard", discarding)
        catalog.restore(catalog.get("job", 1))

    assert removed == ["e3"]
    assert job.out("hourly").is_dir()


def test_nothing_is_removed_for_what_is_not_there(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was put together is gone: the job keeps what it has, and is held."""
    catalog.create("job")
    job.suspend()
    before = tree(job.storage.folder("job"))
    built = folders.restoring(job.storage, "job") / "epoch"
    first(monkeypatch, reserve_and_swap, "swap", lambda: shutil.rmtree(built))

    with pytest.raises(JobIsRunning, match="--finish job"):
        catalog.restore(catalog.get("job", 1))
    assert tree(job.storage.folder("job")) == before
    assert catalog.finish_restore("job").number == 1


# -- when the job it is from ends -------------------------------------------------------------


def end(catalog: SnapshotCatalog, job_id: str) -> dict[str, str]:
    """End a job and do one pass of its cleanup; return what is left, and why."""
    backend = catalog.backend
    JobResultStore(backend).create_dirty(result(job_id), None)
    return (
        JobCleanup(backend, default_resources(backend, catalog.storage)).run(job_id, None).problems
    )


def test_a_cleanup_leaves_what_a_restore_was_begun_from(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job can still be finished from it; then it goes, like all that have no use."""
    catalog.create("job", taken_by=TakenBy.SYSTEM)
    catalog.create("job", taken_by=TakenBy.SYSTEM)
    job.suspend()
    cut_off(catalog, monkeypatch, 1, as_job="new")

    problems = end(catalog, "job")

    assert "jrs snapshot restore --finish new" in problems["snapshots"]
    assert [record.number for record in catalog.list("job")] == [1]
    assert catalog.finish_restore("new").from_job == "job"
    cleanup = JobCleanup(catalog.backend, default_resources(catalog.backend, catalog.storage))
    assert cleanup.run("job", None).problems == {}
    assert catalog.list("job") == []


@pytest.mark.parametrize("job_id", ["job", "new"])
def test_a_job_that_a_restore_holds_can_be_canceled(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, job_id: str,
) -> None:  # fmt: skip
    """What it is from may be gone for good: it ends, and is cleaned up."""
    catalog.create("job")
    job.suspend()
    cut_off(catalog, monkeypatch, 1, as_job=job_id)
    put(folders.snapshot(job.storage, "job", 1) / "manifest.json", "damaged")
    JobCatalog(memory).cancel(job_id)

    with Leader(memory, tmp_path / "jobs") as leader:
        leader.until_clean(job_id)
    assert memory.get(keys.JOBS + job_id) is None


def test_a_cancel_waits_for_a_restore(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The folders are not swept from under their hands."""
    catalog.create("job")
    job.suspend()
    leader = Leader(memory, tmp_path / "jobs")
    actions = leader.dispatcher._actions
    first(monkeypatch, reserve_and_swap, "swap", lambda: actions.cancel_restore("job"))

    assert catalog.restore(catalog.get("job", 1)).job_id == "job"
    assert not leader.store.has_entry("job")
