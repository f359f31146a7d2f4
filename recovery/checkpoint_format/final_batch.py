"""The end of a stream: where its checkpoint stands, and the batch that flushes what it holds back.

Spark has no call for "the input is over". But a batch is planned by a line in the offset log, and
what is planned is carried out at the next start. So the last batch is planned by hand: no input,
and a watermark at the end of time, at which every window, join and timer of event time gives what
it still holds. The stream cannot go on afterwards: everything would be late.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import attrs

from jrs.contract.errors import JobHeld

from ..files.transfer import sync

END_OF_TIME = 253402300799583
"""The watermark of a flushed stream, in milliseconds: in the last second of the year 9999, and
none that a date which somebody has for "never" gives."""


@attrs.frozen
class Position:
    """Where a checkpoint stands."""

    planned: int
    """The newest batch in the offset log; -1 if there is none."""
    committed: int
    """The newest batch in the commit log; -1 if there is none."""
    at_the_end: bool
    """Whether the newest planned batch is the one that flushes."""
    stateful: bool

    @property
    def flushed(self) -> bool:
        return self.at_the_end and self.committed == self.planned


def position(checkpoint: Path) -> Position:
    """Read where a checkpoint stands; of none at all, that it is before the first batch.

    Raises:
        JobHeld: the logs cannot be read, or contradict each other.
    """
    while True:
        committed = _newest(checkpoint / "commits")
        planned = _newest(checkpoint / "offsets")
        if _newest(checkpoint / "commits") == committed:
            break  # Its query, if it runs, has not come further between the two.
    if not committed <= planned <= committed + 1:
        raise JobHeld(
            f"the checkpoint {checkpoint} is damaged: batch {planned} is the newest planned and "
            f"{committed} the newest committed"
        )
    at_the_end = planned >= 0 and offsets(checkpoint, planned)[1]["batchWatermarkMs"] == END_OF_TIME
    return Position(planned, committed, at_the_end, (checkpoint / "state").is_dir())


def plan_flush(checkpoint: Path, *, now: float | None = None) -> None:
    """Plan the batch that flushes; it is run by the next start with ``trigger(once=True)``.

    Durable. Idempotent: planned again, or after it has run, nothing is changed.

    Raises:
        JobHeld: the checkpoint cannot be read, or has a batch that is planned and not committed.
    """
    at = position(checkpoint)
    if at.at_the_end:
        return
    if at.planned < 0 or at.planned != at.committed:
        raise JobHeld(
            f"the checkpoint {checkpoint} does not stand at a batch boundary: its end cannot be "
            "planned"
        )
    version, meta, sources = offsets(checkpoint, at.planned)
    meta["batchWatermarkMs"] = END_OF_TIME
    meta["batchTimestampMs"] = int((time.time() if now is None else now) * 1000)
    text = "\n".join([version, json.dumps(meta, separators=(",", ":")), *sources])
    folder = checkpoint / "offsets"
    temporary = folder / f".{at.planned + 1}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, folder / str(at.planned + 1))
    except FileExistsError:
        pass  # The same, planned by somebody else: nobody plans anything else by now.
    finally:
        temporary.unlink()
    sync(folder)


def _newest(folder: Path) -> int:
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


def offsets(checkpoint: Path, batch: int) -> tuple[str, dict[str, Any], list[str]]:
    """Return a planned batch as the offset log has it: its version, what it is run with (the
    watermark, the pinned configuration), and a line for each source.

    Raises:
        JobHeld: it cannot be read.
    """
    path = checkpoint / "offsets" / str(batch)
    try:
        version, meta, *sources = path.read_text(encoding="utf-8").split("\n")
        found = json.loads(meta)
        if not isinstance(found, dict) or type(found.get("batchWatermarkMs")) is not int:
            raise ValueError("it names no watermark")
        return version, found, sources
    except (OSError, ValueError) as error:
        raise JobHeld(
            f"the offset log of {checkpoint} cannot be read: batch {batch}: {error}"
        ) from None
