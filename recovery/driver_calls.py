"""What a call of `driver.run` may take from an earlier one: the checks of the call against the job
that is stored under its id; and what it says meanwhile."""

from __future__ import annotations

import time
from contextlib import suppress

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput, JrsError
from jrs.contract.texts import printable, span
from jrs.records.applications import shown_call
from jrs.records.model import JobResult, JobSpec, JobStatus
from jrs.store.jobs import JobCatalog

from .inspect.explain import Explainer
from .leading_replica import log
from .rules.decision import NOT_REACHED, Action

_FIRST = 2.0
"""Seconds until a wait looks why its job does not run; it looks ever more rarely."""
_LAST = 30.0
"""The most seconds between two looks."""


def check_unfinished(spec: JobSpec, before: JobSpec) -> None:
    """Check that a job that has not ended is the one that the call means.

    Raises:
        InvalidInput: it is of another application, or was submitted with another function or other
            arguments.
    """
    if _is_of_another(spec, before.application):
        raise InvalidInput(
            f"job {spec.job_id!r} belongs to application {before.application!r} and has not ended: "
            "a job id names one run in the whole cluster; put into it what distinguishes this run"
        )
    if _runs_other(spec, before.call, before.function):
        raise InvalidInput(
            f"job {spec.job_id!r} was submitted with another function or other arguments: as "
            f"{_call(before)}, and this is {_call(spec)}; a job id names one run: choose another"
        )


def say_handed_back(spec: JobSpec, stored: JobResult, code: str) -> None:
    """Say what a caller may not expect of a stored result that is returned or raised.

    Args:
        code: the version of the code that would run; empty if it is unknown.
    """
    ago = span(time.time() - stored.finished_at)
    if stored.status is not JobStatus.FINISHED:
        other = code and stored.code and code != stored.code
        log.warning(
            "job %r ended %s %s ago%s and does not run again; to run it, give the job another id",
            spec.job_id,
            stored.status.name,
            ago,
            f", of code {printable(stored.code)} and not the code here, {code}," if other else "",
        )
        return
    how, advice = list[str](), ""
    if _is_of_another(spec, stored.application):
        how.append(f"in application {stored.application!r}")
        advice = "; put into the job id what distinguishes this run to run it"
    if _runs_other(spec, stored.call, stored.spec.function if stored.spec else ""):
        how.append("with another function or other arguments")
    if how:
        log.warning(
            "job %r has ended %s ago %s; its result is returned, nothing runs%s",
            spec.job_id,
            ago,
            " and ".join(how),
            advice,
        )


class Waiting:
    """Says why a job that is waited for does not run: only an operator can end some of the reasons.
    Each reason is said once."""

    def __init__(self, backend: Backend, job_id: str) -> None:
        self._backend = backend
        self._job_id = job_id
        self._said = {NOT_REACHED}  # Its function is on the way to the leader.
        self._pause = _FIRST
        self._next = Deadline.after(_FIRST)

    def look(self) -> None:
        """Look, if it is time to, and say what was found."""
        if not self._next.expired:
            return
        with suppress(JrsError):  # The caller who waits asks the backend as well.
            view = JobCatalog(self._backend).view(self._job_id)
            # The queue moves whenever a job starts.
            found = Explainer(self._backend, queue=False).explain(view)
            if found.action in (Action.HOLD, Action.WAIT) and found.reason not in self._said:
                self._said.add(found.reason)
                log.warning("job %r does not run: %s", self._job_id, printable(found.reason))
        self._pause = min(2 * self._pause, _LAST)
        self._next = Deadline.after(self._pause)


def _is_of_another(spec: JobSpec, application: str) -> bool:
    """Return whether a job is of another application; one of none was submitted, or is of a cluster
    of an older format."""
    return application not in ("", spec.application)


def _runs_other(spec: JobSpec, call: str, function: str) -> bool:
    """Return whether a job was stored with another function or other arguments than `spec` has;
    what an older version has not stored is not compared."""
    return call not in ("", spec.call) or function not in ("", spec.function)


def _call(spec: JobSpec) -> str:
    return shown_call(spec.function or spec.entry_point, spec.arguments)
