"""What the jobs of a cluster cost, and which fail: a report over its tables, by Spark.

python examples/report.py file:///var/lib/jrs
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import jrs


def main(url: str) -> None:
    """Print the report of a cluster."""
    # The Python that reads the tables needs jrs, as this one has it.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    jrs.register_format(spark)

    def table(name: str) -> DataFrame:
        return spark.read.format("jrs").options(backend=url, table=name).load()

    jobs, attempts = table("jobs"), table("attempts")
    failures(table("results")).show(truncate=False)
    lost(attempts).show(truncate=False)
    costs(jobs, attempts).show(truncate=False)
    spark.stop()


def failures(results: DataFrame) -> DataFrame:
    """Return how many jobs of each version of the code have ended, and how many of them failed."""
    failed = F.count(F.when(F.col("status") == "FAILED", 1))
    found = results.groupBy("code").agg(F.count("*").alias("jobs"), failed.alias("failed"))
    return found.orderBy(F.desc("failed"), "code")


def lost(attempts: DataFrame) -> DataFrame:
    """Return the seconds of each job's attempts that did not count: all but its last one."""
    last = attempts.groupBy("job_id").agg(F.max("attempt").alias("last"))
    earlier = attempts.join(last, "job_id").where("attempt < last")
    found = earlier.groupBy("job_id").agg(
        F.count("*").alias("attempts"), F.round(F.sum(seconds()), 1).alias("seconds")
    )
    return found.orderBy(F.desc("seconds"), "job_id")


def costs(jobs: DataFrame, attempts: DataFrame) -> DataFrame:
    """Return the seconds of slots that each team's jobs took. The tag ``team=NAME`` names it."""
    team = jobs.select("job_id", "slots", F.explode("tags").alias("tag")).where("tag like 'team=%'")
    found = attempts.join(team, "job_id").groupBy(F.substring("tag", 6, 128).alias("team"))
    total = F.round(F.sum(seconds() * F.col("slots")), 1).alias("slot_seconds")
    return found.agg(F.countDistinct("job_id").alias("jobs"), total).orderBy("team")


def seconds() -> Column:
    """Return how long an attempt ran, as far as it is known."""
    return F.col("ended_at").cast("double") - F.col("started_at").cast("double")


if __name__ == "__main__":
    main(sys.argv[1])
