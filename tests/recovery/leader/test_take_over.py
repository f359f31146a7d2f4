"""Taking over a job's files: a new leader makes new folders, into which no old handle leads."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import Fenced, Unavailable
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import EpochRecord, StageRecord
from jrs.recovery.checkpoint_format import checkpoint
from jrs.recovery.checkpoint_format.links import link_checkpoint
from jrs.recovery.checkpoint_format.position import position
from jrs.recovery.files import epoch_folders, permissions, transfer
from jrs.recovery.files.epoch_folders import SINCE_FORMAT
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader import take_over as taking
from jrs.recovery.snapshots import SnapshotCatalog
from tests.recovery.snapshots.fabricate import FakeJob, FakeQuery, tree
from tests.recovery.support import CLUSTER, FaultyMemory

CK = "streams/hourly/ck"


@pytest.fixture
def storage(tmp_path: Path) -> JobStorage:
    return JobStorage(tmp_path / "jobs", CLUSTER)


def make(storage: JobStorage, epoch: int = 5) -> FakeQuery:
    """Make a job with a stream, a recorded and an unrecorded stage, and its temporary files."""
    folder = storage.take_over("job", epoch)
    query = FakeQuery(folder / CK, "changelog-v2", partitions=1).start().run(3)
    query.plan()
    for name in ("streams/hourly/staging", "done.1", "half.2", ".scratch.2"):
        (folder / name).mkdir(parents=True)
        (folder / name / "part").write_text(name)
    return query


def take_over(storage: JobStorage, epoch: int) -> Path:
    return storage.take_over("job", epoch, staged={"done.1"}, link_checkpoint=link_checkpoint)


def files(folder: Path) -> dict[str, str]:
    """Return the files below a folder, and their content."""
    return {
        str(path.relative_to(folder)): path.read_bytes().decode("latin-1")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def wanted(storage: JobStorage, epoch: int = 5) -> dict[str, str]:
    """Return the files that a successor has to find."""
    found = files(storage.folder("job") / f"e{epoch}")
    return {
        name: text
        for name, text in found.items()
        if not name.startswith(("half.2", ".scratch", "streams/hourly/staging"))
    }


class Zombie:
    """An attempt on another host: it names folders by handles, as the client of NFS does."""

    def __init__(self, epoch: Path, out: Path) -> None:
        with ExitStack() as stack:
            self.log, self.stream, self.streams, self.epoch, self.out = (
                self._open(path, stack)
                for path in (
                    *(epoch / name for name in (f"{CK}/offsets", "streams/hourly", "streams", ".")),
                    out,
                )
            )
            self._stack = stack.pop_all()

    @staticmethod
    def _open(path: Path, stack: ExitStack) -> int:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, handle)
        return handle

    def plan(self, batch: int) -> None:
        """Add to the log of its checkpoint."""
        os.close(os.open(str(batch), os.O_CREAT | os.O_WRONLY, dir_fd=self.log))

    def publish(self, batch: int) -> None:
        """Rename a staged batch into the stage's output."""
        os.mkdir(f"staging/batch={batch}", dir_fd=self.stream)
        os.rename(
            f"staging/batch={batch}", f"batch={batch}", src_dir_fd=self.stream, dst_dir_fd=self.out
        )

    def begin(self) -> Iterator[Callable[[], None]]:
        """Yield ways to begin a stage: this one again, another one, the first one."""
        yield lambda: os.mkdir("staging", dir_fd=self.stream)
        yield lambda: os.mkdir("another", dir_fd=self.streams)
        yield lambda: os.mkdir("streams", dir_fd=self.epoch)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def zombie(storage: JobStorage) -> Iterator[Zombie]:
    make(storage)
    out = storage.published("job", "hourly", temporary=False)
    out.mkdir(parents=True)
    zombie = Zombie(storage.folder("job") / "e5", out)
    yield zombie
    zombie.close()


def test_c1_no_handle_leads_into_the_new_folder(storage: JobStorage, zombie: Zombie) -> None:
    """C1: what a zombie does by handles that it has from before reaches neither the successor's
    checkpoint nor the stage's output."""
    zombie.plan(4)
    zombie.publish(1)
    expected = wanted(storage)
    new = take_over(storage, 6)
    with pytest.raises(FileNotFoundError):
        zombie.plan(5)
    with pytest.raises(FileNotFoundError):
        zombie.publish(2)

    out = storage.published("job", "hourly", temporary=False)
    assert files(new) == expected
    assert os.listdir(out) == ["batch=1"]


