"""The epoch folders of one job: which one is the newest, and how a new leader replaces it.

A new leader withdraws the folder, and puts a *new* folder with links to its files in place::

    e5              ──► .e5.withdrawn      no path of the older attempt is valid any more
    .e5.withdrawn   ──► (its staging is deleted)
    its content     ──► .e5.kept           new folders of stages; then the withdrawn one is removed
    links           ──► .e6.<nonce> ──► e6
    .e5.kept        ──► the trash

A rename alone is a fence on one host. Clients of a network filesystem name folders by handles,
which stay valid after a rename, so an older attempt on another host would still write into the
renamed folder. It has no handle of a new folder. What it still writes into a checkpoint that was
kept is never read. It cannot publish, because its staging is gone, and so are the folders in which
it would make another one to begin a stage.

After a crash the withdrawn folder and the kept one are the job's newest, until the next leader
puts a new one in place. A process that finds such a folder as the newest one has to wait for that
leader.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import Fenced, Unavailable
from jrs.store import cluster_format

from . import permissions, removal, transfer
from .safe_listing import is_folder, names_in

SINCE_FORMAT = 5
"""The first cluster format in which a take-over makes new folders. Older versions of jrs, which may
lead in older formats, would not find what a death in between leaves."""

_WITHDRAWN, _KEPT = "withdrawn", "kept"
_NAME = re.compile(rf"e([0-9]+)|\.e([0-9]+)\.(?:{_WITHDRAWN}|{_KEPT})")
_UNFINISHED = re.compile(r"\.e([0-9]+)\.[0-9a-f]{32}")
_STAGING = re.compile(r".+\.[0-9]+")
"""The staging folders of batch stages: the stage and the attempt."""
_STREAMS = "streams"
_TRIES = 10
_BARS = 16
"""Epochs whose bars stay, at least."""

Link = Callable[[Path, Path], None]
"""Makes one path like another, with links to its files."""


class BeingTakenOver(FileNotFoundError):
    """A leader is replacing the job's epoch folder, or died while it was: look again later."""


def name_of(epoch: int) -> str:
    """Return the name of an epoch's folder in a job's folder."""
    return f"e{epoch}"


def are_renewed(backend: Backend) -> bool:
    """Return whether the take-overs of a cluster make new folders.

    Raises:
        CorruptRecord: the record of the format cannot be read.
        Unavailable: the backend did not answer.
    """
    return cluster_format.is_at_least(backend, SINCE_FORMAT)


def of_job(folder: Path) -> dict[int, Path]:
    """Return the epoch folders in a job's folder, by epoch; a withdrawn or kept one only if the
    epoch has no other."""
    found: dict[int, Path] = {}
    for name in reversed(names_in(folder)):  # Withdrawn ones, with a dot, come last.
        match = _NAME.fullmatch(name)
        if match is not None and is_folder(folder / name):
            found.setdefault(_epoch_in(match), folder / name)
    return found


def left(folder: Path, up_to: int | None = None) -> list[Path]:
    """Return the epoch folders in a job's folder, and all that replacing them may leave there, up
    to an epoch."""
    found = []
    for name in names_in(folder):
        match = _NAME.fullmatch(name) or _UNFINISHED.fullmatch(name)
        if match is not None and (up_to is None or _epoch_in(match) <= up_to):
            found.append(folder / name)
    return found


def unfinished(folder: Path, up_to: int) -> list[Path]:
    """Return what take-overs up to an epoch have built in a job's folder and not put in place."""
    return [path for path in left(folder, up_to) if _UNFINISHED.fullmatch(path.name)]


def in_place(folder: Path) -> Path | None:
    """Return the newest epoch folder in a job's folder; None if it has none, or a withdrawn one."""
    try:
        return newest(folder)
    except BeingTakenOver:
        return None


def newest(folder: Path) -> Path | None:
    """Return the newest epoch folder in a job's folder; None if it has none.

    Raises:
        BeingTakenOver: it is withdrawn, and its successor is not in place yet.
    """
    found = of_job(folder)
    if not found:
        return None
    path = found[max(found)]
    if _is_withdrawn(path):
        raise BeingTakenOver(errno.ENOENT, "is being taken over", str(path))
    return path


def staging_of(folder: Path, stage: str) -> list[Path]:
    """Return the staging folders of a batch stage in an epoch's folder, whatever their attempt.

    Raises:
        FileNotFoundError, NotADirectoryError: a newer leader has renamed the epoch's folder.
    """
    names = re.compile(rf"{re.escape(stage)}\.[0-9]+")
    return [folder / name for name in sorted(os.listdir(folder)) if names.fullmatch(name)]


def take_over(
    folder: Path, epoch: int, staged: Collection[str] | None, link_checkpoint: Link | None
) -> Path:
    """Put the newest epoch folder in a job's folder in place as `epoch`'s, or create it; return it.

    Durable but for the names in the job's folder itself.

    Args:
        staged: the staging folders that records name; None keeps all of them.
        link_checkpoint: makes a folder with links to the files of a stream's checkpoint. None only
            renames the epoch's folder, as clusters before format 5 do.

    Raises:
        Fenced: a newer epoch's folder exists.
        Unavailable: the folder cannot be replaced now, perhaps because the older attempt still adds
            files to its staging; repeat the call once its processes have ended.
    """
    target = folder / name_of(epoch)
    for _ in range(_TRIES):
        found = of_job(folder)
        newest = max(found, default=-1)
        if newest > epoch or (newest == epoch and found[newest] != target):
            raise Fenced(f"{found[newest]} exists: epoch {epoch} was replaced")
        try:
            if not found:
                permissions.make(target, exist_ok=True)
            elif newest == epoch:
                pass
            elif link_checkpoint is None and not _is_withdrawn(found[newest]):
                os.rename(found[newest], target)
                _bar(found[newest])
            else:
                withdrawn = _withdraw(found[newest])
                kept = _keep(withdrawn, staged)
                _renew(kept, target, link_checkpoint or transfer.link_tree)
            return target
        except FileNotFoundError:
            continue  # A newer leader was faster, or the older attempt has removed a file.
        except OSError as error:
            raise Unavailable(f"{folder} cannot be taken over: {error}") from error
    raise Unavailable(f"{folder} cannot be taken over: it changes all the time")


