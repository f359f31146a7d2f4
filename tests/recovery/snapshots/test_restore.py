"""Restoring jobs: in place, as new ones, in other clusters; and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pytest

from jrs.contract.errors import (
    Conflict,
    DamagedSnapshot,
    DuplicateJob,
    Fenced,
    InvalidInput,
    JobIsRunning,
    OutcomeUnknown,
    SnapshotInUse,
    Unavailable,
    WrongState,
)
from jrs.contract.operations import Create, Delete, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import AttemptRecord, JobSpec, StageRecord
from jrs.records.policies import SnapshotPolicy
from jrs.records.snapshots import RestoreRecord, SnapshotFormat, SnapshotRecord, TakenBy
from jrs.recovery.checkpoint_format.relocation import relocate
from jrs.recovery.cleanup.garbage import collect_garbage
from jrs.recovery.files import closed_inputs, epoch_folders
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import (
    SnapshotCatalog,
    delete,
    find_orphans,
    folders,
    prune,
    reserve_and_swap,
)
from jrs.recovery.snapshots.for_forks import PATIENCE
from jrs.store import heads
from tests.recovery.snapshots.fabricate import FakeJob, file_sink, jrs_sink, put, tree
from tests.recovery.snapshots.test_catalog import by_format
from tests.recovery.support import CLUSTER, FaultyMemory, result


def paths_in(log: Path) -> list[str]:
    """Return the paths that a log of Spark's holds."""
    return [json.loads(line)["path"] for line in log.read_text().splitlines()[1:]]


@pytest.mark.parametrize("left", ["out/report/part", "tmp/typed/part", "e7/streams/x/ck/metadata",
                                  "snapshots/1/manifest.json"])  # fmt: skip
def test_files_of_an_earlier_life(
    catalog: SnapshotCatalog, job: FakeJob, storage: JobStorage, left: str
) -> None:
    """They may be all that is left: no new job is put in their place, until they are moved away."""
    record = catalog.create("job")
    put(storage.folder("new") / left, "the only copy")
    for make in (catalog.fork, lambda _, as_job: catalog.restore(record, as_job=as_job)):
        with pytest.raises(WrongState, match="new has files of an earlier life: "):
            make("job", "new")

    assert tree(storage.folder("new")) == {left: b"the only copy"}
    assert [one.number for one in catalog.list("job")] == [1]
    storage.folder("new").rename(storage.root / "away")
    assert catalog.restore(record, as_job="new").job_id == "new"


@by_format
def test_what_a_source_of_others_writes(
    catalog: SnapshotCatalog, job: FakeJob, how: SnapshotFormat
) -> None:
    """The restored job continues the file that its source keeps; the snapshot keeps its own."""
    put(job.query.ck / "sources/1/cursor", "offset 5")
    job.suspend()
    record = catalog.create("job", format=how)
    catalog.restore(record)
    (cursor,) = job.storage.folder("job").glob("e*/streams/hourly/ck/sources/1/cursor")
    with cursor.open("a") as file:
        file.write("\noffset 6")

    assert catalog.verify("job", 1) == record


@by_format
def test_in_place(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, how: SnapshotFormat
) -> None:
    """A suspended job is put back to an older state: checkpoints, output and records."""
    job.suspend()
    before = tree(job.storage.folder("job"), without=("snapshots", "staging"))
    record = catalog.create("job", format=how)
    job.run(3)
    put(job.out("late") / "rows", "of a stage that came later")
    late = StageRecord("job", "late", None, 1, 3, 0.1, 20.0)
    job.record(keys.stage("job", "late"), late)

    restored = catalog.restore(record)

    assert restored.folder == job.epoch
    after = tree(job.storage.folder("job"), without=("snapshots",))
    assert after == {name: before[name] for name in after}
    assert "out/hourly/_spark_metadata/4" in after
    assert (job.query.ck / "commits/4").exists()
    assert not (job.query.ck / "commits/5").exists()
    assert not job.out("late").exists()
    assert memory.get(keys.stage("job", "late")) is None
    spec = memory.get(keys.JOBS + "job")
    assert spec is not None
    assert decode(JobSpec, spec.value, "spec").arguments == {"x": 1}
    assert catalog.verify("job", 1) == record
    assert not list(find_orphans(memory, job.storage))


