"""Segments: the files of a log, named by the offset they begin at, and how the next one begins.

``<offset>.log`` holds the commits, ``<offset>.base`` what was live when it began (the first segment
has none), ``<offset>.index`` where to search the base. A segment exists once its base does.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from jrs.backends.file.base import Base
from jrs.backends.file.folder import sync_folder
from jrs.backends.file.merge import Change, write_all, write_base
from jrs.errors import Unavailable


def log_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.log"


def base_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.base"


def index_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.index"


def suspect_path(folder: Path, start: int) -> Path:
    """Return the file that tells that a sync of this segment's log has failed.

    It need not be durable: after a power cut there is no page cache to mistrust.
    """
    return folder / f"{start:020}.suspect"


def newest(folder: Path) -> int:
    """Return where the newest segment begins; 0 for the first."""
    starts = [
        int(name[:20])
        for name in os.listdir(folder)
        if len(name) == 25 and name.endswith(".base") and name[:20].isdigit()
    ]
    return max(starts, default=0)


def begin(folder: Path, start: int, base: Base, changes: Iterable[Change]) -> None:
    """Begin the segment at `start` with `base` and the `changes` since (in key order).

    Deterministic: it does not matter which process wins, and one that dies is helped by the next.
    """
    # The log first, so that whoever sees the base can open the log without creating it: a
    # process that slept through a whole segment must not make an old one anew.
    os.close(
        os.open(log_path(folder, start), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    )
    sync_folder(folder)
    with _published(base_path(folder, start)) as fd:
        index = write_base(fd, base, changes)
        with _published(index_path(folder, start)) as index_fd:
            write_all(index_fd, index)
            os.fsync(index_fd)
    sync_folder(folder)


@contextlib.contextmanager
def _published(path: Path) -> Iterator[int]:
    """Write a file that appears whole, under its name, when the block has ended well."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            yield fd
        finally:
            os.close(fd)
        # It is there already, or others are behind it by now and have swept ours away.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.link(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def open_newest(folder: Path) -> tuple[int, int, Base]:
    """Open the newest segment: where it begins, its log's descriptor, its base.

    Raises:
        Unavailable: a file of it is missing.
    """
    while True:
        start = newest(folder)
        # The first log is made only where no later one tells that there was more.
        fresh = not start and not any(
            name.endswith(".log") and name[:20].isdigit() and int(name[:20])
            for name in os.listdir(folder)
        )
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if fresh else 0)
        try:
            base = (
                Base(base_path(folder, start), index_path(folder, start)) if start else Base(None)
            )
            fd = os.open(log_path(folder, start), flags, 0o600)
        except FileNotFoundError:
            if newest(folder) == start:
                raise Unavailable(
                    f"{log_path(folder, start)} is missing: files were removed by something that "
                    "is not jrs; restore the folder from a copy"
                ) from None
            continue
        # An older segment may have been swept, and even made anew by a process that slept,
        # between listing and opening. Then a newer base exists by now.
        if newest(folder) == start:
            break
        os.close(fd)
        base.close()
    if not start:
        sync_folder(folder)
    return start, fd, base


def sweep(folder: Path, start: int) -> None:
    """Remove the segments before the one at `start`: whoever still reads one has it open."""
    for name in os.listdir(folder):
        number = name.removeprefix(".")[:20]
        if number.isdigit() and int(number) < start:
            with contextlib.suppress(OSError):
                os.unlink(folder / name)
