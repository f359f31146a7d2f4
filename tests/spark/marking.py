"""A job with many unbounded stages whose first attempt dies, killed -9, when it has committed the
first of the marks that a drain leaves. Loaded by path in processes of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jrs
from jrs import Job
from jrs.records.model import Json
from jrs.recovery.attempt import attempt_run

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEMA = "at timestamp, key string, value long"


def many(job: Job, folder: str, stages: int, marks: int) -> Json:
    """Copy the rows in so many stages, which are marked so many in a commit."""
    from dying import die_at  # type: ignore[import-not-found]  # It lies next to this file.

    attempt_run._MARKS = marks
    if job.attempt == 1:
        die_at((attempt_run, "commit_again", "after"))
    jrs.spark(
        job,
        spark_driver_extraJavaOptions=QUICK,
        spark_sql_shuffle_partitions="1",
        spark_sql_session_timeZone="UTC",
    )

    def build(stage: Any) -> Any:
        with Path(folder).with_name("journal").open("a") as journal:
            journal.write(f"{stage.name} {job.attempt}\n")
        rows = job.spark.readStream.schema(SCHEMA).json(folder)
        found = rows.selectExpr("date_format(at, 'HH:mm') as at", "key", "value")
        return found.writeStream.format("jrs").trigger(processingTime="1 hour")

    for stage in [job.stream(f"s{number:02}", build) for number in range(stages)]:
        stage.result()
