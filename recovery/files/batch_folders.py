"""The folders of a stream's batches: staged under a name of their own, published as ``batch=N``."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from jrs.contract.errors import JobHeld, Unavailable

from . import permissions
from .safe_listing import names_in
from .sync import sync

_BATCH = re.compile(r"batch=(0|[1-9][0-9]*)")
_PART = re.compile(r"part-[0-9a-f]{32}\.parquet")


def stage(staging: Path, files: Sequence[str], folder: str) -> None:
    """Move staged files into a new folder next to them. Durable and idempotent.

    Raises:
        FileNotFoundError: a file is missing, or the staging folder is gone.
        OSError: they cannot be moved now; the call may be repeated.
    """
    whole = staging / folder
    permissions.make(whole, exist_ok=True)
    for name in files:
        try:
            os.rename(staging / name, whole / name)
        except FileNotFoundError:
            if not (whole / name).exists():
                raise
    sync(whole)
    sync(staging)


def publish(staged: Path, out: Path, stage: str, batch: int) -> bool:
    """Rename a batch's staged folder into the output; return whether the batch is there now.

    Durable and idempotent.

    Raises:
        JobHeld: another batch of this number is there.
        Unavailable: it is staged, and cannot be published now; the call may be repeated.
    """
    try:
        return _publish(staged, out, batch)
    except FileExistsError as error:
        raise JobHeld(
            f"stage {stage!r}: {error.filename} is not batch {batch} that was committed; "
            "move it away"
        ) from None
    except OSError as error:
        raise Unavailable(
            f"batch {batch} of stage {stage!r} cannot be published: {error}"
        ) from error


def _publish(staged: Path, out: Path, batch: int) -> bool:
    target = out / f"batch={batch}"
    try:
        os.rename(staged, target)
    except (FileNotFoundError, NotADirectoryError):
        if staged.is_dir():
            raise  # The folder of the output is missing.
        if not target.is_dir():
            return False
    except OSError as error:
        if not target.is_dir():
            raise
        # Publishing moves the folder, so this is not the one that is staged.
        raise FileExistsError(errno.EEXIST, "is there already", str(target)) from error
    sync(out)  # Also if another process has renamed it: it may have died before it did this.
    return True


def sweep(staging: Path) -> None:
    """Delete the staged files that are in no folder: those of tries that were not committed."""
    for name in os.listdir(staging):
        if is_part(name):
            (staging / name).unlink(missing_ok=True)


def is_part(name: str) -> bool:
    """Return whether a file's name is one that the jrs sink gives."""
    return _PART.fullmatch(name) is not None


def parts(folder: Path) -> list[str]:
    """Return the names of the sink's files in a batch folder, sorted; none if it is missing.

    Others may lie there as well: what a file browser, Hadoop's tools or NFS leave behind.

    Raises:
        Unavailable: the folder cannot be listed now.
    """
    return list(filter(is_part, names_in(folder)))


def is_named(name: str) -> bool:
    """Return whether a folder has such a name as that of a batch."""
    return _BATCH.fullmatch(name) is not None


def number_of(folder: Path) -> int | None:
    """Return the number of a batch folder of the jrs sink; None for any other folder, such as a
    partition of the job's own table with that name. Raises `Unavailable` as `published`."""
    match = _BATCH.fullmatch(folder.name)
    return int(match[1]) if match and parts(folder) else None


def published(out: Path) -> Iterator[int]:
    """Yield the numbers of the batches in a stage's output, newest first; none if it is missing.

    Each folder is listed when its number is asked for: a stream of months has a million of them.

    Raises:
        Unavailable: a folder cannot be listed now, so that a batch may be missing.
    """
    for number in reversed(numbered(out)):
        if parts(out / f"batch={number}"):
            yield number


def numbered(out: Path) -> list[int]:
    """Return the numbers of the folders in an output that are named as batches, sorted; none if it
    is missing. Raises `Unavailable` if it cannot be listed now."""
    return sorted(int(match[1]) for name in names_in(out) if (match := _BATCH.fullmatch(name)))
