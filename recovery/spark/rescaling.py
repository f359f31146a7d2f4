"""Rescaling: spreading the state of a stopped stream over another number of partitions.

Spark pins the number in the offset log and silently ignores another one at a restart. It has a call
that rewrites the state. jrs runs that on a copy made of links, and puts the copy in the
checkpoint's place when it is complete and durable. So a crash at any step leaves either the old
checkpoint or the new one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jrs.contract.errors import JobHeld

from ..checkpoint_format.checkpoint import log_until, newest_logged
from ..checkpoint_format.final_batch import offsets, position
from ..checkpoint_format.sink_log import SINK_LOG
from ..files.checkpoint_swap import complete_interrupted_rescale, done_folder, work_folder
from ..files.job_folders import sync_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def partitions(checkpoint: Path) -> int | None:
    """Return the number of partitions of the checkpoint's state; None if it has no state."""
    conf = _conf(checkpoint)
    return None if conf is None else int(conf[_PARTITIONS])


def check(checkpoint: Path) -> str | None:
    """Return why the checkpoint's state cannot be rescaled, or None if it can."""
    conf = _conf(checkpoint)
    if conf is None:
        return None
    provider = conf.get(_PROVIDER, "")
    if "RocksDB" in provider:
        return None
    return f"its state store, {provider.rpartition('.')[2]}, cannot be rescaled; RocksDB's can"


def rescale(session: SparkSession, checkpoint: Path, wanted: int) -> None:
    """Spread the state over `wanted` partitions. Durable and idempotent.

    The query must not run, and must be at a batch boundary.

    Raises:
        JobHeld: the state store cannot be rescaled.
    """
    complete_interrupted_rescale(checkpoint)
    now = partitions(checkpoint)
    if now is None or now == wanted:
        return
    why = check(checkpoint)
    if why is not None:
        raise JobHeld(f"{checkpoint}: {why}: resume the job with {now} partitions")
    work = work_folder(checkpoint)
    shutil.copytree(checkpoint, work, copy_function=os.link)  # No committed file is ever changed.
    session._streamingCheckpointManager.repartition(str(work), wanted)
    sync_tree(work)
    os.rename(work, done_folder(checkpoint))
    complete_interrupted_rescale(checkpoint)


def fill_sink_log(table: Path, checkpoint: Path, default: int) -> None:
    """Give the log of a file sink an entry without files for each batch committed without it.

    Rescaling is a batch of its own, which no sink has seen, and a file sink's log may have no gap.
    Any other batch is in the log before it is committed. Idempotent.

    Args:
        default: after how many entries Spark compacts a new log.
    """
    log = table / SINK_LOG
    if not log.is_dir():
        return
    for batch in range(newest_logged(log) + 1, position(checkpoint).committed + 1):
        half = log / f".{batch}.half"
        if (batch + 1) % _compact_interval(log, default):
            name, lines = str(batch), ["v1"]
        else:
            name, lines = f"{batch}.compact", ["v1", *_entries(log, batch - 1)]
        half.write_text("\n".join(lines), encoding="utf-8")
        os.rename(half, log / name)
    sync_tree(log)


def _compact_interval(log: Path, default: int) -> int:
    """Return the interval at which Spark expects compacted entries, derived from the existing ones
    in the same way as Spark does (`CompactibleFileStreamLog.deriveCompactInterval`)."""
    latest = sorted(int(path.stem) for path in log.glob("*.compact") if path.stem.isdigit())
    if not latest:
        return default
    if len(latest) > 1:
        return latest[-1] - latest[-2]
    count = latest[-1] + 1
    if default < count / 2:
        return next((n for n in range(default, count // 2 + 1) if count % n == 0), count)
    return count


def _entries(log: Path, last: int) -> Iterator[str]:
    for name in log_until(log, last, whole=True):
        yield from (log / name).read_text(encoding="utf-8").splitlines()[1:]


def _conf(checkpoint: Path) -> dict[str, str] | None:
    """Return the configuration that is pinned with the checkpoint's state; None without state."""
    at = position(checkpoint)
    if at.planned < 0 or not at.stateful:
        return None
    found: dict[str, str] = offsets(checkpoint, at.planned)[1]["conf"]
    return found
