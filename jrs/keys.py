"""Where everything of a cluster is in its map. The only place that knows the layout."""

from __future__ import annotations

from jrs.backend import EPOCH_KEY

EPOCH = EPOCH_KEY
JOBS = "jobs/"
RESULTS = "results/"
DIRTY = "dirty/"
TOMBSTONES = "tombstones/"
ATTEMPTS = "attempts/"
STAGES = "stages/"
CANCEL = "cancel/"
CLEANUP = "cleanup/"
MASTERS = "masters/"
DOCTOR = "doctor/"

PER_JOB = (JOBS, RESULTS, DIRTY, TOMBSTONES, ATTEMPTS, STAGES, CANCEL, CLEANUP)
"""Every prefix that is followed by a job id."""


def stage(job_id: str, name: str) -> str:
    return f"{STAGES}{job_id}/{name}"


def stages(job_id: str) -> str:
    return f"{STAGES}{job_id}/"


def job_of(key: str) -> str:
    """Return the job id in a key under one of `PER_JOB`."""
    return key.split("/", 2)[1]
