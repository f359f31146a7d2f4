"""The position of a checkpoint: its newest planned batch, and its newest committed one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import attrs

from . import offset_log
from .listing import newest
from .offset_log import OffsetLog
from .unreadable import UnreadableCheckpoint, damage

END_OF_TIME = 253402300799583
"""The watermark of a flushed stream, in milliseconds. It lies in the last second of the year 9999,
later than any date that stands for "never"."""


@attrs.frozen
class Position:
    """How far a checkpoint is."""

    planned: int
    """The newest batch in the offset log; -1 if the log is empty."""
    committed: int
    """The newest batch in the commit log; -1 if the log is empty."""
    at_the_end: bool
    """Whether the newest planned batch is the one that flushes."""
    stateful: bool

    @property
    def flushed(self) -> bool:
        return self.at_the_end and self.committed == self.planned


def position(checkpoint: Path) -> Position:
    """Read how far a checkpoint is. A missing checkpoint is before its first batch.

    Raises:
        UnreadableCheckpoint: the logs are damaged, or contradict each other.
        OSError: the logs cannot be read now; see `is_lost`.
    """
    while True:
        committed = newest(checkpoint / "commits")
        planned = newest(checkpoint / "offsets")
        if newest(checkpoint / "commits") == committed:
            break  # No batch was committed while the offset log was listed.
    if not committed <= planned <= committed + 1:
        raise UnreadableCheckpoint(
            f"the checkpoint {checkpoint} is damaged: batch {planned} is the newest planned and "
            f"{committed} the newest committed"
        )
    at_the_end = planned >= 0 and read_plan(checkpoint, planned).watermark == END_OF_TIME
    return Position(planned, committed, at_the_end, (checkpoint / "state").is_dir())


def read_plan(checkpoint: Path, batch: int) -> OffsetLog:
    """Return the plan of a batch, which always names a watermark.

    Raises:
        UnreadableCheckpoint: the plan is missing, is damaged, or names no watermark.
        OSError: the plan cannot be read now.
    """
    with damage(f"the offset log of {checkpoint} cannot be read: batch {batch}"):
        plan = offset_log.read(checkpoint / "offsets" / str(batch))
        if plan.watermark is None:
            raise UnreadableCheckpoint("it names no watermark")
        return plan


def input_digest(
    checkpoint: Path, batch: int, read: Callable[[Path], bytes] = Path.read_bytes
) -> str:
    """Return a digest of the input of a batch, by its plan and the logs that it refers to; empty
    if its plan is missing or damaged.

    Args:
        read: reads an entry of a source's log.

    Raises:
        UnreadableCheckpoint: the disk has lost a file.
        OSError: a file cannot be read now.
    """
    with damage(f"the input of batch {batch} of {checkpoint} cannot be read"):
        return _input_digest(checkpoint, batch, read)


def _input_digest(checkpoint: Path, batch: int, read: Callable[[Path], bytes]) -> str:
    try:
        plan = offset_log.read(checkpoint / "offsets" / str(batch))
    except (FileNotFoundError, UnreadableCheckpoint):
        return ""
    digest = hashlib.sha256()
    for source in plan.sources:
        digest.update(f"{source.name} {source.offset}\n".encode())
        # After a power cut, a file source may give the number of an entry that was lost to another.
        for name in (f"{source.log_end}", f"{source.log_end}.compact"):
            with suppress(FileNotFoundError):
                digest.update(read(checkpoint / "sources" / source.name / name))
    return digest.hexdigest()[:32]


def state_plan(checkpoint: Path) -> OffsetLog | None:
    """Return the plan of the newest batch; None if the query has no state, or no batch.

    Raises:
        UnreadableCheckpoint, OSError: as `position`.
    """
    at = position(checkpoint)
    return read_plan(checkpoint, at.planned) if at.planned >= 0 and at.stateful else None
