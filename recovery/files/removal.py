"""Deleting folders that a job has written, whatever permissions it has given them.

A job's function may copy a folder with its permissions. In one that is read-only, nobody but root
can delete what it holds; its owner has to make it writable first. Links are never followed: other
users of a shared storage may put one in the place of a folder.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def frees(path: Path) -> int:
    """Return the bytes that the removal of a path frees: files with another hard link do not
    count."""
    return sum(status.st_size for status in _files(path) if status.st_nlink == 1)


def remove(path: Path) -> None:
    """Delete a file, a link, or a folder and all below it. Does nothing if it does not exist.

    Raises:
        OSError: something is left; FileNotFoundError if another process deletes it, too.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        _permit_all(path)
        shutil.rmtree(path)


def rename(path: Path, target: Path) -> None:
    """Rename a path, also a folder that is read-only: to move one elsewhere changes its ``..``.

    Raises:
        OSError: as `os.rename`.
    """
    try:
        os.rename(path, target)
    except PermissionError:
        if path.is_symlink() or not path.is_dir():
            raise
        with _opened(path) as folder:
            before = stat.S_IMODE(os.fstat(folder).st_mode)
            _permit(folder)
            try:
                os.rename(path, target)
            finally:
                os.chmod(_in_proc(folder), before)


# -- inside --------------------------------------------------------------------------------


def _permit_all(path: str | Path, above: int | None = None) -> None:
    """Let this user delete what is in a folder and below it, as far as the folders are its own."""
    with suppress(OSError), _opened(path, above) as folder:
        _permit(folder)
        reading = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            with os.scandir(reading) as found:
                inner = [one.name for one in found if one.is_dir(follow_symlinks=False)]
        finally:
            os.close(reading)
        for name in inner:
            _permit_all(name, folder)


@contextmanager
def _opened(path: str | Path, above: int | None = None) -> Iterator[int]:
    """Open a folder, without any permission for it; never a link."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(path, flags, dir_fd=above)
    try:
        yield folder
    finally:
        os.close(folder)


def _permit(folder: int) -> None:
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(_in_proc(folder), mode | stat.S_IRWXU)


def _in_proc(folder: int) -> str:
    """Return a path of an open folder; `os.fchmod` takes none that was opened like this."""
    return f"/proc/self/fd/{folder}"


def _files(path: Path) -> Iterator[os.stat_result]:
    names: Iterable[tuple[str, list[str], list[str]]] = os.walk(path)
    if not path.is_dir() or path.is_symlink():
        names = [(str(path.parent), [], [path.name])]
    for where, _, files in names:
        for name in files:
            try:
                yield os.lstat(os.path.join(where, name))
            except FileNotFoundError:
                continue  # Another process has just removed it.