@by_format
def test_several_times_by_several_jobs(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, how: SnapshotFormat
) -> None:
    """One snapshot is restored as several jobs, none of which shares what the other writes; the
    original may be gone by then (S6, S7, R3)."""
    record = catalog.create("job", format=how)
    shutil.rmtree(job.epoch)
    shutil.rmtree(job.out("hourly"))

    for name in ("green", "blue"):
        restored = catalog.restore(record, as_job=name)
        assert restored.folder.name == "e0"
        stage = memory.get(keys.stage(name, "typed"))
        assert stage is not None
        assert decode(StageRecord, stage.value, "stage").job_id == name
        stream = memory.get(keys.stream(name, "hourly"))
        assert stream is not None
        assert f'"job_id":"{name}"'.encode() in stream.value

    green, blue = (job.storage.folder(name) for name in ("green", "blue"))
    assert len(tree(green)) == len(tree(blue)) == record.files + 1  # The note of the root.
    assert catalog.verify("job", 1)
    assert epoch_folders.in_place(job.storage.folder("green")) == green / "e0"
    assert job.storage.take_over("green", 7) == green / "e7"


def test_upgraded_meanwhile(catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory) -> None:
    """A job keeps the spec that it has by now: going back to older state undoes no upgrade (S7)."""
    record = catalog.create("job")
    key = keys.JOBS + "job"
    stored = memory.get(key)
    assert stored is not None
    memory.commit(Update(key, encode(JobSpec("job", "new:main")), stored.version))

    catalog.restore(record)
    catalog.restore(record, as_job="new")

    specs = [memory.get(keys.JOBS + name) for name in ("job", "new")]
    points = [decode(JobSpec, one.value, "spec").entry_point for one in specs if one is not None]
    assert points == ["new:main", "m:f"]


def test_a4_each_restore_begins_a_generation(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, tmp_path: Path
) -> None:
    """A4: numbers of batches come again. A folder may be of a cluster that has restored more often;
    a new job begins with the first generation."""
    job.suspend()
    record = catalog.create("job")
    assert heads.generation_of(memory, "job") == 1
    catalog.restore(record)
    catalog.restore(record)
    catalog.restore(record, as_job="new")
    assert [heads.generation_of(memory, name) for name in ("job", "new")] == [3, 1]
    catalog.export("job", record.number, tmp_path / "out")
    catalog.restore(tmp_path / "out")
    assert heads.generation_of(memory, "job") > 1000  # The clock of these tests begins there.


def query(folder: Path) -> str:
    """Return the id of a job's query, by its epoch's folder."""
    return str(json.loads((folder / "streams/hourly/ck/metadata").read_text())["id"])


