"""A replica of a driver with two jobs, to be killed: prints its events, then its answer."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

import jrs
from jrs.records.model import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

printing = threading.Lock()
url, folder, mode = sys.argv[1], Path(sys.argv[2]), sys.argv[3]


def note(line: str) -> None:
    with (folder / "journal").open("a") as file:
        file.write(f"{line}\n")


def spark(job: jrs.Job) -> SparkSession:
    return jrs.spark(job, spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def count(job: jrs.Job, n: int) -> Json:
    note(f"count {os.getpid()}")
    return spark(job).range(n).count()


def add(job: jrs.Job, n: int) -> Json:
    note(f"add {os.getpid()}")
    session = spark(job)
    if mode == "lose-jvm" and job.attempt == 1:
        from pyspark import SparkContext

        gateway: Any = SparkContext._gateway
        os.kill(gateway.proc.pid, signal.SIGKILL)
    group = session.sparkContext.getLocalProperty("spark.jobGroup.id")
    return [session.range(n + 1).groupBy().sum().collect()[0][0], group]


def main(driver: jrs.Driver) -> Json:
    n = driver.run("count", count, n=100)
    if mode == "between":
        note(f"between {os.getpid()}")
        while driver.epoch == 1:
            time.sleep(0.01)
    return {"n": n, "sum": driver.run("add", add, n=n)}


def report(event: jrs.Event) -> None:
    with printing:  # It is called from any thread.
        print(json.dumps(attrs.asdict(event)), flush=True)


answer = jrs.run(main, url, name="main", storage=folder / "files", report=report)
with printing:
    print(json.dumps({"answer": answer}), flush=True)
