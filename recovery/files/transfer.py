"""Files into a snapshot and out of it: linked or copied, hashed, synced.

A written file is durable only once its folders are synced as well: `sync_folders`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from . import permissions
from .safe_listing import walk
from .sync import sync as sync

Progress = Callable[[int, int], None]
"""Called with the number of files done, and of all files."""

_CHUNK = 1 << 20
_DESCRIPTORS = "/proc/self/fd"
_CAN_NOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)


def silent(done: int, total: int) -> None:
    """Report nothing."""


def open_regular(path: Path) -> int:
    """Open a file for reading; never a link, and never a pipe that would block."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def digest(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with open(open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy(source: Path, target: Path) -> str:
    """Copy a file with its time of change, synced, and return its sha256."""
    found = hashlib.sha256()
    with open(open_regular(source), "rb") as read, open(target, "xb") as write:
        os.fchmod(write.fileno(), permissions.of_a_file(target.parent))
        while chunk := read.read(_CHUNK):
            found.update(chunk)
            write.write(chunk)
        write.flush()
        stamp = os.fstat(read.fileno())
        os.utime(write.fileno(), ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        os.fsync(write.fileno())
    return found.hexdigest()


def link_or_copy(source: Path, target: Path) -> bool:
    """Link a file, or copy it if linking is not possible; return whether it was linked."""
    try:
        os.link(source, target, follow_symlinks=False)
        return True
    except OSError as error:
        if error.errno not in _CAN_NOT_LINK:
            raise
    copy(source, target)
    return False


def link_tree(source: Path, target: Path) -> None:
    """Make a file or folder like another one, with links to its files. Pipes and sockets are left
    out."""
    _make_like(source, target, link_or_copy)


def copy_tree(source: Path, target: Path) -> None:
    """Do what `link_tree` does, with copies of the files."""
    _make_like(source, target, copy)


def _make_like(source: Path, target: Path, put: Callable[[Path, Path], object]) -> None:
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        permissions.make(target)
        for path in sorted(source.iterdir()):
            _make_like(path, target / path.name, put)
    elif source.is_file():
        put(source, target)
    elif not os.path.lexists(source):
        raise FileNotFoundError(errno.ENOENT, "is missing", str(source))


def sync_folders(top: Path) -> None:
    """Sync the names of everything below `top`, and its own name in its parent."""
    for folder, _, _ in walk(top):
        sync(folder)
    sync(top.parent)


def sync_tree(root: Path) -> None:
    """Sync all files and folders below a folder, and the folder itself.

    Raises:
        OSError: not all of it can be synced.
    """
    for folder, _, others in walk(root):
        for name in others:
            path = os.path.join(folder, name)
            if not stat.S_ISREG(os.lstat(path).st_mode):
                continue  # A link has no data of its own, and opening a pipe would block.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_folder(folder)


def open_for_writing(root: Path) -> list[str]:
    """Return the files below a folder that this process has open for writing: what it has not
    written out yet, and what it writes later, are no part of what is synced now."""
    found, below = list[str](), os.path.realpath(root) + os.sep
    for fd in map(int, os.listdir(_DESCRIPTORS)):
        with suppress(OSError):  # It was closed meanwhile.
            path = os.readlink(f"{_DESCRIPTORS}/{fd}")
            writes = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            status = os.fstat(fd)
            if path.startswith(below) and writes and stat.S_ISREG(status.st_mode):
                found += [path] * bool(status.st_nlink)
    return sorted(set(found))


def sync_folder(path: Path) -> None:
    """Sync the names in a folder; does nothing if it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # A newer leader has just renamed it.
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def parents(files: Iterable[Path]) -> None:
    """Create the folders of the files, accessible to their owner only."""
    for folder in {file.parent for file in files}:
        permissions.make(folder, parents=True, exist_ok=True)


def write(path: Path, data: bytes) -> None:
    """Write a new file, synced; it appears under its name as a whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def remove(path: Path) -> None:
    """Remove a folder that jrs created, as far as it exists."""
    shutil.rmtree(path, ignore_errors=True)
