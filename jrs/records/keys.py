"""Keys: the layout of a cluster's map. No other module knows the layout."""

from __future__ import annotations

import hashlib
import re

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
HEADS = "heads/"
GENERATIONS = "generations/"
PLANS = "plans/"
INPUTS = "inputs/"
REFERENCES = "references/"
STOPS = "stops/"
CANCEL = "cancel/"
SNAPSHOTS = "snapshots/"
RESTORES = "restores/"
HISTORY = "history/"
FOLDS = "folds/"
FEED = "feed/"
EXPORTS = "exports/"
LINEAGE = "lineage/"
CLEANUP = "cleanup/"
LEFT = "left/"
APPLICATIONS = "applications/"
MASTERS = "masters/"
ENDED = "ended/"
TAGGED = "tagged/"
DOCTOR = "doctor/"
CLUSTER = "cluster/"
FORMAT = "cluster/format"
STORAGE = "cluster/storage"
PAUSE = "cluster/pause"
SWITCHOVER = "cluster/switchover"
CLOSED = "cluster/closed"
MIGRATION = "cluster/migration"
CLUSTER_HISTORY = "cluster/history"

PER_JOB = (
    *(JOBS, RESULTS, DIRTY, TOMBSTONES, ATTEMPTS, FENCES, STAGES, STREAMS, STOPS, CANCEL),
    HEADS,
    GENERATIONS,
    PLANS,
    INPUTS,
    REFERENCES,
    APPLICATIONS,
    CLEANUP,
    LEFT,
    LINEAGE,
    SNAPSHOTS,
    RESTORES,
)
"""Every prefix whose keys continue with a job id, but for those of `TOLD`."""
TOLD = (HISTORY, FOLDS)
"""The prefixes of the histories of jobs: their records change nothing."""
UNFINISHED = (JOBS, APPLICATIONS)
"""The prefixes of what was begun: jobs until they are cleaned up, applications until they end."""
WHILE_IT_RUNS = (
    *(
        ATTEMPTS,
        FENCES,
        STAGES,
        STREAMS,
        HEADS,
        PLANS,
        INPUTS,
        REFERENCES,
        STOPS,
        CANCEL,
        CLEANUP,
        RESTORES,
    ),
)
"""The prefixes whose records are removed once the job has ended and is cleaned up."""


def stage(job_id: str, name: str) -> str:
    return f"{STAGES}{job_id}/{name}"


def stages(job_id: str) -> str:
    return f"{STAGES}{job_id}/"


def stream(job_id: str, name: str) -> str:
    return f"{STREAMS}{job_id}/{name}"


def head(job_id: str, name: str) -> str:
    return f"{HEADS}{job_id}/{name}"


def heads(job_id: str) -> str:
    return f"{HEADS}{job_id}/"


def plan(job_id: str, name: str) -> str:
    return f"{PLANS}{job_id}/{name}"


def plans(job_id: str) -> str:
    return f"{PLANS}{job_id}/"


def closed_input(job_id: str, stage: str, source: str) -> str:
    """Return the key of an input that a stage reads; `source` names it, in a few characters."""
    return f"{INPUTS}{job_id}/{stage}/{source}"


def snapshot(job_id: str, number: int) -> str:
    return f"{SNAPSHOTS}{job_id}/{number:010}"


def snapshots(job_id: str) -> str:
    return f"{SNAPSHOTS}{job_id}/"


def history(job_id: str) -> str:
    return f"{HISTORY}{job_id}/"


def history_event(job_id: str, event: str) -> str:
    return f"{HISTORY}{job_id}/{event}"


def history_fold(job_id: str) -> str:
    return f"{FOLDS}{job_id}"


def fed(job_id: str, event: str) -> str:
    """Return the key of an event's place in the feed; the job is empty for one of the cluster."""
    return f"{FEED}{job_id}/{event}" if job_id else f"{FEED}{event}"


def export(name: str) -> str:
    """Return the key of how far the history was exported, to a receiver of that name."""
    return f"{EXPORTS}{name}"


def descendants(job_id: str) -> str:
    return f"{LINEAGE}{job_id}/"


def descendant(job_id: str, new_id: str) -> str:
    return f"{LINEAGE}{job_id}/{new_id}"


def streams(job_id: str) -> str:
    return f"{STREAMS}{job_id}/"


_LAST_MS = 10**13 - 1
"""The greatest time that the index orders, in ms: the year 2286."""
_LONGEST_TAG = 300
"""Characters of a tag in a key; a longer one has its digest there."""
_PLAIN = re.compile(r"[^A-Za-z0-9.-]")


def ended(status: str) -> str:
    return f"{ENDED}{status}/"


def tagged(tag: str) -> str:
    """Return the prefix of a tag's entries; different tags have different ones."""
    # Each character that a key cannot have becomes "_" and two hexadecimal digits for each byte.
    text = _PLAIN.sub(lambda found: "".join(f"_{byte:02x}" for byte in found[0].encode()), tag)
    if len(text) > _LONGEST_TAG or text in (".", ".."):
        text = f"_-{hashlib.sha256(tag.encode()).hexdigest()}"
    return f"{TAGGED}{text}/"


def inverted(at: float) -> str:
    """Return a moment, in seconds since 1970, so that the newest one is the least text."""
    return f"{_LAST_MS - min(max(0, int(at * 1000)), _LAST_MS):013}"


def indexed_job(key: str) -> str:
    """Return the job id in a key under `ENDED` or `TAGGED`."""
    return key.rpartition("/")[2]


def job_of(key: str) -> str:
    """Return the job id in a key under one of `PER_JOB`."""
    return key.split("/", 2)[1]
