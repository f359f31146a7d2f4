"""The jobs of these tests. Loaded by path in processes of their own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jrs
from jrs import Job, Stage
from jrs.demo import pipeline
from jrs.records.model import Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def spark(job: Job) -> SparkSession:
    return jrs.spark(job, spark_driver_extraJavaOptions=QUICK, spark_sql_shuffle_partitions="2")


def note(journal: str, line: str) -> None:
    """Append a line in one write, so that a kill leaves it whole or absent."""
    fd = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)


class Doubled:
    """What this file's functions and classes are to Spark's workers."""

    def __init__(self, number: int) -> None:
        self.number = twice(number)


def twice(number: int) -> int:
    return 2 * number


def sends_functions(job: Job) -> Json:
    """Have Spark's workers call a function of this file, and make objects of its class."""
    numbers = spark(job).sparkContext.parallelize([1, 2], 2)
    return [numbers.map(twice).collect(), [one.number for one in numbers.map(Doubled).collect()]]


def whereabouts(_: int) -> list[str]:
    """Return which Python runs this worker, and where it has found pyspark."""
    import pyspark

    return [sys.executable, str(Path(pyspark.__file__).parent)]


def asks_a_worker(job: Job) -> Json:
    """Compare a worker of Spark with this process."""
    (worker,) = spark(job).sparkContext.parallelize([0], 1).map(whereabouts).collect()
    return [worker, whereabouts(0)]


def logs_classes(job: Job, log: str) -> Json:
    """Have the JVM log where it has its classes from."""
    session = jrs.spark(job, spark_driver_extraJavaOptions=f"-Xlog:class+load:file={log}")
    return session.range(3).count()


def flights(job: Job, data: str, journal: str) -> Json:
    """The demo's job; the journal says which stage ran, and which was known to be finished."""
    run = job.stage

    def stage(name: str, function: Any = None, **options: Any) -> Any:
        def noted(stage: Stage) -> Json:
            note(journal, f"run {name} {job.attempt}")
            return function(stage)

        finished = run(name, noted, **options)
        note(journal, f"finished {name} {job.attempt}")
        return finished

    job.stage = stage
    return pipeline.flights(job, data)


def jvm_environment(job: Job) -> Json:
    """Return the environment of the JVM, and of one of Spark's Python workers."""
    context = spark(job).sparkContext
    gateway: Any = context._gateway
    jvm = Path(f"/proc/{gateway.proc.pid}/environ").read_text()
    (worker,) = context.parallelize([0], 1).map(lambda _: str(dict(os.environ))).collect()
    return {"jvm": jvm, "worker": worker}


def slow_rows(session: SparkSession, tasks: int, milliseconds: int) -> DataFrame:
    """Return rows that sleep in the JVM, one for each task: nothing of Python runs meanwhile."""
    return session.range(0, tasks, 1, tasks).selectExpr(
        "id", f"reflect('java.lang.Thread', 'sleep', {milliseconds}L) as slept"
    )


def writes_for_long(job: Job) -> Json:
    """Write for minutes in the first attempt, and at once in any other."""

    def write(stage: Stage) -> Json:
        tasks, sleep = (2000, 200) if job.attempt == 1 else (2, 0)
        slow_rows(spark(job), tasks, sleep).write.parquet(str(stage.output / "rows"))
        return {"attempt": job.attempt, "tasks": tasks}

    return job.stage("write", write).result()


def waits_when_written(job: Job, folder: str) -> Json:
    """Write, and in the first attempt come back only when ``go`` exists: about to publish."""
    gate = Path(folder, "go")

    def write(stage: Stage) -> Json:
        slow_rows(spark(job), 2, 0).write.parquet(str(stage.output / "rows"))
        if job.attempt == 1:
            Path(folder, "written").touch()
            while not gate.exists():
                time.sleep(0.01)
        return {"attempt": job.attempt}

    return job.stage("write", write).result()


def with_python_workers(job: Job) -> Json:
    """Keep Python workers busy for minutes."""

    def sleep(rows: Iterable[Any]) -> Iterable[Any]:
        time.sleep(600)
        return rows

    return spark(job).sparkContext.parallelize(range(4), 2).mapPartitions(sleep).count()


def loses_its_jvm(job: Job) -> Json:
    """Have the JVM killed in the middle of a query in the first attempt."""
    import signal
    import threading

    session = spark(job)
    if job.attempt == 1:
        from pyspark import SparkContext

        gateway: Any = SparkContext._gateway
        jvm = gateway.proc.pid
        threading.Timer(1.0, os.kill, (jvm, signal.SIGKILL)).start()
        return slow_rows(session, 2000, 200).count()
    return session.range(7).count()


def fails_in_spark(job: Job) -> Json:
    """Ask Spark for something that is not there."""
    return spark(job).read.parquet("/nowhere/at/all").count()


def describes_its_session(job: Job) -> Json:
    """Return what Spark knows of the job, and whether a second call gives the same session."""
    import numpy
    from pyspark.sql.functions import lit

    session = spark(job)
    context = session.sparkContext
    return {
        "name": context.appName,
        "group": context.getLocalProperty("spark.jobGroup.id"),
        "tags": sorted(context.getJobTags()),
        "ui": context.getConf().get("spark.ui.enabled"),
        "progress": context.getConf().get("spark.ui.showConsoleProgress"),
        "partitions": session.conf.get("spark.sql.shuffle.partitions"),
        "temporary": context.getConf().get("spark.local.dir"),
        "java": [
            session.range(1)
            .selectExpr(f"reflect('java.lang.System', 'getProperty', '{name}') as value")
            .collect()[0]
            .value
            for name in ("java.io.tmpdir", "site")
        ],
        "same": jrs.spark(job) is session,
        "imported": sorted({"pandas", "pyspark.testing"} & set(sys.modules)),
        "array": session.range(1).select(lit(numpy.array([1, 2]))).collect()[0][0],
    }
