"""Listing folders and testing paths, without taking what cannot be read now for missing.

The process may have no descriptor left, or the storage may be away for a moment. `Path.glob` and
`os.walk` pass over such a folder, and from Python 3.14 on `Path.is_dir` calls it missing. A caller
that decides by what exists would lose rows, or delete what a job still reads.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from .disk_errors import GONE, reading

_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""The errors of a path at which nothing is. Nothing ever is at one that is too long."""


def walk(
    top: Path, *, missing_ok: bool = False, passed_over: Callable[[str], bool] | None = None
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield `top` and each folder below it, with the names of the folders and of the other things
    in it, sorted. A link is never followed, and is none of the folders.

    Args:
        missing_ok: a folder that is missing, or goes away meanwhile, has nothing in it.
        passed_over: returns whether not to enter a folder of that name in `top` itself.

    Raises:
        OSError: a folder cannot be listed now, so that something may be missing from what was
            yielded.
    """
    left = [top]
    while left:
        folder = left.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except GONE:
            if not missing_ok:
                raise
            continue
        # Some filesystems do not tell the kind with the name: then this asks, and may fail as well.
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        inner = set(folders)
        yield folder, folders, [entry.name for entry in entries if entry.name not in inner]
        if passed_over is not None and folder == top:
            folders = [name for name in folders if not passed_over(name)]
        left += [folder / name for name in reversed(folders)]


def everything_below(top: Path) -> Iterator[Path]:
    """Yield all that is below a folder, links and folders included. Raises as `walk`."""
    for folder, folders, others in walk(top):
        yield from (folder / name for name in (*folders, *others))


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none if it is missing.

    Raises:
        Unavailable: it cannot be listed now.
    """
    with reading(f"listing {folder}"):
        try:
            return sorted(os.listdir(folder))
        except GONE:
            return []


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder, or a link to one.

    Raises:
        Unavailable: that cannot be told now.
    """
    return stat.S_ISDIR(_mode(path))


def is_file(path: Path) -> bool:
    """Return whether a path is a file, or a link to one. Raises `Unavailable` as `is_folder`."""
    return stat.S_ISREG(_mode(path))


def exists(path: Path) -> bool:
    """Return whether a path leads to anything. Raises `Unavailable` as `is_folder`."""
    return _mode(path) != 0


def _mode(path: Path) -> int:
    """Return the mode of what a path leads to; 0 if it leads nowhere."""
    with reading(f"looking at {path}"):
        try:
            return os.stat(path).st_mode
        except OSError as error:
            if error.errno in _MISSING:
                return 0
            raise
