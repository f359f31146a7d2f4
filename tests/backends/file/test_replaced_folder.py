"""A folder that is moved, removed or replaced under an open handle: nothing is acknowledged."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.file import compaction, segments
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.batch_log import BatchLog
from jrs.backends.file.compaction import Compaction
from jrs.backends.file.format import folder
from jrs.backends.file.replica import NEVER
from jrs.contract.errors import FolderReplaced, OutcomeUnknown, Unavailable
from jrs.contract.operations import Create
from jrs.testing.contract import contents, lead
from tests.support import BOUND

SEAL_AT = 2_000

Disturb = Callable[[Path, Path], None]


def moved(root: Path, copy: Path) -> None:
    root.rename(root.with_name("old"))


def removed(root: Path, copy: Path) -> None:
    shutil.rmtree(root)


def restored(root: Path, copy: Path) -> None:
    root.rename(root.with_name("old"))
    shutil.copytree(copy, root)


def restored_over_it(root: Path, copy: Path) -> None:
    """As rsync does: each file is replaced, and no folder is."""
    for path in root.rglob("*"):
        if path.is_file():
            path.unlink()
    shutil.copytree(copy, root, dirs_exist_ok=True)


def made_again(root: Path, copy: Path) -> None:
    shutil.rmtree(root)
    FileBackend(root).close()


def another_cluster(root: Path, copy: Path) -> None:
    """One whose log is longer."""
    root.rename(root.with_name("old"))
    with FileBackend(root, seal_at=SEAL_AT) as other:
        fill(other, "other", 80)


CASES = [moved, removed, restored, restored_over_it, made_again, another_cluster]


def fill(backend: FileBackend, name: str, count: int = 40) -> None:
    for number in range(count):
        backend.commit(Create(f"{name}/{number}", b"x" * 200))


def files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of which there is a copy, and which has grown since."""
    root = tmp_path / "root"
    with FileBackend(root, seal_at=SEAL_AT) as backend:
        fill(backend, "before", 4)
        shutil.copytree(root, tmp_path / "copy")
        fill(backend, "after")
    return root


@pytest.mark.parametrize("disturb", CASES)
def test_an_open_handle_refuses(root: Path, tmp_path: Path, disturb: Disturb) -> None:
    """It acknowledged commits into the folder that was moved away, and went on reading it."""
    with (
        FileBackend(root, seal_at=SEAL_AT) as writer,
        FileBackend(root, seal_at=SEAL_AT) as reader,
        reader.watch("") as watch,
    ):
        fill(writer, "open", 1)
        assert watch.wait(BOUND)
        disturb(root, tmp_path / "copy")
        found = files(root)
        for _ in range(2):
            with pytest.raises(FolderReplaced, match="while this process had it open"):
                writer.commit(Create("k", b""))
            with pytest.raises(FolderReplaced):
                reader.get("k")
            with pytest.raises(FolderReplaced):
                contents(reader)
            with pytest.raises(FolderReplaced):
                while watch.wait(BOUND):
                    pass
            with pytest.raises(FolderReplaced):
                writer.compact()
        assert files(root) == found


@pytest.mark.parametrize("disturb", [moved, removed, restored, restored_over_it, made_again])
def test_one_that_finds_a_seal_writes_nothing_into_the_copy(
    root: Path, tmp_path: Path, disturb: Disturb
) -> None:
    """The next segment would begin in the folder that has the name now."""
    with FileBackend(root, seal_at=SEAL_AT) as late, FileBackend(root, seal_at=NEVER) as other:
        other.replica.segment.log.write_seal()
        disturb(root, tmp_path / "copy")
        found = files(root)
        with pytest.raises(FolderReplaced):
            late.get("k")
        with pytest.raises(FolderReplaced):
            late.commit(Create("k", b""))
        assert files(root) == found


def test_older_files_are_written_over_those_of_now(tmp_path: Path) -> None:
    """As cp does: the files are the same ones."""
    root, copy = tmp_path / "root", tmp_path / "copy"
    with FileBackend(root, seal_at=NEVER) as writer, FileBackend(root, seal_at=NEVER) as reader:
        fill(writer, "before", 4)
        shutil.copytree(root, copy)
        fill(writer, "after", 4)
        assert len(contents(reader)) == 8
        shutil.copytree(copy, root, dirs_exist_ok=True)
        for handle in (writer, reader):
            with pytest.raises(FolderReplaced):
                handle.get("k")
            with pytest.raises(FolderReplaced):
                handle.commit(Create("k", b""))


def test_a_late_handle_of_a_folder_that_went_on(root: Path) -> None:
    """Its log was swept behind a seal, as usual."""
    with FileBackend(root, seal_at=SEAL_AT) as late, FileBackend(root, seal_at=SEAL_AT) as other:
        start = late.replica.start
        fill(other, "more")
        assert not late.replica.segment.log.path.exists()
        late.commit(Create("k", b""))
        assert late.replica.start > start
        assert contents(late) == contents(other)


def test_one_that_is_moved_back(root: Path) -> None:
    """It is the same folder."""
    away = root.with_name("away")
    with FileBackend(root) as backend:
        root.rename(away)
        with pytest.raises(FolderReplaced):
            backend.commit(Create("k", b""))
        away.rename(root)
        assert backend.get("k") is None
        backend.commit(Create("k", b""))