def test_c1_no_stage_is_begun_again(
    storage: JobStorage, zombie: Zombie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C1: a zombie that begins a stage finds no folder for its staging, even if what it was writing
    to cannot be deleted: it would publish from there."""
    remove = shutil.rmtree

    def but_trash(path: Path, **how: Any) -> None:
        if path.parent.name == ".trash":
            raise OSError(errno.ENOTEMPTY, "not empty")
        remove(path, **how)

    monkeypatch.setattr(shutil, "rmtree", but_trash)
    take_over(storage, 6)
    zombie.plan(5)
    for begin in zombie.begin():
        with pytest.raises(FileNotFoundError):
            begin()


def test_c1_a_stage_begun_meanwhile(
    storage: JobStorage, zombie: Zombie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C1: a zombie begins its stage again in the midst of a take-over: what it makes goes."""
    expected = wanted(storage)
    move, begun = os.rename, iter(zombie.begin())

    def and_begin(source: Path, target: Path) -> None:
        move(source, target)
        if source.name == "ck" and source.parent.name == "hourly":
            next(begun)()
            os.mkdir("ck", dir_fd=zombie.stream)

    monkeypatch.setattr(os, "rename", and_begin)
    assert files(take_over(storage, 6)) == expected
    with pytest.raises(FileNotFoundError):
        os.mkdir("staging", dir_fd=zombie.stream)


def test_c1_a_rename_alone_is_no_fence_for_handles(storage: JobStorage, zombie: Zombie) -> None:
    """C1: the trial above can fail: a renamed folder still takes what a handle's owner writes."""
    new = storage.take_over("job", 6)
    zombie.plan(5)
    zombie.publish(2)

    assert (new / CK / "offsets/5").exists()
    assert (storage.published("job", "hourly", temporary=False) / "batch=2").exists()


def test_what_a_successor_finds(storage: JobStorage) -> None:
    """The checkpoint and the recorded stage, as links; no staging, nothing temporary."""
    query = make(storage)
    old = storage.folder("job") / "e5"
    expected = wanted(storage)
    inodes = {name: (old / name).stat().st_ino for name in expected}
    new = take_over(storage, 6)

    assert new == storage.folder("job") / "e6"
    assert files(new) == expected
    assert {name: (new / name).stat().st_ino for name in expected} == inodes
    assert position(new / CK).planned == 3
    assert checkpoint.select(new / CK).batch == query.batch
    assert [path.name for path in storage.folder("job").iterdir() if path.is_dir()] == ["e6"]
    assert (storage.folder("job") / "e5").is_file()  # Spark cannot make it again.


def test_what_may_change_is_copied(storage: JobStorage) -> None:
    """What a source of the user's own keeps is copied, its links as links; half-written files and
    pipes are left out."""
    query = make(storage)
    for name in ("sources/0/cursor", "sources/0/7/shard", "commits/.4.tmp", "offsets/.4.crc"):
        (query.ck / name).parent.mkdir(parents=True, exist_ok=True)
        (query.ck / name).write_text(name)
    own = ("sources/0/cursor", "sources/0/7/shard")
    inodes = [(query.ck / name).stat().st_ino for name in own]
    links = {"sources/0/newest": "cursor", "sources/0/8": "7", "sources/0/lost": "nowhere"}
    for name, leads_to in links.items():
        (query.ck / name).symlink_to(leads_to)
    os.mkfifo(query.ck / "sources/0/pipe")
    new = take_over(storage, 6) / CK

    assert (new / "sources/0/cursor").read_text() == "sources/0/cursor"
    assert set(inodes).isdisjoint((new / name).stat().st_ino for name in own)
    assert {name: os.readlink(new / name) for name in links} == links
    assert not os.path.lexists(new / "sources/0/pipe")
    assert (new / "offsets/.4.crc").exists()
    assert not (new / "commits/.4.tmp").exists()


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_query_that_runs_on_meanwhile(
    storage: JobStorage, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """A zombie commits and plans while its logs are linked: the successor's fit together."""
    query = make(storage)
    link = transfer.link_tree
    acts: list[Callable[[], None]] = [query.commit, query.plan] * 3

    def and_run_on(source: Path, target: Path) -> None:
        if source.parent.name in ("offsets", "commits"):
            query.ck = source.parents[1]
            for act in acts[:steps]:
                act()
            del acts[:steps]
        link(source, target)

    monkeypatch.setattr(transfer, "link_tree", and_run_on)
    new = take_over(storage, 6) / CK

    at = position(new)
    assert at.committed <= at.planned <= at.committed + 1
    assert checkpoint.select(new).batch == at.committed


class Died(BaseException):
    """The death of a leader."""


STEPS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("rename", "link", "mkdir", "symlink", "open", "unlink")),
    (shutil, "rmtree"),
)


