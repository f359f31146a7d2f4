"""Jobs with streaming stages that die, hang, or are not what they were. Loaded by path in
processes of their own."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import jrs
from jrs import Job
from jrs.contract.errors import InvalidInput
from jrs.host import filesystems
from jrs.records.model import Json, StopMode
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.job import context_of
from jrs.recovery.checkpoint_format.position import position, read_plan
from jrs.store.stops import JobStops

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEMA = "at timestamp, key string, value long"


def session(job: Job) -> Any:
    return jrs.spark(
        job,
        spark_driver_extraJavaOptions=QUICK,
        spark_sql_shuffle_partitions="2",
        spark_sql_session_timeZone="UTC",
    )


def read(job: Job, folder: str) -> Any:
    return session(job).readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(folder)


def sums(rows: Any) -> Any:
    from pyspark.sql import functions as F

    tens = rows.withWatermark("at", "20 minutes").groupBy(F.window("at", "10 minutes"), "key")
    found = tens.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    return found.selectExpr("date_format(window.start, 'HH:mm') as at", "key", "n", "total")


def wrong(job: Job, folder: str) -> Json:
    """Return what is said of each stage that cannot be run."""
    from shapes import counts, in_slots  # type: ignore[import-not-found]  # It lies next to this file.

    said: dict[str, Json] = {}

    def refused(case: str, build: Any, name: str = "", **options: Any) -> None:
        try:
            job.stream(name or case, build, **options)
        except InvalidInput as error:
            said[case] = str(error)

    def sink(stage: Any) -> Any:
        return read(job, folder).writeStream.queryName("mine").format("jrs")

    where = str(Path(folder).with_name("elsewhere"))
    refused("checkpoint", lambda stage: sink(stage).option("checkpointLocation", where))
    refused("async", lambda stage: sink(stage).option("asyncProgressTrackingEnabled", "true"))
    refused("memory", lambda stage: read(job, folder).writeStream.format("memory"))
    for mode in ("complete", "update"):
        refused(
            mode, lambda stage: sums(read(job, folder)).writeStream.format("jrs")
            .outputMode(mode),  # noqa: B023 - called at once
        )  # fmt: skip
    refused("partitions", lambda stage: sink(stage).partitionBy("key"))
    refused("option", lambda stage: sink(stage).option("compression", "gzip"))
    refused("ends", lambda stage: sink(stage).trigger(availableNow=True))
    refused("continuous", lambda stage: sink(stage).trigger(continuous="1 second"))
    refused(
        "timers", lambda stage: in_slots(read(job, folder)).groupBy("slot")
        .transformWithState(counts(), "slot string, n long", "append", "ProcessingTime")
        .writeStream.format("jrs"), bounded=True,
    )  # fmt: skip
    known = filesystems.mount_of
    filesystems.mount_of = lambda *_: filesystems.Mount(
        "nfs4", "host:/jobs", Path(folder), frozenset({"rw"})
    )
    refused("files", lambda stage: read(job, folder).writeStream.format("parquet"))
    refused("xml", lambda stage: read(job, folder).writeStream.format("xml"))
    filesystems.mount_of = known
    numbered = read(job, folder).withColumnRenamed("key", "Batch")
    refused("column", lambda stage: numbered.writeStream.format("jrs"))
    refused("frame", lambda stage: read(job, folder))
    refused("batch", lambda stage: session(job).range(3).write)
    refused("nothing", lambda stage: None)
    refused("name", sink, name="a/b")
    refused("unknown", sink, after=["nobody"])
    refused("circle", sink, name="self", after=["self"])
    job.stream("twice", sink, bounded=True)
    refused("twice", sink)
    return said


def wrong_and_fails(job: Job, folder: str) -> Json:
    stage = job.stream("sums", lambda stage: read(job, folder).writeStream.format("memory"))
    return stage.result()


def frail(job: Job, folder: str, attempts: int, deaths: int) -> Json:
    """A bounded stage that dies so often, and may be started so often."""
    session(job)
    starts = Path(folder).with_name("starts")

    def count(rows: Any, batch: int) -> None:
        starts.touch()
        if len(starts.read_text()) < deaths:
            with starts.open("a") as file:
                file.write("x")
            raise ValueError("frail")
        rows.count()

    stage = job.stream(
        "frail",
        lambda stage: read(job, folder).writeStream.foreachBatch(count),
        bounded=True,
        restart=RestartPolicy(attempts=attempts, delay=0.0) if attempts else None,
    )
    return stage.result()["batches"]


def frail_start(job: Job, folder: str) -> Json:
    """A stage that dies once, and cannot be started again at the first try."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    start, starts = DataStreamWriter.start, iter(range(9))

    def start_but_once(*args: Any, **options: Any) -> Any:
        if next(starts) == 1:
            raise OSError("no threads left")
        return start(*args, **options)

    DataStreamWriter.start = start_but_once
    return frail(job, folder, attempts=4, deaths=1)


