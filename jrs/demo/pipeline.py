"""The demo's jobs: which carriers are late on which routes out of New York, in 2013.

`flights` is one PySpark job of four stages; `airlines` and `weather_summary` are small jobs without
Spark. Each is a pure function of its input: sums are of whole numbers, ties are broken, rounding is
the last step. So two runs can be compared for equality, even if processes died in one of them.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import jrs
from jrs import Job, Stage
from jrs.records.model import Json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData, SparkSession

# Imported inside functions: pyspark, since two of the jobs run without Spark.

WORST = 10
MIN_FLIGHTS = 100
"""Least flights of a ranked route: with fewer, one bad day would decide."""
LATE = 15
"""Minutes of arrival delay from which a flight counts as late."""

_SCHEMAS = {
    "flights": "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, "
    "arr_time int, sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, "
    "origin string, dest string, air_time int, distance int, hour int, minute int, "
    "time_hour timestamp",
    "weather": "origin string, year int, month int, day int, hour int, temp double, dewp double, "
    "humid double, wind_dir int, wind_speed double, wind_gust double, precip double, "
    "pressure double, visib double, time_hour timestamp",
    "airlines": "carrier string, name string",
    "airports": "faa string, name string, lat double, lon double, alt int, tz int, dst string, "
    "tzone string",
}


def flights(job: Job, data: str) -> Json:
    """Rank carriers and routes by delay: ingest, join, statistics, report."""
    typed = job.stage("ingest", partial(ingest, data=Path(data)), temporary=True)
    joined = job.stage("join", partial(join, typed=typed.output), temporary=True)
    numbers = job.stage("statistics", partial(statistics, joined=joined.output))
    ranked = job.stage("report", partial(report, numbers=numbers.output))
    return {
        "flights": joined.result()["flights"],
        "with_weather": joined.result()["with_weather"],
        "rows": numbers.result(),
        "worst": ranked.result(),
    }


def ingest(stage: Stage, data: Path) -> Json:
    """Give the CSV files their types and write them as Parquet."""
    spark = _spark(stage)
    rows = {}
    for name, schema in _SCHEMAS.items():
        target = str(stage.output / name)
        read = spark.read.csv(
            str(data / f"{name}.csv"),
            schema=schema,
            header=True,
            nullValue="NA",
            mode="FAILFAST",
        )
        read.write.parquet(target)
        rows[name] = spark.read.parquet(target).count()
    return rows


def join(stage: Stage, typed: Path) -> Json:
    """Join every flight with its airline and with the weather at its origin in its hour."""
    from pyspark.sql import functions as F

    spark = _spark(stage)
    read = {name: spark.read.parquet(str(typed / name)) for name in _SCHEMAS}
    weather = (
        read["weather"]
        .groupBy("origin", "time_hour")
        .agg(F.max("precip").alias("precip"), F.min("visib").alias("visib"))
    )
    airlines = read["airlines"].withColumnRenamed("name", "airline")
    airports = read["airports"].select(F.col("faa").alias("dest"), F.col("name").alias("airport"))
    joined = (
        read["flights"]
        .join(F.broadcast(airlines), "carrier")
        .join(F.broadcast(airports), "dest", "left")
        .join(F.broadcast(weather), ["origin", "time_hour"], "left")
    )
    target = str(stage.output / "flights")
    joined.write.parquet(target)
    written = spark.read.parquet(target)
    return {
        "flights": written.count(),
        "with_weather": written.where(F.col("visib").isNotNull()).count(),
    }


def statistics(stage: Stage, joined: Path) -> Json:
    """Sum up delays by carrier, by carrier and route, and by hour of the day."""
    from pyspark.sql import functions as F

    spark = _spark(stage)
    arrived = spark.read.parquet(str(joined / "flights")).where(F.col("arr_delay").isNotNull())
    arrived.cache()
    groups = {
        "by_carrier": ["carrier", "airline"],
        "by_route": ["carrier", "airline", "origin", "dest", "airport"],
        "by_hour": ["hour"],
    }
    rows = {}
    for name, columns in groups.items():
        table = _delays(arrived.groupBy(*columns)).orderBy(*columns).coalesce(1)
        table.write.csv(str(stage.output / name), header=True)
        rows[name] = table.count()
    return rows


def report(stage: Stage, numbers: Path) -> Json:
    """Return the carrier-route pairs with the worst mean delay, worst first."""
    from pyspark.sql import functions as F

    routes = _spark(stage).read.csv(str(numbers / "by_route"), header=True, inferSchema=True)
    ranked = (
        routes.where(F.col("flights") >= MIN_FLIGHTS)
        .withColumn("mean", F.col("delay") / F.col("flights"))
        .orderBy(F.desc("mean"), "carrier", "origin", "dest")
        .limit(WORST)
    )
    worst = [
        {
            "rank": rank,
            "airline": row.airline,
            "route": f"{row.origin}-{row.dest}",
            "to": row.airport or row.dest,
            "flights": row.flights,
            "mean_delay": round(row.mean, 2),
            "late": round(row.late / row.flights, 3),
            "in_bad_weather": round(row.in_bad_weather / row.flights, 3),
        }
        for rank, row in enumerate(ranked.collect(), 1)
    ]
    with (stage.output / "worst.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(worst[0]))
        table.writeheader()
        table.writerows(worst)
    return worst


def airlines(job: Job, data: str) -> Json:
    """Count the flights of each airline."""

    def count(stage: Stage) -> Json:
        with (Path(data) / "airlines.csv").open(newline="") as file:
            names = {row["carrier"]: row["name"] for row in csv.DictReader(file)}
        with (Path(data) / "flights.csv").open(newline="") as file:
            rows = csv.reader(file)
            column = next(rows).index("carrier")
            counts = Counter(row[column] for row in rows)
        return {names[carrier]: counts[carrier] for carrier in sorted(counts)}

    return job.stage("count", count).result()


def weather_summary(job: Job, data: str) -> Json:
    """Return, for each airport of origin, its hours on record, those with rain, and the coldest."""

    def summarise(stage: Stage) -> Json:
        hours: dict[str, int] = defaultdict(int)
        rain: dict[str, int] = defaultdict(int)
        coldest: dict[str, float] = {}
        with (Path(data) / "weather.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                origin = row["origin"]
                hours[origin] += 1
                rain[origin] += row["precip"] != "NA" and float(row["precip"]) > 0
                if row["temp"] != "NA":
                    temperature = float(row["temp"])
                    coldest[origin] = min(temperature, coldest.get(origin, temperature))
        return {
            origin: {
                "hours": hours[origin],
                "with_rain": rain[origin],
                "coldest_fahrenheit": coldest[origin],
            }
            for origin in sorted(hours)
        }

    return job.stage("summarise", summarise).result()


def _spark(stage: Stage) -> SparkSession:
    return jrs.spark(
        stage.job,
        spark_sql_shuffle_partitions="4",
        spark_sql_session_timeZone="UTC",
        # The job runs for a minute: the JVM's optimizing compiler would take longer than it saves.
        spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    )


def _delays(grouped: GroupedData) -> DataFrame:
    from pyspark.sql import functions as F

    def count_if(condition: Column) -> Column:
        return F.count(F.when(condition, 1))

    return grouped.agg(
        F.count("arr_delay").alias("flights"),
        F.sum("arr_delay").alias("delay"),
        count_if(F.col("arr_delay") > LATE).alias("late"),
        count_if((F.col("precip") > 0) | (F.col("visib") < 3)).alias("in_bad_weather"),
    )
