"""The permissions of new folders: for this user alone, or for the group of a shared storage.

Executors of a Spark cluster may run as another user. A storage that is setgid and writable for its
group (``chmod 2770``) is shared with that group, and so is what is made in it.
"""

from __future__ import annotations

import os
from pathlib import Path

_SHARED = 0o2020
_GROUP = 0o2770


def is_shared(folder: Path) -> bool:
    """Return whether a folder is shared with its group."""
    return folder.stat().st_mode & _SHARED == _SHARED


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
        path.chmod(_GROUP)


def share(folder: Path) -> None:
    """Let the group change what this process and its children create from now on, if `folder` is
    shared with it."""
    if is_shared(folder):
        os.umask(0o007)
