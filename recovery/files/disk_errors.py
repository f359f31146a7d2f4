"""Errors of jrs's own calls to the filesystem: none of them is the job's, and most of them pass."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.records import keys

GONE = (FileNotFoundError, NotADirectoryError)
"""The errors of a path whose epoch folder was renamed: a file takes the folder's place."""

_LOST = (
    *(errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO),
    *(errno.EIO, errno.EUCLEAN, errno.EBADMSG),
)


def is_lost(error: OSError) -> bool:
    """Return whether an error of reading a file is damage: the file is missing, something else is
    in its place, or the disk or the filesystem has lost it. No retry can help.

    Any other error passes: the process has no descriptor left, or the storage is away. Taken for
    damage, it would put a job with an intact checkpoint back to a snapshot, or would delete a
    snapshot that is whole.
    """
    return error.errno in _LOST


def check_answers(backend: Backend) -> None:
    """Raise `Unavailable` if the backend does not answer. Else another `Unavailable` was that of a
    storage, and its caller can do the rest."""
    with suppress(CorruptRecord):
        backend.get(keys.EPOCH)


@contextmanager
def unavailable(what: str, *others: type[OSError]) -> Iterator[None]:
    """Turn an error of the filesystem into `Unavailable`: the disk is full, or fails, and a later
    attempt, or one on another host, may succeed.

    Args:
        what: is not possible now, for the message.
        others: errors that stay as they are, next to those of `GONE`.
    """
    with _translated(what, (*GONE, *others)):
        yield


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn any error of the filesystem into `Unavailable`: also that of a file that is missing,
    since it was there a moment ago.

    Args:
        what: the step, for the message.
    """
    with _translated(f"{what} failed", ()):
        yield


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Do what `unavailable` does, for a step that changes nothing until it succeeds. Only the error
    of a file that is missing stays.

    Args:
        what: the step, for the message.
    """
    with _translated(f"{what} failed, nothing was changed", (FileNotFoundError,)):
        yield


@contextmanager
def _translated(what: str, untouched: tuple[type[OSError], ...]) -> Iterator[None]:
    try:
        yield
    except untouched:
        raise
    except OSError as error:
        raise Unavailable(f"{what}: {error}") from error
