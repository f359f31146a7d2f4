"""The folders for the temporary files of an attempt, such as what Spark spills.

One is below ``JRS_SCRATCH``, a folder on a local disk of the host, and named by the attempt's mark.
Without it, there is one below each folder of ``SPARK_LOCAL_DIRS``, where Spark would put such files
and leaves out the folders of disks that have failed.
Other things may lie there, such as storages and work folders: only what has the name of such a
folder, in the folder that all of them are in, is ever removed.
The attempt's watchdog removes it. If the watchdog was killed, the next attempt on this host does:
each attempt has a lock on its folder while it lives, which other containers see, too.
Without either, temporary files are in the job's staging, and removed with it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jrs.contract.errors import CannotStartHere
from jrs.contract.storage_place import work_folder

VARIABLE = "JRS_SCRATCH"
LOCAL_DIRS = "SPARK_LOCAL_DIRS"
_PREFIX = "attempt-"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_held: dict[Path, int] = {}
"""The folders of this process, and the descriptors that lock them."""


def make(mark: str) -> tuple[Path, ...]:
    """Return the folders of the attempt with that mark, created and locked by this process; none if
    the host names no place. A folder that cannot be created is left out, if another one can.

    Removes those of attempts that have ended. Idempotent.

    Raises:
        CannotStartHere: no folder can be created, or others can change what they are in.
    """
    made, problems = list[Path](), list[CannotStartHere]()
    for place in _places():
        try:
            made.append(_make(place, mark))
        except CannotStartHere as error:
            problems.append(error)
    if problems and not made:
        raise problems[0]
    return tuple(made)


def _make(place: Path, mark: str) -> Path:
    """Do what `make` does, in one place."""
    folder = place / f"{_PREFIX}{mark}"
    try:
        _ensure_own(place)
        while folder not in _held:
            folder.mkdir(mode=0o700, exist_ok=True)
            if (locked := _lock(folder)) is not None:
                _held[folder] = locked
    except OSError as error:
        raise CannotStartHere(
            f"{_named()[0]}: {folder} cannot be created: {error.strerror}"
        ) from None
    with suppress(OSError):  # What is left of others is no obstacle.
        for other in place.iterdir():
            if other.name.startswith(_PREFIX) and other not in _held:
                _remove_unheld(other)
    return folder


def _ensure_own(place: Path) -> None:
    """Ensure that the place is there, and that only this user can change it: all users may make
    folders and links where it is, and could replace what an attempt reads back.

    Raises:
        CannotStartHere: it is a link or another user's, or others may write there all the same.
        OSError: it cannot be created.
    """
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EACCES):
            raise
        is_own = False
    else:
        try:
            is_own = _is_made_private(opened)
        finally:
            os.close(opened)
    if not is_own:
        raise CannotStartHere(f"{_named()[0]}: {place} can be changed by others; remove it")


def _is_made_private(folder: int) -> bool:
    """Take the right to write in an open folder from all but its user, and return whether it is
    this user's alone. What mounts a volume may have given a group that right."""
    found = os.fstat(folder)
    if found.st_uid == os.getuid() and found.st_mode & _OTHERS_WRITE:
        os.fchmod(folder, 0o700)
        found = os.fstat(folder)  # Some filesystems know no modes.
    return found.st_uid == os.getuid() and not found.st_mode & _OTHERS_WRITE


def place_without_job() -> dict[str, str]:
    """Return what the environment of a process lacks that needs a place before it has a job: the
    folder for what the host keeps of jobs, if the host names no other."""
    return {} if _places() else {VARIABLE: str(work_folder())}


def remove(mark: str, environment: Mapping[str, str]) -> None:
    """Remove the folders of the attempt with that mark, whose processes have ended.

    Args:
        environment: that of the attempt, which may have variables of its job.
    """
    for place in _places(environment) if mark else ():
        shutil.rmtree(place / f"{_PREFIX}{mark}", ignore_errors=True)


def _remove_unheld(folder: Path) -> None:
    with suppress(OSError):
        if (locked := _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
            return
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(locked)


def _lock(folder: Path, how: int = fcntl.LOCK_EX) -> int | None:
    """Return a descriptor that locks the folder; None if another attempt has just removed it,
    because it took it for a dead one's. By now there may be another folder of its name.

    Raises:
        OSError: it cannot be locked, or not at once.
    """
    locked, same = -1, False
    try:
        locked = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(locked, how)
        same = os.path.samestat(os.fstat(locked), os.stat(folder))
    except FileNotFoundError:
        pass
    finally:
        if locked >= 0 and not same:
            os.close(locked)
    return locked if same else None


def _places(environment: Mapping[str, str] = os.environ) -> list[Path]:
    return [Path(root, f"jrs-scratch-{os.getuid()}") for root in _named(environment)[1]]


def _named(environment: Mapping[str, str] = os.environ) -> tuple[str, list[str]]:
    """Return the variable that names the places, and what it names; nothing if neither does."""
    if named := environment.get(VARIABLE):
        return VARIABLE, [named]
    return LOCAL_DIRS, [root for root in environment.get(LOCAL_DIRS, "").split(",") if root]
