"""Whether a job that was submitted before is the one that is submitted now."""

from __future__ import annotations

import logging

from jrs.records.model import JobSpec
from jrs.store.job_views import JobView

_log = logging.getLogger("jrs.client")


def warn_of_another(before: JobView, spec: JobSpec) -> None:
    """Log a warning if a job that was submitted before is another call than `spec`.

    It is not refused: a job may have been upgraded since, or its code have moved to another folder,
    and a workflow engine that repeats its request has to get its job.
    """
    if _is_another(before, spec):
        _log.warning(
            "job %r was submitted before with another entry point or other arguments than %s; a "
            "job id names one run, so this is not run",
            spec.job_id,
            spec.entry_point,
        )


def _is_another(before: JobView, spec: JobSpec) -> bool:
    """Return whether the job ran, or is to run, another call; what an older version has not stored
    is not compared."""
    result = before.entry.result if before.entry is not None else None
    runs = result or before.spec or before.application
    return runs is not None and runs.call not in ("", spec.call)
