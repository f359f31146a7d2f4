"""The snapshots of a job by its handle: what `jrs snapshot` does, with typed values."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs import Client, NoSuchSnapshot, SnapshotFormat, SnapshotRecord
from jrs.contract.errors import WrongState
from jrs.recovery.snapshots import SnapshotCatalog
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import FaultyMemory


@pytest.fixture
def client(memory: FaultyMemory, job: FakeJob) -> Client:
    return Client(memory, storage=job.storage.root.parent)


def test_taking_and_reading(client: Client) -> None:
    """A snapshot has a number and a name, and its contents can be read and verified."""
    snapshots = client.job("job").snapshots
    steps: list[tuple[int, int]] = []
    first = snapshots.create(
        "first",
        format=SnapshotFormat.FULL,
        output=False,
        batches={"hourly": 3},
        progress=lambda done, total: steps.append((done, total)),
    )
    second = snapshots.create()

    assert (first.number, first.name, first.output) == (1, "first", False)
    assert [(stage.name, stage.batch) for stage in first.stages] == [("hourly", 3)]
    assert steps[-1][0] == steps[-1][1] > 0
    assert snapshots.list() == list(client.snapshots()) == [first, second]
    assert snapshots.get("first") == snapshots.get(1) == first
    assert len(snapshots.manifest("first").files) == first.files
    assert snapshots.verify(2) == second
    with pytest.raises(NoSuchSnapshot):
        snapshots.get("third")


def test_the_newest_usable(client: Client, job: FakeJob) -> None:
    """A damaged snapshot is passed over, and named with what is wrong."""
    snapshots = client.job("job").snapshots
    first, second = snapshots.create(), snapshots.create(format=SnapshotFormat.FULL)
    for file in (job.storage.folder("job") / "snapshots" / "2").rglob("*.changelog"):
        file.write_text("damaged")
    steps: list[tuple[int, int]] = []
    usable = snapshots.newest_usable(progress=lambda done, total: steps.append((done, total)))

    assert [done for done, _ in steps].count(0) == 2
    assert usable.record == first
    assert [record for record, why in usable.skipped] == [second]


def test_elsewhere(client: Client, tmp_path: Path, elsewhere: FaultyMemory) -> None:
    """A snapshot is moved to another storage; its export is restored in another cluster."""
    snapshots = client.job("job").snapshots
    snapshots.create("first")
    (tmp_path / "backup").mkdir()
    moved = snapshots.move("first", tmp_path / "backup")
    snapshots.export("first", tmp_path / "exported")
    other = Client(elsewhere, storage=tmp_path / "other")
    restored = other.restore(tmp_path / "exported")
    copy = other.restore(tmp_path / "exported", as_id="copy")

    assert moved.storage == str(tmp_path / "backup")
    assert (restored.job_id, restored.from_job) == ("job", "job")
    assert (copy.job_id, copy.number) == ("copy", 1)
    assert [job.id for job in other.jobs()] == ["copy", "job"]
    second = snapshots.create()
    snapshots.delete("first")
    assert snapshots.list() == [second]


def test_restores_and_forks(client: Client, job: FakeJob) -> None:
    """A suspended job is put back, and a snapshot becomes a new job, with its query's id or not."""
    job.suspend()
    handle = client.job("job")
    record = handle.snapshots.create()
    assert handle.snapshots.restore(record.number).job_id == "job"
    same = handle.snapshots.restore(record.number, as_id="same")
    forked = handle.snapshots.fork(record.number, "forked")
    now = handle.fork("now")

    assert [one.job_id for one in (same, forked, now)] == ["same", "forked", "now"]
    assert same.stages[0].query == job.query.id != forked.stages[0].query
    with pytest.raises(WrongState, match="no unfinished restore"):
        handle.snapshots.finish_restore()


def test_a_link_to_an_exported_folder(client: Client, job: FakeJob, tmp_path: Path) -> None:
    """The folder counts that it leads to, for the client and for the handle of a job."""
    snapshots = client.job("job").snapshots
    snapshots.create()
    snapshots.export(1, tmp_path / "job-1")
    link = tmp_path / "latest"
    link.symlink_to("job-1")

    assert client.restore(link, as_id="copy").job_id == "copy"
    assert snapshots.fork(link, "forked").job_id == "forked"


def test_a_restore_that_was_cut_off(
    client: Client, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and finished, by the handle."""
    from jrs.recovery.snapshots import reserve_and_swap

    job.suspend()
    snapshots = client.job("job").snapshots
    snapshots.create()
    with monkeypatch.context() as cut:
        cut.setattr(
            reserve_and_swap, "swap", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            snapshots.restore(1)
    pending = snapshots.pending_restore()

    assert pending is not None
    assert "a restore from snapshot 1 of job 'job' was begun" in [
        entry.text for entry in client.job("job").history()
    ]
    assert snapshots.finish_restore().number == 1
    assert snapshots.pending_restore() is None


def test_the_catalogue_and_the_client_agree(client: Client, catalog: SnapshotCatalog) -> None:
    """Both work on the same records."""
    record: SnapshotRecord = catalog.create("job")

    assert client.job("job").snapshots.list() == [record]
