"""Moving and exporting snapshots, and a disk that is full in the middle."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.contract.errors import DamagedSnapshot, InvalidInput, SnapshotInUse, Unavailable
from jrs.contract.operations import Create, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import JobSpec, JobStatus
from jrs.records.policies import Keep, SnapshotPolicy
from jrs.records.snapshots import SnapshotFormat, TakenBy
from jrs.recovery.cleanup.garbage import collect_garbage
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.cleanup.snapshots import Snapshots
from jrs.recovery.files import transfer
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import SnapshotCatalog, find_orphans, folders, prune
from jrs.store.result_store import JobResultStore
from tests.crash.test_disk_full import SIZE, disk
from tests.recovery.snapshots.fabricate import FakeJob, put, tree
from tests.recovery.snapshots.test_catalog import by_format
from tests.recovery.support import CLUSTER, FaultyMemory, result
from tests.small_disk import free

__all__ = ["disk"]


@by_format
def test_moved(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, how: SnapshotFormat) -> None:
    """MOVE copies, verifies, swaps the entry and deletes; the snapshot is what it was (N3)."""
    first = catalog.create("job", format=how)

    moved = catalog.move("job", 1, tmp_path / "far")

    assert moved.storage == str(tmp_path / "far")
    assert (moved.manifest, moved.copy) == (first.manifest, None)
    assert catalog.verify("job", 1) == moved
    assert folders.whole(job.storage, "job") == set()
    assert tree(job.storage.root / ".blobs") == {}
    assert catalog.restore(moved, as_job="new").stages == first.stages
    back = catalog.move("job", 1, job.storage.root.parent)
    assert back == first
    assert catalog.verify("job", 1)
    assert not list(find_orphans(catalog.backend, job.storage))
    catalog.create("job")
    catalog.delete("job", 1)


def test_moved_and_deleted(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    """Wherever it is, it is deleted through the catalogue."""
    catalog.create("job", format=SnapshotFormat.CAS)
    catalog.create("job")
    catalog.move("job", 1, tmp_path / "far")

    catalog.delete("job", 1)

    assert [name for name in tree(tmp_path / "far") if "trash" not in name] == []


def test_moved_to_what_is_not_mounted(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path
) -> None:
    """A snapshot that nobody can look at now is no damaged one: an older one is not taken for it.
    What was lost for good can be told so."""
    for _ in range(2):
        catalog.create("job")
    catalog.move("job", 2, tmp_path / "far")
    (tmp_path / "far").rename(tmp_path / "away")

    with pytest.raises(Unavailable, match=f"{tmp_path}/far.*; mount the missing storage"):
        catalog.newest_usable("job")
    (said,) = find_orphans(catalog.backend, job.storage)
    assert "is missing: mount it" in said
    assert "delete" not in said
    assert catalog.create("job").parent == 1
    catalog.remove(catalog.get("job", 3))

    (tmp_path / "away").rename(tmp_path / "far")
    assert catalog.newest_usable("job").record == catalog.get("job", 2)
    shutil.rmtree(tmp_path / "far" / CLUSTER / "job")
    assert catalog.newest_usable("job").record == catalog.get("job", 1)


def test_moved_where_it_is(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Refused; nothing happens."""
    catalog.create("job")

    with pytest.raises(InvalidInput, match=r"is in .* already"):
        catalog.move("job", 1, job.storage.root.parent)


