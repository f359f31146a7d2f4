"""What holds a job: a record or a checkpoint that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jrs.contract.errors import CorruptRecord, JobHeld

from ..files.disk_errors import unavailable


def held_by(unreadable: CorruptRecord) -> JobHeld:
    """Return the error of a job that is held because a record of it cannot be read."""
    return JobHeld(f"{unreadable}; restore the job from a snapshot")


@contextmanager
def held_if_unreadable() -> Iterator[None]:
    """Raise `JobHeld` where the block finds a record or a checkpoint that cannot be read."""
    try:
        yield
    except CorruptRecord as error:
        raise held_by(error) from None


@contextmanager
def held_or_away(what: str) -> Iterator[None]:
    """Do what `held_if_unreadable` does, and raise `Unavailable` where the block cannot read or
    write a file now. A file that is missing does not come back: its error stays.

    Args:
        what: what the block does, for people.
    """
    with held_if_unreadable(), unavailable(f"{what} failed"):
        yield
