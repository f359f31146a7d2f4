"""Closing the input of a streaming stage."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import InvalidInput, Unavailable
from jrs.recovery.attempt import closed_input
from jrs.recovery.files import closed_inputs
from tests.recovery.lead import Lead
from tests.recovery.support import FaultyMemory


def test_a_disk_that_is_full(
    memory: FaultyMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails no job: the next attempt closes the input."""
    context, source = Lead(memory, tmp_path / "jobs").context(), tmp_path / "in"
    source.mkdir()
    (source / "a.json").write_text("1")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match=r"cannot be closed: .* No space left"):
            closed_input.close(context, "sums", source)
    assert not list((context.storage.folder("job") / "in" / "sums").iterdir())
    folder = closed_input.close(context, "sums", source)

    assert [path.name for path in folder.iterdir()] == ["a.json"]
    with pytest.raises(InvalidInput, match="not a folder"):
        closed_input.close(context, "sums", tmp_path / "missing")


def write(source: Path, *names: str) -> None:
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)


def test_what_spark_would_read(memory: FaultyMemory, tmp_path: Path) -> None:
    """Each file that Spark lists is in the input: behind a link, and in a partition whose column
    begins with an underscore. What Spark passes over is not."""
    context, source = Lead(memory, tmp_path / "jobs").context(), tmp_path / "in"
    write(source, "day=1/a", "_year=2026/b", "c", ".c.crc", "_SUCCESS", "_temporary/0/d")
    write(source, "e._COPYING_")
    write(tmp_path / "other", "f", "deeper/g")
    (source / "day=2").symlink_to(tmp_path / "other")
    (source / "day=3").symlink_to(source / "day=2")
    (source / "day=1/loop").symlink_to(source)
    (source / "h").symlink_to(source / "c")
    (source / "nowhere").symlink_to(tmp_path / "missing")

    folder = closed_input.close(context, "sums", source)
    links = sorted(path for path in folder.rglob("*") if path.is_symlink())

    assert [str(path.relative_to(folder)) for path in links] == [
        *("_year=2026/b", "c", "day=1/a", "day=2/deeper/g", "day=2/f", "day=3/deeper/g"),
        *("day=3/f", "h"),
    ]
    # A link that leads elsewhere later changes nothing.
    assert {os.readlink(path) for path in links if path.name in "fh"} == {
        str(tmp_path / "other/f"),
        str(source / "c"),
    }


@pytest.mark.parametrize("older", [False, True])
def test_the_name_that_an_input_has(memory: FaultyMemory, tmp_path: Path, older: bool) -> None:
    """An input that an older version has closed keeps its name, by the whole path of its source;
    so do others until the format was raised."""
    context = Lead(memory, tmp_path / "jobs").context()
    out = context.storage.published("job", "typed", temporary=False)
    write(out, "a")
    portable = closed_inputs.place_of(context.storage, "job", "sums", out)
    if older:
        memory.marked_format = closed_inputs.PORTABLE_SINCE - 1
    folder = closed_input.close(context, "sums", out)
    memory.marked_format = closed_inputs.PORTABLE_SINCE
    write(out, "b")

    assert (folder == portable) is not older
    assert closed_input.close(context, "sums", out) == folder
    assert [path.name for path in folder.iterdir()] == ["a"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOENT])
def test_an_input_that_cannot_be_listed(
    memory: FaultyMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its stage would finish without the rows of a folder: nothing is recorded of it."""
    context, source = Lead(memory, tmp_path / "jobs").context(), tmp_path / "in"
    write(source, "a/file", "b/file")
    real = os.scandir

    def fails(path: Any = ".") -> Any:
        if str(path) == str(source / "b"):
            raise OSError(number, os.strerror(number), str(path))
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", fails)
        with pytest.raises(Unavailable, match=r"listing the input .* of stage 'sums' failed"):
            closed_input.close(context, "sums", source)
    folder = closed_input.close(context, "sums", source)

    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