def test_place_of_another(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    """Another cluster's snapshot of the same number is never overwritten."""
    catalog.create("job")
    put(tmp_path / "far" / "test" / "job" / "snapshots" / "1" / "manifest.json", "another's")

    with pytest.raises(InvalidInput, match="is another snapshot"):
        catalog.move("job", 1, tmp_path / "far")
    assert catalog.get("job", 1).copy is None


def test_damaged_is_not_moved(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    """Nor exported: the copy is removed, the original stays, to be looked at."""
    catalog.create("job", format=SnapshotFormat.FULL)
    table = folders.snapshot(job.storage, "job", 1) / "files/out/typed/table.parquet"
    put(table, "damaged!!!")

    with pytest.raises(DamagedSnapshot):
        catalog.move("job", 1, tmp_path / "far")
    with pytest.raises(DamagedSnapshot):
        catalog.export("job", 1, tmp_path / "out")
    assert table.exists()
    assert tree(tmp_path / "far") == {}
    assert not (tmp_path / "out").exists()
    assert catalog.get("job", 1).copy is None


@pytest.mark.parametrize("what", ["create", "move", "export", "restore"])
@by_format
def test_disk_full(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, what: str, how: SnapshotFormat,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A disk that is full in the middle: a typed error, nothing changed, the copy removed."""
    record = catalog.create("job", format=how)
    job.run(1)
    before = tree(job.storage.root)
    calls = []

    def full(method: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any) -> Any:
            calls.append(args)
            if len(calls) == 5:
                raise OSError(errno.ENOSPC, "No space left on device")
            return method(*args)

        return wrapper

    monkeypatch.setattr(transfer, "copy", full(transfer.copy))
    monkeypatch.setattr(transfer, "link_or_copy", full(transfer.link_or_copy))

    with pytest.raises(Unavailable, match="No space left"):
        if what == "create":
            catalog.create("job", format=how)
        elif what == "move":
            catalog.move("job", 1, tmp_path / "far")
        elif what == "export":
            catalog.export("job", 1, tmp_path / "out")
        else:
            catalog.restore(record, as_job="new")
    after = {name: data for name, data in tree(job.storage.root).items() if ".blobs" not in name}
    assert after == {name: data for name, data in before.items() if ".blobs" not in name}
    assert catalog.list("job") == [record]
    assert tree(tmp_path / "far") == {}
    assert not (tmp_path / "out").exists()
    assert catalog.verify("job", 1)


def test_disk_full_at_the_note_of_a_moved_snapshot(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the note would find its files: a deletion is refused, and pruning continues with
    the others. A claim says that the job is held, and a repeat completes it."""
    far = [catalog.create("job", taken_by=TakenBy.SYSTEM) for _ in range(3)]
    far[0] = catalog.move("job", 1, tmp_path / "far")
    write = transfer.write

    def full(path: Path, data: bytes) -> None:
        if path.parent.name == ".doomed":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, data)

    with monkeypatch.context() as cut:
        cut.setattr(transfer, "write", full)
        for refused in (
            lambda: catalog.delete("job", 1),
            lambda: prune(catalog, "job", SnapshotPolicy(keep=1)),
        ):
            with pytest.raises(Unavailable, match="No space left"):
                refused()
        assert catalog.list("job") == [far[0], far[2]]
        assert catalog.verify("job", 1) == far[0]
        with pytest.raises(Unavailable, match=r"No space left.*held.*restore --finish new"):
            catalog.restore(far[0], as_job="new", claim=True)
    assert catalog.pending_restore("new") is not None
    assert any(
        "restore --finish new" in line for line in find_orphans(catalog.backend, job.storage)
    )

    assert catalog.finish_restore("new").job_id == "new"
    assert catalog.pending_restore("new") is None
    assert catalog.list("job") == [far[2]]
    assert tree(tmp_path / "far" / "test" / "job") == {}
    assert not list(find_orphans(catalog.backend, job.storage))


def test_a_claim_that_cannot_remove_the_files_yet(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is restored, so there is nothing to repeat: a collection removes the files."""
    catalog.create("job")
    far, discard = catalog.move("job", 1, tmp_path / "far"), JobStorage.discard

    def away(storage: JobStorage, job_id: str, path: Path) -> None:
        if storage.root.is_relative_to(tmp_path / "far"):
            raise Unavailable("the other storage is away")
        discard(storage, job_id, path)

    with monkeypatch.context() as cut:
        cut.setattr(JobStorage, "discard", away)
        assert catalog.restore(far, as_job="new", claim=True).job_id == "new"
    assert catalog.list("job") == []
    assert tree(tmp_path / "far" / "test" / "job")

    collect_garbage(SnapshotCatalog(catalog.backend, job.storage), 0.0, dry_run=False)
    assert tree(tmp_path / "far" / "test" / "job") == {}
    assert not list(find_orphans(catalog.backend, job.storage))


@by_format
def test_another_filesystem(
    catalog: SnapshotCatalog, job: FakeJob, disk: Path, how: SnapshotFormat
) -> None:
    """Where nothing can be linked, everything is copied: out, and back into another job (S8)."""
    stages = catalog.create("job", format=how).stages

    moved = catalog.move("job", 1, disk / "far")

    assert catalog.restore(moved, as_job="new").stages == stages
    assert catalog.verify("job", 1) == moved
    catalog.export("job", 1, disk / "out")
    assert catalog.restore(disk / "out", as_job="newer").stages == stages


@by_format
def test_disk_that_is_full(
    catalog: SnapshotCatalog, job: FakeJob, disk: Path, how: SnapshotFormat
) -> None:
    """The copy is removed, so that the disk is as it was; the snapshot stays where it is."""
    put(job.out("typed") / "large", b"x" * (2 * SIZE))
    record = catalog.create("job", format=how)
    before = free(disk)

    with pytest.raises(Unavailable, match="No space left"):
        catalog.move("job", 1, disk)
    with pytest.raises(Unavailable, match="No space left"):
        catalog.export("job", 1, disk / "out")
    assert catalog.verify("job", 1) == record
    assert [name for name in tree(disk) if "manifest" in name] == []
    assert before - free(disk) < SIZE // 10
    assert not list(find_orphans(catalog.backend, job.storage))


def test_export_refuses(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    """A folder that exists, or a parent that does not."""
    catalog.create("job")

    with pytest.raises(InvalidInput, match="exists already"):
        catalog.export("job", 1, tmp_path)
    with pytest.raises(InvalidInput, match="is not a folder"):
        catalog.export("job", 1, tmp_path / "no" / "where")


SYSTEM, USER = TakenBy.SYSTEM, TakenBy.USER


# -- retention -----------------------------------------------------------------------------


def numbers(catalog: SnapshotCatalog) -> list[int]:
    return [record.number for record in catalog.list("job")]


def test_keep_the_newest(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """U10: of those that the system took, as many as the policy says; users' own all stay."""
    for who in (SYSTEM, USER, SYSTEM, SYSTEM, SYSTEM):
        catalog.create("job", taken_by=who)

    gone = prune(catalog, "job", SnapshotPolicy(keep=2))

    assert [record.number for record in gone] == [1, 3]
    assert numbers(catalog) == [2, 4, 5]
    assert prune(catalog, "job", SnapshotPolicy(keep=2)) == []


def test_keep_the_young(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """By age; but never the last that the job could resume from."""
    for _ in range(3):
        catalog.create("job", taken_by=SYSTEM)

    prune(catalog, "job", SnapshotPolicy(max_age=0))

    assert numbers(catalog) == [3]


def test_keep_the_one_with_output(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """One without output is no substitute: a job that publishes on cannot resume from it."""
    catalog.create("job", taken_by=SYSTEM)
    catalog.create("job", output=False)

    assert prune(catalog, "job", SnapshotPolicy(max_age=0)) == []
    with pytest.raises(SnapshotInUse, match="is the newest that its job could resume from"):
        catalog.delete("job", 1)

    job.run(1)
    assert catalog.newest_usable("job").record == catalog.get("job", 1)
    catalog.create("job", output=False)
    catalog.delete("job", 2)  # It is replaced by one that lacks no more than it does.
    catalog.create("job", taken_by=SYSTEM)
    catalog.delete("job", 1)
    assert numbers(catalog) == [3, 4]


@pytest.mark.parametrize("policy", [{"keep": 0}, {"max_age": -1.0}, {"max_age": float("nan")}])
def test_no_policy(policy: dict[str, Any]) -> None:
    """What makes no sense is refused."""
    with pytest.raises(InvalidInput):
        SnapshotPolicy(**policy)


@pytest.mark.parametrize(
    ("status", "stay"),
    [(JobStatus.FINISHED, False), (JobStatus.FAILED, True), (JobStatus.CANCELED, True)],
)
def test_at_the_end(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, status: JobStatus, stay: bool
) -> None:
    """By default deleted with a job that finished, kept and listed otherwise, after it is clean:
    then with one of the job's end (U3)."""
    for how in (SnapshotFormat.LINK, SnapshotFormat.CAS):
        catalog.create("job", format=how, taken_by=SYSTEM)
    memory.commit(
        Create(keys.RESULTS + "job", encode(result("job", status=status))),
        Create(keys.DIRTY + "job", b"1"),
    )
    cleanup = JobCleanup(memory, default_resources(memory, job.storage))
    listed = cleanup.describe("job")["snapshots"]
    assert len(listed) == (0 if stay else 2)

    journal = cleanup.run("job", None)

    assert journal.problems == {}
    assert JobResultStore(memory).has_clean("job")
    assert numbers(catalog) == ([1, 2, 3] if stay else [])
    if stay:
        assert catalog.verify("job", 2)
        assert catalog.verify("job", 3).at_end
        for number in (3, 2, 1):
            catalog.delete("job", number)
    assert not folders.whole(job.storage, "job")
    assert tree(job.storage.root / ".blobs") == {}


@pytest.mark.parametrize(
    ("status", "policy", "stay"),
    [
        (JobStatus.FAILED, SnapshotPolicy(on_failed=Keep.DELETE), False),
        (JobStatus.CANCELED, SnapshotPolicy(on_canceled=Keep.DELETE), False),
        (JobStatus.FINISHED, SnapshotPolicy(on_finished=Keep.KEEP), True),
    ],
)
def test_what_its_spec_says_at_the_end(
    catalog: SnapshotCatalog,
    job: FakeJob,
    memory: FaultyMemory,
    status: JobStatus,
    policy: SnapshotPolicy,
    stay: bool,
) -> None:
    """The job's spec decides by how the job ended; when that is gone, nothing more is deleted."""
    stored = memory.get(keys.JOBS + "job")
    assert stored is not None
    told = attrs.evolve(decode(JobSpec, stored.value, stored.key), snapshots=policy)
    memory.commit(Update(stored.key, encode(told), stored.version))
    catalog.create("job", taken_by=SYSTEM)
    memory.commit(
        Create(keys.RESULTS + "job", encode(result("job", status=status))),
        Create(keys.DIRTY + "job", b"1"),
    )
    JobCleanup(memory, default_resources(memory, job.storage)).run("job", None)

    assert JobResultStore(memory).has_clean("job")
    assert numbers(catalog) == ([1, 2] if stay else [])
    Snapshots(memory, job.storage).clean("job")
    assert numbers(catalog) == ([1, 2] if stay else [])
