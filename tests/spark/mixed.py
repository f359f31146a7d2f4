"""A job with every kind of stage that keeps a journal: which ran, and which was known to be
finished. Loaded by path in processes of its own.
"""

from __future__ import annotations

import os
from typing import Any

import jrs
from jrs import Job, Stage
from jrs.records.model import Json

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEMA = "at timestamp, key string, value long"


def every_kind(job: Job, source: str, more: str, journal: str, backend: str) -> Json:
    """A batch stage, a bounded stream, an unbounded one, and a batch stage after the bounded."""

    def note(what: str, stage: str) -> None:
        # In one write, so that a kill leaves it whole or absent.
        fd = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, f"{what} {stage} {job.attempt}\n".encode())
        os.close(fd)

    def sums(stage: Any, folder: str) -> Any:
        note("run", stage.name)
        from pyspark.sql import functions as F

        rows = job.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(folder)
        tens = rows.withWatermark("at", "20 minutes").groupBy(F.window("at", "10 minutes"), "key")
        found = tens.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        return found.selectExpr("date_format(window.start, 'HH:mm') as at", "key", "n", "total")

    def typed(stage: Stage) -> Json:
        note("run", "typed")
        rows = job.spark.read.schema(SCHEMA).json(source)
        rows.write.parquet(str(stage.output / "rows"))
        return rows.count()

    jrs.spark(
        job,
        spark_driver_extraJavaOptions=QUICK,
        spark_sql_shuffle_partitions="2",
        spark_sql_session_timeZone="UTC",
    )
    first = job.stage("typed", typed)
    note("finished", "typed")
    hourly = job.stream(
        "hourly",
        lambda stage: sums(stage, stage.files(source)).writeStream.format("jrs"),
        bounded=True,
    )
    live = job.stream(
        "live",
        lambda stage: (
            sums(stage, more).writeStream.format("jrs").trigger(processingTime="200 milliseconds")
        ),
    )
    hourly.result()
    note("finished", "hourly")

    def report(stage: Stage) -> Json:
        note("run", "report")
        which = {"backend": backend, "job": job.job_id, "stage": "hourly"}
        jrs.register_format(job.spark)
        read = job.spark.read.format("jrs").options(**which).load()
        plain = job.spark.read.parquet(str(hourly.output))
        assert read.orderBy(*read.columns).collect() == plain.orderBy(*read.columns).collect()
        return read.count()

    counted = job.stage("report", report, after=[hourly])
    note("finished", "report")
    live.result()
    note("finished", "live")
    return {"rows": first.result(), "windows": counted.result()}
