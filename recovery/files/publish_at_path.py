"""Publishing at a path of the user's own: one rename, once, over nothing but an empty folder.

The published output is that of finished stages, which does not change any more. It is assembled in
staging, below the epoch's folder, from links to their files. On the jobs' own filesystem the rename
out of staging is the fence, as for every stage. On another filesystem the files are first copied
next to the path, under a name with the epoch; the next leader removes such copies before it copies.
So a leader that was replaced has nothing left to rename.
"""

from __future__ import annotations

import errno
import filecmp
import hashlib
import os
import shutil
import stat
import uuid
from contextlib import suppress
from pathlib import Path

from jrs.contract.errors import Fenced, InvalidInput, Unavailable
from jrs.records.model import StageRecord

from . import removal, transfer
from .job_folders import JobStorage
from .safe_listing import everything_below, is_folder
from .transfer import sync_tree

_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def check(path: Path, storage: JobStorage) -> None:
    """Raise `InvalidInput`, with the reason, unless output can be published at `path`, and
    `Unavailable` if that cannot be told now."""
    problem = ""
    if not path.is_absolute() or ".." in path.parts:
        problem = "it is not an absolute path"
    elif reason := _problem_with_parent(path.parent):
        problem = reason
    elif resolved(path).is_relative_to(storage.root.resolve()):
        problem = "jobs keep their own files there"
    elif os.path.lexists(path):
        problem = "the path exists already; move it away, or name another path"
    elif _is_too_long(path):
        problem = "its name is too long for the filesystem"
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        problem = f"no permission to write in {path.parent}"
    if problem:
        raise InvalidInput(f"nothing can be published at {path}: {problem}")


def _problem_with_parent(parent: Path) -> str:
    """Return why nothing can be published in a folder; empty if it exists."""
    try:
        return "" if is_folder(parent) else f"there is no folder {parent}"
    except Unavailable as error:
        if isinstance(error.__cause__, PermissionError):
            # It does not pass by itself: the job would be tried again forever.
            return f"no permission to look at {parent}"
        raise


def _is_too_long(path: Path) -> bool:
    """Return whether the filesystem takes no such name, in a folder that exists."""
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno == errno.ENAMETOOLONG
    return False


def publish(storage: JobStorage, record: StageRecord, epoch: int) -> None:
    """Move a record's published output to its path, unless that has happened. Idempotent.

    Raises:
        InvalidInput: another process has put something there meanwhile, or its folder is gone.
        Unavailable: the disk is full, or a similar error; the call may be repeated.
        Fenced: a newer leader has renamed the epoch's folder.
    """
    if record.target is None or record.published is None:
        return
    target = resolved(Path(record.target))
    folder = storage.epoch_folder(record.job_id, epoch)
    # A snapshot that was taken before the rename has it with the output.
    kept = storage.published(record.job_id, record.name, temporary=False)
    whole = next((path for path in (folder / record.published, kept) if is_folder(path)), None)
    try:
        if whole is not None:
            _move(whole, target, record.job_id, epoch)
            transfer.sync(target.parent)
    except OSError as error:
        if is_folder(folder) and not is_folder(target.parent):
            raise InvalidInput(
                f"{target} cannot be published: there is no folder {target.parent} any more"
            ) from None
        if is_folder(folder) and error.errno not in _TAKEN:
            raise Unavailable(f"{target} cannot be published: {error}") from error
        if is_folder(folder) and whole is not None and not _holds(target, whole):
            raise InvalidInput(
                f"{target} cannot be published: something else was put there meanwhile"
            ) from None
    if not is_folder(folder):
        raise Fenced(f"{folder} is gone: epoch {epoch} was replaced")
    if whole is not None and is_folder(whole):
        storage.discard(record.job_id, whole)  # It was copied.


def resolved(path: Path) -> Path:
    return path.parent.resolve() / path.name


def _move(whole: Path, target: Path, job_id: str, epoch: int) -> None:
    try:
        removal.rename(whole, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    else:
        return
    for left in unfinished_copies(target, job_id):
        # Rename it first, so that a replaced leader cannot rename it meanwhile.
        doomed = left.with_name(f"{left.name}.{uuid.uuid4().hex}")
        try:
            os.rename(left, doomed)
        except FileNotFoundError:
            continue
        removal.remove(doomed)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "exists", str(target))
    copy = target.with_name(f"{_mark(target, job_id)}{epoch}")
    try:
        shutil.copytree(whole, copy)
        sync_tree(copy)
        os.rename(copy, target)
    except BaseException:
        with suppress(OSError):
            removal.remove(copy)
        raise


def unfinished_copies(target: Path, job_id: str) -> list[Path]:
    """Return a job's unfinished copies for a path that it publishes at."""
    if not target.parent.is_dir():
        return []
    mark = _mark(target, job_id)
    return [path for path in target.parent.iterdir() if path.name.startswith(mark)]


def _mark(target: Path, job_id: str) -> str:
    """Return the prefix of such a copy's name; the rest is its epoch."""
    return f".jrs-{hashlib.sha256(f'{job_id} {target.name}'.encode()).hexdigest()[:16]}.e"


def _holds(target: Path, whole: Path) -> bool:
    """Return whether one folder contains all files of another, unchanged.

    Raises:
        Unavailable: the files cannot be compared now; the call may be repeated.
    """
    if target.is_symlink() or not is_folder(target):
        return False
    try:
        files = [path for path in everything_below(whole) if stat.S_ISREG(path.lstat().st_mode)]
        pairs = [(path, target / path.relative_to(whole)) for path in files]
        return all(
            not there.is_symlink() and there.is_file() and filecmp.cmp(path, there, shallow=False)
            for path, there in pairs
        )
    except OSError as error:
        raise Unavailable(
            f"{target} cannot be compared with the output to publish there: {error}"
        ) from error
