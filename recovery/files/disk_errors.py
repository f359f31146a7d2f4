"""Errors of jrs's own calls to the filesystem: none of them is the job's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jrs.contract.errors import Unavailable

GONE = (FileNotFoundError, NotADirectoryError)
"""The errors of a path whose epoch folder was renamed: a file takes the folder's place."""


@contextmanager
def unavailable(what: str, *others: type[OSError]) -> Iterator[None]:
    """Turn an error of the filesystem into `Unavailable`: the disk is full, or fails, and a later
    attempt, or one on another host, may succeed.

    Args:
        what: is not possible now, for the message.
        others: errors that stay as they are, next to those of `GONE`.
    """
    try:
        yield
    except (*GONE, *others):
        raise
    except OSError as error:
        raise Unavailable(f"{what}: {error}") from error
