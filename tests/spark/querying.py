"""Queries over the tables of a cluster, in one session: what each of them finds, as JSON."""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession

import jrs
from jrs.recovery.inspect.tables import TABLES


def main(url: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "Asia/Tokyo")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    jrs.register_format(spark)

    def table(name: str, **options: str) -> DataFrame:
        given = {"backend": url, "table": name, **options}
        return spark.read.format("jrs").options(**given).load()

    results = table("results")
    whole = results.groupBy("status").count().orderBy("status")
    at = "cast(finished_at as double) as at"
    live = table("stages", job="live").selectExpr(
        "attempt", "batch", "rows_per_second", "offsets_behind", "state_bytes",
        "cast(watermark as double) as watermark", "cast(batch_at as double) as batch_at",
    )  # fmt: skip
    found = {
        "columns": {name: table(name).columns for name in TABLES},
        "counts": {name: table(name).count() for name in TABLES},
        "driver": {name: table(name, read="driver").count() for name in TABLES},
        "parts": results.selectExpr("spark_partition_id() as part").distinct().count(),
        "one": results.where("job_id = 'job-0007'").selectExpr("payload", at).collect()[0].asDict(),
        # After a query with a filter: the whole table, and not what the filter left.
        "statuses": {row["status"]: row["count"] for row in whole.collect()},
        "late": table("results", since="1970-01-01T00:41:39Z").count(),
        "failed": table("jobs", status="FAILED").where("finished_at is not null").count(),
        "live": live.collect()[0].asDict(),
        "types": dict(live.dtypes),
        "tags": [row[0] for row in table("jobs", job="waits").selectExpr("tags[0]").collect()],
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
