"""Rescaling: spreading the state of a stopped stream over another number of partitions.

Spark pins the number in the offset log and silently ignores another one at a restart. It has a call
that rewrites the state. jrs runs that on a copy made of links, and puts the copy in the
checkpoint's place when it is complete and durable. So a crash at any step leaves either the old
checkpoint or the new one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from jrs.contract.errors import JobHeld

from ..checkpoint_format import sink_log
from ..checkpoint_format.offset_log import STATE_STORE, OffsetLog
from ..checkpoint_format.position import state_plan
from ..checkpoint_format.sink_log import SINK_LOG
from ..files import transfer
from ..files.disk_errors import writing
from ..files.rescaled_checkpoint import complete_interrupted_rescale, done_folder, work_folder
from ..files.transfer import sync_tree
from .checkpoint_reads import or_held, position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def partitions(checkpoint: Path) -> int | None:
    """Return the number of partitions of the checkpoint's state; None if it has no state.

    Raises:
        JobHeld: the checkpoint is damaged, or pins no number.
        Unavailable: the checkpoint cannot be read now.
    """
    plan = _plan(checkpoint)
    if plan is not None and plan.partitions is None:
        raise JobHeld(f"the offset log of {checkpoint} pins no number of partitions")
    return None if plan is None else plan.partitions


def check(checkpoint: Path) -> str | None:
    """Return why the checkpoint's state cannot be rescaled, or None if it can.

    Raises:
        JobHeld: the checkpoint is damaged.
        Unavailable: the checkpoint cannot be read now.
    """
    plan = _plan(checkpoint)
    if plan is None:
        return None
    provider = plan.conf.get(STATE_STORE, "")
    if "RocksDB" in provider:
        return None
    return f"its state store, {provider.rpartition('.')[2]}, cannot be rescaled; RocksDB's can"


def rescale(session: SparkSession, checkpoint: Path, wanted: int) -> None:
    """Spread the state over `wanted` partitions. Durable and idempotent.

    The query must not run, and must be at a batch boundary.

    Raises:
        JobHeld: the state store cannot be rescaled.
        OSError: a file cannot be read or written now; the call may be repeated.
        Whatever Spark raises.
    """
    complete_interrupted_rescale(checkpoint)
    now = partitions(checkpoint)
    if now is None or now == wanted:
        return
    why = check(checkpoint)
    if why is not None:
        raise JobHeld(f"{checkpoint}: {why}: resume the job with {now} partitions")
    work = work_folder(checkpoint)
    # No committed file is ever changed.
    shutil.copytree(checkpoint, work, copy_function=_link)
    session._streamingCheckpointManager.repartition(str(work), wanted)
    sync_tree(work)
    os.rename(work, done_folder(checkpoint))
    complete_interrupted_rescale(checkpoint)


def complete(checkpoint: Path) -> None:
    """Finish a swap of checkpoints that was interrupted. Durable and idempotent; the query must not
    run.

    Raises:
        Unavailable: the disk fails; the call may be repeated.
    """
    with writing(f"completing the rescale of {checkpoint}"):
        complete_interrupted_rescale(checkpoint)


def fill_sink_log(table: Path, checkpoint: Path, default: int) -> None:
    """Give the log of a file sink an entry without files for each batch committed without it.

    Rescaling is a batch of its own, which no sink has seen, and a file sink's log may have no gap.
    Any other batch is in the log before it is committed. Idempotent.

    Args:
        default: after how many entries Spark compacts a new log.

    Raises:
        JobHeld: the log is damaged.
        Unavailable: it cannot be read or written now; the call may be repeated.
    """
    log = table / SINK_LOG
    with or_held(), writing(f"completing {log}"):
        if log.is_dir():
            sink_log.fill(log, position(checkpoint).committed, default)
            sync_tree(log)


def _link(source: str, target: str) -> None:
    transfer.link_or_copy(Path(source), Path(target))


def _plan(checkpoint: Path) -> OffsetLog | None:
    """Return the plan of the newest batch; None if the query has no state."""
    with or_held():
        return state_plan(checkpoint)
