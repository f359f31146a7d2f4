"""A job with two unbounded stages whose attempts die, killed -9, each at a given step of a drain.

Loaded by path in processes of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jrs
from jrs import Job
from jrs.records.model import Json
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.stop_watcher import StopWatcher
from jrs.recovery.checkpoint_format.position import position
from jrs.recovery.spark import boundary, stage_query
from jrs.recovery.spark.stage_query import StageQuery
from jrs.store.result_store import JobResultStore

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEMA = "at timestamp, key string, value long"
STEPS: dict[str, tuple[Any, str, str]] = {
    "drain requested": (StopWatcher, "_begin", "before"),
    "stopped at a boundary": (boundary, "stop", "after"),
    "caught up": (stage_query, "plan_flush", "before"),
    "flush planned": (stage_query, "plan_flush", "after"),
    "flushed, not recorded": (AttemptRun, "commit_stages", "before"),
    "recorded, no result": (AttemptRun, "commit_stages", "after"),
    "result not stored": (JobResultStore, "create_dirty", "before"),
    "result stored": (JobResultStore, "create_dirty", "after"),
}
"""The call at which an attempt dies, before it is made or after it, in the order of a drain."""
CATCHING_UP, FLUSHING = "catching up", "flushing"
IN_A_BATCH = (CATCHING_UP, FLUSHING)
"""An attempt dies in the batch that runs at this step, when its rows are about to be published."""


def drained(job: Job, folder: str, steps: list[str]) -> Json:
    """Two stages that are drained; attempt `n` dies at ``steps[n - 1]``."""
    from dying import die_at  # type: ignore[import-not-found]  # It lies next to this file.

    step = steps[job.attempt - 1] if job.attempt <= len(steps) else ""
    at = Path(folder).with_name("step")
    at.unlink(missing_ok=True)
    if step in IN_A_BATCH:
        say_where(at)
    elif step:
        die_at(STEPS[step])
    jrs.spark(
        job,
        spark_driver_extraJavaOptions=QUICK,
        spark_sql_shuffle_partitions="2",
        spark_sql_session_timeZone="UTC",
    )

    def build(stage: Any) -> Any:
        with at.with_name("journal").open("a") as journal:
            journal.write(f"{stage.name} {job.attempt}\n")
        found = windows(job, folder, deadly(at, step))
        # One batch; whatever is written later is left to the drain.
        return found.writeStream.format("jrs").trigger(processingTime="1 hour")

    for stage in [job.stream(name, build) for name in ("one", "two")]:
        stage.result()


def windows(job: Job, folder: str, each: Callable[[Any], Any]) -> Any:
    from pyspark.sql import functions as F

    rows = job.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(folder)
    sums = rows.withWatermark("at", "20 minutes").groupBy(F.window("at", "10 minutes"), "key")
    found = sums.agg(F.count("*").alias("n"), F.sum("value").alias("total")).selectExpr(
        "date_format(window.start, 'HH:mm') as at", "key", "n", "total"
    )
    return found.mapInArrow(each, found.schema)


def say_where(at: Path) -> None:
    """Keep the step of the stages in a file, for the workers of Spark to see."""
    launch = StageQuery._launch

    def say(self: StageQuery, draining: bool) -> None:
        if position(self.checkpoint).at_the_end:
            at.write_text(FLUSHING)
        elif draining:
            at.write_text(CATCHING_UP)
        launch(self, draining)

    StageQuery._launch = say


def deadly(at: Path, step: str) -> Callable[[Any], Any]:
    """Return what lets rows pass until they are those of a step; that kills the attempt."""
    attempt = os.getpid()

    def pass_on(batches: Any) -> Any:
        yield from batches
        if step and at.exists() and at.read_text() == step:
            os.kill(attempt, signal.SIGKILL)

    return pass_on
