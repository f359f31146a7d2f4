"""A read that fails once, in the middle of a replay, changes no verdict."""

from __future__ import annotations

import errno
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from jrs.backends.file import replica, segments
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.base import line_file
from jrs.backends.file.current_segment import CurrentSegment
from jrs.backends.file.format.folder import MARKER
from jrs.backends.file.state_machine import StateMachine
from jrs.contract.errors import Conflict, JrsError, OutcomeUnknown, Unavailable
from jrs.contract.operations import Absent, Create, Delete, Update
from tests.support import descriptors

VERSIONS = [2, 6, 7]
"""Of the cluster: one for each form of the log."""


class FailingReads:
    """Reads of runs fail with EIO from now on, as often as told, behind `after` good ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.after = 0
        self.left = 0
        self._pread = os.pread
        monkeypatch.setattr(line_file, "os", self)

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def pread(self, fd: int, size: int, at: int) -> bytes:
        if self.after:
            self.after -= 1
        elif self.left:
            self.left -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._pread(fd, size, at)


@pytest.fixture(params=VERSIONS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / MARKER).write_text(json.dumps({"format": "jrs", "version": request.param}))
    return tmp_path


def fails_once(call: Callable[[], object]) -> bool:
    try:
        call()
    except JrsError:
        return True
    return False


@pytest.mark.parametrize("after", range(6))
def test_a_refused_commit_stays_refused(
    root: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One EIO behind half of a batch: evaluated again, its first commit would find the state that
    its second one left, and give the job a second result."""
    writer = FileBackend(root)
    writer.commit(Create("tombstones/j", b"t"), Create("other/1", b"v"))
    writer.compact()
    tombstone, other = writer.get("tombstones/j"), writer.get("other/1")
    assert tombstone is not None
    assert other is not None
    reader = FileBackend(root)
    with writer._lock:  # The disk is slow: three commits share one batch.
        refused = writer.commit_async(Absent("tombstones/j"), Create("results/j", b"second"))
        accepted = [
            writer.commit_async(Delete("tombstones/j", tombstone.version)),
            writer.commit_async(Update("other/1", b"w", other.version)),
        ]
    assert isinstance(refused.exception(60), Conflict)
    for commit in accepted:
        commit.result(60)

    reads = FailingReads(monkeypatch)
    reads.after, reads.left = after, 1
    fails_once(lambda: reader.get("other/1"))
    monkeypatch.undo()

    assert reader.get("results/j") is None
    assert reader.get("tombstones/j") is None
    reader.compact()
    with FileBackend(root) as fresh:
        assert [record.key for record in fresh.scan("")] == ["other/1"]
    reader.close()
    writer.close()


@pytest.mark.parametrize("after", range(4))
def test_a_commit_is_never_half_applied(
    root: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read that a deletion needs failed behind the write before it in the same commit: the
    handle kept the write, and never made the deletion."""
    backend = FileBackend(root)
    backend.commit(Create("a", b"v"), Create("c", b"v"))
    backend.compact()
    first = backend.get("a")
    assert first is not None
    backend.commit(Update("a", b"w", first.version))
    backend.replica.segment.log.state_machine._found.clear()  # As thousands of other keys do.
    reads = FailingReads(monkeypatch)
    reads.after, reads.left = after, 1

    try:
        backend.commit(Create("b", b"new"), Delete("a"))
        wanted = [{"b", "c"}]
    except Unavailable:
        wanted = [{"a", "c"}]
    except OutcomeUnknown:
        wanted = [{"a", "c"}, {"b", "c"}]
    monkeypatch.undo()

    assert {record.key for record in backend.scan("")} in wanted
    backend.compact()
    with FileBackend(root) as fresh:
        assert list(fresh.scan("")) == list(backend.scan(""))
    backend.close()


def test_a_replay_that_runs_out_of_memory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever breaks a replay off, the next call begins it again from the base."""
    writer, reader = FileBackend(root), FileBackend(root)
    writer.commit(Create("k/1", b"v"))
    assert reader.get("k/1") is not None
    with writer._lock:
        refused = writer.commit_async(Absent("k/1"), Create("k/0", b"v"))
        accepted = [writer.commit_async(Delete("k/1")), writer.commit_async(Create("k/2", b"v"))]
    assert isinstance(refused.exception(60), Conflict)
    for commit in accepted:
        commit.result(60)
    evaluate, evaluated = StateMachine.commit, []

    def commit_(machine: StateMachine, body: bytes, version: int, at: int) -> int | Exception:
        evaluated.append(version)
        if len(evaluated) == 3:
            raise MemoryError
        return evaluate(machine, body, version, at)

    monkeypatch.setattr(StateMachine, "commit", commit_)
    with pytest.raises(MemoryError):
        reader.get("k/0")

    assert [record.key for record in reader.scan("")] == ["k/2"]
    reader.close()
    writer.close()


def test_a_read_that_fails_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not each call replays the segment from its start."""
    writer = FileBackend(tmp_path)
    writer.commit(Create("a", b"v"))
    writer.compact()
    reader = FileBackend(tmp_path)
    for number in range(5):
        writer.commit(Create(f"k/{number}", b"v"))
    first = writer.get("a")
    assert first is not None
    writer.commit(Update("a", b"w", first.version))
    openings = []
    reopen = CurrentSegment.reopen

    def reopened(segment: CurrentSegment) -> None:
        openings.append(segment)
        reopen(segment)

    monkeypatch.setattr(CurrentSegment, "reopen", reopened)
    monkeypatch.setattr(replica, "_PAUSE", 3600.0)
    reads = FailingReads(monkeypatch)
    reads.left = 1000
    for _ in range(20):
        with pytest.raises(Unavailable):
            reader.get("k/0")
    assert len(openings) == 1

    monkeypatch.undo()
    monkeypatch.setattr(reader.replica, "_next_opening", 0.0)
    assert reader.get("a") == writer.get("a")
    reader.close()
    writer.close()


def test_an_opening_that_fails_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit of descriptors the second listing fails, behind the opened segment and runs."""
    with FileBackend(tmp_path) as backend:
        for number in range(3):
            backend.commit(Create(f"k/{number}", b"v" * 100))
            backend.compact()
        folder = backend.replica.folder
    before = descriptors()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    failed = 0
    for free in range(1, 12):
        hogs: list[int] = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + 40, hard[1]))
            try:
                while True:
                    hogs.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
            for _ in range(free):
                os.close(hogs.pop())
            try:
                segments.open_newest(folder).close()
            except OSError:
                failed += 1
        finally:
            for hog in hogs:
                os.close(hog)
            resource.setrlimit(resource.RLIMIT_NOFILE, hard)
        assert descriptors() <= before
    assert 2 <= failed < 11
