"""Publishing at a place of the user's own: one rename, once, and never over what is there.

What is published is the output of finished stages, which does not change any more. It is put
together in staging, below the epoch's folder, from links to their files. On the filesystem of the
jobs the rename out of there is the fence, as for every stage. On another one the files are copied
beside the place first, under a name with the epoch, which the next leader removes before it copies:
so a leader that was replaced has nothing left to rename.
"""

from __future__ import annotations

import errno
import filecmp
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, Fenced, InvalidInput, Unavailable
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import Json, StageRecord

from ..files import transfer
from ..files.job_folders import GONE, JobStorage, sync_tree
from .job_cleanup import Resource
from .sink_logs import counted

_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def check(path: Path, storage: JobStorage) -> None:
    """Raise `InvalidInput`, saying why, unless something can be published at `path`."""
    problem = ""
    if not path.is_absolute() or ".." in path.parts:
        problem = "it is not an absolute path"
    elif not path.parent.is_dir():
        problem = f"there is no folder {path.parent}"
    elif _resolved(path).is_relative_to(storage.root.resolve()):
        problem = "jobs keep their own files there"
    elif os.path.lexists(path):
        problem = "something is there; move it away, or name another place"
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        problem = f"no permission to write in {path.parent}"
    if problem:
        raise InvalidInput(f"nothing can be published at {path}: {problem}")


def collect(outputs: Sequence[tuple[str, Path]], staging: Path) -> Json:
    """Link the output of stages into a staging folder; return what there is of it.

    Args:
        outputs: stages and the folders of their output. One is linked as it is, of several each has
            a folder of its own.

    Raises:
        InvalidInput: a stage has no output, or links are in it.
        Fenced: the epoch's folder was renamed by a newer leader.
    """
    files = size = 0
    try:
        staging.rmdir()
        staging.mkdir()  # Open to whom it may concern, unlike staging.
        for name, folder in outputs:
            if not folder.is_dir():
                raise InvalidInput(f"stage {name!r} has no output that could be published")
            links = [path for path in folder.rglob("*") if path.is_symlink()]
            if links:
                raise InvalidInput(f"{links[0]} is a link: what it leads to is not published")
            for source in counted(folder):
                top = staging / name if len(outputs) > 1 else staging
                target = top / source.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                if not transfer.link_or_copy(source, target):
                    target.chmod(stat.S_IMODE(source.stat().st_mode))
                files, size = files + 1, size + source.stat().st_size
    except GONE:
        if staging.parent.is_dir():
            raise
        raise Fenced(f"{staging.parent} is gone: its epoch was replaced") from None
    return {"files": files, "bytes": size}


def publish(storage: JobStorage, record: StageRecord, epoch: int) -> None:
    """Move what a record says is published to its place, unless that has happened. Idempotent.

    Raises:
        InvalidInput: something else has been put there meanwhile, or its folder is gone.
        Unavailable: the disk is full, or the like; it may be repeated.
        Fenced: the epoch's folder was renamed by a newer leader.
    """
    if record.target is None or record.published is None:
        return
    target, folder = _resolved(Path(record.target)), storage.folder(record.job_id) / f"e{epoch}"
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
                f"{target} can not be published: there is no folder {target.parent} any more"
            ) from None
        if folder.is_dir() and error.errno not in _TAKEN:
            raise Unavailable(f"{target} can not be published: {error}") from error
        if folder.is_dir() and whole is not None and not _holds(target, whole):
            raise InvalidInput(
                f"{target} can not be published: something else was put there meanwhile"
            ) from None
    if not folder.is_dir():
        raise Fenced(f"{folder} is gone: epoch {epoch} was replaced")
    if whole is not None and whole.is_dir():
        storage.discard(record.job_id, whole)  # It was copied.


class HalfPublished(Resource):
    """Copies beside the places where the job publishes, which were never finished."""

    name = "half-published copies"
    prioritised = True
    """The stages' records say where to look, and go afterwards."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def clean(self, job_id: str) -> None:
        places = []
        for target in self._targets(job_id):
            for path in _left_over(target, job_id):
                shutil.rmtree(path)
            places.append(target.parent)
        # They may be on a filesystem that is away, and the records are all that tells of them.
        if away := [place for place in places if not place.is_dir()]:
            raise Unavailable(
                f"what is half published in {away[0]} can not be found: there is no such folder; "
                "mount it, or make an empty one if it is gone for good"
            )

    def describe(self, job_id: str) -> list[str]:
        return [
            str(path) for target in self._targets(job_id) for path in _left_over(target, job_id)
        ]

    def _targets(self, job_id: str) -> Iterator[Path]:
        for stored in self._backend.scan(keys.stages(job_id)):
            try:
                record = decode(StageRecord, stored.value, stored.key)
            except CorruptRecord:
                continue  # It must not keep its job from being cleaned up.
            if record.target is not None:
                yield _resolved(Path(record.target))


def _resolved(path: Path) -> Path:
    return path.parent.resolve() / path.name


def _move(whole: Path, target: Path, job_id: str, epoch: int) -> None:
    try:
        os.rename(whole, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    else:
        return
    for left in _left_over(target, job_id):
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


def _left_over(target: Path, job_id: str) -> list[Path]:
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
        Unavailable: that can not be told; it may be repeated.
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
            f"what is at {target} can not be compared with what is to be published there: {error}"
        ) from error
