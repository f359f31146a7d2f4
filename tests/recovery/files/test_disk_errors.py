"""A disk that is full or fails under jrs's own calls is no failure of the job."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import Unavailable
from jrs.recovery.attempt.collect_output import collect
from jrs.recovery.files import closed_inputs
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.files.log_writer import LogWriter


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, under: str = ""
) -> Iterator[None]:
    """Have a function of `os` fail, for paths that contain `under`."""
    real = getattr(os, name)

    def fail(*arguments: Any, **options: Any) -> Any:
        if any(under in str(argument) for argument in arguments):
            raise OSError(number, os.strerror(number))
        return real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        yield


CALLS: dict[str, tuple[str, str, Callable[[JobStorage], object]]] = {
    "staging": ("mkdir", "/e1/", lambda storage: storage.staging("job", 1, "s", 1)),
    "scratch": ("mkdir", "/e1/", lambda storage: storage.scratch("job", 1, 1)),
    "stream": ("mkdir", "/e1/", lambda storage: storage.stream("job", 1, "s")),
    "stream's names": ("fsync", "", lambda storage: storage.stream("job", 1, "s")),
    "make_durable": ("fsync", "", lambda storage: storage.make_durable(storage.root / "job/e1")),
    "discard": ("mkdir", ".trash", lambda storage: storage.discard("job", storage.root / "job/e1")),
}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", CALLS)
def test_a_disk_that_fails(
    storage: JobStorage, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """The attempt is repeated, and the call succeeds once the disk works again."""
    name, under, method = CALLS[call]
    with (
        failing(monkeypatch, name, number, under),
        pytest.raises(Unavailable, match=os.strerror(number)),
    ):
        method(storage)
    method(storage)


def test_a_damage_that_cannot_be_recorded(
    storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.stream("job", 1, "s")
    with failing(monkeypatch, "fsync", errno.EIO), pytest.raises(Unavailable, match="damage of"):
        storage.report_damage("job", 1, "s", "why")


def test_files_that_a_job_does_not_permit_to_read(
    storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is the job's own error: each attempt would meet it."""
    (storage.staging("job", 1, "s", 1) / "file").touch()
    with failing(monkeypatch, "open", errno.EACCES, "/file"), pytest.raises(PermissionError):
        storage.make_durable(storage.folder("job") / "e1/s.1")


def test_an_input_that_cannot_be_closed(
    storage: JobStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rename that fails is not taken for the folder of an earlier attempt."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").touch()
    with failing(monkeypatch, "rename", errno.ENOSPC, "/in/"), pytest.raises(Unavailable):
        closed_inputs.close(storage, "job", "s", source)
    path = closed_inputs.close(storage, "job", "s", source)
    closed_inputs.make(storage, "job", path, {})  # Another attempt was faster.

    assert [one.name for one in path.iterdir()] == ["file"]


def test_output_that_cannot_be_collected(
    storage: JobStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    staging = storage.staging("job", 1, "all", 1)
    with failing(monkeypatch, "link", errno.ENOSPC), pytest.raises(Unavailable, match="filled"):
        collect([("s", tmp_path / "out")], staging)


def test_a_log_that_cannot_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed once, whatever that says: its number may be another file's afterwards."""
    writer = LogWriter(tmp_path / "attempt-1.err", 100)
    closed: list[int] = []
    close = os.close

    def fail(file: int) -> None:
        close(file)
        closed.append(file)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "close", fail)
    writer.close()
    writer.close()
    assert len(closed) == 1
