"""Jobs for a real cluster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jrs

from . import words

CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",  # All that the cluster has: a dead driver's executors are in the way.
    "spark.sql.shuffle.partitions": "2",
}


def batch(job: jrs.Job, wait_for: str, output: dict[str, str]) -> Any:
    from pyspark.sql.functions import udf

    spark = jrs.spark(job, CONF)
    shout = udf(words.shout, "string")

    def write(stage: jrs.Stage) -> list[Any]:
        rows = spark.createDataFrame([("wind",), ("rain",), ("fog",)], "word string")
        rows.repartition(3).select(shout("word").alias("word")).write.parquet(
            str(stage.output / "words")
        )
        ran = spark.sparkContext.parallelize(range(4), 4).map(words.whereabouts).collect()
        return sorted(set(ran))

    def read(stage: jrs.Stage) -> list[str]:
        while not Path(wait_for).exists():
            time.sleep(0.05)
        rows = spark.read.parquet(str(written.output / "words")).collect()
        jrs.register_format(spark)
        counted = spark.read.format("jrs").options(**output, job=job.job_id, stage="write").load()
        assert sorted(counted.collect()) == sorted(rows)
        return sorted(row.word for row in rows)

    written = job.stage("write", write)
    return {"words": job.stage("read", read).result(), "executors": written.result()}


def stream(job: jrs.Job, source: str) -> None:
    from pyspark.sql.functions import udf

    spark = jrs.spark(job, CONF)
    shout = udf(words.shout, "string")

    def build(stage: jrs.StreamStage) -> Any:
        lines = spark.readStream.schema("word string").csv(source)
        loud = lines.select(shout("word").alias("word")).dropDuplicates(["word"])
        return loud.writeStream.format("jrs")

    job.stream("loud", build)
