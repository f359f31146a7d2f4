"""Whether a job that was submitted before is the one that is submitted now."""

from __future__ import annotations

import logging

from jrs.contract.errors import InvalidInput
from jrs.records.applications import shown_call
from jrs.records.model import JobSpec
from jrs.store.job_views import JobView

_log = logging.getLogger("jrs.client")


def refuse_another(before: JobView, spec: JobSpec) -> None:
    """Check that a job that has not ended is not another call than `spec`.

    Raises:
        InvalidInput: it has another entry point or other arguments.
    """
    if _is_another(before, spec) and not before.has_ended:
        runs = before.spec or before.application
        assert runs is not None, "what is unknown is no other call"
        raise InvalidInput(
            f"job {spec.job_id!r} was submitted with another entry point or other arguments: it "
            f"runs {shown_call(runs.entry_point, runs.arguments)}, and this is "
            f"{shown_call(spec.entry_point, spec.arguments)}; a job id names one run: choose "
            "another"
        )


def refuse_or_warn(before: JobView, spec: JobSpec) -> None:
    """Do what `refuse_another` does, and log a warning if a job that has ended was another call."""
    refuse_another(before, spec)
    if _is_another(before, spec) and before.has_ended:
        _log.warning(
            "job %r has ended with another entry point or other arguments than %s; its result "
            "stands, nothing runs",
            spec.job_id,
            shown_call(spec.entry_point, spec.arguments),
        )


def _is_another(before: JobView, spec: JobSpec) -> bool:
    """Return whether the job ran, or is to run, another call; what an older version has not stored
    is not compared."""
    result = before.entry.result if before.entry is not None else None
    runs = result or before.spec or before.application
    return runs is not None and runs.call not in ("", spec.call)