def at_step(
    patch: pytest.MonkeyPatch, last: int, act: Callable[[], object], *, lasts: bool = False
) -> list[str]:
    """Have the call of that number do something first, and each later one if it `lasts`; return the
    list of all calls."""
    calls: list[str] = []

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **how: Any) -> Any:
            calls.append(method.__name__)
            if len(calls) == last or (lasts and len(calls) > last):
                act()
            return method(*args, **how)

        return step

    for owner, name in STEPS:
        patch.setattr(owner, name, wrap(getattr(owner, name)))
    return calls


def test_b1_death_at_every_step(tmp_path: Path) -> None:
    """B1: whatever a leader died before, the next one finds the same files, and leaves no other."""

    def die() -> None:
        raise Died

    last, died = 0, True
    while died:
        last += 1
        storage = JobStorage(tmp_path / str(last), CLUSTER)
        make(storage)
        expected = wanted(storage)
        with pytest.MonkeyPatch.context() as patch:
            at_step(patch, last, die, lasts=True)
            try:
                take_over(storage, 6)
                died = False
            except Died:
                pass
        for epoch in (7, 7):
            assert files(take_over(storage, epoch)) == expected
        dirs = [path.name for path in storage.folder("job").iterdir() if path.is_dir()]
        assert dirs == ["e7"]

    assert last > 40


def test_b1_a_newer_leader_at_every_step(tmp_path: Path) -> None:
    """B1: a newer leader takes over in the midst of an older one's take-over: it has all files, and
    the older one is told, or ends before it."""
    last, done = 0, False
    while not done:
        last += 1
        storage = JobStorage(tmp_path / str(last), CLUSTER)
        make(storage)
        expected = wanted(storage)
        with pytest.MonkeyPatch.context() as patch:
            calls = at_step(patch, last, partial(take_over, storage, 7))
            try:
                take_over(storage, 6)
            except (Fenced, Unavailable):
                pass
            done = len(calls) < last
        assert files(take_over(storage, 8)) == expected

    assert last > 40


