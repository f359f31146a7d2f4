"""The jobs of a soak, one of each kind, and the resources that they leave behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

from jrs import Job, Resource, Stage

FOLDER = "JRS_CHAOS_FOLDER"
"""The environment variable with the folder for the traces and leftovers of jobs."""


def quick(job: Job, number: int) -> int:
    _begin(job)
    return number * number


def slow(job: Job, number: int, seconds: float) -> int:
    """Work for some time, in small steps."""
    _begin(job)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.02)
    return number + 1


def staged(job: Job, number: int, seconds: float) -> dict[str, int]:
    """Run three stages, each of which reads the output of the previous one."""
    _begin(job)
    written = job.stage("write", lambda stage: _write(stage, number, seconds))
    doubled = job.stage("double", lambda stage: 2 * _read(written.output, seconds),
                        after=[written])  # fmt: skip
    summed = job.stage("sum", lambda stage: written.result() + doubled.result(), after=[doubled])
    return {"written": written.result(), "sum": summed.result()}


def failing(job: Job, number: int) -> None:
    _begin(job)
    raise ValueError(f"number {number} is no good")


def exiting(job: Job, number: int) -> None:
    _begin(job)
    os._exit(3)


class Leftovers(Resource):
    """The file that each attempt leaves outside of the job's folder."""

    name = "leftovers"

    def clean(self, job_id: str) -> None:
        (folder() / "left" / job_id).unlink(missing_ok=True)

    def describe(self, job_id: str) -> list[str]:
        path = folder() / "left" / job_id
        return [str(path)] if path.exists() else []


def leftovers() -> Resource:
    """Return the resource, for ``jrs master --resource``."""
    return Leftovers()


def folder() -> Path:
    return Path(os.environ[FOLDER])


def _begin(job: Job) -> None:
    """Record that the attempt has begun, and leave something to be cleaned up."""
    line = f"{time.time()!r} {job.job_id} {job.epoch} {job.attempt}\n".encode()
    fd = os.open(folder() / "begun", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)
    (folder() / "left" / job.job_id).touch()


def _write(stage: Stage, number: int, seconds: float) -> int:
    time.sleep(seconds / 2)
    (stage.output / "number").write_text(str(number))
    return number


def _read(output: Path, seconds: float) -> int:
    time.sleep(seconds / 2)
    return int((output / "number").read_text())
