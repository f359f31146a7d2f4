"""Where snapshots are, and who holds which of them.

::

    <job>/snapshots/<n>/manifest.json    a snapshot
    <job>/snapshots/<n>/files/…          its files; none if its format is ``cas``
    <job>/snapshots/.<n>.tmp/            one that is being taken
    <job>/.restore/                      a job that is being restored
    <cluster>/.blobs/<ab>/<sha256>       the files of ``cas`` snapshots

Whoever writes or reads a snapshot holds a lock on its folder, which the kernel lets go of when the
process dies. So what a crash left behind can be told from what is under way.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jrs.recovery.storage import JobStorage

MANIFEST = "manifest.json"
FILES = "files"

_NUMBER = re.compile(r"([0-9]{1,10})")
_BUILDING = re.compile(r"\.([0-9]{1,10})\.tmp")


def snapshots(storage: JobStorage, job_id: str) -> Path:
    """Return the folder of the job's snapshots; it need not exist."""
    return storage.folder(job_id) / "snapshots"


def snapshot(storage: JobStorage, job_id: str, number: int) -> Path:
    """Return the folder of a snapshot; it need not exist."""
    return snapshots(storage, job_id) / str(number)


def building(storage: JobStorage, job_id: str, number: int) -> Path:
    """Return the folder in which a snapshot is put together."""
    return snapshots(storage, job_id) / f".{number}.tmp"


def restoring(storage: JobStorage, job_id: str) -> Path:
    """Return the folder in which a job is put together that is restored."""
    return storage.folder(job_id) / ".restore"


def whole(storage: JobStorage, job_id: str) -> set[int]:
    """Return the numbers of the snapshots that have a folder."""
    return _matching(snapshots(storage, job_id), _NUMBER)


def unfinished(storage: JobStorage, job_id: str) -> set[int]:
    """Return the numbers of those that are, or were, being taken."""
    return _matching(snapshots(storage, job_id), _BUILDING)


@contextmanager
def locked(path: Path, *, shared: bool = False, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of a folder; yield whether it was got. A folder that is gone has none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(fd, how if wait else how | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            same = os.path.samestat(os.fstat(fd), os.stat(path))
        except FileNotFoundError:
            same = False  # Removed, or renamed, by whoever held it before.
        yield same
    finally:
        os.close(fd)


def _matching(folder: Path, pattern: re.Pattern[str]) -> set[int]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return set()
    return {int(match[1]) for name in names if (match := pattern.fullmatch(name))}
