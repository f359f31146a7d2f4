"""Reading checkpoints for an attempt, which holds its job if a checkpoint cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jrs.contract.errors import JobHeld

from ..checkpoint_format import final_batch
from ..checkpoint_format import position as positions
from ..checkpoint_format.position import Position
from ..checkpoint_format.unreadable import UnreadableCheckpoint


@contextmanager
def or_held() -> Iterator[None]:
    """Raise `JobHeld` where the block finds a checkpoint that cannot be read."""
    try:
        yield
    except UnreadableCheckpoint as error:
        raise JobHeld(str(error)) from None


def position(checkpoint: Path) -> Position:
    """Read how far a checkpoint is; see `checkpoint_format.position`.

    Raises:
        JobHeld: the logs cannot be read, or contradict each other.
    """
    with or_held():
        return positions.position(checkpoint)


def plan_flush(checkpoint: Path) -> None:
    """Plan the batch that flushes; see `checkpoint_format.final_batch`.

    Raises:
        JobHeld: the checkpoint cannot be read, or its newest batch is not committed.
    """
    with or_held():
        final_batch.plan_flush(checkpoint)
