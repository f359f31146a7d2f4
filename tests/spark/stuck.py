"""A streaming job that never quiesces, and how to bring it into that state.

Loaded by path in processes of its own; so it imports nothing of these tests. The benchmark of
canceling uses it, too.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import jrs
from jrs import Job, JobSpec
from jrs.records.model import Json, StopMode
from jrs.recovery.processes import marks
from jrs.recovery.spark import boundary
from jrs.recovery.spark.streams import Streams
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops
from jrs.testing.masters import Masters
from jrs.testing.processes import command_lines

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
IN_DRIVER, IN_EXECUTOR, IN_JVM = "in foreachBatch", "in an executor", "in a hung JVM"
WHERE = (IN_DRIVER, IN_EXECUTOR, IN_JVM)
FOR = 3600.0
"""Seconds: longer than any test waits."""
STARTS = 180.0
"""Seconds after which a JVM is taken to never start."""


def sleeps(job: Job, folder: str, where: str) -> Json:
    """A stage whose first batch with rows runs for an hour in Python, or is quick if the test stops
    the JVM. `begun` says that there is such a batch, `asked` that it was asked to quiesce."""
    from pyspark.sql import functions as F

    begun, asked = Path(folder, "begun"), Path(folder, "asked")
    stop, suspend, seconds = boundary.stop, Streams.suspend, 0.0 if where == IN_JVM else FOR

    def stop_in_vain(query: Any) -> None:
        asked.touch()
        stop(query)

    def suspend_in_vain(self: Streams) -> None:
        if where != IN_DRIVER:
            asked.touch()
        suspend(self)

    boundary.stop, Streams.suspend = stop_in_vain, suspend_in_vain
    # Spark can break off what an executor does, so there it is the time before that; and nothing
    # else can end the driver's own Python.
    boundary._BOUNDARY = FOR if where == IN_EXECUTOR else 0.1
    session = jrs.spark(
        job,
        spark_driver_extraJavaOptions=QUICK,
        spark_sql_shuffle_partitions="2",
        # Else what is stuck in the driver would be given up, and killed, in the midst of a test.
        spark_sql_streaming_stopTimeout="1h",
    )

    def sleep() -> None:
        begun.touch()
        time.sleep(seconds)

    def each(rows: Any, batch: int) -> None:
        if rows.count():
            sleep()

    def row(value: int) -> int:
        sleep()
        return value

    def build(stage: Any) -> Any:
        rows = session.readStream.format("rate").option("rowsPerSecond", 10).load()
        if where != IN_EXECUTOR:
            return rows.writeStream.foreachBatch(each)
        return rows.select(F.udf(row, "long")("value").alias("value")).writeStream.format("jrs")

    return job.stream("sleeps", build).result()


def hang(masters: Masters, job_id: str, folder: Path, where: str) -> None:
    """Submit the job and suspend it; return when its attempt tries to quiesce, in vain."""
    backend = masters.backend
    arguments: dict[str, Json] = {"folder": str(folder), "where": where}
    JobCatalog(backend).submit(JobSpec(job_id, f"{__file__}:sleeps", arguments))
    masters.until((folder / "begun").exists, "a batch has begun", STARTS)
    if where == IN_JVM:
        running = marks.marked(marks.mark_of_job(backend.url, backend.cluster, job_id))
        for pid, line in command_lines(running).items():
            if "SparkSubmit" in line:
                os.kill(pid, signal.SIGSTOP)
    JobStops(backend).request(job_id, StopMode.SUSPEND, grace=FOR)
    masters.until((folder / "asked").exists, "the stop has begun", STARTS)