def test_a_write_in_the_moment_of_the_move(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether the copy has it."""
    append = BatchLog.append

    def moved_meanwhile(log: BatchLog, bodies: list[bytes]) -> object:
        restored(root, tmp_path / "copy")
        return append(log, bodies)

    with FileBackend(root, seal_at=NEVER) as backend:
        monkeypatch.setattr(BatchLog, "append", moved_meanwhile)
        with pytest.raises(OutcomeUnknown, match="was replaced"):
            backend.commit(Create("k", b""))


@pytest.mark.parametrize("name", ["sweep", "write_base", "open_next"])
def test_a_change_of_files_in_the_moment_of_the_move(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It removed the files of the copy, or began a segment there."""
    real, found = getattr(segments, name), dict[str, bytes]()

    def moved_meanwhile(*args: Any, **how: Any) -> object:
        if not found:
            restored(root, tmp_path / "copy")
            found.update(files(root))
        return real(*args, **how)

    if name == "open_next":
        monkeypatch.setattr(Compaction, "small", -1)  # The base is written later.
    with FileBackend(root, seal_at=NEVER) as backend:
        fill(backend, "open", 1)
        backend.replica.segment.log.write_seal()
        monkeypatch.setattr(segments, name, moved_meanwhile)
        with suppress(FolderReplaced, Unavailable):
            backend.get("k")
        assert found
        with pytest.raises(FolderReplaced):
            backend.get("k")
        assert files(root) == found


def await_others_base(backend: FileBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a segment whose base is another process's turn to write."""
    fill(backend, "open", 1)
    monkeypatch.setattr(Compaction, "small", -1)
    with monkeypatch.context() as hold:
        hold.setattr(Compaction, "begin", lambda *args: False)
        backend.replica.segment.log.write_seal()
        backend.get("k")
    assert backend.replica.segment.pending


def test_no_process_writes_the_base_of_a_segment_that_is_elsewhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read of a handle that waits for its base started one, which found nothing to do."""
    started = list[int]()

    def start(*args: Any, **how: Any) -> Any:
        started.append(len(started))
        return real(*args, **how)

    monkeypatch.setattr(Compaction, "poll_interval", 0.0)
    with FileBackend(root, seal_at=NEVER) as backend:
        await_others_base(backend, monkeypatch)
        restored(root, tmp_path / "copy")
        real = compaction._started
        monkeypatch.setattr(compaction, "_started", start)
        for _ in range(3):
            with pytest.raises(FolderReplaced):
                backend.get("k")
        assert not started


def test_a_process_that_finds_no_base_to_write_is_not_started_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was replaced while a caller waited for the base."""
    real, started = compaction._started, list[int]()

    def moved_meanwhile(*args: Any, **how: Any) -> Any:
        if not started:
            restored(root, tmp_path / "copy")
        started.append(len(started))
        return real(*args, **how)

    with FileBackend(root, seal_at=NEVER) as backend:
        await_others_base(backend, monkeypatch)
        monkeypatch.setattr(compaction, "_started", moved_meanwhile)
        with pytest.raises(Unavailable):
            backend.replica.segment.await_base()
        assert started == [0]
        with pytest.raises(FolderReplaced):
            backend.get("k")


def test_calls_at_the_limit_of_descriptors_while_a_base_is_missing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the folder takes a descriptor, and the base can wait."""
    monkeypatch.setattr(Compaction, "poll_interval", 0.0)
    with FileBackend(root, seal_at=NEVER) as backend:
        await_others_base(backend, monkeypatch)
        monkeypatch.setattr(Compaction, "begin", lambda *args: False)
        fill(backend, "named", 1)  # The first commit opens the folder, to sync the log's name.
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                os.open(root, os.O_RDONLY)
            backend.commit(Create("k", b""))
            assert backend.get("k") is not None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert backend.replica.segment.pending


def test_a_host_without_proc(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An intact folder was called replaced."""
    monkeypatch.setattr(folder, "_DESCRIPTORS", "/proc/none/fd")
    monkeypatch.setattr(Compaction, "poll_interval", 0.0)
    with FileBackend(root, seal_at=NEVER) as backend:
        await_others_base(backend, monkeypatch)
        backend.commit(Create("k", b""))
        backend.replica.segment.await_base()
        assert backend.get("k") is not None
        backend.replica.segment.log.write_seal()
        assert backend.get("k") is not None


def test_a_lost_tail_is_named_by_its_own_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message named a path that means nothing outside of the process."""
    real = segments.open_next

    def lose(folder: Path, following: segments.Header, *rest: Any) -> Any:
        segments.log_path(folder, following.start).with_suffix(".segment").touch()
        return real(folder, following, *rest)

    monkeypatch.setattr(Compaction, "small", -1)
    monkeypatch.setattr(segments, "open_next", lose)
    with FileBackend(root, seal_at=NEVER) as backend:
        log = backend.replica.segment.log
        log.write_seal()
        with pytest.raises(Unavailable, match=f"{log.path.parent}/[0-9]+.tail is missing"):
            backend.get("k")


@pytest.mark.parametrize("disturb", [moved, restored, made_again])
def test_a_leader_loses_its_leadership(root: Path, tmp_path: Path, disturb: Disturb) -> None:
    """It led on in the folder that was moved away, next to the leader of the copy."""
    with FileBackend(root) as backend:
        leadership = lead(backend)
        disturb(root, tmp_path / "copy")
        assert leadership.lost.wait(BOUND)
        leadership.resign()
        with pytest.raises(FolderReplaced):
            lead(backend)


def test_the_look_is_no_sync(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit costs what it cost."""
    synced = list[int]()

    def counted(sync: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            synced.append(fd)
            sync(fd)

        return call

    with FileBackend(root, seal_at=NEVER) as backend:
        fill(backend, "first", 1)
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, counted(getattr(os, name)))
        fill(backend, "then", 5)
        assert len(synced) == 5