def stopped(job: Job, folder: str) -> Json:
    """A bounded stage whose query another thread stops, once, before it has read everything."""
    stops = iter(range(1))

    def count(rows: Any, batch: int) -> None:
        rows.write.mode("overwrite").json(str(Path(folder).with_name("table") / str(batch)))
        for _ in stops:
            (query,) = session(job).streams.active
            threading.Thread(target=query.stop, daemon=True).start()
            time.sleep(1)  # The query is interrupted here, or behind this batch.

    stage = job.stream(
        "stopped",
        lambda stage: read(job, folder).writeStream.foreachBatch(count),
        bounded=True,
        restart=RestartPolicy(attempts=2, delay=0.0),
    )
    return stage.result()["batches"]


def passes_over(job: Job, folder: str) -> Json:
    """A stage with state whose function passes over an error, once."""
    failures = Path(folder).with_name("failures")

    def keep(rows: Any, batch: int) -> None:
        try:
            if batch == 1 and not failures.exists():
                failures.touch()
                raise OSError("the database is away")
            rows.toPandas().to_parquet(Path(folder).with_name("table") / f"{batch}.parquet")
        except OSError:
            pass

    Path(folder).with_name("table").mkdir(exist_ok=True)
    stage = job.stream(
        "one", lambda stage: sums(read(job, folder)).writeStream.foreachBatch(keep), bounded=True
    )
    return stage.result()["batches"]


def totals(job: Job, folder: str) -> Json:
    """Two stages, one of which has all of its state in one partition."""
    from pyspark.sql import functions as F

    table = Path(folder).with_name("table")
    table.mkdir(exist_ok=True)

    def keep(rows: Any, batch: int) -> None:
        half = table / f".{batch}"
        rows.toPandas().to_parquet(half)
        half.rename(table / f"{batch}.parquet")

    def build_sums(stage: Any) -> Any:
        return sums(read(job, folder)).writeStream.format("jrs")

    def build_totals(stage: Any) -> Any:
        found = read(job, folder).agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        return found.writeStream.outputMode("update").foreachBatch(keep)

    streams = [job.stream("sums", build_sums), job.stream("totals", build_totals)]
    for stream in streams:
        stream.result()


def left_over(job: Job, folder: str) -> Json:
    """A stage with a source that tells no end, which dies in its second batch and is drained by its
    next attempt. Return up to which second it has read, and which it was when that began."""

    def count(batch: Any, number: int) -> None:
        if job.attempt == 1 and number == 1:
            JobStops(context_of(job).backend).request(job.job_id, StopMode.DRAIN)
            os.kill(os.getpid(), signal.SIGKILL)
        batch.count()

    def build(stage: Any) -> Any:
        source = session(job).readStream.format("rate").option("rowsPerSecond", 10)
        return source.load().writeStream.foreachBatch(count)

    session(job)
    began = time.time()
    job.stream("rate", build).result()
    checkpoint = context_of(job).storage.stream(job.job_id, job.epoch, "rate") / "ck"
    started = float((checkpoint / "sources" / "0" / "0").read_text().split()[-1]) / 1000
    (last,) = read_plan(checkpoint, position(checkpoint).committed).sources
    return [int(last.offset or "-1"), int(began - started)]


def stuck(job: Job, folder: str, where: str) -> Json:
    """A stage that dies while the function is elsewhere, and would be for an hour."""
    busy = Path(folder).with_name("busy")

    def die(rows: Any, batch: int) -> None:
        while not busy.exists():
            time.sleep(0.01)
        raise ValueError("frail")

    job.stream("frail", lambda stage: read(job, folder).writeStream.foreachBatch(die))
    if where == "python":
        busy.touch()
        time.sleep(3600)
    elif where == "spark":
        busy.touch()
        sleep = "reflect('java.lang.Thread', 'sleep', 200L)"
        session(job).range(0, 40_000, 1, 20_000).selectExpr(sleep).collect()
    return "never"


def changing(job: Job, folder: str) -> Json:
    """A job whose code is of the version that a file next to its input names."""
    version = Path(folder).with_name("version").read_text()
    session(job)
    after = []
    if version == "dag":
        after.append(job.stream("extra", lambda stage: read(job, folder).writeStream.format("jrs")))
    job.stage("first", lambda stage: version, after=after)

    def build(stage: Any) -> Any:
        # Spark draws another seed at each start, and prints the first 25 columns of a plan.
        rows = read(job, folder).where("rand() >= 0 and uuid() > ''")
        wide = rows.selectExpr("*", *(f"value + {n} as wide{n}" for n in range(25)))
        found = sums(wide.selectExpr("*", "value + 3 as last") if version == "plan" else wide)
        return found.writeStream.format("jrs").trigger(processingTime="200 milliseconds")

    job.stream("sums", build).result()
    return version


def hangs(job: Job, folder: str) -> Json:
    """Hang in the first attempt, all of its threads."""
    if job.attempt == 1:
        Path(folder, "hangs").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return job.attempt
