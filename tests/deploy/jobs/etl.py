"""Jobs of the tests of the kit. They lie in a folder of their own, as a user's code does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jrs


def count(job: jrs.Job, rows: int, wait: str = "") -> dict[str, int]:
    """Write rows; count them by a stream whose state is in RocksDB; wait for a file to appear."""

    def write(stage: jrs.Stage) -> int:
        stage.spark.range(rows).write.parquet(str(stage.output / "rows"))
        return rows

    def once(stage: jrs.StreamStage) -> Any:
        found = stage.files(str(written.output / "rows"))
        numbers = stage.spark.readStream.schema("id long").parquet(found)
        return numbers.dropDuplicates(["id"]).writeStream.format("jrs")

    def read(stage: jrs.Stage) -> int:
        while wait and not Path(wait).exists():
            time.sleep(0.05)
        return stage.spark.read.parquet(str(written.output / "rows")).count()

    written = job.stage("write", write)
    job.stream("once", once, bounded=True)
    return {"rows": job.stage("read", read).result(), "attempt": job.attempt}


def nightly(job: jrs.Job) -> dict[str, int]:
    """Do nothing that takes time."""
    return {"attempt": job.attempt}
