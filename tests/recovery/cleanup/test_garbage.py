"""What `gc` removes and what it spares; it may die at any step (U19)."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from jrs import Client, NoSuchResult, ResultIsDirty
from jrs.contract.clock import Deadline
from jrs.contract.errors import Conflict, CorruptRecord, Unavailable
from jrs.contract.operations import Create, Delete, Record
from jrs.contract.runtime import random_token
from jrs.records import keys
from jrs.records.history import HistoryKind
from jrs.records.model import AttemptRecord, JobStatus, StageRecord, Tombstone
from jrs.records.snapshots import SnapshotFormat, SnapshotRecord, TakenBy
from jrs.recovery.cleanup import records_left
from jrs.recovery.cleanup.garbage import GarbageCollector
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files import closed_inputs, publish_at_path, removal
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.inspect.fsck import fsck
from jrs.recovery.processes import marks
from jrs.recovery.snapshots import (
    SnapshotCatalog,
    delete,
    deletion_notes,
    find_orphans,
    folders,
    references,
)
from jrs.recovery.snapshots.blobs import Blobs
from jrs.recovery.storage.packed_copies import sha256_of
from jrs.store.historian import Historian
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from tests.recovery.snapshots.fabricate import FakeJob, file_sink, put, tree
from tests.recovery.snapshots.test_crashes import DEAD, Begin, in_a_child
from tests.recovery.support import CLUSTER, FaultyMemory, fail_to_list, result, spec, spoil
from tests.recovery.support import put as put_record


@pytest.fixture
def storage(root: Path) -> JobStorage:
    return JobStorage(root, CLUSTER)


@pytest.fixture
def client(memory: FaultyMemory, root: Path) -> Client:
    return Client(memory, storage=root)


FORMATS = ("link", "full", "cas")
"""Of snapshots."""


def expired(client: Client, job_id: str, storage: JobStorage) -> Path:
    """Make a job whose result was expired, and return its output."""
    put_record(client.backend, keys.TOMBSTONES + job_id, Tombstone(job_id, expired_at=time.time()))
    return put(storage.folder(job_id) / "out" / "rows" / "part", "rows" * 100)


def collected(client: Client, **how: bool) -> list[str]:
    return [one.path for one in client.gc(older_than=0, **how).removed]


def test_outputs_of_expired_jobs(client: Client, storage: JobStorage) -> None:
    """U19: they go, and those of jobs with a result or without an end stay."""
    output = expired(client, "old", storage)
    for job_id in ("done", "runs"):
        put(storage.folder(job_id) / "out" / "rows" / "part", "rows")
    put_record(client.backend, keys.RESULTS + "done", result("done"))
    put_record(client.backend, keys.JOBS + "runs", spec("runs"))
    before = tree(storage.root)
    preview = client.gc(older_than=0, dry_run=True)
    assert tree(storage.root) == before
    assert [(one.path, one.size) for one in preview.removed] == [(str(output.parents[1]), 400)]
    assert client.gc().removed == ()  # It expired less than a day ago.

    assert client.gc(older_than=0) == preview
    assert not storage.folder("old").exists()
    assert set(tree(storage.root)) == {"done/out/rows/part", "runs/out/rows/part"}
    assert client.gc(older_than=0).removed == ()


@pytest.mark.parametrize("how", ["closing", "log", "take-over", "snapshot", "closed", *FORMATS])
def test_an_output_that_is_needed(
    client: Client, storage: JobStorage, memory: FaultyMemory, how: str, tmp_path: Path
) -> None:
    """U19: nothing goes that a job reads which has not ended, or that a listed snapshot needs."""
    output = expired(client, "old", storage)
    reader = FakeJob(memory, storage, "reader")
    if how == "closing":
        closed_inputs.close(storage, "reader", "hourly", output.parent)
    elif how in ("log", "take-over"):
        reader.query.source = output.parent.as_uri()
        reader.run(1)
        if how == "take-over":  # A death has left both of its folders.
            reader.epoch.rename(reader.epoch.with_name(".e3.kept"))
            reader.epoch.with_name(".e3.withdrawn").mkdir()
    elif how in FORMATS:
        reader.query.source = output.parent.as_uri()
        reader.run(2)
        catalog = SnapshotCatalog(memory, storage)
        catalog.create("reader", format=SnapshotFormat(how), taken_by=TakenBy.SYSTEM)
        put_record(memory, keys.RESULTS + "reader", result("reader", status=JobStatus.FAILED))
        memory.commit(Create(keys.DIRTY + "reader", b""))
        JobCleanup(memory, default_resources(memory, storage)).run("reader", None)
    elif how == "closed":
        closed_inputs.close(storage, "reader", "hourly", output.parent)
        reader.run(1)
        SnapshotCatalog(memory, storage).create("reader")
        memory.commit(Delete(keys.JOBS + "reader"))
        put_record(memory, keys.RESULTS + "reader", result("reader"))
        shutil.rmtree(storage.folder("reader") / "in")
    else:
        memory.commit(Delete(keys.TOMBSTONES + "old"))
        shutil.rmtree(storage.folder("old"))
        old = FakeJob(memory, storage, "old").run(1)
        SnapshotCatalog(memory, storage).create("old", output=False)
        memory.commit(Delete(keys.JOBS + "old"))
        put_record(memory, keys.TOMBSTONES + "old", Tombstone("old", expired_at=1.0))
        output = old.out("typed") / "table.parquet"
    report = client.gc(older_than=0)

    assert output.exists()
    assert [line for line in report.left if "still needs it" in line] == [
        f"{storage.folder('old')}/out: a job or a snapshot still needs it"
    ]


@pytest.mark.parametrize("where", ["in", "e3/streams/hourly/ck/sources"])
def test_an_input_that_cannot_be_listed(
    client: Client,
    storage: JobStorage,
    memory: FaultyMemory,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """What a job reads is not known then, so that nothing is removed."""
    output = expired(client, "old", storage)
    reader = FakeJob(memory, storage, "reader")
    if where == "in":
        closed_inputs.close(storage, "reader", "hourly", output.parent)
    else:
        reader.query.source = output.parent.as_uri()
        reader.run(1)
    with monkeypatch.context() as patch:
        fail_to_list(patch, storage.folder("reader") / where)
        report = client.gc(older_than=0)

    assert output.exists()
    assert [line for line in report.left if "Too many open files" in line]


def test_a_source_that_keeps_numbered_folders(
    client: Client, storage: JobStorage, memory: FaultyMemory
) -> None:
    """They are no logs of a file source, and name no output."""
    output = expired(client, "old", storage)
    reader = FakeJob(memory, storage, "reader").run(1)
    put(reader.query.ck / "sources" / "1" / "5" / "shard", "offsets")
    report = client.gc(older_than=0)

    assert not output.exists()
    assert not [line for line in report.left if "outputs" in line]


def test_an_output_that_a_job_begins_to_read_meanwhile(
    client: Client, storage: JobStorage, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection may take long: what is read counts when the outputs are removed."""
    output = expired(client, "old", storage)
    remove = GarbageCollector._outputs

    def begins(self: GarbageCollector, known: Any) -> None:
        FakeJob(memory, storage, "late")
        closed_inputs.close(storage, "late", "hourly", output.parent)
        remove(self, known)

    monkeypatch.setattr(GarbageCollector, "_outputs", begins)
    client.gc(older_than=0)
    assert output.exists()


