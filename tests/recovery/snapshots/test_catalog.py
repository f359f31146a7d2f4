"""Taking, listing, verifying and deleting snapshots."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.errors import (
    CorruptRecord,
    DamagedSnapshot,
    Fenced,
    InvalidInput,
    NoSuchJob,
    NoSuchSnapshot,
    OutcomeUnknown,
    SnapshotInUse,
    Unavailable,
    UnsupportedVersion,
)
from jrs.contract.operations import Create, Delete, Record
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import StageRecord
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.checkpoint_format import checkpoint
from jrs.recovery.cleanup.garbage import collect_garbage
from jrs.recovery.files import transfer
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import SnapshotCatalog, contents, create, find_orphans, folders, index
from jrs.recovery.snapshots.unnamed_blobs import collect
from tests.recovery.snapshots.fabricate import FakeJob, jrs_sink, put, tree
from tests.recovery.support import CLUSTER, FaultyMemory, result

FORMATS = [SnapshotFormat.LINK, SnapshotFormat.FULL, SnapshotFormat.CAS]
by_format = pytest.mark.parametrize("how", FORMATS, ids=lambda how: how.value)


def files_of(catalog: SnapshotCatalog, number: int = 1) -> Path:
    return folders.snapshot(catalog.storage, "job", number) / "files"


@by_format
def test_pins_one_state(catalog: SnapshotCatalog, job: FakeJob, how: SnapshotFormat) -> None:
    """A snapshot names the batch of every stage, the records and every file: all that a restart
    needs, and no side effect of its own (N1, N2, N5)."""
    before = tree(job.storage.folder("job"))
    record = catalog.create("job", name="before-upgrade", format=how)

    assert [(stage.name, stage.batch) for stage in record.stages] == [("hourly", 4)]
    manifest = catalog.manifest("job", 1)
    assert sorted(manifest.records) == ["spec", "stages/typed", "streams/hourly"]
    paths = {file.path for file in manifest.files}
    assert "streams/hourly/ck/metadata" in paths
    assert "out/typed/table.parquet" in paths
    assert not [path for path in paths if "staging" in path]
    assert not [path for path in paths if path.startswith("/") or ".." in path]
    assert catalog.verify("job", "before-upgrade") == record
    assert catalog.list("job") == [record]
    assert tree(job.storage.folder("job"), without=("snapshots",)) == before


def test_kept_in_the_common_folder(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Snapshots that a user took are where all others are, under a number and a name (N4)."""
    catalog.create("job")
    named = catalog.create("job", name="mine")

    assert named.number == 2
    assert catalog.get("job", "mine") == catalog.get("job", 2) == catalog.get("job", "2")
    assert folders.whole(job.storage, "job") == {1, 2}


