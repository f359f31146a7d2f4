"""A driver of Spark's own, without jrs, to be frozen and thawed next to another one.

python alone.py CHECKPOINT SOURCE OUT NAME
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

checkpoint, source, out, name = sys.argv[1:]
spark = (
    SparkSession.builder.config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)


def append(rows: Any, batch: int) -> None:
    """Append a batch's rows, as one would without a second thought."""
    found = "".join(f"{row.value}\n" for row in rows.collect())
    with Path(out).open("a") as file:
        file.write(found)
    Path(f"{out}.{name}").write_text(str(batch))


reader = spark.readStream.schema("at timestamp, key string, value long")
rows = reader.option("maxFilesPerTrigger", 1).json(source)
query = rows.writeStream.foreachBatch(append).option("checkpointLocation", checkpoint)
query.trigger(processingTime="200 milliseconds").start().awaitTermination()
