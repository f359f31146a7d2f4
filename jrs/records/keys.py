"""Keys: the layout of a cluster's map. No other module knows the layout."""

from __future__ import annotations

from jrs.contract.operations import EPOCH_KEY

EPOCH = EPOCH_KEY
JOBS = "jobs/"
RESULTS = "results/"
DIRTY = "dirty/"
TOMBSTONES = "tombstones/"
ATTEMPTS = "attempts/"
FENCES = "fence/"
STAGES = "stages/"
STREAMS = "streams/"
STOPS = "stops/"
CANCEL = "cancel/"
SNAPSHOTS = "snapshots/"
RESTORES = "restores/"
CLEANUP = "cleanup/"
MASTERS = "masters/"
DOCTOR = "doctor/"
FORMAT = "cluster/format"

PER_JOB = (
    *(JOBS, RESULTS, DIRTY, TOMBSTONES, ATTEMPTS, FENCES, STAGES, STREAMS, STOPS, CANCEL),
    CLEANUP,
    SNAPSHOTS,
    RESTORES,
)
"""Every prefix whose keys continue with a job id."""
WHILE_IT_RUNS = (ATTEMPTS, FENCES, STAGES, STREAMS, STOPS, CANCEL, CLEANUP, RESTORES)
"""The prefixes whose records are removed once the job has ended and is cleaned up."""


def stage(job_id: str, name: str) -> str:
    return f"{STAGES}{job_id}/{name}"


def stages(job_id: str) -> str:
    return f"{STAGES}{job_id}/"


def stream(job_id: str, name: str) -> str:
    return f"{STREAMS}{job_id}/{name}"


def snapshot(job_id: str, number: int) -> str:
    return f"{SNAPSHOTS}{job_id}/{number:010}"


def snapshots(job_id: str) -> str:
    return f"{SNAPSHOTS}{job_id}/"


def streams(job_id: str) -> str:
    return f"{STREAMS}{job_id}/"


def job_of(key: str) -> str:
    """Return the job id in a key under one of `PER_JOB`."""
    return key.split("/", 2)[1]
