"""A job with an unbounded stage whose attempts die, killed -9, each at a given step of a suspend or
of a rescale.

Loaded by path in processes of its own.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamWriter

from jrs import Job
from jrs.records.model import Json
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.job import context_of
from jrs.recovery.attempt.stop_watcher import StopWatcher
from jrs.recovery.spark import rescaling
from jrs.store.stops import JobStops

SUSPENDING: dict[str, tuple[Any, str, str]] = {
    "asked": (StopWatcher, "_begin", "before"),
    "quiesced": (AttemptRun, "suspend", "after"),
    "noted": (JobStops, "update", "after"),
}
RESCALING: dict[str, tuple[Any, str, str]] = {
    "not begun": (rescaling, "rescale", "before"),
    "copied": (shutil, "copytree", "after"),
    "rewritten": (rescaling, "sync_tree", "before"),
    "synced": (rescaling, "sync_tree", "after"),
    "in its place": (rescaling, "rescale", "after"),
    "not started": (DataStreamWriter, "start", "before"),
}
"""The call at which an attempt dies, before it is made or after it, in their order."""
REWRITING, BETWEEN = "being rewritten", "between the renames"


def changed(job: Job, folder: str, steps: list[str]) -> Json:
    """A stage that is suspended or rescaled; attempt `n` dies at ``steps[n - 1]``, if any."""
    from dying import die_at  # type: ignore[import-not-found]  # It lies next to this file.
    from failing import read, sums  # type: ignore[import-not-found]  # It lies next to this file.

    step = steps[job.attempt - 1] if job.attempt <= len(steps) else ""
    if step == REWRITING:
        threading.Thread(target=die_while_rewriting, args=(job,), daemon=True).start()
    elif step == BETWEEN:
        die_between_renames()
    elif step:
        die_at({**SUSPENDING, **RESCALING}[step])

    def build(stage: Any) -> Any:
        found = sums(read(job, folder)).writeStream
        return found.format("jrs").trigger(processingTime="200 milliseconds")

    return job.stream("one", build).result()


def die_between_renames() -> None:
    """Have this process killed when the old checkpoint is away, and the new one not there yet."""
    from dying import die

    rename = os.rename

    def last(source: Any, target: Any, **options: Any) -> None:
        if Path(target).name == "ck":
            die()
        rename(source, target, **options)

    os.rename = last  # type: ignore[assignment]  # It takes fewer types of paths.


def die_while_rewriting(job: Job) -> None:
    """Kill this process once Spark has planned the batch that rewrites the state."""
    from dying import die

    folder = context_of(job).storage.folder(job.job_id) / f"e{job.epoch}"
    copy = folder / "streams" / "one" / "ck.rescaling"
    # What was copied is links; only what Spark itself has written has one name.
    while not any(path.stat().st_nlink == 1 for path in copy.glob("offsets/[0-9]*")):
        time.sleep(0.001)
    die()
