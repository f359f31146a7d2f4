"""What a session does before its first job: Spark loads and compiles code when it is first used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Imported inside functions: pyspark, since attempts without Spark load this module, too.


def work_like_a_job(session: SparkSession, folder: Path) -> None:
    """Read and write files, aggregate, join, and run a stream with state, in a folder."""
    from pyspark.sql import functions as F

    rows = session.range(0, 1000, 1, 2).selectExpr(
        "timestamp_seconds(id * 60) as at", "cast(id % 3 as string) as key", "id as value"
    )
    rows.write.parquet(str(folder / "in"))
    stream = session.readStream.schema(rows.schema).parquet(str(folder / "in"))
    window = F.window("at", "10 minutes")
    sums = stream.withWatermark("at", "20 minutes").groupBy(window, "key").agg(F.sum("value"))
    query = (
        sums.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "ck"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    names = session.createDataFrame([("0", "zero"), ("1", "one")], ["key", "name"])
    joined = session.read.parquet(str(folder / "in")).join(names, "key", "left")
    joined.groupBy("name").agg(F.count("*"), F.max("at")).orderBy("name").collect()
