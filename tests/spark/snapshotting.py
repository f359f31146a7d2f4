"""Run a real query, take snapshots while it runs, lose the original, and resume from them.

python snapshotting.py ROOT PROVIDER SHAPE: prints, as JSON, what came out.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobSpec, StageRecord, StreamRecord
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.checkpoint_format import checkpoint
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshot_catalog import SnapshotCatalog
from jrs.recovery.spark import rescaling
from jrs.store.opening import open_backend

_STATE = "org.apache.spark.sql.execution.streaming.state."
_STORE = "spark.sql.streaming.stateStore."
_ROCKSDB = {_STORE + "providerClass": _STATE + "RocksDBStateStoreProvider"}
_CHANGELOG = {_STORE + "rocksdb.changelogCheckpointing.enabled": "true"}
PROVIDERS = {
    "hdfs": {_STORE + "providerClass": _STATE + "HDFSBackedStateStoreProvider"},
    "rocksdb": _ROCKSDB,
    "changelog": {**_ROCKSDB, **_CHANGELOG},
    "changelog-v2": {**_ROCKSDB, **_CHANGELOG, _STORE + "checkpointFormatVersion": "2"},
}
SCHEMA = "at timestamp, key string, value long"
FILES = 10


def session(provider: str) -> SparkSession:
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        _STORE + "maintenanceInterval": "500ms",
        _STORE + "minDeltasForSnapshot": "2",
        **PROVIDERS[provider],
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def fill(folder: Path) -> None:
    """Write the input: a file for each batch, the later the newer. What belongs together, in a
    window or by the join, is in several of them: so it is in the state in between."""
    folder.mkdir(parents=True)
    for number in range(FILES):
        path = folder / f"f{number}.json"
        lines = [
            json.dumps(
                {
                    "at": f"2024-01-01T{number:02}:{minute:02}:00Z",
                    "key": f"k{minute}",
                    "value": number * 100 + minute,
                }
            )
            for minute in range(0, 60, 5)
        ]
        path.write_text("\n".join(lines))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


class Queries:
    """The streaming stage ``hourly`` of several jobs, in one session."""

    def __init__(self, spark: SparkSession, storage: JobStorage, shape: str) -> None:
        self.spark, self.storage, self.shape = spark, storage, shape

    def start(self, job_id: str, epoch: Path, **trigger: Any) -> StreamingQuery:
        out = self.storage.folder(job_id) / "out"
        writer = (
            self.rows(str(out / "typed"))
            .writeStream.format("parquet")
            .option("path", str(out / "hourly"))
            .option("checkpointLocation", str(epoch / "streams" / "hourly" / "ck"))
        )
        return writer.trigger(**trigger).start()

    def rows(self, source: str) -> DataFrame:
        read = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = read.json(source).withWatermark("at", "30 minutes")
        if self.shape == "join":
            left = rows.alias("l")
            right = rows.alias("r")
            on = F.expr("l.key = r.key AND r.at = l.at + INTERVAL 1 HOUR")
            return left.join(right, on).select("l.at", "l.key", F.col("r.value").alias("value"))
        window = F.window("at", "3 hours").alias("window")
        sums = rows.groupBy(window, "key").agg(F.sum("value").alias("value"))
        return sums.select(F.col("window.start").alias("at"), "key", "value")

    def result(self, job_id: str) -> list[str]:
        out = str(self.storage.folder(job_id) / "out" / "hourly")
        found = self.spark.read.parquet(out).collect()
        return sorted(f"{row['at']} {row['key']} {row['value']}" for row in found)

    def finish(self, job_id: str, epoch: Path) -> list[str]:
        """Let the query take all that is there, and return what it published."""
        self.start(job_id, epoch, availableNow=True).awaitTermination()
        return self.result(job_id)


def main() -> None:
    root, provider, shape = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = session(provider)
    storage = JobStorage(root, "test")
    queries = Queries(spark, storage, shape)
    said: dict[str, Any] = {}

    plain = storage.take_over("plain", 1)
    fill(storage.folder("plain") / "out" / "typed")
    said["reference"] = queries.finish("plain", plain)

    with open_backend("memory://snapshots", cluster="test") as backend:
        epoch = storage.take_over("job", 1)
        fill(storage.folder("job") / "out" / "typed")
        for key, value in (
            (keys.JOBS + "job", JobSpec("job", "m:f")),
            (keys.stage("job", "typed"), StageRecord("job", "typed", None, 1, 1, 0.1, 1.0)),
            (keys.stream("job", "hourly"), StreamRecord("job", "hourly", True, "plan", "4")),
        ):
            backend.commit(Create(key, encode(value)))
        catalog = SnapshotCatalog(backend, storage)
        query = queries.start("job", epoch, processingTime="0 seconds")
        ck = epoch / "streams" / "hourly" / "ck"
        while len(checkpoint.batches(ck)) < 4:
            assert query.isActive, query.exception()
            time.sleep(0.01)
        first = catalog.create("job")
        pinned = first.stages[0].batch
        assert pinned is not None
        older = catalog.create("job", batches={"hourly": pinned - 2}, format=SnapshotFormat.CAS)
        second = catalog.create("job")
        reader = spark.newSession()  # As that of a command line, which lacks the job's settings.
        reader.conf.unset("spark.sql.streaming.stateStore.checkpointFormatVersion")
        logical = catalog.create("job", format=SnapshotFormat.LOGICAL, spark=reader)
        assert query.isActive, query.exception()
        query.stop()
        said["pinned"] = [each.stages[0].batch for each in (first, older, second, logical)]
        said["shared"] = second.new_bytes < second.bytes
        said["logical"] = export(spark, storage, logical.number, catalog)

        catalog.export("job", first.number, root / "exported")
        shutil.rmtree(epoch)
        shutil.rmtree(storage.folder("job") / "out")
        moved = catalog.restore(first, as_job="moved")
        forked = catalog.restore(first, as_job="forked", fork=True)
        # Both at once in one session: with one id, the second would end the first in silence.
        both = [
            queries.start("moved", moved.folder, availableNow=True),
            queries.start("forked", forked.folder, availableNow=True),
        ]
        for each in both:
            each.awaitTermination()
        said["moved"], said["forked"] = queries.result("moved"), queries.result("forked")
        said["ids"] = [moved.stages[0].query, forked.stages[0].query]
        if shape == "windows" and provider != "hdfs":
            rescaled = catalog.restore(first, as_job="rescaled")
            ck = rescaled.folder / "streams" / "hourly" / "ck"
            rescaling.rescale(spark, ck, 3)
            # Rescaling is a batch that the log of Spark's file sink knows nothing of, and without
            # which it cannot be compacted.
            log = storage.folder("rescaled") / "out" / "hourly" / "_spark_metadata"
            for batch in checkpoint.batches(ck):
                if batch > pinned and not (log / str(batch)).exists():
                    (log / str(batch)).write_text("v1")
            said["rescaled"] = queries.finish("rescaled", rescaled.folder)
        back = catalog.restore(older)
        said["rolled back"] = queries.finish("job", back.folder)
        with open_backend("memory://far", cluster="test") as far:
            there = JobStorage(root / "far away", "test")
            restored = SnapshotCatalog(far, there).restore(root / "exported")
            shutil.rmtree(storage.root)
            said["far"] = Queries(spark, there, shape).finish("job", restored.folder)
    print(json.dumps(said))
    spark.stop()


def export(
    spark: SparkSession, storage: JobStorage, number: int, catalog: SnapshotCatalog
) -> dict[str, int]:
    """Return how many rows of each store a logical snapshot holds."""
    catalog.verify("job", number)
    top = storage.folder("job") / "snapshots" / str(number) / "files" / "state" / "hourly"
    stores = [path for path in top.glob("*/*") if path.is_dir()]
    return {
        path.relative_to(top).as_posix(): spark.read.parquet(str(path)).count() for path in stores
    }


if __name__ == "__main__":
    main()