def test_fork_of_the_present(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """S6: what a job is now is made another job, running or not, and the first is as it was."""
    job.record(keys.ATTEMPTS + "job", AttemptRecord("job"))
    before = tree(job.epoch)
    fork = catalog.fork("job", "fork")

    assert [stage.batch for stage in fork.stages] == [4]
    assert query(fork.folder) == fork.stages[0].query != job.query.id
    assert (catalog.list("job"), catalog.list("fork")) == ([], [])
    assert tree(job.epoch) == before
    with pytest.raises(DuplicateJob):
        catalog.fork("job", "fork")
    assert catalog.list("job") == []


def test_a_fork_that_was_cut_off_is_finished(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """What a fork resumes from is kept until it is whole."""
    memory.fault(keys.RESTORES + "fork", OutcomeUnknown, after=False, times=99, kind=Delete)
    with pytest.raises(OutcomeUnknown):
        catalog.fork("job", "fork")
    memory.faults.clear()

    assert catalog.pending_restore("fork") is not None
    assert catalog.finish_restore("fork", is_stopped=lambda job_id: True).job_id == "fork"
    assert catalog.list("job") == []
    assert folders.whole(job.storage, "job") == set()


def test_a_fork_to_an_id_that_another_one_takes(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the snapshot stays that the pending restore of the winner needs."""
    won, create = catalog.create("job"), catalog.create

    def fails(*_: object) -> None:
        raise JobIsRunning("job 'fork' is being restored by another process")

    def slow(*args: Any, **options: Any) -> SnapshotRecord:
        taken = create(*args, **options)
        with monkeypatch.context() as cut, pytest.raises(JobIsRunning):
            cut.setattr(reserve_and_swap, "swap", fails)
            catalog.restore(won, as_job="fork", fork=True)
        monkeypatch.setattr(reserve_and_swap, "reserve", fails)
        return taken

    monkeypatch.setattr(catalog, "create", slow)
    with pytest.raises(JobIsRunning):
        catalog.fork("job", "fork")

    assert catalog.list("job") == [won]


def test_the_files_of_a_fork_that_cannot_be_removed_yet(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new job is made: the fork succeeds, and a collection removes what it has left."""

    def away(*_: object) -> None:
        raise Unavailable("the disk is away")

    with monkeypatch.context() as cut:
        cut.setattr(JobStorage, "discard", away)
        assert catalog.fork("job", "fork").job_id == "fork"

    collect_garbage(later(SnapshotCatalog(catalog.backend, job.storage)), 0.0, dry_run=False)
    assert catalog.list("job") == []
    assert folders.whole(job.storage, "job") == set()


def later(catalog: SnapshotCatalog) -> SnapshotCatalog:
    """Return the catalogue as it is once a fork that has taken a snapshot is done, or has died."""
    return SnapshotCatalog(
        catalog.backend, catalog.storage, now=lambda: catalog.now() + 2 * PATIENCE
    )


def test_the_snapshot_of_a_fork_that_died(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """It takes the place of no other snapshot, and goes once no fork can be at work any more."""
    kept = catalog.create("job", taken_by=TakenBy.SYSTEM)
    left = catalog.create("job", taken_by=TakenBy.SYSTEM, for_fork="new")
    policy = SnapshotPolicy(keep=1)

    assert prune(catalog, "job", policy) == []
    with pytest.raises(SnapshotInUse, match="newest"):
        catalog.delete("job", kept.number)
    assert any("left over by a fork to 'new'" in one
               for one in find_orphans(catalog.backend, job.storage))  # fmt: skip
    dry = collect_garbage(later(catalog), 0.0, dry_run=True)
    assert str(left) in {one.path for one in dry.removed}
    assert collect_garbage(catalog, 0.0, dry_run=False).removed == ()
    assert collect_garbage(later(catalog), 3 * PATIENCE, dry_run=False).removed == ()
    assert prune(catalog, "job", policy, before=lambda _: left.created_at) == [left]
    assert catalog.list("job") == [kept]

    catalog.create("job", taken_by=TakenBy.SYSTEM, for_fork="new")
    collect_garbage(later(catalog), 0.0, dry_run=False)
    assert catalog.list("job") == [kept]
    assert not list(find_orphans(catalog.backend, job.storage))


def test_snapshots_of_forks_that_cannot_be_removed(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection names them, and removes the others."""
    first, second, _ = (
        catalog.create("job", taken_by=TakenBy.SYSTEM, for_fork="new") for _ in range(3)
    )
    remove = delete.remove

    def fails(*args: Any) -> None:
        if args[2] == first:
            raise SnapshotInUse("it is being read")
        if args[2] == second:
            raise OutcomeUnknown("the network is away")
        remove(*args)

    monkeypatch.setattr(delete, "remove", fails)
    report = collect_garbage(later(catalog), 0.0, dry_run=False)

    assert report.left == (f"{first}: it is being read", f"{second}: the network is away")
    assert catalog.list("job") == [first, second]


def test_a_fork_that_is_interrupted_as_it_stores_its_restore(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot stays if the restore was stored; else it goes, and no later commit of the
    restore is accepted."""
    name, late = f"{reserve_and_swap.__name__}.commit_and_read_back", list[Callable[[], None]]()

    def stored(*args: Any, **how: Any) -> None:
        commit_and_read_back(*args, **how)
        raise KeyboardInterrupt

    def under_way(*args: Any, **how: Any) -> None:
        late.append(partial(commit_and_read_back, *args, **how))
        raise KeyboardInterrupt

    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr(name, under_way)
        catalog.fork("job", "fork")
    assert catalog.list("job") == []
    with pytest.raises(Conflict):
        late[0]()

    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr(name, stored)
        catalog.fork("job", "fork")
    assert len(catalog.list("job")) == 1
    assert catalog.fork("job", "fork").job_id == "fork"
    assert catalog.list("job") == []


def test_fork(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A fork's queries are others; a move's are the same ones (S6)."""
    record = catalog.create("job")

    same = catalog.restore(record, as_job="same")
    fork = catalog.restore(record, as_job="fork", fork=True)

    assert query(same.folder) == job.query.id == same.stages[0].query
    assert query(fork.folder) == fork.stages[0].query != job.query.id
    assert catalog.verify("job", 1)


def test_paths_are_rewritten(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """The two logs that hold absolute paths name the new place; what is outside stays (R5)."""
    outside = {"path": "file:///data/in/f.json", "timestamp": 1, "batchId": 0}
    put(job.query.ck / "sources/1/0", "v1\n" + json.dumps(outside))
    put(job.query.ck / "sources/2/0", "v1\n12345")
    record = catalog.create("job")

    restored = catalog.restore(record, as_job="new")

    ck, new = restored.folder / "streams/hourly/ck", job.storage.folder("new")
    out = (new / "out").as_uri()
    assert paths_in(ck / "sources/0/4") == [f"{out}/typed/f4.json"]
    assert paths_in(ck / "sources/1/0") == ["file:///data/in/f.json"]
    assert (ck / "sources/2/0").read_text() == "v1\n12345"
    log = new / "out/hourly/_spark_metadata/3.compact"
    assert paths_in(log) == [f"{out}/hourly/part-{number:05}.parquet" for number in range(4)]
    assert paths_in(job.out("hourly") / "_spark_metadata/4")[0].startswith(job.out("").as_uri())


def test_sink_in_a_subfolder(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A file sink may have a folder of its own in its stage's output: the same holds for it."""
    shutil.rmtree(job.out("hourly"))
    file_sink(job.out("hourly") / "by" / "day", 5)

    catalog.restore(catalog.create("job", batches={"hourly": 2}), as_job="new")

    day = job.storage.folder("new") / "out/hourly/by/day"
    assert sorted(tree(day)) == [
        *(f"_spark_metadata/{number}" for number in range(3)),
        *(f"part-{number:05}.parquet" for number in range(3)),
    ]
    assert paths_in(day / "_spark_metadata/2") == [(day / "part-00002.parquet").as_uri()]


def test_paths_with_blanks(memory: FaultyMemory, tmp_path: Path) -> None:
    """Spark writes paths as URIs, with escapes."""
    storage = JobStorage(tmp_path / "my jobs (ä)", CLUSTER)
    job = FakeJob(memory, storage).run(2)
    catalog = SnapshotCatalog(memory, storage)

    catalog.restore(catalog.create("job"), as_job="new")

    (path,) = paths_in(storage.folder("new") / "out/hourly/_spark_metadata/1")
    assert "%20" in path
    assert unquote(path) == f"file://{storage.folder('new')}/out/hourly/part-00001.parquet"
    assert job.out("hourly").exists()


@pytest.mark.parametrize(
    ("folder", "uri"),
    [
        ("Jürgen's jobs", "Jürgen's%20jobs"),
        ("データ", "データ"),
        ("a\u00a0b\u2028c\u0085d", "a%C2%A0b%E2%80%A8c%C2%85d"),
        ("50%[#?]", "50%25%5B%23%3F%5D"),
    ],
)
def test_paths_as_java_writes_them(folder: str, uri: str, tmp_path: Path) -> None:
    """Spark compares them as strings: a file that is named otherwise is another one, and is read
    again. `java.net.URI` leaves what is beyond ASCII, but for spaces and controls."""
    log = put(tmp_path / "0", 'v1\n{"path":"file:///data/ö/job/out/f%20ä","timestamp":1}')

    relocate(log, "/data/ö/job", f"/{folder}/job")

    assert paths_in(log) == [f"file:///{uri}/job/out/f%20ä"]


def test_closed_input(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    """The links of a closed input come along, and lead where they led."""
    data = put(tmp_path / "data" / "a.json", "{}").parent
    folder = closed_inputs.close(job.storage, "job", "hourly", data)
    record = catalog.create("job")

    catalog.restore(record, as_job="new")

    path = job.storage.folder("new") / folder.relative_to(job.storage.folder("job")) / "a.json"
    assert os.readlink(path) == str(data / "a.json")


def test_closed_input_of_its_own_output(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """The new job reads its own output, under the name that its logs have for the input."""
    closed_inputs.close(job.storage, "job", "hourly", job.out("typed"))
    record = catalog.create("job")

    catalog.restore(record, as_job="new")

    out = job.storage.published("new", "typed", temporary=False)
    closed = closed_inputs.place_of(job.storage, "new", "hourly", out)
    assert closed_inputs.links_in(closed) == {"table.parquet": str(out / "table.parquet")}


@by_format
def test_exported_to_another_cluster(
    catalog: SnapshotCatalog, job: FakeJob, elsewhere: FaultyMemory, tmp_path: Path,
    how: SnapshotFormat,
) -> None:  # fmt: skip
    """A snapshot is a folder that can be copied with cp -r and restored by a cluster that never
    knew the job, after everything of the first one is gone (R2, R5, R6, S7)."""
    catalog.create("job", format=how)
    exported = tmp_path / "exported"
    catalog.export("job", 1, exported)
    shutil.rmtree(job.storage.root)
    copied = tmp_path / "usb" / "copied"
    shutil.copytree(exported, copied)
    shutil.rmtree(exported)
    there = SnapshotCatalog(elsewhere, JobStorage(tmp_path / "there", CLUSTER))

    restored = there.restore(copied)

    assert restored.job_id == "job"
    assert elsewhere.get(keys.JOBS + "job") is not None
    out = there.storage.folder("job") / "out"
    assert paths_in(out / "hourly/_spark_metadata/4") == [
        (out / "hourly/part-00004.parquet").as_uri()
    ]
    assert "e0" in restored.folder.name
    assert there.create("job").stages == restored.stages


@by_format
def test_claim(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, how: SnapshotFormat
) -> None:
    """A claimed snapshot is used up: neither listed nor there any more (R3)."""
    record = catalog.create("job", format=how)

    catalog.restore(record, as_job="new", claim=True)

    assert catalog.list("job") == []
    assert folders.whole(job.storage, "job") == set()
    assert tree(job.storage.root / ".blobs") == {}
    assert SnapshotCatalog(memory, job.storage).create("new").stages == record.stages


@pytest.mark.parametrize("where", ["here", "moved", "alias"])
def test_claim_of_a_listed_folder(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, where: str
) -> None:
    """What the catalogue lists is used up through the catalogue: its folder is not removed under
    its record, by whatever name."""
    record = catalog.create("job")
    if where == "moved":
        record = catalog.move("job", 1, tmp_path / "far")
    (tmp_path / "alias").symlink_to(tmp_path / ("far" if where == "moved" else "jobs"))
    root = {"here": "jobs", "moved": "far", "alias": "alias"}[where]
    folder = tmp_path / root / "test" / "job" / "snapshots" / "1"

    with pytest.raises(InvalidInput, match="jrs snapshot restore job 1 --claim"):
        catalog.restore(folder, as_job="new", claim=True)
    assert catalog.verify("job", 1) == record
    assert catalog.restore(folder, as_job="new").stages == record.stages
    catalog.export("job", 1, tmp_path / "out")
    catalog.restore(tmp_path / "out", as_job="newer", claim=True)
    assert not (tmp_path / "out").exists()


def test_copies_share_nothing(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """What is restored of a backup is a copy of it: the backup cannot be hurt (S8)."""
    record = catalog.create("job", format=SnapshotFormat.FULL)
    restored = catalog.restore(record, as_job="new")

    for path in restored.folder.rglob("*"):
        assert path.is_dir() or path.stat().st_nlink == 1


def test_times_are_kept(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """File sources go by the time of change, so it is restored in every format."""
    one, two = (put(job.out("typed") / name, "same") for name in ("one", "two"))
    os.utime(one, ns=(1, 1_000_000_007))
    os.utime(two, ns=(1, 2_000_000_009))
    for how in (SnapshotFormat.CAS, SnapshotFormat.FULL, SnapshotFormat.LINK):
        catalog.restore(catalog.create("job", format=how), as_job=how.value)
        out = job.storage.folder(how.value) / "out/typed"

        assert (out / "one").stat().st_mtime_ns == 1_000_000_007
        assert (out / "two").stat().st_mtime_ns == 2_000_000_009
    for number in (1, 2, 3):
        assert catalog.verify("job", number)


def test_stage_that_begins_again(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A stage that had committed nothing has no checkpoint and no output afterwards."""
    shutil.rmtree(job.query.ck / "commits")
    record = catalog.create("job")

    restored = catalog.restore(record, as_job="new")

    assert not (restored.folder / "streams").exists()
    assert not (job.storage.folder("new") / "out/hourly").exists()


# -- refused -------------------------------------------------------------------------------


def test_running(catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory) -> None:
    """The state is not changed under a running attempt."""
    record = catalog.create("job")
    put_record = AttemptRecord("job")
    memory.commit(Create(keys.ATTEMPTS + "job", encode(put_record)))
    before = tree(job.storage.folder("job"))

    with pytest.raises(JobIsRunning, match="jrs suspend job"):
        catalog.restore(record)
    assert tree(job.storage.folder("job")) == before
    assert catalog.restore(record, is_stopped=lambda job_id: True)


@pytest.mark.parametrize("how", ["link", "full", "cas"])
def test_files_next_to_the_table_of_a_file_sink(
    catalog: SnapshotCatalog, job: FakeJob, how: str
) -> None:
    """What functions of the job have written there is part of a snapshot, and no file is that a
    batch left which failed. The job may append to what it had, as before."""
    out = job.out("hourly")
    put(out / "summary.csv", "a")
    put(out / "reports" / "day=1" / "1.csv", "b")
    put(out / "reports" / "part-00000-c000.parquet", "of a function, by Spark")
    (out / "latest").symlink_to("nowhere.csv")
    put(out / "day=1" / "part-00078-c000.parquet", "of a batch that failed")
    failed = put(out / "part-00077-c000.parquet", "of a batch that failed")
    job.suspend()
    record = catalog.create("job", format=SnapshotFormat(how))
    (out / "summary.csv").write_text("changed since")
    put(out / "later.csv", "written since")
    catalog.restore(record)

    assert (out / "summary.csv").read_text() == "a"
    assert (out / "reports" / "day=1" / "1.csv").read_text() == "b"
    assert (out / "reports" / "part-00000-c000.parquet").exists()
    assert not failed.exists()
    assert not (out / "day=1" / "part-00078-c000.parquet").exists()
    assert not (out / "later.csv").exists()
    with (out / "summary.csv").open("a") as file:
        file.write("more")
    assert catalog.verify("job", 1)


def test_started_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim decides: an attempt that began since is not robbed of its files."""
    from jrs.recovery.snapshots import restore

    record = catalog.create("job")
    build = restore._build

    def built(*args: Any) -> object:
        found = build(*args)
        memory.commit(Create(keys.ATTEMPTS + "job", encode(AttemptRecord("job"))))
        return found

    monkeypatch.setattr(restore, "_build", built)
    before = tree(job.epoch)

    catalog_error = None
    real_get = memory.get

    def get(key: str, **how: Any) -> object:
        found = real_get(key, **how)
        if key == keys.STOPS + "job" and real_get(keys.ATTEMPTS + "job"):
            memory.commit(Delete(keys.ATTEMPTS + "job"))  # Between look and claim.
        return found

    monkeypatch.setattr(memory, "get", get)
    try:
        catalog.restore(record)
    except JobIsRunning as error:
        catalog_error = error
    assert catalog_error is not None
    assert tree(job.epoch) == before


@pytest.mark.parametrize("where", ["dirty", "clean"])
def test_ended(catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, where: str) -> None:
    """A job that has ended never runs again, not by a restore either."""
    record = catalog.create("job")
    memory.commit(Create(keys.RESULTS + "job", encode(result("job"))))
    if where == "dirty":
        memory.commit(Create(keys.DIRTY + "job", b"1"))

    with pytest.raises(DuplicateJob, match="has ended already"):
        catalog.restore(record)


def test_id_that_is_taken(catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory) -> None:
    """A new job's id has to be new."""
    record = catalog.create("job")
    memory.commit(Create(keys.JOBS + "taken", encode(JobSpec("taken", "m:f"))))

    with pytest.raises(DuplicateJob):
        catalog.restore(record, as_job="taken")
    with pytest.raises(InvalidInput, match="not a job id"):
        catalog.restore(record, as_job="no/id")
    assert not job.storage.folder("taken").exists()


def test_damaged(catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory) -> None:
    """Verified first: nothing is changed by what is damaged."""
    record = catalog.create("job", format=SnapshotFormat.FULL)
    put(folders.snapshot(job.storage, "job", 1) / "files/streams/hourly/ck/commits/4", "v1\n{}")
    before = tree(job.epoch)

    with pytest.raises(DamagedSnapshot):
        catalog.restore(record)
    with pytest.raises(DamagedSnapshot):
        catalog.restore(record, as_job="new")
    assert tree(job.epoch) == before
    assert not job.storage.folder("new").exists()
    assert memory.get(keys.JOBS + "new") is None


def test_without_output_elsewhere(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Without the output that its sinks continued from, it is no other job's state."""
    record = catalog.create("job", output=False)

    with pytest.raises(InvalidInput, match="without the job's output"):
        catalog.restore(record, as_job="new")


@pytest.mark.parametrize(("sink", "inside"), [(file_sink, ""), (file_sink, "day"), (jrs_sink, "")])
def test_without_output_that_is_ahead(
    catalog: SnapshotCatalog, job: FakeJob, sink: Any, inside: str
) -> None:
    """Spark's sinks pass over batches that they have had, so those would be lost in silence."""
    record = catalog.create("job", output=False)
    assert catalog.restore(record)
    shutil.rmtree(job.out("hourly"))
    sink(job.out("hourly") / inside, 7)

    with pytest.raises(InvalidInput, match="at batch 6, ahead of batch 4"):
        catalog.restore(record)


def test_without_a_spec(job: FakeJob, elsewhere: FaultyMemory, storage: JobStorage) -> None:
    """Nothing could start the job."""
    record = SnapshotCatalog(elsewhere, storage).create("job")

    with pytest.raises(InvalidInput, match="without a spec"):
        SnapshotCatalog(elsewhere, storage).restore(record, as_job="new")


def test_folder_of_a_cas_snapshot(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    """Its bytes are among its cluster's blobs: elsewhere, it has to be exported."""
    catalog.create("job", format=SnapshotFormat.CAS)
    folder, elsewhere = folders.snapshot(job.storage, "job", 1), tmp_path / "elsewhere"
    shutil.copytree(folder, elsewhere)

    with pytest.raises(InvalidInput, match="export it first"):
        catalog.restore(elsewhere, as_job="new")
    assert catalog.restore(folder, as_job="new").job_id == "new"


def test_no_snapshot(catalog: SnapshotCatalog, tmp_path: Path) -> None:
    """A folder that is something else, or nothing at all."""
    with pytest.raises(DamagedSnapshot, match=r"manifest\.json is missing"):
        catalog.restore(tmp_path)
    with pytest.raises(DamagedSnapshot, match="is missing"):
        catalog.restore(tmp_path / "nowhere")


# -- while it is restored ------------------------------------------------------------------


def test_held_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No master can start a job that is half restored, and no client can submit it."""
    from jrs.recovery.snapshots import reserve_and_swap
    from jrs.store.jobs import JobCatalog

    record = catalog.create("job")
    swap_in = reserve_and_swap.swap
    seen = []

    def swapping(*args: Any) -> object:
        assert memory.get(keys.RESTORES + "job") is not None
        with pytest.raises(DuplicateJob):
            JobCatalog(memory).submit(JobSpec("job", "m:f"))
        with pytest.raises(SnapshotInUse, match="another restore"):
            catalog.restore(record)
        with pytest.raises(Unavailable, match="is being restored"):
            catalog.create("job")
        seen.append(catalog.pending_restore("job"))
        return swap_in(*args)

    monkeypatch.setattr(reserve_and_swap, "swap", swapping)

    catalog.restore(record)

    assert [type(one) for one in seen] == [RestoreRecord]
    assert catalog.pending_restore("job") is None


def test_more_records_than_a_commit_takes(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """Records first; the restore is removed last."""
    for number in range(300):
        name = f"stage-{number}"
        job.record(keys.stage("job", name), StageRecord("job", name, None, 1, 3, 0.1, 1.0))
    record = catalog.create("job")
    memory.commits.clear()

    catalog.restore(record, as_job="new")

    assert len(list(memory.scan(keys.stages("new")))) == 301
    assert Delete(keys.RESTORES + "new") in [
        attrs.evolve(op, version=None) for op in memory.commits[-1] if isinstance(op, Delete)
    ]


def test_fenced(catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory) -> None:
    """A leader that was replaced changes nothing."""
    old = memory.campaign("old", ttl=10.0, stop=threading.Event())
    assert old is not None
    record = catalog.create("job")
    old.resign()
    assert memory.campaign("new", ttl=10.0, stop=threading.Event())
    before = tree(job.epoch)

    with pytest.raises(Fenced):
        catalog.restore(record, fence=old.fence)
    assert tree(job.epoch) == before
    assert catalog.pending_restore("job") is None


def test_by_a_leader_that_recovers(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """The newest usable snapshot, into the epoch folder that was taken over (N1)."""
    job.suspend()
    memory.commit(Delete(keys.STOPS + "job"))
    catalog.create("job", format=SnapshotFormat.FULL)
    job.run(1)
    catalog.create("job", format=SnapshotFormat.FULL)
    put(folders.snapshot(job.storage, "job", 2) / "files/out/typed/table.parquet", "damaged")
    leader = memory.campaign("new", ttl=10.0, stop=threading.Event())
    assert leader is not None
    folder = job.storage.take_over("job", leader.epoch)
    shutil.rmtree(folder / "streams")

    usable = catalog.newest_usable("job")
    assert usable.record is not None
    restored = catalog.restore(usable.record, fence=leader.fence, is_stopped=lambda job_id: True)

    assert restored.folder == folder
    assert [stage.batch for stage in restored.stages] == [4]
    with pytest.raises(Conflict):
        memory.commit(Create(keys.JOBS + "job", b"x"))


@pytest.mark.parametrize("how", [SnapshotFormat.LINK, SnapshotFormat.CAS])
@pytest.mark.parametrize("claim", [False, True])
def test_what_user_code_appends_to(
    catalog: SnapshotCatalog, job: FakeJob, how: SnapshotFormat, claim: bool
) -> None:
    """A job that was restored may keep writing into files of its own: no snapshot has them."""
    shutil.rmtree(job.out("hourly"))
    audit = put(job.out("hourly") / "audit.csv", "a\n")
    for _ in range(2):
        catalog.create("job", format=how)
    catalog.restore(catalog.get("job", 2), claim=claim)
    with audit.open("a") as file:
        file.write("b\n")

    assert catalog.verify("job", 1)
