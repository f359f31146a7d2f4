"""The end of a stream: this module plans the batch that flushes what the stream holds back.

Spark has no call for "the input is over". But a file in the offset log plans a batch, and the next
start carries out what is planned. So jrs plans the last batch itself: without input, and with a
watermark at the end of time. At that watermark every window, join and timer of event time emits
what it still holds. The stream cannot resume afterwards: all input would be late.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from jrs.contract.errors import JobHeld

from ..files.sync import sync
from .position import END_OF_TIME, position, read_plan


def plan_flush(checkpoint: Path, *, now: float | None = None) -> None:
    """Plan the batch that flushes. The next start with ``trigger(once=True)`` runs it.

    Durable. Idempotent: once the batch is planned, this changes nothing, before or after its run.

    Raises:
        JobHeld: the newest batch is not committed, or the checkpoint has no batch.
        UnreadableCheckpoint, OSError: as `position`.
        OSError: the batch cannot be written now; the call may be repeated.
    """
    at = position(checkpoint)
    if at.at_the_end:
        sync(checkpoint / "offsets")  # An earlier call may have failed right before.
        return
    if at.planned < 0 or at.planned != at.committed:
        raise JobHeld(
            f"the checkpoint {checkpoint} is not at a batch boundary: its end cannot be planned"
        )
    timestamp = int((time.time() if now is None else now) * 1000)
    plan = read_plan(checkpoint, at.planned).at(END_OF_TIME, timestamp)
    folder = checkpoint / "offsets"
    temporary = folder / f".{at.planned + 1}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(plan.text())
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, folder / str(at.planned + 1))
    except FileExistsError:
        pass  # Another process planned it: at this point the plan cannot differ.
    finally:
        temporary.unlink()
    sync(folder)
