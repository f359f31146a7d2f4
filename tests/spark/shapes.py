"""The shapes of streaming queries that hold rows back until a watermark passes them.

Each is a function from a stage and a folder of events to the rows that the stage writes. Its
answer, by hand and in plain Python, is in `test_draining.py`. Loaded by path in processes of their
own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jrs
from jrs import Job, RestartPolicy
from jrs.records.model import Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    Shape = Callable[[DataFrame], DataFrame]

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEMA = "at timestamp, key string, value long"
STORES = {
    "rocksdb": {},
    "hdfs": {
        "spark_sql_streaming_stateStore_providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        )
    },
}
"""What a session is started with for each state store; RocksDB is the default of jrs."""
LATE = "20 minutes"
HALF_AN_HOUR = 30 * 60 * 1000

BUSY = RestartPolicy(attempts=3, delay=0.0)
"""Spark gives a new Python worker ten seconds to connect back; a busy machine may need more."""


def session(job: Job, store: str = "rocksdb", **conf: str) -> SparkSession:
    return jrs.spark(
        job,
        spark_driver_extraJavaOptions=QUICK,
        spark_sql_shuffle_partitions="2",
        spark_sql_session_timeZone="UTC",
        **STORES[store],
        **conf,
    )


def read(stage: Any, source: str) -> DataFrame:
    rows: DataFrame = (
        stage.job.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).json(source)
    )
    return rows.withWatermark("at", LATE)


# -- the shapes ------------------------------------------------------------------------------


def stateless(rows: DataFrame) -> DataFrame:
    return rows.selectExpr(_time("at"), "key", "value")


def windows(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    sums = rows.groupBy(F.window("at", "10 minutes"), "key")
    return sums.agg(F.count("*").alias("n"), F.sum("value").alias("total")).selectExpr(
        _time("window.start"), "key", "n", "total"
    )


def windows_of_windows(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    tens = rows.groupBy(F.window("at", "10 minutes"), "key").agg(F.sum("value").alias("ten"))
    sums = tens.groupBy(F.window("window", "30 minutes").alias("half"), "key")
    return sums.agg(F.count("*").alias("n"), F.sum("ten").alias("total")).selectExpr(
        _time("half.start"), "key", "n", "total"
    )


def distinct(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicatesWithinWatermark(["value"]).selectExpr(_time("at"), "key", "value")


def outer_join(rows: DataFrame) -> DataFrame:
    even = rows.filter("value % 2 = 0").selectExpr("at as other_at", "value as other")
    within = "value = other and other_at between at and at + interval 10 minutes"
    from pyspark.sql import functions as F

    joined = rows.join(even, F.expr(within), "left_outer")
    return joined.selectExpr(_time("at"), "key", "value", "other")


def sessions(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    sums = rows.groupBy(F.session_window("at", "2 minutes"), "key")
    return sums.agg(F.count("*").alias("n"), F.sum("value").alias("total")).selectExpr(
        _time("session_window.start"), "key", "n", "total"
    )


def timers(rows: DataFrame) -> DataFrame:
    """Count each ten minutes of each key in a state of our own, and tell when its timer is up."""
    slots = in_slots(rows)
    store = slots.sparkSession.conf.get("spark.sql.streaming.stateStore.providerClass")
    if store is not None and "RocksDB" in store:
        return slots.groupBy("slot").transformWithState(counts(), "slot string, n long",
                                                        "append", "EventTime")  # fmt: skip
    from pyspark.sql.streaming.state import GroupStateTimeout

    return slots.groupBy("slot").applyInPandasWithState(
        _count_in_pandas(), "slot string, n long", "n long, end long", "append",
        GroupStateTimeout.EventTimeTimeout,
    )  # fmt: skip


def counts() -> Any:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Counts(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._n = handle.getValueState("n", "n long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            found = list(rows)
            before = self._n.get()
            if before is None:
                self._handle.registerTimer(found[0].end + HALF_AN_HOUR)
            self._n.update(((before[0] if before else 0) + len(found),))
            return iter(())

        def handleExpiredTimer(
            self, key: Any, timerValues: Any, expiredTimerInfo: Any
        ) -> Iterator[Any]:
            yield Row(slot=key[0], n=self._n.get()[0])
            self._n.clear()

        def close(self) -> None:
            pass

    return Counts()


def _count_in_pandas() -> Any:
    def count(key: Any, parts: Any, state: Any) -> Iterator[Any]:
        import pandas as pd

        if state.hasTimedOut:
            n, _ = state.get
            state.remove()
            yield pd.DataFrame({"slot": [key[0]], "n": [n]})
            return
        n, end = state.get if state.exists else (0, 0)
        for part in parts:
            n, end = n + len(part), int(part["end"].iloc[0])
        state.update((n, end))
        state.setTimeoutTimestamp(end + HALF_AN_HOUR)

    return count


def in_slots(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    window = F.window("at", "10 minutes")
    return rows.withColumn("window", window).selectExpr(
        "concat(date_format(window.start, 'HH:mm'), ' ', key) as slot",
        "unix_millis(window.end) as end",
        "at",
    )


def _time(column: str) -> str:
    return f"date_format({column}, 'HH:mm') as at"


SHAPES: dict[str, Shape] = {
    "stateless": stateless,
    "windows": windows,
    "chained": windows_of_windows,
    "distinct": distinct,
    "join": outer_join,
    "sessions": sessions,
    "timers": timers,
}


# -- the jobs --------------------------------------------------------------------------------


def _bounded(shape: Shape, folder: str, stage: Any) -> DataStreamWriter:
    return shape(read(stage, stage.files(folder))).writeStream.format("jrs")


def _live(shape: Shape, folder: str, stage: Any) -> DataStreamWriter:
    rows = shape(read(stage, folder))
    return rows.writeStream.format("jrs").trigger(processingTime="200 milliseconds")


def every_shape(job: Job, store: str, folder: str) -> Json:
    """Every shape as a bounded stage, then every shape as an unbounded one."""
    session(job, store)
    ended = [
        job.stream(f"bounded-{name}", partial(_bounded, shape, folder), bounded=True, restart=BUSY)
        for name, shape in SHAPES.items()
    ]
    job.stage("between", lambda stage: len(SHAPES), after=ended)
    for name, shape in SHAPES.items():
        job.stream(f"live-{name}", partial(_live, shape, folder), restart=BUSY)
    return {stage.name: stage.result()["batches"] for stage in ended}


def bounded_without_input(job: Job, folder: str) -> Json:
    session(job)
    stage = job.stream(
        "empty",
        lambda stage: windows(read(stage, folder)).writeStream.format("jrs"),
        bounded=True,
    )
    return stage.result()


def unbounded(job: Job, folder: str, **shapes: str) -> Json:
    """One unbounded stage for each of `shapes`, a name and a shape."""
    session(job)
    stages = [
        job.stream(name, partial(_live, SHAPES[shape], folder)) for name, shape in shapes.items()
    ]
    return [stage.result() for stage in stages]


def complete(job: Job, folder: str) -> Json:
    """A table of all windows that is whole at every batch, next to a stage that can be flushed."""
    session(job)
    rows = read
    job.stream(
        "windows",
        lambda stage: (
            windows(rows(stage, folder))
            .writeStream.format("jrs")
            .trigger(processingTime="200 milliseconds")
        ),
    )

    def keep(table: DataFrame, batch: int) -> None:
        table.count()

    table = job.stream(
        "table",
        lambda stage: (
            windows(rows(stage, folder))
            .writeStream.foreachBatch(keep)
            .outputMode("complete")
            .trigger(processingTime="200 milliseconds")
        ),
    )
    return table.result()


def timers_of_processing_time(job: Job, folder: str) -> Json:
    """A stage whose state waits for the clock on the wall."""
    session(job)
    stage = job.stream(
        "clock",
        lambda stage: (
            in_slots(read(stage, folder))
            .groupBy("slot")
            .transformWithState(counts(), "slot string, n long", "append", "ProcessingTime")
            .writeStream.format("jrs")
            .trigger(processingTime="200 milliseconds")
        ),
    )
    return stage.result()


def slow_batches(job: Job, folder: str) -> Json:
    """Batches whose Python runs until ``go`` exists; ``late`` says that Spark was told to stop
    such a batch and has given it up."""
    from jrs.recovery.spark import boundary

    begun, go, late = (Path(folder).with_name(name) for name in ("begun", "go", "late"))
    stop = boundary.stop

    def stop_in_vain(query: Any) -> None:
        stop(query)
        late.touch()

    boundary.stop, boundary._BOUNDARY = stop_in_vain, 0.1
    session(job, spark_sql_streaming_stopTimeout="500ms")

    def slowly(rows: DataFrame, batch: int) -> None:
        begun.touch()
        while not go.exists():
            time.sleep(0.05)
        rows.count()

    stage = job.stream("slow", lambda stage: read(stage, folder).writeStream.foreachBatch(slowly))
    return stage.result()
