"""Publishing at a place of the user's own: one rename, once, and never over what is there.

What is published is the output of finished stages, which does not change any more. It is put
together in staging, below the epoch's folder, from links to their files. On the filesystem of the
jobs the rename out of there is the fence, as for every stage. On another one the files are copied
next to the place first, under a name with the epoch, which the next leader removes before it
copies: so a leader that was replaced has nothing left to rename.
"""

from __future__ import annotations

import errno
import filecmp
import hashlib
import os
import shutil
import stat
import uuid
from pathlib import Path

from jrs.contract.errors import Fenced, InvalidInput, Unavailable
from jrs.records.model import StageRecord

from . import transfer
from .job_folders import JobStorage, sync_tree

_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def check(path: Path, storage: JobStorage) -> None:
    """Raise `InvalidInput`, saying why, unless something can be published at `path`."""
    problem = ""
    if not path.is_absolute() or ".." in path.parts:
        problem = "it is not an absolute path"
    elif not path.parent.is_dir():
        problem = f"there is no folder {path.parent}"
    elif resolved(path).is_relative_to(storage.root.resolve()):
        problem = "jobs keep their own files there"
    elif os.path.lexists(path):
        problem = "something is there; move it away, or name another place"
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        problem = f"no permission to write in {path.parent}"
    if problem:
        raise InvalidInput(f"nothing can be published at {path}: {problem}")


def publish(storage: JobStorage, record: StageRecord, epoch: int) -> None:
    """Move what a record says is published to its place, unless that has happened. Idempotent.

    Raises:
        InvalidInput: something else has been put there meanwhile, or its folder is gone.
        Unavailable: the disk is full, or the like; it may be repeated.
        Fenced: the epoch's folder was renamed by a newer leader.
    """
    if record.target is None or record.published is None:
        return
    target, folder = resolved(Path(record.target)), storage.folder(record.job_id) / f"e{epoch}"
    # A snapshot that was taken before the rename has it with the output.
    kept = storage.published(record.job_id, record.name, temporary=False)
    whole = next((path for path in (folder / record.published, kept) if path.is_dir()), None)
    try:
        if whole is not None:
            _move(whole, target, record.job_id, epoch)
            transfer.sync(target.parent)
    except OSError as error:
        if folder.is_dir() and not target.parent.is_dir():
            raise InvalidInput(
                f"{target} cannot be published: there is no folder {target.parent} any more"
            ) from None
        if folder.is_dir() and error.errno not in _TAKEN:
            raise Unavailable(f"{target} cannot be published: {error}") from error
        if folder.is_dir() and whole is not None and not _holds(target, whole):
            raise InvalidInput(
                f"{target} cannot be published: something else was put there meanwhile"
            ) from None
    if not folder.is_dir():
        raise Fenced(f"{folder} is gone: epoch {epoch} was replaced")
    if whole is not None and whole.is_dir():
        storage.discard(record.job_id, whole)  # It was copied.


def resolved(path: Path) -> Path:
    return path.parent.resolve() / path.name


def _move(whole: Path, target: Path, job_id: str, epoch: int) -> None:
    try:
        os.rename(whole, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    else:
        return
    for left in unfinished_copies(target, job_id):
        # First from under the hands of a leader that was replaced, and might rename it meanwhile.
        doomed = left.with_name(f"{left.name}.{uuid.uuid4().hex}")
        try:
            os.rename(left, doomed)
        except FileNotFoundError:
            continue
        shutil.rmtree(doomed)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "is there", str(target))
    copy = target.with_name(f"{_mark(target, job_id)}{epoch}")
    try:
        shutil.copytree(whole, copy)
        sync_tree(copy)
        os.rename(copy, target)
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        raise


def unfinished_copies(target: Path, job_id: str) -> list[Path]:
    """Return the copies of what a job publishes at a place that were not finished."""
    if not target.parent.is_dir():
        return []
    mark = _mark(target, job_id)
    return [path for path in target.parent.iterdir() if path.name.startswith(mark)]


def _mark(target: Path, job_id: str) -> str:
    """Return what the name of such a copy begins with; the rest is its epoch."""
    return f".jrs-{hashlib.sha256(f'{job_id} {target.name}'.encode()).hexdigest()[:16]}.e"


def _holds(target: Path, whole: Path) -> bool:
    """Return whether all files of one folder are in another, as they are.

    Raises:
        Unavailable: that cannot be told; it may be repeated.
    """
    if target.is_symlink() or not target.is_dir():
        return False
    files = [path for path in whole.rglob("*") if stat.S_ISREG(path.lstat().st_mode)]
    pairs = [(path, target / path.relative_to(whole)) for path in files]
    try:
        return all(
            not there.is_symlink() and there.is_file() and filecmp.cmp(path, there, shallow=False)
            for path, there in pairs
        )
    except OSError as error:
        raise Unavailable(
            f"what is at {target} cannot be compared with what is to be published there: {error}"
        ) from error