@pytest.mark.parametrize("moment", range(6))
@pytest.mark.parametrize("what", ["restored", "built", "ended"])
def test_what_a_job_and_a_snapshot_hand_over(
    client: Client, storage: JobStorage, monkeypatch: pytest.MonkeyPatch, what: str, moment: int
) -> None:
    """Whenever it happens while the references are read, one of them is found: a restore that uses
    the snapshot up, one from a folder that has not moved its state into place, and a job that
    ends, of which a snapshot is kept."""
    memory = client.backend
    out = expired(client, "old", storage)
    FakeJob(memory, storage).run(3)
    catalog = SnapshotCatalog(memory, storage)
    link = storage.folder("job") / "in" / "typed" / "x" / "part-0"
    link.parent.mkdir(parents=True)
    link.symlink_to(out)
    record = None if what == "ended" else catalog.create("job")
    if record is not None:
        shutil.rmtree(storage.folder("job") / "in")

    def hand_over() -> None:
        if what == "ended":
            catalog.create("job", at_end=True)
            memory.commit(Delete(keys.JOBS + "job"))
            shutil.rmtree(storage.folder("job") / "in")
        elif record is not None:
            catalog.restore(record, as_job="again", claim=True)
            if what == "built":
                restored = folders.restoring(storage, "again")
                restored.mkdir()
                (storage.folder("again") / "in").rename(restored / "in")

    steps = itertools.count()

    def before(call: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            if next(steps) == moment:
                hand_over()
            return call(*arguments, **options)

        return called

    for name in ("scan_whole", "_links_in"):
        monkeypatch.setattr(references, name, before(getattr(references, name)))
    collected(client)

    assert next(steps) > moment
    assert out.is_file()


def test_unreadable_snapshots(
    client: Client, storage: JobStorage, memory: FaultyMemory, tmp_path: Path
) -> None:
    """Nothing is removed on a guess: also if only the log of a file source cannot be read."""
    output = expired(client, "old", storage)
    reader = FakeJob(memory, storage, "reader")
    reader.query.source = "file:///elsewhere"
    reader.run(1)
    SnapshotCatalog(memory, storage).create("reader", format=SnapshotFormat.CAS)
    (log,) = reader.query.ck.glob("sources/*/*")
    blob = Blobs(storage).path(sha256_of(log))
    away = blob.rename(tmp_path / "away")
    report = client.gc(older_than=0)
    assert report.removed == ()
    assert "sources/0/0: No such file" in report.left[0]
    away.rename(blob)
    put(folders.snapshot(storage, "reader", 1) / "manifest.json", "damaged")
    report = client.gc(older_than=0)
    assert report.removed == ()
    assert "the outputs of 1 expired jobs: " in report.left[0]
    assert output.exists()
    spoil(memory, keys.snapshot("reader", 1))
    report = client.gc(older_than=0)
    assert report.removed == ()
    assert sum(keys.snapshot("reader", 1) in line for line in report.left) == 2


def test_what_a_forced_cleanup_leaves(
    client: Client, storage: JobStorage, memory: FaultyMemory, tmp_path: Path
) -> None:
    """Its records go, unless they name a copy that the job has begun: only they do."""
    job, place = FakeJob(memory, storage).run(1), tmp_path / "warehouse"
    table = StageRecord("job", "late", 1, 1, 3, 0.5, 10.0, target=str(place / "table"))
    job.record(keys.stage("job", "late"), table)
    put_record(memory, keys.ATTEMPTS + "job", AttemptRecord("job", first_started_at=1.0))
    JobResultStore(memory).create_dirty(result("job"), None)
    copy = put(place / f"{publish_at_path._mark(place / 'table', 'job')}1", "half")
    JobCleanup(memory, default_resources(memory, storage)).force("job")
    for prefix in (keys.JOBS, keys.STOPS, keys.CANCEL):
        if memory.get(prefix + "job") is not None:
            memory.commit(Delete(prefix + "job"))

    assert any(str(copy) in line for line in client.gc(older_than=0).left)
    place.rename(tmp_path / "away")
    assert any(str(place) in line for line in client.gc(older_than=0).left)
    (tmp_path / "away").rename(place)
    assert memory.get(keys.ATTEMPTS + "job") is not None
    assert any("jrs gc removes it" in line for line in client.fsck().left_over)

    copy.unlink()
    assert {*collected(client)} >= {"attempts/job", "stages/job/typed", "streams/job/hourly"}
    assert client.fsck().left_over == ()


def ended_by_force(memory: FaultyMemory, storage: JobStorage, mark: str = "") -> None:
    """Make a job whose result was marked clean by force, and which has left records."""
    FakeJob(memory, storage).run(1)
    attempt = AttemptRecord("job", first_started_at=1.0, mark=mark)
    put_record(memory, keys.ATTEMPTS + "job", attempt)
    JobResultStore(memory).create_dirty(result("job", finished_at=1.0), None)
    JobCleanup(memory, default_resources(memory, storage)).force("job")
    if memory.get(keys.JOBS + "job") is not None:
        memory.commit(Delete(keys.JOBS + "job"))


def test_what_was_left_lately(client: Client, storage: JobStorage, memory: FaultyMemory) -> None:
    """Records have to be garbage for as long as files, by the end of the cleanup; and those of
    processes that still run stay."""
    mark = random_token()
    ended_by_force(memory, storage, mark)
    assert not any(one.path.startswith(keys.ATTEMPTS) for one in client.gc(older_than=60).removed)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, marks.MARK: mark}) as process:
        try:
            deadline = Deadline.after(60.0)
            while not marks.marked(marks.marks_of(mark)):  # It has not begun to run yet.
                assert not deadline.expired
            assert any(str(process.pid) in line for line in client.gc(older_than=0).left)
            assert memory.get(keys.ATTEMPTS + "job") is not None
        finally:
            process.kill()
    assert "attempts/job" in collected(client)


