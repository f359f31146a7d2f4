"""A job with one unbounded stream that outlives many kills, in two versions. Loaded by path in
processes of its own."""

from __future__ import annotations

import os
from typing import Any

from jrs import Job
from jrs.records.model import Json


def first(job: Job, folder: str, journal: str) -> Json:
    return run(job, folder, journal, "first")


def second(job: Job, folder: str, journal: str) -> Json:
    return run(job, folder, journal, "second")


def run(job: Job, folder: str, journal: str, version: str) -> Json:
    """Sum by windows for as long as nobody stops it; note the version in the journal."""
    from failing import read, sums  # type: ignore[import-not-found]  # It lies next to this file.

    # In one write, so that a kill leaves it whole or absent.
    fd = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{job.job_id} {version}\n".encode())
    os.close(fd)

    def build(stage: Any) -> Any:
        found = sums(read(job, folder)).writeStream
        return found.format("jrs").trigger(processingTime="200 milliseconds")

    job.stream("one", build).result()
    return version
