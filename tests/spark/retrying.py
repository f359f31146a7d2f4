"""A job of four stages and a stream with state, whose third stage has a bug."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from jrs import Job, Stage
from jrs.records.model import Json

from .jobs import note  # Loaded as `tests.spark.retrying`.
from .streams import SCHEMA, events, spark, windows


def steps(job: Job, source: str, more: str, journal: str, commits: int, bug: bool) -> Json:
    """Run two stages, and the third once the stream has committed so many batches."""

    def typed(stage: Stage) -> Json:
        note(journal, stage.name)
        rows = spark(job).read.schema(SCHEMA).json(source)
        rows.write.parquet(str(stage.output / "rows"))
        return rows.count()

    def counted(stage: Stage) -> Json:
        note(journal, stage.name)
        return spark(job).read.parquet(str(first.output / "rows")).groupBy("key").count().count()

    def summed(stage: Stage) -> Json:
        folder = Path(live.output).parents[1]
        while len(list(folder.glob("e*/streams/live/ck/commits/[0-9]*"))) < commits:
            time.sleep(0.05)
        if bug:
            raise ValueError("a bug")
        note(journal, stage.name)
        rows: Any = spark(job).read.parquet(str(first.output / "rows")).agg({"value": "sum"})
        return rows.first()[0]

    def report(stage: Stage) -> Json:
        note(journal, stage.name)
        (stage.output / "report").write_text(f"{second.result()} keys, {third.result()} in all")
        return None

    first = job.stage("typed", typed)
    second = job.stage("counted", counted)
    live = job.stream(
        "live",
        lambda stage: (
            windows(events(stage, more))
            .writeStream.format("jrs")
            .trigger(processingTime="200 milliseconds")
        ),
    )
    third = job.stage("summed", summed)
    job.stage("report", report)
    live.result()
    return [first.result(), second.result(), third.result()]
