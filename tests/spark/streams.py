"""The jobs with streaming stages of these tests. Loaded by path in processes of their own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jrs
from jrs import Job, Stage
from jrs.records.model import Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEMA = "at timestamp, key string, value long"


def spark(job: Job, **conf: str) -> SparkSession:
    return jrs.spark(
        job, spark_driver_extraJavaOptions=QUICK, spark_sql_shuffle_partitions="2", **conf
    )


def events(stage: Any, source: str, per_batch: int = 1) -> DataFrame:
    session = spark(stage.job)
    return (
        session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", per_batch).json(source)
    )  # fmt: skip


def windows(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    window = F.window("at", "10 minutes")
    sums = rows.withWatermark("at", "20 minutes").groupBy(window, "key")
    return sums.agg(F.count("*").alias("n"), F.sum("value").alias("total")).select(
        F.col("window.start").alias("start"), "key", "n", "total"
    )


def every_kind(job: Job, source: str, more: str) -> Json:
    """A batch stage, a bounded stream, an unbounded one, and a batch stage after the bounded."""

    def typed(stage: Stage) -> Json:
        rows = spark(job).read.schema(SCHEMA).json(source)
        rows.write.parquet(str(stage.output / "rows"))
        return rows.count()

    job.stage("typed", typed)
    hourly = job.stream(
        "hourly",
        lambda stage: windows(events(stage, stage.files(source))).writeStream.format("jrs"),
        bounded=True,
    )
    live = job.stream(
        "live",
        lambda stage: (
            windows(events(stage, more))
            .writeStream.format("jrs")
            .trigger(processingTime="200 milliseconds")
        ),
    )

    def report(stage: Stage) -> Json:
        return spark(job).read.parquet(str(hourly.output)).count()

    counted = job.stage("report", report, after=[hourly])
    result: Any = live.result()
    return {"windows": counted.result(), "live": result["batches"]}


def bounded(job: Job, source: str) -> Json:
    stage = job.stream(
        "sums",
        lambda stage: windows(events(stage, stage.files(source))).writeStream.format("jrs"),
        bounded=True,
    )
    return stage.result()


def waits(job: Job, folder: str) -> Json:
    """A job without streams that waits for a file."""
    while not Path(folder, "go").exists():
        time.sleep(0.05)
    return "gone"


def unbounded(
    job: Job, source: str, store: str = "", version: str = "v1", sink: str = "jrs"
) -> Json:
    """Sums of windows, for as long as nobody stops it."""
    state = "org.apache.spark.sql.execution.streaming.state."
    if store:
        spark(job, spark_sql_streaming_stateStore_providerClass=state + store)
    # A gap in a file sink's log shows when the log is compacted.
    spark(job).conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    job.stream(
        "sums",
        lambda stage: (
            windows(events(stage, source))
            .writeStream.format(sink)
            .option("path", str(stage.output))
            .trigger(processingTime="200 milliseconds")
        ),
    ).result()
    return version


def unbounded_v2(job: Job, source: str) -> Json:
    return unbounded(job, source, version="v2")


def watched(job: Job, source: str) -> Json:
    """Sums of windows for the sink of jrs, and for a function."""

    def take(rows: DataFrame, batch: int) -> None:
        rows.collect()

    def writer(stage: Any) -> Any:
        rows = windows(events(stage, source)).writeStream
        return rows.trigger(processingTime="200 milliseconds")

    job.stream("calls", lambda stage: writer(stage).foreachBatch(take))
    return job.stream("sums", lambda stage: writer(stage).format("jrs")).result()
