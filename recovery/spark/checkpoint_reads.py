"""Reading checkpoints for an attempt: what is damaged holds its job, and what cannot be read now is
tried again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jrs.contract.errors import JobHeld, Unavailable

from ..attempt.held import held_by
from ..checkpoint_format import checkpoint as checkpoints
from ..checkpoint_format import final_batch, sink_log
from ..checkpoint_format import position as positions
from ..checkpoint_format.position import Position
from ..checkpoint_format.unreadable import UnreadableCheckpoint
from ..files.disk_errors import is_lost, unavailable


@contextmanager
def or_held() -> Iterator[None]:
    """Raise `JobHeld` where the block finds a checkpoint that is damaged, and `Unavailable` where
    it cannot be read now."""
    try:
        yield
    except UnreadableCheckpoint as error:
        raise held_by(error) from None
    except OSError as error:
        if is_lost(error):
            raise held_by(UnreadableCheckpoint(f"a checkpoint cannot be read: {error}")) from None
        raise Unavailable(f"a checkpoint cannot be read now: {error}") from error


def position(checkpoint: Path) -> Position:
    """Read how far a checkpoint is; see `checkpoint_format.position`.

    Raises:
        JobHeld: the logs are damaged, or contradict each other.
        Unavailable: the logs cannot be read now.
    """
    with or_held():
        return positions.position(checkpoint)


def is_computed(checkpoint: Path, batch: int) -> bool:
    """Return whether a run has computed a batch; see `checkpoint_format.checkpoint`.

    Raises:
        JobHeld: the plan of the batch is missing or damaged.
        Unavailable: the checkpoint cannot be read now.
    """
    with or_held():
        return checkpoints.is_computed(checkpoint, batch)


def newest_in_table(table: Path) -> int:
    """Return the newest batch that Spark's file sink has written to a table; -1 if it has none.

    Raises:
        JobHeld: the log of the sink is lost.
        Unavailable: it cannot be read now.
    """
    try:
        return max(sink_log.batches(table / sink_log.SINK_LOG), default=-1)
    except OSError as error:
        if is_lost(error):
            # The table is the user's own: a restore of the job would change nothing of it.
            raise JobHeld(
                f"the log of {table} cannot be read: {error}; repair it, or move the table away"
            ) from None
        raise Unavailable(f"the log of {table} cannot be read now: {error}") from error


def plan_flush(checkpoint: Path) -> None:
    """Plan the batch that flushes; see `checkpoint_format.final_batch`.

    Raises:
        JobHeld: the checkpoint is damaged, or its newest batch is not committed.
        Unavailable: the batch cannot be written now; the call may be repeated.
    """
    with or_held(), unavailable(f"the last batch of {checkpoint} cannot be planned"):
        final_batch.plan_flush(checkpoint)
