"""A PySpark job of three stages, for `jrs submit`.

    export JRS_BACKEND=file:///tmp/jrs-orders
    jrs master &
    jrs submit orders-1 examples/orders.py:orders --arg n=100000 --wait

Kill the master with kill -9 while it runs and start another: the job resumes after the last stage
that was finished. Submit it again under the same id: it does not run twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jrs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def orders(job: jrs.Job, n: int = 100_000) -> dict[str, Any]:
    """Make `n` orders, total them by customer, and return the best customers."""

    def generate(stage: jrs.Stage) -> int:
        rows = (
            spark(job)
            .range(n)
            .selectExpr("id AS order_id", "id * 7919 % 97 AS customer", "id * 31 % 1000 AS cents")
        )
        rows.write.parquet(str(stage.output / "orders"))
        return n

    # A stage's folder is published in one rename once its function has returned; what it returned
    # is stored. Temporary output is for the stages that follow, and goes when the job has ended.
    generated = job.stage("generate", generate, temporary=True)

    def total(stage: jrs.Stage) -> int:
        rows = spark(job).read.parquet(str(generated.output / "orders"))
        totals = rows.groupBy("customer").sum("cents").withColumnRenamed("sum(cents)", "cents")
        totals.coalesce(1).write.csv(str(stage.output / "totals"), header=True)
        return totals.count()

    totalled = job.stage("total", total)

    def rank(stage: jrs.Stage) -> list[dict[str, int]]:
        totals = spark(job).read.csv(str(totalled.output / "totals"), header=True, inferSchema=True)
        best = totals.orderBy(totals.cents.desc(), totals.customer).limit(3).collect()
        return [row.asDict() for row in best]

    ranked = job.stage("rank", rank)
    return {"orders": generated.result(), "customers": totalled.result(), "best": ranked.result()}


def spark(job: jrs.Job) -> SparkSession:
    """Return the attempt's session; the first call starts it."""
    return jrs.spark(job, spark_sql_shuffle_partitions="4")
