"""Rescaling: the state of a stopped stream, spread over another number of partitions.

Spark pins the number in the offset log, so a restart with another one is silently ignored. It has
a call of its own that rewrites the state; jrs lets it work on a copy made of links, and puts that
in the checkpoint's place when it is complete and durable. So a crash at any step leaves either the
old checkpoint or the new one.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from jrs.errors import JobHeld
from jrs.recovery.spark.ending import position
from jrs.recovery.storage import sync_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def partitions(checkpoint: Path) -> int | None:
    """Return over how many partitions the checkpoint's state is spread; None if it has none."""
    at = position(checkpoint)
    if at.planned < 0 or not at.stateful:
        return None
    return int(_conf(checkpoint)[_PARTITIONS])


def check(checkpoint: Path) -> str | None:
    """Return why the checkpoint's state can not be rescaled, or None if it can."""
    if partitions(checkpoint) is None:
        return None
    provider = _conf(checkpoint).get(_PROVIDER, "")
    if "RocksDB" in provider:
        return None
    return f"its state store, {provider.rpartition('.')[2]}, can not be rescaled; RocksDB's can"


def rescale(session: SparkSession, checkpoint: Path, wanted: int) -> None:
    """Spread the state over `wanted` partitions. Durable; harmless if it is so already.

    The query must not run, and has to stand at a batch boundary.

    Raises:
        JobHeld: the state store can not be rescaled.
    """
    settle(checkpoint)
    now = partitions(checkpoint)
    if now is None or now == wanted:
        return
    why = check(checkpoint)
    if why is not None:
        raise JobHeld(f"{checkpoint}: {why}: resume the job with {now} partitions")
    work, done = checkpoint.with_name("ck.rescaling"), _done(checkpoint)
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(checkpoint, work, copy_function=os.link)  # No committed file is ever changed.
    session._streamingCheckpointManager.repartition(str(work), wanted)
    sync_tree(work)
    os.rename(work, done)
    settle(checkpoint)


def settle(checkpoint: Path) -> None:
    """Put a rescaled checkpoint in its place, if there is one: what a crash left undone."""
    done, before = _done(checkpoint), checkpoint.with_name("ck.before")
    if done.is_dir():
        if checkpoint.is_dir() and any(checkpoint.iterdir()):
            shutil.rmtree(before, ignore_errors=True)
            os.rename(checkpoint, before)
        os.rename(done, checkpoint)
    shutil.rmtree(before, ignore_errors=True)


def _done(checkpoint: Path) -> Path:
    return checkpoint.with_name("ck.rescaled")


def _conf(checkpoint: Path) -> dict[str, str]:
    newest = position(checkpoint).planned
    lines = (checkpoint / "offsets" / str(newest)).read_text(encoding="utf-8").split("\n")
    found: dict[str, str] = json.loads(lines[1])["conf"]
    return found
