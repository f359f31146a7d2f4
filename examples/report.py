"""What the jobs of a cluster cost, and which fail: a report over its tables, by Spark.

python examples/report.py file:///var/lib/jrs [CLUSTER]
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import jrs


def main(url: str, cluster: str = "default") -> None:
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
        options = {"backend": url, "cluster": cluster, "table": name}
        return spark.read.format("jrs").options(**options).load()

    jobs, attempts = table("jobs"), table("attempts")
    failures(table("results")).show(truncate=False)
    lost(attempts, table("stages")).show(truncate=False)
    costs(jobs, attempts).show(truncate=False)
    spark.stop()


def failures(results: DataFrame) -> DataFrame:
    """Return how many jobs of each version of the code have ended, and how many of them failed."""
    failed = F.count(F.when(F.col("status") == "FAILED", 1))
    found = results.groupBy("code").agg(F.count("*").alias("jobs"), failed.alias("failed"))
    return found.orderBy(F.desc("failed"), "code")


def lost(attempts: DataFrame, stages: DataFrame) -> DataFrame:
    """Return the time that failovers have cost each job: from the last stage that an attempt
    finished, or else its start, until the next leader started the job.

    The batches that a stream has committed count as well, but no table has the times of them all:
    for a stream that failed over this is the most that it can be.
    """
    done = stages.groupBy("job_id", "attempt").agg(F.max("stage_finished_at").alias("kept_at"))
    over = with_next(attempts).where("next_epoch > epoch and ended_at is null")
    found = over.join(done, ["job_id", "attempt"], "left")
    cost = seconds("next_started_at") - seconds(F.coalesce("kept_at", "started_at"))
    total = F.round(F.sum(cost), 1).alias("seconds")
    found = found.groupBy("job_id").agg(F.count("*").alias("failovers"), total)
    return found.orderBy(F.desc("seconds"), "job_id")


def costs(jobs: DataFrame, attempts: DataFrame) -> DataFrame:
    """Return the seconds of slots that each team's jobs took. The tag ``team=NAME`` names it."""
    team = jobs.select("job_id", "slots", F.explode("tags").alias("tag")).where("tag like 'team=%'")
    found = with_next(attempts).join(team, "job_id")
    # No process saw the end of an attempt that ended with its leader: it was before the next one.
    until = seconds(F.coalesce("ended_at", "next_started_at"))
    total = F.sum((until - seconds("started_at")) * F.col("slots"))
    return (
        found.groupBy(F.substring("tag", 6, 128).alias("team"))
        .agg(F.countDistinct("job_id").alias("jobs"), F.round(total, 1).alias("slot_seconds"))
        .orderBy("team")
    )


def with_next(attempts: DataFrame) -> DataFrame:
    """Return the attempts, each with the epoch and the start of the job's next one."""
    order = Window.partitionBy("job_id").orderBy("attempt")
    following = {f"next_{name}": F.lead(name).over(order) for name in ("epoch", "started_at")}
    return attempts.withColumns(following)


def seconds(moment: Column | str) -> Column:
    """Return a moment in seconds since 1970."""
    return (F.col(moment) if isinstance(moment, str) else moment).cast("double")


if __name__ == "__main__":
    main(*sys.argv[1:])