def test_b2_staging_that_does_not_go(storage: JobStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """B2: while a zombie keeps its staging alive, the job is not started; then it is."""
    make(storage)
    expected = wanted(storage)
    remove = shutil.rmtree

    def and_add(path: Path, **how: Any) -> None:
        remove(path, **how)
        path.mkdir()

    monkeypatch.setattr(shutil, "rmtree", and_add)
    with pytest.raises(Unavailable, match="staging cannot be deleted: an earlier attempt still"):
        take_over(storage, 6)
    monkeypatch.undo()

    assert files(take_over(storage, 6)) == expected


def test_b4_where_links_are_refused(storage: JobStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """B4: without links the files are copied, readable for those who share the storage."""

    def refused(*_: Any, **how: Any) -> None:
        raise OSError(errno.EPERM, "not permitted")

    storage.root.mkdir(parents=True)
    storage.root.chmod(0o2770)
    make(storage)
    expected = wanted(storage)
    monkeypatch.setattr(os, "link", refused)
    new = take_over(storage, 6)

    assert files(new) == expected
    assert permissions.is_shared(new / CK)
    assert {path.stat().st_mode & 0o777 for path in new.rglob("*") if path.is_file()} == {0o660}


def unfinished(storage: JobStorage) -> list[Path]:
    """Return what take-overs have built, and not put in place."""
    return sorted(storage.folder("job").glob(".e6.*"))


def test_a_full_disk(storage: JobStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, no half-made folder takes space, and the call can be repeated."""
    make(storage)
    expected = wanted(storage)

    def full(*_: Any, **how: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(Unavailable, match=r"job cannot be taken over: .*no space left"):
        take_over(storage, 6)
    monkeypatch.undo()
    assert unfinished(storage) == []

    assert files(take_over(storage, 6)) == expected


def test_files_that_go_all_the_time(storage: JobStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader gives up for now, and leaves nothing half made in the way."""
    make(storage)
    expected = wanted(storage)

    def gone(*_: Any, **how: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, "gone")

    monkeypatch.setattr(os, "link", gone)
    with pytest.raises(Unavailable, match="job cannot be taken over: it changes all the time"):
        take_over(storage, 6)
    monkeypatch.undo()
    assert unfinished(storage) == []

    assert files(take_over(storage, 6)) == expected
    assert not list(storage.folder("job").glob(".e*"))


def test_what_a_death_has_built_makes_room(
    storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What leaders of these epochs had built when they died goes before anything else is built;
    what a newer one builds stays."""
    make(storage)
    folder, link = storage.folder("job"), os.link
    for epoch in (5, 6, 7):
        (folder / f".e{epoch}.{epoch:032x}").mkdir()
    dead = {path.name for path in folder.iterdir() if path.name.startswith(".e")}
    found = []

    def look(*args: Any, **how: Any) -> None:
        found.append(dead & set(os.listdir(folder)))
        link(*args, **how)

    monkeypatch.setattr(os, "link", look)
    take_over(storage, 6)

    assert found[0] == {f".e7.{7:032x}"}


def test_a_snapshot_meanwhile(memory: FaultyMemory, storage: JobStorage) -> None:
    """While a job is taken over no snapshot is taken of it; a restore puts another folder there."""
    memory.commit(Create(keys.EPOCH, encode(EpochRecord(4, "a leader that died"))))
    job = FakeJob(memory, storage)
    job.run(2)
    catalog = SnapshotCatalog(memory, storage, sleep=lambda seconds: None)
    taken = catalog.create("job")
    os.rename(job.epoch, job.epoch.with_name(".e3.withdrawn"))
    with pytest.raises(Unavailable, match="'job' is being taken over by a leader; try again"):
        catalog.create("job")

    catalog.restore(taken)
    found = epoch_folders.in_place(storage.folder("job"))
    assert found is not None
    assert any(name.startswith(CK) for name in tree(found))
    assert found.name != "e3"


def test_cleanup_knows_what_a_take_over_leaves(storage: JobStorage) -> None:
    """Whatever a death leaves of a take-over goes with the job."""
    folder = storage.folder("job")
    names = ["e5", "e6", ".e6.withdrawn", ".e6.kept", f".e7.{'a' * 32}"]
    for name in names:
        (folder / name).mkdir(parents=True)
    (folder / ".export").mkdir()

    assert sorted(path.name for path in storage.left_in_staging("job")) == sorted(names)
    storage.sweep("job")
    assert os.listdir(folder) == [".export"]


@pytest.mark.parametrize("version", [SINCE_FORMAT - 1, SINCE_FORMAT])
def test_older_formats_rename(memory: FaultyMemory, storage: JobStorage, version: int) -> None:
    """In a cluster that older versions may lead, nothing is left that they cannot find."""
    memory.marked_format = version
    make(storage, epoch=0)
    old = os.open(storage.folder("job") / "e0", os.O_RDONLY)  # Its number is not given again.
    leadership = memory.campaign("m", ttl=10.0, stop=threading.Event())
    assert leadership is not None
    new = taking.take_over(memory, storage, "job", leadership.fence)

    assert os.path.samestat(new.stat(), os.fstat(old)) == (version < SINCE_FORMAT)
    os.close(old)


def test_a_stage_record_that_cannot_be_read(memory: FaultyMemory, storage: JobStorage) -> None:
    """Nothing is known to be unrecorded then, so no staging of a stage is deleted."""
    record = StageRecord("job", "done", 1, 1, 5, 0.5, 1.0, "done.1")
    memory.overwrite(keys.stage("job", "done"), encode(record))
    assert taking._staged(memory, "job") == {"done.1"}
    memory.overwrite(keys.stage("job", "other"), b"damaged")
    assert taking._staged(memory, "job") is None
