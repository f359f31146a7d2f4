"""Moves by other names of a storage, and moves that were cut off: the last whole copy stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.contract.errors import (
    DamagedSnapshot,
    InvalidInput,
    SnapshotInUse,
    Unavailable,
    WrongState,
)
from jrs.contract.operations import Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.policies import SnapshotPolicy
from jrs.records.snapshots import SnapshotFormat, SnapshotRecord, TakenBy
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import SnapshotCatalog, delete, find_orphans, folders, move, prune
from jrs.recovery.snapshots.index import replace_entry
from tests.recovery.snapshots.fabricate import FakeJob, put, tree
from tests.recovery.snapshots.test_catalog import by_format, flip
from tests.recovery.support import CLUSTER, FaultyMemory


class Died(BaseException):
    """The process that moves is gone."""


def die(*_: object) -> None:
    raise Died


@pytest.fixture
def cut_off(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SnapshotRecord:
    """A snapshot that is listed where it was moved to, and was not deleted where it had been."""
    catalog.create("job")
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(move, "_drop_copy", die)
        catalog.move("job", 1, tmp_path / "far")
    record = catalog.get("job", 1)
    assert (record.storage, record.copy) == (str(tmp_path / "far"), str(tmp_path / "jobs"))
    return record


@by_format
@pytest.mark.parametrize("spelling", ["link", "parent"])
def test_another_name_of_where_it_is(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, spelling: str, how: SnapshotFormat
) -> None:
    """Refused, as by the name that the catalogue knows; the snapshot stays."""
    record = catalog.create("job", format=how)
    (tmp_path / "alias").symlink_to(tmp_path / "jobs")
    names = {"link": tmp_path / "alias", "parent": tmp_path / "jobs" / "test" / ".."}

    with pytest.raises(InvalidInput, match=r"is in .* already"):
        catalog.move("job", 1, names[spelling])
    assert catalog.verify("job", 1) == record


def test_another_name_of_its_folder(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    """Where the storage's name does not tell, the lock does: nothing is discarded."""
    record = catalog.create("job")
    (tmp_path / "far" / "test").mkdir(parents=True)
    (tmp_path / "far" / "test" / "job").symlink_to(job.storage.folder("job"))

    with pytest.raises((InvalidInput, SnapshotInUse)):
        catalog.move("job", 1, tmp_path / "far")
    assert catalog.verify("job", 1) == record


