"""Answering an unknown job id with similar ones."""

from __future__ import annotations

from itertools import islice

from jrs.contract.backend import Backend
from jrs.contract.errors import JrsError, NoSuchJob
from jrs.contract.texts import did_you_mean
from jrs.records import keys

_MOST = 1000
"""Ids of a kind that are compared: a mistyped id must not cost a look at all jobs."""


def no_such_job(backend: Backend, job_id: str, what: str = "") -> NoSuchJob:
    """Return the error of a job that does not exist, with a few similar ids."""
    known: set[str] = set()
    try:
        for prefix in (keys.JOBS, keys.RESULTS):
            similar = backend.scan(prefix + job_id[:3])
            known.update(keys.job_of(record.key) for record in islice(similar, _MOST))
    except JrsError:
        pass  # It is only a suggestion.
    return NoSuchJob(f"there is no job {job_id!r}{what}{did_you_mean(job_id, sorted(known))}")