def sweep_bars(folder: Path, epoch: int) -> None:
    """Remove the files in a job's folder that keep attempts of much older epochs than `epoch` from
    making their folders again: each leadership leaves one, and none of those attempts is left."""
    if folder.is_symlink():
        return  # Other users of a shared storage may put one in its place.
    for name in names_in(folder):
        match = _NAME.fullmatch(name)
        if match is None or match[1] is None or int(match[1]) >= epoch - _BARS:
            continue
        with suppress(FileNotFoundError):
            found = os.lstat(folder / name)
            if stat.S_ISREG(found.st_mode) and not found.st_size:
                (folder / name).unlink()


# -- inside --------------------------------------------------------------------------------


def _is_withdrawn(path: Path) -> bool:
    return path.name.startswith(".")


def _epoch_in(match: re.Match[str]) -> int:
    return int(next(filter(None, match.groups())))


def _withdraw(path: Path) -> Path:
    """Rename an epoch folder, so that no path into it is valid any more; return its new path."""
    if _is_withdrawn(path):
        return _beside(path, _WITHDRAWN)
    withdrawn = path.with_name(f".{path.name}.{_WITHDRAWN}")
    os.rename(path, withdrawn)
    _bar(path)
    return withdrawn


def _beside(path: Path, what: str) -> Path:
    """Return the path of the withdrawn or the kept folder of an epoch, given one of the two."""
    return path.with_name(f"{path.name.rpartition('.')[0]}.{what}")


def _bar(path: Path) -> None:
    """Put a file in an old epoch folder's place, so that a zombie cannot create the folder
    again. Spark would, for a checkpoint that it is about to begin."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o400))
    except FileExistsError:
        pass


def _keep(withdrawn: Path, staged: Collection[str] | None) -> Path:
    """Move what a withdrawn folder has into a new one, except staging, and remove it; return the
    new one. From then on no handle leads to where something is published from."""
    kept = _beside(withdrawn, _KEPT)
    for _ in range(_TRIES):
        if not withdrawn.is_dir():
            return kept
        for path in _staging_in(withdrawn, staged):
            _remove_all(path)
        try:
            _move_out(withdrawn, kept, above=2)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    raise Unavailable(f"{withdrawn} cannot be removed: an earlier attempt still writes into it")


def _move_out(old: Path, new: Path, above: int) -> None:
    """Move the content of a folder into a new one, and remove it; likewise its folder of streams,
    and theirs. `above` is how many levels of such folders are left."""
    permissions.make(new, exist_ok=True)
    for path in sorted(old.iterdir()):
        target = new / path.name
        if above and path.is_dir() and (path.name == _STREAMS or above == 1):
            _move_out(path, target, above - 1)
        elif os.path.lexists(target):
            _remove_all(path)  # The older attempt has made it again since it was moved.
        else:
            removal.rename(path, target)
    old.rmdir()


def _renew(kept: Path, target: Path, link_checkpoint: Link) -> None:
    """Put a new folder in place, with links to the files of a kept one. Durable. What was built of
    one that fails is removed: it takes space, also that which a repetition needs."""
    building = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        _link_all(kept, building, link_checkpoint)
        transfer.sync_folders(building)
    except BaseException:
        with suppress(OSError):
            removal.remove(building)
        raise
    # Behind it: the client of a network filesystem may report a failure although it was renamed.
    os.rename(building, target)


def _link_all(kept: Path, building: Path, link_checkpoint: Link) -> None:
    permissions.make(building)
    for path in sorted(kept.iterdir()):
        if path.name != _STREAMS:
            transfer.link_tree(path, building / path.name)
            continue
        permissions.make(building / _STREAMS)
        for stage in sorted(path.iterdir()):
            permissions.make(building / _STREAMS / stage.name)
            for part in sorted(stage.iterdir()):
                link = link_checkpoint if part.is_dir() else transfer.link_tree
                link(part, building / _STREAMS / stage.name / part.name)


def _staging_in(folder: Path, staged: Collection[str] | None) -> Iterator[Path]:
    """Yield the folders below an epoch's that its attempts wrote before they published."""
    streams = folder / _STREAMS
    staging = (streams / name / "staging" for name in names_in(streams))
    yield from filter(os.path.lexists, staging)
    for path in folder.iterdir():
        unrecorded = staged is not None and path.name not in staged
        if path.name.startswith(".scratch.") or (unrecorded and _STAGING.fullmatch(path.name)):
            yield path


def _remove_all(path: Path) -> None:
    """Delete a folder or a file. The older attempt may be adding files, until it is gone."""
    for _ in range(_TRIES):
        try:
            removal.remove(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise Unavailable(f"{path} cannot be deleted: {error.strerror}") from error
        if not os.path.lexists(path):
            return
    raise Unavailable(f"{path} cannot be deleted: an earlier attempt still writes into it")
