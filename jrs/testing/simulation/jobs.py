"""The job of simulated runs."""

from __future__ import annotations

import time

from jrs.recovery.attempt.job import Job


def job(job: Job, stages: int) -> list[int]:
    """Run some stages, each behind the one before."""
    found = []
    for number in range(stages):
        found.append(job.stage(f"stage-{number}", lambda stage, number=number: number).result())  # type: ignore[misc]
    return found


def dying(job: Job, stages: int) -> None:
    """Die behind the first stage."""
    job.stage("stage-0", lambda stage: stages)
    raise ValueError("it dies")


def endless(job: Job, stages: int) -> None:
    """Never end."""
    job.stage("stage-0", lambda stage: stages)
    while True:
        time.sleep(1.0)
