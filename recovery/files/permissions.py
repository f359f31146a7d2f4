"""The permissions of new folders: for this user alone, or for the group of a shared storage.

Executors of a Spark cluster may run as another user. A storage whose permissions are exactly 2770
(setgid, all for the group, nothing for others) is shared with its group, and so is what is made in
it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARED = 0o2770


def is_shared(folder: Path) -> bool:
    """Return whether a folder is shared with its group."""
    return stat.S_IMODE(folder.stat().st_mode) == _SHARED


def make(path: Path, *, parents: bool = False, exist_ok: bool = False) -> None:
    """Create a folder: shared if the one above it is, else for this user alone.

    Raises:
        OSError: as `Path.mkdir`.
    """
    try:
        path.mkdir(mode=0o700)
    except FileNotFoundError:
        if not parents or path.parent == path:
            raise
        make(path.parent, parents=True, exist_ok=True)
        make(path, exist_ok=exist_ok)
        return
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
    # Also one that exists: a crash may have come in between.
    if is_shared(path.parent) and not is_shared(path):
        _share(path)


def of_a_file(folder: Path) -> int:
    """Return the permissions of a new file in a folder: the group's, too, if it is shared."""
    return 0o660 if is_shared(folder) else 0o600


def _share(path: Path) -> None:
    # Others of the group can write above it, so it may have become a link to somewhere else.
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(folder).st_uid == os.geteuid():
            _permit_group(folder)
    finally:
        os.close(folder)


def _permit_group(folder: int) -> None:
    try:
        os.fchmod(folder, _SHARED)
    except PermissionError as error:  # The folder is our own: it is a filter of system calls.
        why = "no folder can be shared with its group (a unit of systemd needs RestrictSUIDSGID=no)"
        raise PermissionError(error.errno, why) from None


@contextmanager
def for_children(*, shared: bool) -> Iterator[None]:
    """Let the group change what processes make that are started meanwhile, if `shared`."""
    if not shared:
        yield
        return
    before = os.umask(0o007)
    try:
        yield
    finally:
        os.umask(before)
