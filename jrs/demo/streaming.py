"""The streaming demo's jobs: the delays of three airports by the hour, and each flight's weather.

`delays` has a bounded stream for each airport, which emits its windows and finishes; an unbounded
stream that joins flights with the weather; and a batch stage that sums up after all streams have
ended. `batch` computes the same tables in one batch, by the same functions.

Each row is a pure function of the input: sums are of whole numbers, other values are copied as they
were read, and no row is late, since the files are ordered by time.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jrs
from jrs import Job, Stage
from jrs.demo.replay import LAST_DAYS
from jrs.records.model import Json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from jrs.recovery.attempt.job import StreamStage

# Imported inside functions: pyspark, since the story imports this module and starts no Spark.

AIRPORTS = {airport.lower(): airport for airport in sorted(LAST_DAYS, key=LAST_DAYS.__getitem__)}
"""The bounded stages in the order in which they end, and the airport of each."""
WEATHER = "weather"
"""The unbounded stage."""
STREAMS = (*AIRPORTS, WEATHER)
WEATHER_SOURCE = 1
"""The index of the weather among the sources of the unbounded stage; the flights come first."""
LATE = 15
"""Minutes of delay from which a departure counts as late."""

_FLIGHTS = (
    "at timestamp, origin string, carrier string, flight int, dest string, dep_delay int, "
    "arr_delay int"
)
_WEATHER = (
    "hour timestamp, station string, temp double, wind_speed double, precip double, visib double"
)


def delays(job: Job, flights: str, weather: str) -> Json:
    """Stream the flights and the weather, until the job is drained; then sum up."""
    _spark(job)
    airports = [
        job.stream(name, partial(_by_the_hour, folder=Path(flights, airport)), bounded=True)
        for name, airport in AIRPORTS.items()
    ]
    joined = job.stream(WEATHER, partial(_joined, flights=flights, weather=weather))
    report = job.stage(
        "report",
        lambda stage: summary(stage.spark.read.parquet(str(joined.output))),
        after=[*airports, joined],
    )
    return report.result()


def batch(job: Job, flights: str, weather: str) -> Json:
    """Compute in one batch what `delays` streams."""

    def compute(stage: Stage) -> Json:
        spark = _spark(job)
        for name, airport in AIRPORTS.items():
            rows = _csv(spark.read, _FLIGHTS, Path(flights, airport))
            windows(rows).write.parquet(str(stage.output / name))
        everywhere = _csv(spark.read, _FLIGHTS, Path(flights, "*"))
        joined = with_weather(everywhere, _csv(spark.read, _WEATHER, weather))
        joined.write.parquet(str(stage.output / WEATHER))
        return summary(spark.read.parquet(str(stage.output / WEATHER)))

    return job.stage("batch", compute).result()


def windows(flights: DataFrame) -> DataFrame:
    """Return the departures of each hour and carrier: all, canceled, late, and the delay."""
    from pyspark.sql import functions as F

    hours = flights.withWatermark("at", "1 hour").groupBy(F.window("at", "1 hour"), "carrier")
    return hours.agg(
        F.count("*").alias("flights"),
        _count_if(F.col("dep_delay").isNull()).alias("canceled"),
        _count_if(F.col("dep_delay") > LATE).alias("late"),
        F.sum("dep_delay").alias("delay"),
    ).select(_as_text("window.start").alias("hour"), "carrier", "flights", "canceled", "late",
             "delay")  # fmt: skip


def with_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Return each flight with the weather at its airport in its hour, if it was observed."""
    from pyspark.sql import functions as F

    # A batch takes three files of flights, of at most two days: a row is at most a day late.
    joined = flights.withWatermark("at", "1 day").join(
        weather.withWatermark("hour", "1 hour"),
        F.expr("origin = station and hour > at - interval 1 hour and hour <= at"),
        "left_outer",
    )
    return joined.select(
        _as_text("at").alias("at"), "origin", "carrier", "flight", "dest", "dep_delay", "arr_delay",
        _as_text("hour").alias("observed"), "temp", "wind_speed", "precip", "visib",
    )  # fmt: skip


def summary(joined: DataFrame) -> Json:
    """Return the departures of each airport by weather."""
    from pyspark.sql import functions as F

    weather = (
        F.when(F.col("observed").isNull(), "not observed")
        .when(F.col("precip") > 0, "rain or snow")
        .when(F.col("visib") < 3, "poor sight")
        .otherwise("dry")
    )
    groups = joined.groupBy("origin", weather.alias("weather")).agg(
        F.count("*").alias("flights"),
        _count_if(F.col("dep_delay").isNull()).alias("canceled"),
        _count_if(F.col("dep_delay") > LATE).alias("late"),
        F.sum("dep_delay").alias("delay"),
    )
    return [row.asDict() for row in groups.orderBy("origin", "weather").collect()]


def _by_the_hour(stage: StreamStage, folder: Path) -> DataStreamWriter:
    # Each batch takes one day.
    read = stage.spark.readStream.option("maxFilesPerTrigger", 1)
    return windows(_csv(read, _FLIGHTS, stage.files(folder))).writeStream.format("jrs")


def _joined(stage: StreamStage, flights: str, weather: str) -> DataStreamWriter:
    def read(files: int) -> Any:
        return stage.spark.readStream.option("maxFilesPerTrigger", files)

    joined = with_weather(
        _csv(read(len(AIRPORTS)), _FLIGHTS, Path(flights, "*")),
        _csv(read(1), _WEATHER, weather),
    )
    return joined.writeStream.format("jrs").trigger(processingTime="200 milliseconds")


def _csv(read: Any, schema: str, folder: str | Path) -> DataFrame:
    """Read a folder's files, in a batch or a stream."""
    read = read.schema(schema).option("header", True).option("nullValue", "NA")
    frame: DataFrame = read.option("mode", "FAILFAST").csv(str(folder))
    return frame


def _spark(job: Job) -> SparkSession:
    return jrs.spark(
        job,
        spark_sql_shuffle_partitions="2",
        spark_sql_session_timeZone="UTC",
        # The job runs for minutes: the JVM's optimizing compiler would take longer than it saves.
        spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    )


def _count_if(condition: Column) -> Column:
    from pyspark.sql import functions as F

    return F.count(F.when(condition, 1))


def _as_text(column: str) -> Column:
    from pyspark.sql import functions as F

    # So that every reader reads the same, in any time zone.
    return F.date_format(column, "yyyy-MM-dd HH:mm")