def test_sink_up_to_the_batch(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """What a sink has published ahead of the commit log is left out, its log as well."""
    from tests.recovery.snapshots.fabricate import file_sink

    file_sink(job.out("hourly"), 6, start=5)

    catalog.create("job")

    paths = {file.path for file in catalog.manifest("job", 1).files}
    logs = sorted(path.rpartition("/")[2] for path in paths if "_spark_metadata" in path)
    assert logs == ["3.compact", "4"]
    assert len([path for path in paths if "out/hourly/part" in path]) == 5


def test_rows_that_were_pruned(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A user may remove old rows of a file sink's table; its log keeps naming them."""
    (job.out("hourly") / "part-00000.parquet").unlink()

    catalog.create("job")

    assert sorted(tree(files_of(catalog) / "out/hourly", without=("_spark_metadata",))) == [
        f"part-{number:05}.parquet" for number in range(1, 5)
    ]


def test_batches_of_the_own_sink(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Of the sink that publishes a folder for each batch, those up to the snapshot's."""
    shutil.rmtree(job.out("hourly"))
    jrs_sink(job.out("hourly"), 6)

    catalog.create("job")

    paths = {file.path for file in catalog.manifest("job", 1).files}
    batches = sorted(path.split("/")[2] for path in paths if path.startswith("out/hourly"))
    assert batches == [f"batch={number}" for number in range(5)]


def test_what_others_put_into_the_folder_of_a_batch(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """It is copied, since it may change; a batch behind the snapshot's stays one all the same."""
    shutil.rmtree(job.out("hourly"))
    jrs_sink(job.out("hourly"), 6)
    notes = [put(job.out("hourly") / f"batch={number}/.notes", "") for number in (4, 5)]

    catalog.create("job")

    copied = files_of(catalog) / "out/hourly"
    assert sorted(tree(copied))[-2:] == ["batch=4/.notes", f"batch=4/part-{4:032x}.parquet"]
    assert not (copied / "batch=4/.notes").samefile(notes[0])


def test_without_output(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """The published output can be left out."""
    record = catalog.create("job", output=False)

    assert not record.output
    assert all(f.path.startswith("streams/") for f in catalog.manifest("job", 1).files)


def test_finished_but_not_renamed(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """The output of a stage whose record is committed, and whose rename a crash prevented."""
    os.rename(job.out("typed"), job.epoch / "typed.1")

    catalog.create("job")

    assert (files_of(catalog) / "out/typed/table.parquet").read_text() == "typed rows"


def test_older_batch(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A batch that is still retained can be pinned after the fact (N1)."""
    record = catalog.create("job", batches={"hourly": 2})

    assert record.stages[0].batch == 2
    paths = {file.path for file in catalog.manifest("job", 1).files}
    assert "streams/hourly/ck/commits/3" not in paths
    assert len([path for path in paths if "out/hourly/part" in path]) == 3


def test_stage_without_a_commit(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A stage that has committed nothing yet is recorded as beginning from its beginning."""
    shutil.rmtree(job.query.ck / "commits")

    record = catalog.create("job")

    assert [(stage.name, stage.batch) for stage in record.stages] == [("hourly", None)]
    assert not [f for f in catalog.manifest("job", 1).files if f.path.startswith("streams")]


@by_format
def test_unchanged_files_are_not_read_again(
    catalog: SnapshotCatalog, job: FakeJob, how: SnapshotFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Incremental: what a parent holds costs no space, and is not hashed again (R1)."""
    catalog.create("job", format=how)
    job.run(1)
    read: list[Path] = []
    digest, copy = transfer.digest, transfer.copy

    def digested(path: Path) -> Any:
        read.append(path)
        return digest(path)

    def copied(source: Path, target: Path) -> Any:
        read.append(source)
        return copy(source, target)

    monkeypatch.setattr(transfer, "digest", digested)
    monkeypatch.setattr(transfer, "copy", copied)

    record = catalog.create("job", format=how)

    if how is SnapshotFormat.FULL:
        assert record.new_bytes == record.bytes
    else:
        assert 0 < record.new_bytes < record.bytes
        assert 0 < len(read) < record.files


def test_hard_links(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A snapshot shares the inodes of the job; a backup shares nothing (S8)."""
    catalog.create("job")
    catalog.create("job", format=SnapshotFormat.FULL)
    own = job.query.ck / "commits" / "4"

    assert (files_of(catalog, 1) / "streams/hourly/ck/commits/4").samefile(own)
    assert not (files_of(catalog, 2) / "streams/hourly/ck/commits/4").samefile(own)


@by_format
def test_every_file_of_it_was_synced(
    catalog: SnapshotCatalog, job: FakeJob, how: SnapshotFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listed snapshot is durable, also where it links files of which its parent has copies (R1);
    what a link has synced is not synced again."""
    synced: list[int] = []
    fsync = os.fsync

    def sync(fd: int) -> None:
        fsync(fd)
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fsync", sync)
    catalog.create("job", format=how)
    for number in (2, 3):
        catalog.create("job", format=SnapshotFormat.LINK)
        inodes = {(files_of(catalog, number) / name).stat().st_ino
                  for name in tree(files_of(catalog, number))}  # fmt: skip

        assert inodes <= set(synced)
    final = (files_of(catalog, 3) / "streams/hourly/ck/commits/4").stat().st_ino
    assert synced.count(final) == 1


@pytest.fixture
def audit(job: FakeJob) -> Path:
    """A file that the function of a stage has written next to what its sink publishes."""
    shutil.rmtree(job.out("hourly"))
    jrs_sink(job.out("hourly"), 5)
    return put(job.out("hourly") / "audit.csv", "a\n")


def test_what_user_code_writes_is_not_linked(
    catalog: SnapshotCatalog, job: FakeJob, audit: Path
) -> None:
    """What may be appended to in place is copied, once for as long as it stays as it is; what Spark
    has written is linked, as a sink's files are, and those of a stage that has finished."""
    cursor = put(job.query.ck / "sources/1/cursor", "of a source of others")
    for _ in range(2):
        catalog.create("job")
    with audit.open("a") as file:
        file.write("b\n")

    record = catalog.create("job")

    first, second, third = (files_of(catalog, number) / "out" for number in (1, 2, 3))
    for number in (1, 2, 3):
        assert catalog.verify("job", number)
    assert (second / "hourly/audit.csv").samefile(first / "hourly/audit.csv")
    assert (third / "hourly/audit.csv").read_text() == "a\nb\n"
    (rows,) = (third / "hourly/batch=4").iterdir()
    assert rows.samefile(job.out("hourly") / "batch=4" / rows.name)
    assert (third / "typed/table.parquet").samefile(job.out("typed") / "table.parquet")
    copied = third.with_name("streams") / "hourly/ck/sources/1/cursor"
    assert copied.read_text() == cursor.read_text()
    assert not copied.samefile(cursor)
    assert record.new_bytes == audit.stat().st_size


def test_a_file_that_a_restore_has_linked(
    catalog: SnapshotCatalog, job: FakeJob, audit: Path
) -> None:
    """No snapshot shares it with the job once more."""
    catalog.create("job")
    audit.unlink()
    os.link(files_of(catalog, 1) / "out/hourly/audit.csv", audit)

    catalog.create("job")

    assert not (files_of(catalog, 2) / "out/hourly/audit.csv").samefile(audit)


@by_format
@pytest.mark.parametrize("first", [1, 2, 3])
def test_deleted_in_any_order(
    catalog: SnapshotCatalog, job: FakeJob, how: SnapshotFormat, first: int
) -> None:
    """No snapshot depends on another one, nor on the job's own folder (N8, R4)."""
    for _ in range(3):
        catalog.create("job", format=how)
        job.run(1)
    catalog.create("job")

    catalog.delete("job", first)
    shutil.rmtree(job.epoch)

    for left in {1, 2, 3} - {first}:
        assert catalog.verify("job", left).number == left
    with pytest.raises(NoSuchSnapshot):
        catalog.get("job", first)


def test_two_of_one_name_at_once(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking one takes minutes: the name is still free when both begin, and one gets it. Whichever
    commits first, the other finds its name, and leaves no files."""
    take, list_ = create.take, create._list

    def also(step: Callable[..., Any]) -> Callable[..., Any]:
        def late(*args: Any, **how: Any) -> Any:
            with monkeypatch.context() as patch:
                patch.setattr(create, "take", take)
                patch.setattr(create, "_list", list_)
                catalog.create("job", name=f"of-{step.__name__}", format=SnapshotFormat.FULL)
            return step(*args, **how)

        return late

    for step in (take, list_):
        with monkeypatch.context() as patch:
            patch.setattr(create, step.__name__, also(step))
            with pytest.raises(InvalidInput, match=r"has a snapshot named .* already"):
                catalog.create("job", name=f"of-{step.__name__}")

    assert [(one.number, one.name) for one in catalog.list("job")] == [
        (2, "of-take"),
        (4, "of-_list"),
    ]
    assert not list(find_orphans(catalog.backend, catalog.storage))
    # An older version would not know the key, and an ended job would leave it.
    assert not list(catalog.backend.scan(keys.REFERENCES))


def test_two_of_one_name_commit_at_once(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found the name free, and one is refused by the commit of the other."""
    refuse, begun = index.refuse_taken, list[str]()

    def late(known: list[Any], name: str | None) -> None:
        refuse(known, name)
        begun.append(str(name))
        if len(begun) == 2:  # The first one looks again before it commits.
            catalog.create("job", name=name)

    monkeypatch.setattr(create, "refuse_taken", late)
    with pytest.raises(InvalidInput, match="has a snapshot named 'one' already"):
        catalog.create("job", name="one")

    assert [one.number for one in catalog.list("job")] == [2]


def test_blobs_are_shared_and_counted(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A blob goes with the last snapshot that names it, not before (N8)."""
    blobs = job.storage.root / ".blobs"
    for _ in range(2):
        catalog.create("job", format=SnapshotFormat.CAS)
        job.run(1)
    catalog.create("job")
    count = len(tree(blobs))

    catalog.delete("job", 1)

    assert 0 < len(tree(blobs)) < count
    assert catalog.verify("job", 2)
    catalog.delete("job", 2)
    assert tree(blobs) == {}


def test_blobs_stay_while_a_snapshot_is_taken(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Deleting never takes a blob from under a snapshot that is being taken."""
    from jrs.recovery.snapshots.blobs import Blobs

    catalog.create("job", format=SnapshotFormat.CAS)
    catalog.create("job")
    with Blobs(job.storage).acquire():
        catalog.delete("job", 1)

        assert tree(job.storage.root / ".blobs") != {}

    left = list(find_orphans(catalog.backend, job.storage))
    assert "no snapshot names" in left[0]
    catalog.create("job", format=SnapshotFormat.CAS)
    assert not list(find_orphans(catalog.backend, job.storage))


@pytest.mark.parametrize("name", ["lost+found", "no job's"])
def test_folder_of_no_job(catalog: SnapshotCatalog, job: FakeJob, name: str) -> None:
    """What a filesystem or an operator keeps near the jobs hinders neither deletions nor fsck."""
    for _ in range(2):
        catalog.create("job", format=SnapshotFormat.CAS)
        job.run(1)
    (job.storage.root / name).mkdir()
    count = len(tree(job.storage.root / ".blobs"))

    catalog.delete("job", 1)

    assert len(tree(job.storage.root / ".blobs")) < count
    assert not list(find_orphans(catalog.backend, job.storage))
    assert list(job.storage.jobs()) == ["job"]


def test_newest_of_a_live_job_is_not_deleted(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Users delete through the system, which keeps what the job would resume from (N3)."""
    catalog.create("job")

    with pytest.raises(SnapshotInUse, match="newest that its job could resume from"):
        catalog.delete("job", 1)
    assert catalog.verify("job", 1)
    catalog.create("job")
    catalog.delete("job", 1)
    with pytest.raises(SnapshotInUse):
        catalog.delete("job", 2)


def test_newest_may_go_if_it_is_damaged(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A damaged one is no recovery source; the one before it is."""
    catalog.create("job", format=SnapshotFormat.FULL)
    catalog.create("job", format=SnapshotFormat.FULL)
    (files_of(catalog, 2) / "out/typed/table.parquet").unlink()

    with pytest.raises(SnapshotInUse):
        catalog.delete("job", 1)
    catalog.delete("job", 2)


def test_a_restore_that_cannot_be_read(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """It keeps no snapshot of any job, since nobody can finish it; a newer jrs's does."""
    for _ in range(3):
        catalog.create("job")
    garbage = b'{"jrs":"restore/1","crc":"00000000","body":{}}'
    memory.commit(Create(keys.JOBS + "other", garbage))

    catalog.delete("job", 1)

    newer = garbage.replace(b"restore/1", b"restore/9")
    memory.commit(Create(keys.JOBS + "newer", newer))
    with pytest.raises(UnsupportedVersion):
        catalog.delete("job", 2)
    assert [record.number for record in catalog.list("job")] == [2, 3]


def test_any_of_an_ended_job_may_go(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """A job that has ended has no recovery source."""
    catalog.create("job")
    memory.commit(Create(keys.RESULTS + "job", encode(result("job"))))

    catalog.delete("job", 1)

    assert catalog.list("job") == []


def test_not_deleted_while_it_is_read(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Nothing is deleted under a reader."""
    from jrs.recovery.snapshots.open import opened

    record = catalog.create("job")
    catalog.create("job")
    with opened(job.storage, record):
        with pytest.raises(SnapshotInUse, match="being written or read"):
            catalog.delete("job", 1)
    catalog.delete("job", 1)


# -- what is refused -----------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def rewrite(catalog: SnapshotCatalog, old: str, new: str) -> Path:
    """Change the manifest's text, and its checksum with it, as a person might by hand."""
    import zlib

    path = folders.snapshot(catalog.storage, "job", 1) / "manifest.json"
    head, _, body = path.read_text().partition(',"body":')
    assert old in body
    body = body[:-1].replace(old, new, 1)
    crc = f"{zlib.crc32(body.encode()):08x}"
    path.write_text(f'{head.partition(",")[0]},"crc":"{crc}","body":{body}}}')
    return path


DAMAGE = {
    "flipped byte": (lambda at: flip(at / "out/typed/table.parquet"), "has changed"),
    "missing": (lambda at: (at / "out/typed/table.parquet").unlink(), "is missing"),
    "size": (lambda at: put(at / "out/typed/table.parquet", "x"), "1 bytes instead of 10"),
    "unlisted": (lambda at: put(at / "out/typed/more", "x"), "is not in the manifest"),
    "next to": (lambda at: put(at.parent / "more", "x"), "is not in the manifest"),
    "manifest": (lambda at: flip(at.parent / "manifest.json"), "manifest"),
    "no manifest": (lambda at: (at.parent / "manifest.json").unlink(), "is missing"),
    "all": (lambda at: shutil.rmtree(at.parent), "is missing"),
}


@pytest.mark.parametrize(("damage", "says"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_found(catalog: SnapshotCatalog, job: FakeJob, damage: Any, says: str) -> None:
    """What vanished or changed behind the system's back is named, and passed over (N3)."""
    catalog.create("job", format=SnapshotFormat.FULL)
    catalog.create("job", format=SnapshotFormat.FULL)
    damage(files_of(catalog, 2))

    with pytest.raises(DamagedSnapshot, match=says):
        catalog.verify("job", 2)
    usable = catalog.newest_usable("job")
    assert usable.record is not None
    assert usable.record.number == 1
    assert [record.number for record, _ in usable.skipped] == [2]
    assert says in usable.skipped[0][1]


def test_disk_that_has_lost_a_file(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk cannot give back is damage like any other, and passed over."""
    for _ in range(2):
        catalog.create("job", format=SnapshotFormat.FULL)
    digest, lost = transfer.digest, files_of(catalog, 2) / "out/typed/table.parquet"

    def read(path: Path) -> str:
        if path == lost:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return digest(path)

    monkeypatch.setattr(transfer, "digest", read)

    usable = catalog.newest_usable("job")
    assert usable.record is not None
    assert usable.record.number == 1
    assert f"{lost} cannot be read: Input/output error" in usable.skipped[0][1]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ESTALE, errno.EACCES, errno.ENOMEM])
def test_a_manifest_that_cannot_be_read_now(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It may be whole: recovery passes over no such snapshot, and the one before it, which would
    seem to be the newest one then, is not taken for dispensable."""
    for _ in range(2):
        catalog.create("job", format=SnapshotFormat.CAS)
    before, opens = tree(catalog.storage.root), transfer.open_regular

    def read(path: Path) -> int:
        if path.name == folders.MANIFEST and path.parent.name.startswith("2"):
            raise OSError(number, os.strerror(number), str(path))
        return opens(path)

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "open_regular", read)
        for call in (catalog.newest_usable, lambda job_id: catalog.verify(job_id, 2)):
            with pytest.raises(Unavailable, match="cannot be read"):
                call("job")
        with pytest.raises(Unavailable, match="cannot be read"):
            catalog.delete("job", 2)
        collect(catalog.storage)
    assert tree(catalog.storage.root) == before
    assert catalog.verify("job", 2).number == 2


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOTDIR, errno.ELOOP])
def test_a_manifest_that_is_lost(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """No retry can help: recovery continues from the snapshot before it."""
    catalog.create("job")
    catalog.create("job")
    opens = transfer.open_regular

    def read(path: Path) -> int:
        if path.name == folders.MANIFEST and path.parent.name.startswith("2"):
            raise OSError(number, os.strerror(number), str(path))
        return opens(path)

    monkeypatch.setattr(transfer, "open_regular", read)
    usable = catalog.newest_usable("job")
    assert usable.record is not None
    assert usable.record.number == 1


def test_link_in_place_of_a_file(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A link could lead anywhere, so it is damage even if it leads to the same bytes."""
    catalog.create("job", format=SnapshotFormat.FULL)
    file = files_of(catalog) / "out/typed/table.parquet"
    file.unlink()
    file.symlink_to(job.out("typed") / "table.parquet")

    with pytest.raises(DamagedSnapshot, match="is a link"):
        catalog.verify("job", 1)


def test_damaged_blob(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A blob that changed is found by its name."""
    catalog.create("job", format=SnapshotFormat.CAS)
    blobs = job.storage.root / ".blobs"
    flip(blobs / sorted(tree(blobs))[0])

    with pytest.raises(DamagedSnapshot, match="has changed"):
        catalog.verify("job", 1)


def test_damaged_blob_is_replaced(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """What was read and hashed again takes the place of a blob that is not what its name says."""
    table = job.out("typed") / "table.parquet"
    catalog.create("job", format=SnapshotFormat.CAS)
    size = catalog.get("job", 1).new_bytes
    digest = next(f.sha256 for f in catalog.manifest("job", 1).files if f.path.endswith(table.name))
    flip(job.storage.root / ".blobs" / digest[:2] / digest)
    os.utime(table, ns=(1, 1))  # So it is read again, though it has not changed.

    record = catalog.create("job", format=SnapshotFormat.CAS)

    assert catalog.verify("job", 1)
    assert catalog.verify("job", 2) == record
    assert record.new_bytes == 0 < size


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/etc/passwd", "is absolute"),
        ("out/../../../../etc/passwd", "leads out of the snapshot"),
        ("out//typed", "leads out of the snapshot"),
    ],
)
def test_manifest_that_leads_out(
    catalog: SnapshotCatalog, job: FakeJob, path: str, says: str, tmp_path: Path
) -> None:
    """Paths in a manifest are relative and stay inside (R5)."""
    catalog.create("job")
    rewrite(catalog, "out/typed/table.parquet", path)

    with pytest.raises(DamagedSnapshot, match=says):
        catalog.restore(folders.snapshot(job.storage, "job", 1), as_job="new")


def test_manifest_of_a_newer_version(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Refused by name, never guessed."""
    catalog.create("job")
    path = folders.snapshot(job.storage, "job", 1) / "manifest.json"
    path.write_text(path.read_text().replace("manifest/1", "manifest/9"))

    with pytest.raises(UnsupportedVersion, match="version 9"):
        catalog.verify("job", 1)


def test_names(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A name is used once, and cannot be taken for a number."""
    catalog.create("job", name="mine")

    for name in ("mine", "7", "a/b", ""):
        with pytest.raises(InvalidInput):
            catalog.create("job", name=name)
    assert len(catalog.list("job")) == 1
    assert folders.whole(job.storage, "job") == {1}


def test_unknown(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Jobs, snapshots and stages that do not exist."""
    with pytest.raises(NoSuchJob):
        catalog.create("another")
    with pytest.raises(NoSuchSnapshot):
        catalog.verify("job", 7)
    with pytest.raises(NoSuchSnapshot):
        catalog.delete("job", "mine")
    with pytest.raises(InvalidInput, match="no streaming stage"):
        catalog.create("job", batches={"daily": 1})
    assert not (job.storage.folder("another")).exists()


def test_older_batch_of_a_finished_stage(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Its mark says that it has all its rows: nobody would ever make the rest."""
    job.record(keys.stage("job", "hourly"), StageRecord("job", "hourly", None, 1, 3, 0.1, 1.0))

    with pytest.raises(InvalidInput, match="'hourly' of job 'job' has finished"):
        catalog.create("job", batches={"hourly": 1})
    assert catalog.create("job").number == 1


def test_output_that_is_a_link(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A link in the output would not be the output any more elsewhere."""
    (job.out("typed") / "link").symlink_to("/etc/passwd")

    with pytest.raises(InvalidInput, match="is a link"):
        catalog.create("job")
    assert catalog.create("job", output=False)


@pytest.mark.parametrize("masters", ["jobs", "alias"])
def test_storage_under_another_path(memory: FaultyMemory, tmp_path: Path, masters: str) -> None:
    """Spark's logs have the masters' path to it, and a restore as another job looks for that: the
    snapshot names it, whichever path its caller has."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "jobs")
    job = FakeJob(memory, JobStorage(tmp_path / masters, CLUSTER))
    job.query.run(3)
    (operators,) = {"jobs", "alias"} - {masters}

    for number, place in enumerate((tmp_path / operators, tmp_path / masters), 1):
        catalog = SnapshotCatalog(memory, JobStorage(place, CLUSTER))
        assert catalog.create("job").number == number
        assert Path(catalog.manifest("job", number).root) == job.storage.folder("job")


def test_job_that_lost_state(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A job that could not be restarted has no snapshot either; nothing is left of the try."""
    (job.query.ck / "state/0/1/5.changelog").unlink()

    with pytest.raises(CorruptRecord, match="5"):
        catalog.create("job")
    assert catalog.list("job") == []
    assert not list(find_orphans(catalog.backend, job.storage))
    assert catalog.create("job", batches={"hourly": 3})


@pytest.mark.parametrize("log", ["streams", "out"])
def test_log_that_is_no_text(catalog: SnapshotCatalog, job: FakeJob, log: str) -> None:
    """A log that a disk has garbled is named."""
    path = job.query.ck / "commits/4" if log == "streams" else job.out("hourly/_spark_metadata/4")
    path.write_bytes(b"v1\n\xff\xfe")

    with pytest.raises(CorruptRecord, match=f"{path}: not a text"):
        catalog.create("job")


@pytest.mark.parametrize(
    ("log", "text"), [("4", ""), ("4", None), ("3.compact", ""), ("3.compact", "\0\0\0\0")]
)
def test_lost_log_of_a_sink(
    catalog: SnapshotCatalog, job: FakeJob, log: str, text: str | None
) -> None:
    """Spark does not sync it: after a power cut an entry may be empty, or missing."""
    path = job.out("hourly") / "_spark_metadata" / log
    path.unlink()
    if text is not None:
        put(path, text)

    with pytest.raises(CorruptRecord, match=str(path)):
        catalog.create("job")


def test_disk_that_fails(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be read now may be read later."""

    def fail(folder: Path) -> list[int]:
        raise OSError(errno.EIO, "Input/output error", str(folder))

    monkeypatch.setattr(checkpoint, "batches", fail)

    with pytest.raises(Unavailable, match=r"the snapshot of job 'job' failed.*Input/output error"):
        catalog.create("job")


# -- while the job runs --------------------------------------------------------------------


def test_maintenance_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is removed while a snapshot is taken makes it begin again, with the newer batch."""
    select = checkpoint.select
    calls = []

    def removed(folder: Path, batch: int | None = None) -> checkpoint.Checkpoint:
        found = select(folder, batch)
        calls.append(batch)
        if len(calls) == 1:
            job.run(4)
            for name in found.files:
                if "/3.changelog" in name or "/4.changelog" in name:
                    (folder / name).unlink()
        return found

    monkeypatch.setattr(checkpoint, "select", removed)

    record = catalog.create("job")

    assert calls == [4, 8]
    assert record.stages[0].batch == 8
    assert catalog.verify("job", 1)


def test_stage_that_finishes_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch, memory: FaultyMemory
) -> None:
    """Records that change while a snapshot is taken make it begin again."""
    from jrs.records.model import StageRecord

    gather = contents.gather

    def finishing(*args: Any, **how: Any) -> contents.Contents:
        found = gather(*args, **how)
        if memory.get(keys.stage("job", "late")) is None:
            job.record(keys.stage("job", "late"), StageRecord("job", "late", None, 1, 3, 0.1, 11.0))
        return found

    monkeypatch.setattr(contents, "gather", finishing)

    catalog.create("job")

    assert "stages/late" in catalog.manifest("job", 1).records


@pytest.mark.parametrize(
    ("module", "step"), [(contents, "_streams"), (contents, "_pin"), (create, "_fill")]
)
def test_taken_over_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch, module: ModuleType,
    step: str,
) -> None:  # fmt: skip
    """A newer leader's epoch begins while a snapshot is taken: it begins again, there."""
    real = getattr(module, step)

    def taken_over(*args: Any) -> object:
        if job.epoch.is_dir():
            job.storage.take_over("job", 9)
        return real(*args)

    monkeypatch.setattr(module, step, taken_over)

    record = catalog.create("job")

    assert [(stage.name, stage.batch) for stage in record.stages] == [("hourly", 4)]
    paths = {file.path for file in catalog.manifest("job", 1).files}
    assert {"streams/hourly/ck/commits/4", "out/hourly/part-00004.parquet"} <= paths


def test_lost_checkpoint_of_what_was_published(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A stage without a checkpoint has not begun; unless there is output of it."""
    shutil.rmtree(job.query.ck.parent)
    with pytest.raises(CorruptRecord, match="hourly/ck is missing"):
        catalog.create("job")

    shutil.rmtree(job.out("hourly"))
    assert catalog.create("job").stages == ()


def test_many_at_once(catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory) -> None:
    """Each gets a number of its own."""
    failures: list[BaseException] = []

    def take() -> None:
        try:
            SnapshotCatalog(memory, job.storage).create("job", format=SnapshotFormat.CAS)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert [record.number for record in catalog.list("job")] == [1, 2, 3, 4, 5, 6]
    for record in catalog.list("job"):
        assert catalog.verify("job", record.number)
    assert not list(find_orphans(memory, job.storage))


# -- faults --------------------------------------------------------------------------------


def test_fenced(catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory) -> None:
    """A leader that was replaced lists nothing, and deletes nothing."""
    old = memory.campaign("old", ttl=10.0, stop=threading.Event())
    assert old is not None
    catalog.create("job", fence=old.fence)
    catalog.create("job", fence=old.fence)
    old.resign()
    assert memory.campaign("new", ttl=10.0, stop=threading.Event())

    with pytest.raises(Fenced):
        catalog.create("job", fence=old.fence)
    with pytest.raises(Fenced):
        catalog.delete("job", 1, fence=old.fence)
    assert len(catalog.list("job")) == 2
    assert folders.whole(job.storage, "job") == {1, 2}


def test_replaced_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit decides: what was put together by a leader that lost is removed."""
    old = memory.campaign("old", ttl=10.0, stop=threading.Event())
    assert old is not None
    rename = os.rename

    def replaced(source: Path, target: Path) -> None:
        rename(source, target)
        if Path(target).name == "1":
            old.resign()
            assert memory.campaign("new", ttl=10.0, stop=threading.Event())

    monkeypatch.setattr(os, "rename", replaced)

    with pytest.raises(Fenced):
        catalog.create("job", fence=old.fence)
    assert catalog.list("job") == []
    assert folders.whole(job.storage, "job") == set()


def test_a4_restored_before_it_is_listed(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot of batches that were taken back would be the newest: the one that a leader
    restores by itself."""
    catalog.create("job")
    job.run(2)
    job.suspend()
    finish = create.finish

    def restored(*args: Any) -> Any:
        catalog.restore(catalog.get("job", 1))
        return finish(*args)

    with monkeypatch.context() as patch, pytest.raises(Unavailable, match="was restored while"):
        patch.setattr(create, "finish", restored)
        catalog.create("job")

    assert [record.number for record in catalog.list("job")] == [1]
    assert folders.whole(job.storage, "job") == {1}
    assert catalog.create("job").stages == catalog.get("job", 1).stages


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
@pytest.mark.parametrize("after", [False, True])
def test_backend_that_fails(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, error: type, after: bool
) -> None:
    """Listed exactly if the backend has the record; files that may be listed stay."""
    memory.fault(keys.SNAPSHOTS, error, after=after and error is OutcomeUnknown, times=1)

    if error is OutcomeUnknown and after:
        assert catalog.create("job").number == 1
        return
    with pytest.raises(error):
        catalog.create("job")
    assert catalog.list("job") == []
    orphans = list(find_orphans(memory, job.storage))
    assert len(orphans) == (1 if error is OutcomeUnknown else 0)
    catalog.create("job")
    for line in orphans:
        assert "snapshots/1: a snapshot that is not listed" in line
        catalog.delete("job", 1)
    assert not list(find_orphans(memory, job.storage))


@pytest.mark.parametrize("after", [False, True])
def test_interrupted_while_it_is_listed(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, after: bool
) -> None:
    """Ctrl-C ends the wait for the commit, and not the commit: the files stay. If it is not listed
    after all, `gc` removes them."""
    memory.fault(keys.SNAPSHOTS, KeyboardInterrupt, after=after, times=1)
    with pytest.raises(KeyboardInterrupt):
        catalog.create("job")

    assert len(catalog.list("job")) == after
    if after:
        catalog.verify("job", 1)
    collected = collect_garbage(SnapshotCatalog(memory, job.storage), 0, dry_run=False).removed
    unlisted = folders.snapshot(job.storage, "job", 1)
    assert [found.path for found in collected][:1] == ([] if after else [str(unlisted)])
    assert not list(find_orphans(memory, job.storage))


def test_interrupted_in_its_wait(
    storage: JobStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same by a signal, where a thread of the file backend writes and syncs the entry."""
    interrupted = threading.Event()
    sync = os.fdatasync

    def interrupt(*_: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    def sync_late(fd: int) -> None:
        sync(fd)
        is_being_listed = folders.snapshot(storage, "job", 1).is_dir()
        if is_being_listed and not interrupted.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert interrupted.wait(60)

    with FileBackend(tmp_path / "b", cluster=CLUSTER, create=True) as backend:
        FakeJob(backend, storage).run(5)
        catalog = SnapshotCatalog(backend, storage)
        monkeypatch.setattr(os, "fdatasync", sync_late)
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                catalog.create("job")
        finally:
            signal.signal(signal.SIGINT, before)
            monkeypatch.undo()
        catalog.verify("job", 1)


def test_record_without_files(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Named by fsck, passed over by recovery, deletable."""
    catalog.create("job")
    catalog.create("job")
    shutil.rmtree(folders.snapshot(job.storage, "job", 2))

    assert "is gone" in next(find_orphans(catalog.backend, job.storage))
    usable = catalog.newest_usable("job").record
    assert usable is not None
    assert usable.number == 1
    catalog.delete("job", 2)
    assert not list(find_orphans(catalog.backend, job.storage))


def test_taken_of_a_dead_job(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, elsewhere: FaultyMemory,
    storage: JobStorage,
) -> None:  # fmt: skip
    """Any process can take one from the folder of a job whose cluster is gone: no Spark, and no
    backend that knows the job (R6)."""
    record = SnapshotCatalog(elsewhere, storage).create("job")

    assert record.stages[0].batch == 4
    assert memory.get(keys.snapshot("job", 1)) is None


def test_number_of_a_folder_is_not_used_again(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """What is not listed, after the loss of a backend say, is never overwritten."""
    catalog.create("job")
    catalog.backend.commit(Delete(keys.snapshot("job", 1)))
    before = tree(files_of(catalog))

    assert catalog.create("job").number == 2
    assert tree(files_of(catalog)) == before


def test_the_order_of_the_jobs(memory: FaultyMemory, storage: JobStorage) -> None:
    """It is that of their ids, also where it is not that of their keys."""
    ids = ["a", "a-b", "a-b-c", "a.2", "a0", "a0-1", "b"]
    for job_id in reversed(ids):
        for number in (1, 2):
            key = f"{keys.snapshots(job_id)}{number:010}"
            memory.commit(Create(key, b"a record"))
    catalog = SnapshotCatalog(memory, storage)

    assert list(catalog.jobs()) == ids
    for at, after in enumerate(ids):
        assert list(catalog.jobs(after)) == ids[at + 1 :]
    assert list(catalog.jobs("a-a")) == ids[1:]


def test_a_page_of_jobs_whose_ids_begin_alike(
    memory: FaultyMemory, storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads no more records than a page of others."""
    ids = ["nightly-2026", *(f"nightly-2026-{number:03}" for number in range(200)), "nightly-2027"]
    for job_id in ids:
        memory.commit(Create(keys.snapshot(job_id, 1), b"a record"))
    real, read = memory.scan, list[str]()

    def scan(prefix: str, **how: Any) -> Iterator[Record]:
        for record in real(prefix, **how):
            read.append(record.key)
            yield record

    monkeypatch.setattr(memory, "scan", scan)
    catalog = SnapshotCatalog(memory, storage)
    page = list(itertools.islice(catalog.jobs(), 10))
    assert page == ids[:10]
    assert list(itertools.islice(catalog.jobs(page[-1]), 10)) == ids[10:20]

    assert len(read) <= 21
    assert list(catalog.jobs()) == ids