def test_events_that_stayed_behind_an_expired_result(
    client: Client, storage: JobStorage, memory: FaultyMemory
) -> None:
    """They are no damaged history, as fsck would take them for: the rest of it is gone."""
    expired(client, "old", storage)
    historian = Historian(memory, "me")
    for _ in range(3):
        with historian.recorded("old", HistoryKind.SNAPSHOT) as event:
            memory.commit(*event)
    first, second, last = [record.key for record in memory.scan(keys.history("old"))]
    memory.commit(Delete(second))
    report = client.fsck()
    assert report.damaged == ()
    assert [line.partition(":")[0] for line in report.left_over] == [first, last]

    assert {first, last} <= set(collected(client))
    assert client.fsck().left_over == ()


def test_records_of_a_job_that_is_there_again(
    client: Client, storage: JobStorage, memory: FaultyMemory
) -> None:
    ended_by_force(memory, storage)
    left = records_left.records_left(memory)["job"]
    memory.commit(Create(keys.DIRTY + "job", b""))
    with pytest.raises(Conflict):
        records_left.remove(memory, "job", left)
    assert memory.get(keys.ATTEMPTS + "job") is not None


def test_a_damaged_record(
    client: Client, storage: JobStorage, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that perhaps runs keeps its records, and no garbage of others."""
    put_record(memory, keys.JOBS + "live", spec("live"))
    put_record(memory, keys.ATTEMPTS + "live", AttemptRecord("live", first_started_at=1.0))
    ended_by_force(memory, storage)
    put(storage.root / ".trash" / "0" / "half", "half")
    read = memory._get

    def get(key: str, deadline: Deadline) -> Record | None:
        if key == keys.JOBS + "live":
            raise CorruptRecord(f"{key}: damaged on the disk")
        return read(key, deadline)

    monkeypatch.setattr(memory, "_get", get)
    gone = collected(client)
    assert {"attempts/job", str(storage.root / ".trash" / "0")} <= {*gone}
    assert memory.get(keys.ATTEMPTS + "live") is not None


def test_a_record_that_cannot_be_read(
    client: Client, storage: JobStorage, memory: FaultyMemory
) -> None:
    """It keeps the files of its own job, and is named."""
    output = expired(client, "old", storage)
    kept = put(storage.folder("bad") / "out" / "rows" / "part", "rows")
    memory.commit(Create(keys.RESULTS + "bad", b"no record"))

    report = client.gc(older_than=0)

    assert [one.path for one in report.removed] == [str(output.parents[1])]
    assert [line for line in report.left if "results/bad" in line] == list(report.left)
    assert kept.exists()


def test_left_overs(client: Client, storage: JobStorage, memory: FaultyMemory) -> None:
    """U19: what crashes have left goes; a folder that may be of an earlier life is only named."""
    job = FakeJob(memory, storage).run(1)
    catalog = SnapshotCatalog(memory, storage)
    for how in (SnapshotFormat.CAS, SnapshotFormat.LINK):
        unlist(catalog, catalog.create("job", format=how), noted=True)
    put(folders.building(storage, "job", 9) / "files" / "half", "half")
    put(folders.restoring(storage, "new") / "epoch" / "half", "half")
    put(storage.folder("ended") / "e3" / "typed.1" / "half", "half")
    put_record(memory, keys.RESULTS + "ended", result("ended"))
    put(storage.root / ".trash" / "0" / "half", "half")
    kept = tree(job.epoch)
    report = client.gc(older_than=0)

    gone = {path.removeprefix(f"{storage.root}/") for path in (one.path for one in report.removed)}
    assert gone >= {"job/snapshots/.9.tmp", "new/.restore", "job/snapshots/1", "job/snapshots/2",
                    "ended/e3", ".trash/0"}  # fmt: skip
    assert any(path.startswith(".blobs/") for path in gone)
    assert tree(job.epoch) == kept
    assert folders.whole(storage, "job") == set()
    assert report.left == (f"{storage.folder('new')}: the folder of an unknown job",)
    assert client.gc(older_than=0).left == report.left
    assert list(find_orphans(memory, storage)) == []


def unlist(catalog: SnapshotCatalog, record: SnapshotRecord, *, noted: bool) -> None:
    """Leave a snapshot as a crash does before its entry is made; without its note, as an older
    copy of the backend does."""
    if noted:
        assert deletion_notes.note(
            catalog.backend, catalog.storage, record, deletion_notes.What.LISTING
        )
    catalog.backend.commit(Delete(keys.snapshot(record.job_id, record.number)))


def test_a_folder_that_cannot_be_listed(
    client: Client, storage: JobStorage, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fsck` and `gc` name it and look at the rest: records, and the files of other jobs. Only
    without an answer of the backend nothing is checked."""
    output = expired(client, "old", storage)
    spoil(memory, keys.JOBS + "spoilt")
    for job_id in ("bad", "good"):
        put_record(memory, keys.RESULTS + job_id, result(job_id))
        put(storage.folder(job_id) / "e1" / "stage.1" / "part", "rows")
        put(folders.snapshot(storage, job_id, 1) / folders.MANIFEST, "")
    bad = folders.snapshots(storage, "bad")
    fail_to_list(monkeypatch, bad, errno.EIO)
    report = fsck(memory, storage)

    assert [line for line in report.damaged if str(bad) in line] == [
        f"could not be checked: listing {bad} failed: [Errno 5] Input/output error: '{bad}'"
    ]
    assert any("jobs/spoilt" in line for line in report.damaged)
    for left in (storage.folder("good") / "e1", folders.snapshot(storage, "good", 1)):
        assert any(line.startswith(f"{left}: ") for line in report.left_over)

    collection = client.gc(older_than=0)
    assert [line for line in collection.left if str(bad) in line]
    removed = {one.path for one in collection.removed}
    assert {str(storage.folder("good") / "e1"), str(output.parents[1])} <= removed

    memory.before_read(keys.STAGES, 0, lambda: setattr(memory, "down", True))
    with pytest.raises(Unavailable, match="injected: away"):
        fsck(memory, storage)


def test_what_cannot_be_looked_at_keeps_nothing_else(
    client: Client, storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the outputs of other jobs, nor the report of what was removed."""
    good, bad = (expired(client, name, storage).parents[1] for name in ("good", "bad"))
    trash = storage.root / ".trash"
    trash.mkdir()
    for folder, removed in ((bad, [str(good)]), (trash, [])):
        with monkeypatch.context() as patch:
            fail_to_list(patch, folder, errno.EIO)
            report = client.gc(older_than=0)
        assert [one.path for one in report.removed] == removed
        assert [line for line in report.left if line.startswith(f"{folder}: ")]


def test_what_cannot_be_removed_is_left(
    client: Client, storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not count as removed, and keeps nothing behind it."""
    trash = storage.root / ".trash"
    for name in ("a", "b"):
        (trash / name).mkdir(parents=True)
    remove = removal.remove

    def refuse(path: Path) -> None:
        if path.name == "a":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        remove(path)

    monkeypatch.setattr(removal, "remove", refuse)
    report = client.gc(older_than=0)
    assert [one.path for one in report.removed] == [str(trash / "b")]
    assert [line for line in report.left if "Read-only file system" in line]


def test_a_backend_that_was_restored_from_a_backup(
    client: Client, storage: JobStorage, memory: FaultyMemory
) -> None:
    """It lacks the snapshots that were taken since, and these stay whole: `gc` names them."""
    FakeJob(memory, storage).run(1).suspend()
    catalog = SnapshotCatalog(memory, storage)
    for how in (SnapshotFormat.FULL, SnapshotFormat.LINK, SnapshotFormat.CAS):
        unlist(catalog, catalog.create("job", format=how), noted=False)
    before = tree(storage.root)

    report = client.gc(older_than=0)
    assert report.removed == ()
    assert tree(storage.root) == before
    path = folders.snapshot(storage, "job", 1)
    assert report.left[0] == (
        f"{path}: a snapshot that is not listed: jrs snapshot restore --from {path} --as NEW, or "
        "jrs snapshot delete job 1"
    )
    assert [line.partition(":")[0] for line in report.left] == [
        str(folders.snapshot(storage, "job", number)) for number in (1, 2, 3)
    ]
    for number in (1, 2, 3):
        path = folders.snapshot(storage, "job", number)
        assert catalog.restore(path, as_job=f"new.{number}").number == number
    put(folders.snapshot(storage, "job", 1) / "manifest.json", "damaged")
    for lines in (client.gc(older_than=0).left, list(find_orphans(memory, storage))):
        line = next(
            one for one in lines if one.startswith(str(folders.snapshot(storage, "job", 1)))
        )
        assert "jrs snapshot delete job 1, as it cannot be restored: " in line


def test_a_backend_that_was_lost(client: Client, storage: JobStorage, memory: FaultyMemory) -> None:
    """It may have listed what a process noted that died before it forgot the note."""
    lost = FakeJob(memory, storage, "lost").run(1)
    unlist(SnapshotCatalog(memory, storage), SnapshotCatalog(memory, storage).create("lost"),
           noted=True)  # fmt: skip
    memory.commit(Delete(keys.JOBS + "lost"))
    report = client.gc(older_than=0)

    assert report.removed == ()
    assert report.left == (f"{storage.folder('lost')}: the folder of an unknown job",)
    assert folders.whole(lost.storage, "lost") == {1}


def test_a_job_that_was_submitted_again(
    client: Client, storage: JobStorage, memory: FaultyMemory
) -> None:
    """A note of the job that had its id before the backend was lost does not count any more."""
    catalog = SnapshotCatalog(memory, storage)
    FakeJob(memory, storage).run(1)
    unlist(catalog, catalog.create("job"), noted=True)
    memory.commit(Delete(keys.JOBS + "job"))
    client.submit("m:f", id="job")
    report = client.gc(older_than=0)

    assert report.removed == ()
    assert [line for line in report.left if "jrs snapshot restore --from" in line]
    assert [line for line in find_orphans(memory, storage) if "--from" in line]
    assert folders.whole(storage, "job") == {1}


def test_a_note_that_cannot_be_read(
    client: Client, storage: JobStorage, memory: FaultyMemory
) -> None:
    """It stops nothing: a snapshot reads no content of notes, `gc` and `fsck` name it."""
    FakeJob(memory, storage).run(1)
    FakeJob(memory, storage, "other").run(1)
    catalog = SnapshotCatalog(memory, storage)
    for damage in ("damaged", None):
        note = storage.root / ".doomed" / f"other@1-{'a' * 64}.deletion-0"
        if damage is None:
            note.unlink()
            note.mkdir()
        else:
            put(note, damage)
        catalog.create("job")
        left = client.gc(older_than=0).left
        assert [line for line in left if str(note) in line] == list(left) != []
        assert [line for line in find_orphans(memory, storage) if str(note) in line]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_deletion_that_dies_while_another_snapshot_is_taken(
    client: Client, storage: JobStorage, memory: FaultyMemory, damaged: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its note stays, and as long as there is a folder that may be what it is of."""
    job = FakeJob(memory, storage).run(1)
    catalog = SnapshotCatalog(memory, storage)
    catalog.create("job")
    catalog.create("job")
    path = folders.snapshot(storage, "job", 1)
    if damaged:
        put(path / "manifest.json", "damaged")
    unlisting = delete._unlist

    def dies(*args: Any) -> None:
        job.run(1)
        catalog.create("job")
        unlisting(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(delete, "_unlist", dies)
        with pytest.raises(KeyboardInterrupt):
            catalog.delete("job", 1)
    report = client.gc(older_than=0)
    assert [one.path for one in report.removed if one.path == str(path)] == (
        [] if damaged else [str(path)]
    )
    assert len(list(deletion_notes.noted(storage))) == damaged
    if damaged:
        catalog.delete("job", 1)
    assert list(deletion_notes.noted(storage)) == []
    assert list(find_orphans(memory, storage)) == []


def test_a_death_once_a_snapshot_is_listed(
    storage: JobStorage, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next snapshot forgets the note, which would count in an older copy of the backend."""
    FakeJob(memory, storage).run(1)
    catalog = SnapshotCatalog(memory, storage)

    def dies(self: deletion_notes.Doomed) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(deletion_notes.Doomed, "forget", dies)
        with pytest.raises(KeyboardInterrupt):
            catalog.create("job")
    assert [one.number for one in deletion_notes.noted(storage)] == [1]
    catalog.create("job")

    assert list(deletion_notes.noted(storage)) == []
    assert [one.number for one in catalog.list("job")] == [1, 2]


def test_what_is_in_progress(client: Client, storage: JobStorage, memory: FaultyMemory) -> None:
    """A snapshot that is being taken is locked, and stays."""
    FakeJob(memory, storage).run(1)
    begun = folders.building(storage, "job", 1)
    begun.mkdir(parents=True)
    with folders.locked(begun):
        assert collected(client) == []
        assert begun.is_dir()
    folders.remove_left_overs(storage, "job")


@pytest.mark.parametrize("what", ["taken", "converted"])
def test_listed_before_it_is_locked(
    client: Client, storage: JobStorage, memory: FaultyMemory, what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A snapshot that a process lists and unlocks meanwhile stays, taken or converted."""
    FakeJob(memory, storage).run(1)
    put_record(memory, keys.ATTEMPTS + "job", AttemptRecord("job", first_started_at=1.0))
    catalog = SnapshotCatalog(memory, storage)
    key, whole = keys.snapshot("job", 1), folders.snapshot(storage, "job", 1)
    catalog.create("job")
    before = memory.get(key)
    if what == "converted":
        shutil.copytree(whole, storage.root / "saved")
        catalog.convert("job", 1, SnapshotFormat.FULL)
        (storage.root / "saved").rename(whole)
    after = memory.get(key)
    assert before is not None
    assert after is not None
    path = folders.listed(storage, catalog.get("job", 1))
    memory.commit(Delete(key))
    if what == "converted":
        memory.commit(Create(key, before.value))
    real = folders.locked

    def locked(folder: Path, **how: bool) -> AbstractContextManager[bool]:
        if folder == path:
            monkeypatch.undo()
            if what == "converted":
                memory.commit(Delete(key))
            memory.commit(Create(key, after.value))
        return real(folder, **how)

    monkeypatch.setattr(folders, "locked", locked)
    client.gc(older_than=0)

    assert folders.locked is real  # The collector has come that far.
    assert catalog.verify("job", 1)


def test_death_at_every_step(tmp_path: Path) -> None:
    """U19: whatever the step, only garbage is gone, and a repeat does the rest."""
    saved, url = tmp_path / "saved", (tmp_path / "place" / "store").as_uri()
    storage = JobStorage(tmp_path / "place" / "jobs", CLUSTER)
    with open_backend(url, cluster=CLUSTER) as backend:
        client = Client(backend, storage=storage.root.parent)
        expired(client, "old", storage)
        FakeJob(backend, storage).run(1)
        put_record(backend, keys.ATTEMPTS + "job", AttemptRecord("job", first_started_at=1.0))
        catalog = SnapshotCatalog(backend, storage)
        kept = catalog.create("job", format=SnapshotFormat.CAS)
        file_sink(storage.published("job", "hourly", temporary=False), 1)
        unlist(catalog, catalog.create("job", format=SnapshotFormat.FULL), noted=True)
        put(folders.building(storage, "job", 9) / "files" / "half", "half")
        put(storage.root / ".blobs" / "00" / ("0" * 64), "nobody's")
    (tmp_path / "place").rename(saved)

    def work(begin: Begin) -> None:
        with open_backend(url, cluster=CLUSTER) as backend:
            begin()
            do(Client(backend, storage=storage.root.parent))

    def do(client: Client) -> None:
        client.gc(older_than=0)

    code, step = DEAD, 0
    while code == DEAD:
        step += 1
        shutil.copytree(saved, tmp_path / "place", symlinks=True)
        code = in_a_child(step, work)
        with open_backend(url, cluster=CLUSTER) as backend:
            client = Client(backend, storage=storage.root.parent)
            assert SnapshotCatalog(backend, storage).verify("job", 1) == kept
            client.gc(older_than=0)
            assert list(find_orphans(backend, storage)) == []
            assert not storage.folder("old").exists()
            assert (storage.folder("job") / "out" / "typed" / "table.parquet").is_file()
            assert client.gc(older_than=0).removed == ()
        shutil.rmtree(tmp_path / "place")
    assert (code, step > 8) == (0, True)


def test_one_result(client: Client, memory: FaultyMemory, storage: JobStorage) -> None:
    """U19: one result is removed as safely as all old ones: never a dirty one, and all or none."""
    for job_id in ("a", "b"):
        put_record(memory, keys.RESULTS + job_id, result(job_id, status=JobStatus.FINISHED))
    memory.commit(Create(keys.DIRTY + "b", b""))
    with pytest.raises(ResultIsDirty):
        client.expire("a", "b")
    with pytest.raises(NoSuchResult):
        client.expire("a", "c")
    assert client.results.has_clean("a")
    JobCleanup(memory, default_resources(memory, storage)).run("b", None)

    assert client.expire("b", "a", "a") == client.expire("a", "b") == ["a", "b"]
    assert client.backend.get(keys.TOMBSTONES + "a") is not None
