"""The folders of snapshots, and their locks.

::

    <job>/snapshots/<n>/manifest.json    a snapshot
    <job>/snapshots/<n>/files/…          its files; none if its format is ``cas``
    <job>/snapshots/<n>-<digest>/        the same of a snapshot that was converted
    <job>/snapshots/.<n>.tmp/            a snapshot that is being taken or converted
    <job>/.restore/                      a job that is being restored
    <cluster>/.blobs/<ab>/<sha256>       the files of ``cas`` snapshots

A process that writes or reads a snapshot has a lock on its folder. The kernel releases the lock
when the process dies. So leftovers of a crash can be distinguished from work in progress.

The folder of a converted snapshot is named by the digest of its manifest. So the commit that lists
the new manifest is what replaces the folder of one form by that of another.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jrs.contract.clock import Deadline
from jrs.contract.errors import SnapshotInUse, Unavailable
from jrs.host.fork import forget_in_children
from jrs.records.snapshots import SnapshotRecord

from ..files.job_folders import JobStorage
from ..files.safe_listing import names_in

MANIFEST = "manifest.json"
FILES = "files"

_PATIENCE = 30.0
"""Seconds to wait for a lock. A process that changes a listed snapshot, or deletes blobs, holds it
for milliseconds, besides a commit."""
_LOOK = 0.02
_NUMBER = re.compile(r"([0-9]{1,10})(?:-[0-9a-f]{16})?")
_BUILDING = re.compile(r"\.([0-9]{1,10})\.tmp")


class BeingRestored(SnapshotInUse):
    """A process is restoring the job at this moment: it holds the lock of the folder."""


def snapshots(storage: JobStorage, job_id: str) -> Path:
    """Return the folder of the job's snapshots; it need not exist."""
    return storage.folder(job_id) / "snapshots"


def snapshot(storage: JobStorage, job_id: str, number: int) -> Path:
    """Return the folder of a snapshot as it was taken; it need not exist."""
    return snapshots(storage, job_id) / str(number)


def converted(storage: JobStorage, job_id: str, number: int, manifest: str) -> Path:
    """Return the folder of a snapshot that was converted, by the sha256 of its manifest."""
    return snapshots(storage, job_id) / f"{number}-{manifest[:16]}"


def listed(storage: JobStorage, record: SnapshotRecord) -> Path:
    """Return the folder of a listed snapshot in a storage; it need not exist."""
    folder = converted(storage, record.job_id, record.number, record.manifest)
    return folder if folder.is_dir() else snapshot(storage, record.job_id, record.number)


def of_number(storage: JobStorage, job_id: str, number: int) -> list[Path]:
    """Return the folders of a snapshot, as it was taken and converted."""
    folder = snapshots(storage, job_id)
    own = (name for name in names_in(folder) if name.startswith(f"{number}-"))
    return [
        snapshot(storage, job_id, number),
        *(folder / name for name in own if _NUMBER.fullmatch(name)),
    ]


def building(storage: JobStorage, job_id: str, number: int) -> Path:
    """Return the folder in which a snapshot is built."""
    return snapshots(storage, job_id) / f".{number}.tmp"


def restoring(storage: JobStorage, job_id: str) -> Path:
    """Return the folder in which a restored job is built."""
    return storage.folder(job_id) / ".restore"


def whole(storage: JobStorage, job_id: str) -> set[int]:
    """Return the numbers of the snapshots that have a folder."""
    return _matching(snapshots(storage, job_id), _NUMBER)


def unfinished(storage: JobStorage, job_id: str) -> set[int]:
    """Return the numbers of the snapshots that are, or were, being taken."""
    return _matching(snapshots(storage, job_id), _BUILDING)


@contextmanager
def locked(path: Path, *, shared: bool = False, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of a folder; yield whether it was acquired. A missing folder has no lock.

    Args:
        wait: whether to wait for the process that holds it.

    Raises:
        Unavailable: it holds it for longer than `_PATIENCE`, as one that is stopped does.
    """
    try:
        lock = _Lock(path)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        yield lock.take(shared=shared, wait=wait) and lock.is_of(path)
    finally:
        lock.close()


def remove_left_overs(storage: JobStorage, job_id: str) -> None:
    """Remove unfinished snapshots and restores of processes that have died."""
    paths = [building(storage, job_id, number) for number in unfinished(storage, job_id)]
    for path in (*paths, restoring(storage, job_id)):
        with locked(path) as mine:
            if mine:
                storage.discard(job_id, path)


class _Lock:
    """The lock of a folder. It ends with the process that took it and with no other process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        forget_in_children(self)

    def forget(self) -> Iterable[int]:
        """Have a forked child close the lock: it must not hold it when its parent dies."""
        fd, self._fd = self._fd, -1
        return () if fd < 0 else (fd,)

    def take(self, *, shared: bool, wait: bool) -> bool:
        """Return whether the lock was acquired; with `wait`, True."""
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        deadline = Deadline.after(_PATIENCE)
        while True:
            try:
                fcntl.flock(self._fd, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    return False
            else:
                return True
            if deadline.expired:
                raise Unavailable(
                    f"{self._path} has been held by another process for {_PATIENCE:g} s, perhaps "
                    "by one that is stopped or waits for a disk; try again later"
                )
            time.sleep(_LOOK)

    def is_of(self, path: Path) -> bool:
        """Return whether the path still leads to the locked folder."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(path))
        except FileNotFoundError:
            return False  # The process that held the lock before has removed or renamed it.

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:  # Otherwise this is a forked child, and the lock its parent's.
            # A child that is forked just now inherits the descriptor; closing ours would not
            # unlock.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _matching(folder: Path, pattern: re.Pattern[str]) -> set[int]:
    return {int(found[1]) for name in names_in(folder) if (found := pattern.fullmatch(name))}