def test_back_by_another_name(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    """The catalogue has one name for the cluster's own storage, so fsck knows whose the folder
    is."""
    first = catalog.create("job")
    (tmp_path / "alias").symlink_to(tmp_path / "jobs")
    catalog.move("job", 1, tmp_path / "far")

    assert catalog.move("job", 1, tmp_path / "alias") == first
    assert catalog.verify("job", 1)
    assert not list(find_orphans(catalog.backend, job.storage))


@pytest.mark.parametrize("to", ["far", "third"])
def test_repeated_without_the_new_storage(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, cut_off: SnapshotRecord, to: str
) -> None:
    """A copy is the last one while the place that is listed is not mounted: it is kept, and the
    error says how to continue."""
    os.rename(tmp_path / "far", tmp_path / "unplugged")

    with pytest.raises(Unavailable, match=f"jrs snapshot move job 1 {tmp_path / 'jobs'}"):
        catalog.move("job", 1, tmp_path / to)
    assert folders.whole(job.storage, "job") == {1}
    os.rename(tmp_path / "unplugged", tmp_path / "far")
    moved = catalog.move("job", 1, tmp_path / to)
    assert (moved.storage, moved.copy) == (str(tmp_path / to), None)
    assert catalog.verify("job", 1)


def test_repeated_with_damage_in_the_new_storage(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, cut_off: SnapshotRecord
) -> None:
    """Every byte of what stays is compared before the copy goes."""
    files = tmp_path / "far" / "test" / "job" / "snapshots" / "1" / "files"
    flip(files / "out" / "typed" / "table.parquet")

    with pytest.raises(DamagedSnapshot, match="has changed"):
        catalog.move("job", 1, tmp_path / "far")
    back = catalog.move("job", 1, tmp_path / "jobs")
    assert (back.storage, back.copy) == (None, None)
    assert catalog.verify("job", 1)
    assert not (files.parent).exists()


@pytest.fixture
def copied(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SnapshotRecord:
    """A snapshot whose move was cut off when all was copied, before the entry was swapped."""
    real = replace_entry

    def die_at_the_swap(*args: Any, **changes: Any) -> SnapshotRecord:
        if "storage" in changes:
            raise Died
        return real(*args, **changes)

    catalog.create("job")
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(move, "replace_entry", die_at_the_swap)
        patch.setattr(move, "_drop_copy", lambda *_: None)
        catalog.move("job", 1, tmp_path / "far")
    record = catalog.get("job", 1)
    assert (record.storage, record.copy) == (None, str(tmp_path / "far"))
    return record


@pytest.mark.parametrize("after", [False, True])
def test_interrupted_while_the_copy_is_listed(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, after: bool,
) -> None:  # fmt: skip
    """Ctrl-C ends the wait for the commit, and not the commit: both places stay, and a repeat
    completes the move."""
    catalog.create("job")
    here, far, swap = tmp_path / "jobs", tmp_path / "far", move._swap

    def interrupted(*args: Any) -> SnapshotRecord:
        memory.fault(keys.SNAPSHOTS, KeyboardInterrupt, after=after, times=1)
        return swap(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(move, "_swap", interrupted)
        catalog.move("job", 1, far)
    record = catalog.verify("job", 1)
    assert (record.storage, record.copy) == ((str(far), str(here)) if after else (None, str(far)))
    assert all(list(place.rglob("manifest.json")) for place in (here, far))

    assert catalog.move("job", 1, far).copy is None
    assert catalog.verify("job", 1).storage == str(far)
    assert not list(find_orphans(catalog.backend, job.storage))


def test_listed_by_another_process_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move that fails does not delete the copy that another one of it has listed."""
    catalog.create("job")
    swap = move._swap

    def slower(*args: Any) -> SnapshotRecord:
        swap(*args)
        return swap(*args)

    monkeypatch.setattr(move, "_swap", slower)
    with pytest.raises(WrongState, match="just moved or converted by another process"):
        catalog.move("job", 1, tmp_path / "far")
    assert catalog.verify("job", 1).storage == str(tmp_path / "far")


def test_ended_by_another_process(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move succeeds whose last step a repeat of it has done meanwhile."""
    catalog.create("job")
    far, drop = tmp_path / "far", move._drop_copy

    def ended_before(*args: Any) -> SnapshotRecord:
        monkeypatch.setattr(move, "_drop_copy", drop)
        catalog.move("job", 1, far)
        return drop(*args)

    monkeypatch.setattr(move, "_drop_copy", ended_before)
    moved = catalog.move("job", 1, far)
    assert (moved.storage, moved.copy) == (str(far), None)
    assert catalog.verify("job", 1) == moved


def test_listed_by_another_process_before_the_copy_goes(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that happens just before the files of the failed move are removed."""
    catalog.create("job")
    far, swap, discard = tmp_path / "far", move._swap, delete.discard

    def moved_before(*args: Any) -> None:
        monkeypatch.setattr(delete, "discard", discard)
        with pytest.raises(SnapshotInUse):  # This one still holds the old place.
            catalog.move("job", 1, far)
        discard(*args)

    def failing(*_: Any) -> None:
        monkeypatch.setattr(move, "_swap", swap)
        monkeypatch.setattr(delete, "discard", moved_before)
        raise Unavailable("the backend is away")

    monkeypatch.setattr(move, "_swap", failing)
    with pytest.raises(Unavailable, match="the backend is away"):
        catalog.move("job", 1, far)
    assert catalog.verify("job", 1).storage == str(far)


def test_continues_with_a_whole_copy(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, copied: SnapshotRecord
) -> None:
    """Before the entry was swapped the copy may be the only whole one, too."""
    put(folders.snapshot(job.storage, "job", 1) / "files/out/typed/table.parquet", "lost")

    catalog.move("job", 1, tmp_path / "far")

    assert catalog.verify("job", 1).storage == str(tmp_path / "far")
    assert folders.whole(job.storage, "job") == set()


def test_not_repeated_into_the_place_of_a_mount(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, copied: SnapshotRecord
) -> None:
    """A mount point that is empty now would hide the copy, and then be hidden itself."""
    os.rename(tmp_path / "far", tmp_path / "unplugged")
    (tmp_path / "far").mkdir()

    with pytest.raises(Unavailable, match=r"is missing.*mount it"):
        catalog.move("job", 1, tmp_path / "far")
    assert catalog.verify("job", 1) == copied
    assert not list((tmp_path / "far").iterdir())


def test_damaged_blob_in_the_new_storage(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path
) -> None:
    """Replaced by what is moved there, for both snapshots that share it."""
    for _ in range(2):
        catalog.create("job", format=SnapshotFormat.CAS)
    catalog.move("job", 1, tmp_path / "far")
    blobs = tmp_path / "far" / "test" / ".blobs"
    for name in tree(blobs):
        flip(blobs / name)

    catalog.move("job", 2, tmp_path / "far")

    assert catalog.verify("job", 1)
    assert catalog.verify("job", 2)


# -- a storage that another cluster uses, too ----------------------------------------------


@pytest.fixture
def theirs(elsewhere: FaultyMemory, tmp_path: Path) -> SnapshotCatalog:
    """The catalogue of another cluster, whose job of the same id has a snapshot 1."""
    storage = JobStorage(tmp_path / "theirs", CLUSTER)
    FakeJob(elsewhere, storage).run(5)
    catalog = SnapshotCatalog(elsewhere, storage)
    catalog.create("job")
    return catalog


def test_place_of_one_that_was_converted(
    catalog: SnapshotCatalog, job: FakeJob, theirs: SnapshotCatalog, tmp_path: Path
) -> None:
    """A snapshot of another cluster is seen, and stays, also where its folder has another name."""
    theirs.move("job", 1, tmp_path / "far")
    converted = theirs.convert("job", 1, SnapshotFormat.FULL)
    record = catalog.create("job")

    with pytest.raises(InvalidInput, match="is another snapshot"):
        catalog.move("job", 1, tmp_path / "far")
    assert theirs.verify("job", 1) == converted
    assert catalog.verify("job", 1) == record


@pytest.mark.parametrize("what", ["delete", "move", "repeat"])
def test_place_that_was_taken_since(
    catalog: SnapshotCatalog, job: FakeJob, theirs: SnapshotCatalog, tmp_path: Path, what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Behind a move that was cut off, what another cluster has moved to that place stays."""
    catalog.create("job")
    catalog.create("job")
    with monkeypatch.context() as patch, pytest.raises(Died):
        for name in ("_copy_to", "_drop_copy"):
            patch.setattr(move, name, die)
        catalog.move("job", 1, tmp_path / "far")
    assert catalog.get("job", 1).copy == str(tmp_path / "far")
    moved = theirs.move("job", 1, tmp_path / "far")

    if what == "delete":
        catalog.delete("job", 1)
    elif what == "move":
        assert catalog.move("job", 1, tmp_path / "third").copy is None
    else:
        with pytest.raises(InvalidInput, match="is another snapshot"):
            catalog.move("job", 1, tmp_path / "far")
    assert theirs.verify("job", 1) == moved


def test_place_that_is_taken_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, theirs: SnapshotCatalog, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of two clusters that move to one place at once, one is refused."""
    record = catalog.create("job")
    real = move._check_free

    def slower(*args: Any) -> None:
        real(*args)
        monkeypatch.undo()
        theirs.move("job", 1, tmp_path / "far")

    monkeypatch.setattr(move, "_check_free", slower)

    with pytest.raises(InvalidInput, match="is another snapshot"):
        catalog.move("job", 1, tmp_path / "far")
    assert theirs.verify("job", 1).storage == str(tmp_path / "far")
    assert catalog.verify("job", 1) == record


@pytest.mark.parametrize("what", ["delete", "move"])
def test_former_format_elsewhere(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, what: str
) -> None:
    """What a conversion has left in another storage goes with the snapshot."""
    catalog.create("job")
    catalog.create("job")
    catalog.move("job", 1, tmp_path / "far")
    there = JobStorage(tmp_path / "far", CLUSTER)
    with folders.locked(folders.snapshot(there, "job", 1), shared=True):
        with pytest.raises(SnapshotInUse, match="is being read"):
            catalog.convert("job", 1, SnapshotFormat.FULL)

    if what == "delete":
        catalog.delete("job", 1)
    else:
        catalog.move("job", 1, tmp_path / "jobs")
        assert catalog.verify("job", 1)
    assert tree(tmp_path / "far") == {}


# -- deleting what was moved ---------------------------------------------------------------


@pytest.fixture
def unplugged(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> Path:
    """Two snapshots, the first of which was moved to a storage that is not mounted now."""
    for _ in range(2):
        catalog.create("job")
    catalog.move("job", 1, tmp_path / "far")
    os.rename(tmp_path / "far", tmp_path / "unplugged")
    return tmp_path / "unplugged"


@pytest.mark.parametrize("mount_point", [False, True])
def test_not_deleted_while_its_storage_is_away(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, unplugged: Path, mount_point: bool
) -> None:
    """Its files would have no owner that fsck knows of: it stays listed until they can go."""
    if mount_point:
        (tmp_path / "far").mkdir()

    with pytest.raises(Unavailable, match=f"{tmp_path / 'far' / 'test'} is missing.*mount it"):
        catalog.delete("job", 1)
    assert catalog.get("job", 1)
    if mount_point:
        (tmp_path / "far").rmdir()
    os.rename(unplugged, tmp_path / "far")
    catalog.delete("job", 1)
    assert not list((tmp_path / "far" / "test").glob("job/snapshots/*"))


def test_deleted_with_a_storage_that_is_lost(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, unplugged: Path
) -> None:
    """An operator says so by an empty folder in its place."""
    (tmp_path / "far" / "test").mkdir(parents=True)

    catalog.delete("job", 1)

    assert [record.number for record in catalog.list("job")] == [2]


def test_retention_continues_behind_one_that_is_away(
    catalog: SnapshotCatalog, job: FakeJob, unplugged: Path
) -> None:
    """The others are deleted, and it is said why one was not."""
    catalog.create("job")
    for stored in list(catalog.backend.scan(keys.snapshots("job"))):
        record = decode(SnapshotRecord, stored.value, stored.key)
        systems = encode(attrs.evolve(record, taken_by=TakenBy.SYSTEM))
        catalog.backend.commit(Update(stored.key, systems, stored.version))

    with pytest.raises(Unavailable, match="is missing"):
        prune(catalog, "job", SnapshotPolicy(keep=1))
    assert [record.number for record in catalog.list("job")] == [1, 3]


def test_back_from_a_storage_that_is_lost(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, cut_off: SnapshotRecord
) -> None:
    """The whole copy is listed at once; what is left of the move is named until it can go."""
    os.rename(tmp_path / "far", tmp_path / "unplugged")

    with pytest.raises(Unavailable, match="is missing"):
        catalog.move("job", 1, tmp_path / "jobs")
    assert catalog.verify("job", 1).storage is None
    assert "a move was interrupted" in next(find_orphans(catalog.backend, job.storage))
    os.rename(tmp_path / "unplugged", tmp_path / "far")
    assert catalog.move("job", 1, tmp_path / "jobs").copy is None
    assert not list((tmp_path / "far" / "test").glob("job/snapshots/*"))


def test_deletion_that_was_decided_before_a_move(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path
) -> None:
    """Goes by where it is, not by where it was."""
    record = catalog.create("job")
    catalog.move("job", 1, tmp_path / "far")

    catalog.remove(record)

    assert catalog.list("job") == []
    assert not list((tmp_path / "far" / "test").glob("job/snapshots/*"))


def test_deletion_while_a_move_ends(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry goes only as it was when the folders were found: else they are searched again."""
    record = catalog.create("job")
    check, far = delete.check_no_source, tmp_path / "far" / "test"
    found: list[int] = []

    def moving_meanwhile(*args: Any) -> None:
        check(*args)
        if not found:
            catalog.move("job", 1, tmp_path / "far")
        found.append(len(list(far.glob("job/snapshots/*"))))

    monkeypatch.setattr(delete, "check_no_source", moving_meanwhile)

    catalog.remove(record)

    assert found == [1, 1]
    assert catalog.list("job") == []
    assert not list(far.glob("job/snapshots/*"))


def test_deletion_of_one_whose_number_is_used_again(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Another snapshot of the number stays."""
    record = catalog.create("job")
    catalog.remove(record)
    other = catalog.create("job")
    assert other.number == record.number

    catalog.remove(record)

    assert catalog.verify("job", 1) == other
