"""Jobs whose JVM is killed -9 in the one moment in which the sink of a query has committed a batch
and the query itself has not. Loaded by path in processes of their own.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jrs import Job
from jrs.records.model import Json
from jrs.recovery.attempt.job import context_of
from jrs.recovery.checkpoint_format.position import position
from jrs.recovery.snapshots.left_out import newest_batch
from jrs.store.stops import JobStops

RESCALED = 3


def publishing(job: Job, folder: str, at: str, sink: str) -> Json:
    """A stage that writes with Spark's own file sink, or with that of jrs."""
    out = context_of(job).storage.published(job.job_id, "one", temporary=False)

    def writes(writer: Any) -> Any:
        found = writer.format(sink)
        return found if sink == "jrs" else found.option("path", str(out))

    return cut_off(job, folder, at, writes, lambda: newest_batch(out))


def keyed(job: Job, folder: str, at: str, sink: str) -> Json:
    """A stage whose foreachBatch writes each batch once, and does nothing when it comes again."""
    table = Path(folder).with_name("table")
    table.mkdir(exist_ok=True)
    newest = -1

    def write(rows: Any, batch: int) -> None:
        nonlocal newest
        path = table / f"{batch}.parquet"
        if path.exists():
            return
        half = table / f".{batch}"
        rows.toPandas().to_parquet(half)
        half.rename(path)
        newest = batch
        if job.attempt == 1 and batch:
            time.sleep(0.5)  # Long enough to be seen here; nothing depends on how long it is.

    return cut_off(job, folder, at, lambda writer: writer.foreachBatch(write), lambda: newest)


def cut_off(
    job: Job, folder: str, at: str, sink: Callable[[Any], Any], newest: Callable[[], int]
) -> Json:
    """Run one stage, unbounded if it is rescaled."""
    from failing import read, sums  # type: ignore[import-not-found]  # It lies next to this file.

    def build(stage: Any) -> Any:
        return sink(sums(read(job, folder)).writeStream)

    checkpoint = context_of(job).storage.stream(job.job_id, job.epoch, "one") / "ck"
    read(job, folder)  # So that there is a JVM.
    if job.attempt == 1:
        killer = threading.Thread(target=kill, args=(job, checkpoint, at, newest), daemon=True)
        killer.start()
    return job.stream("one", build, bounded=at != "rescale").result()


def kill(job: Job, checkpoint: Path, at: str, newest: Callable[[], int]) -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    jvm = gateway.proc.pid
    while True:
        found = position(checkpoint)
        wanted = found.planned > max(0, found.committed) and found.at_the_end == (at == "flush")
        if wanted and newest() == found.planned:
            os.kill(jvm, signal.SIGSTOP)
            while Path(f"/proc/{jvm}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.001)
            if position(checkpoint).planned == found.planned:
                break
            os.kill(jvm, signal.SIGCONT)  # Too late: at the next batch then.
        time.sleep(0.001)
    # If it was stopped a moment too late, it is as if it had been in time.
    for name in (f"{found.planned}", f".{found.planned}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    Path(context_of(job).storage.root, "cut-off").write_text(str(found.planned))
    if at == "rescale":
        JobStops(context_of(job).backend).reconfigure(job.job_id, partitions=RESCALED)
    os.kill(jvm, signal.SIGKILL)
