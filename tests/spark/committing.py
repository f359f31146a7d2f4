"""A stream whose commits fail after they have taken effect. Loaded by path in its own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jrs
from jrs.records.heads import StreamHead
from jrs.recovery.attempt.batch_committer import BatchCommitter
from jrs.recovery.attempt.job import context_of
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
