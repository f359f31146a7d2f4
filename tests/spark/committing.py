"""Streams whose commits fail, or come late. Loaded by path in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import jrs
from jrs.records.heads import StreamHead
from jrs.recovery.attempt.batch_committer import BatchCommitter
from jrs.recovery.attempt.job import context_of
from jrs.recovery.attempt.plan_keeper import PlanKeeper
from jrs.store import heads

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CUT = (1,)
"""The batches whose first commit fails behind its effect."""


def cut(job: jrs.Job, folder: str) -> Any:
    """Write the lines that are no comment; a file of comments is a batch without rows."""
    session = jrs.spark(
        job, spark_driver_extraJavaOptions=QUICK, spark_sql_shuffle_partitions="2"
    )  # fmt: skip
    failed = Path(folder).with_name("failed")
    publish = BatchCommitter._publish

    def publish_or_fail(self: BatchCommitter, head: StreamHead, **how: bool) -> None:
        if head.batch in CUT and not failed.joinpath(str(head.batch)).exists():
            failed.mkdir(exist_ok=True)
            failed.joinpath(str(head.batch)).touch()
            raise ConnectionResetError("cut off behind the commit")
        publish(self, head, **how)

    BatchCommitter._publish = publish_or_fail
    found = job.stream(
        "lines",
        lambda stage: (
            session.readStream.option("maxFilesPerTrigger", 1)
            .text(stage.files(folder))
            .where("value not like '#%'")
            .writeStream.format("jrs")
        ),
        bounded=True,
        restart=jrs.RestartPolicy(attempts=5, delay=0.0),
    ).result()
    head = heads.stored(context_of(job).backend, job.job_id, "lines")
    assert head is not None
    return {"batches": found["batches"], "head": head[0].batch}


def called(job: jrs.Job, folder: str) -> Any:
    """Note each call of a function of `foreachBatch`, and what it was called with.

    The first attempt dies in its call for batch 1: by then there is more to read, and what plans
    the batch is gone. The second one waits before its call for batch 2, if its epoch is the first.
    """
    session = jrs.spark(job, spark_driver_extraJavaOptions=QUICK)
    attempt = context_of(job).attempt
    source, at = Path(folder), Path(folder).parent
    keep = PlanKeeper.keep

    def keep_or_wait(self: PlanKeeper, batch: int) -> None:
        if batch == 2 and job.epoch == 1:
            at.joinpath("waits").write_text(str(os.getpid()))
            while not at.joinpath("go").exists():
                time.sleep(0.01)
        keep(self, batch)

    def note(rows: Any, batch: int) -> None:
        found = sorted(row.value for row in rows.collect())
        with at.joinpath("calls").open("a") as calls:
            calls.write(json.dumps([job.epoch, attempt, batch, found]) + "\n")
        if attempt == 1:
            write_whole(source / f"{batch + 1}.txt", f"line {batch + 1}\n")
        if attempt == 1 and batch == 1:
            checkpoint = context_of(job).storage.checkpoint(job.job_id, job.epoch, "lines")
            for lost in ("offsets/1", "sources/0/1"):
                (checkpoint / lost).unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    PlanKeeper.keep = keep_or_wait
    job.stream(
        "lines", lambda stage: session.readStream.text(folder).writeStream.foreachBatch(note)
    )


def write_whole(path: Path, text: str) -> None:
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(text)
    hidden.rename(path)
