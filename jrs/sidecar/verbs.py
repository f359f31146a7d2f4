"""The routes that change something: each is one call of the client. Each may be repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from jrs.client import plain
from jrs.client.connection import entry_point_of
from jrs.contract.errors import DuplicateJob, InvalidInput, NoSuchJob
from jrs.contract.texts import shown
from jrs.records import submission
from jrs.records.checks import check_entry_point
from jrs.records.codec import to_plain
from jrs.records.lineage import LineageKind
from jrs.records.model import JobSpec, RunnerKind
from jrs.records.on_result import OnResult
from jrs.records.policies import RestartPolicy, SnapshotPolicy
from jrs.records.settings import JobSettings
from jrs.records.stored import Stored
from jrs.records.time_limits import TimeLimits
from jrs.sidecar.route_form import Call, Kind, Param, Reply, Route, on_storage
from jrs.store.job_views import JobView
from jrs.store.stored_result import bare

T = TypeVar("T", bound=Stored)

_ID = Param("id", "the job's id; an id that was used is refused forever", required=True)
_REASON = Param("reason", "a text that is stored with the request", default="")
_BECAUSE = Param("because", "why; a text that is in the history", default="")
_GRACE = Param("grace", "seconds in which an attempt reaches a batch boundary", Kind.NUMBER,
               default=30.0)  # fmt: skip
_ENTRY = Param("entry", "package.module:function, or /absolute/path.py:function on the masters")
AS = Param("as_id", "the id of the new job", required=True)


# -- submitting ----------------------------------------------------------------------------


def _submit(call: Call) -> Reply:
    spec = _spec(call)
    try:
        job = call.client.submit_spec(spec)
    except DuplicateJob:
        job = call.client.job(spec.job_id)
        if not _is_same(job.view(), spec):
            raise
        return Reply(plain.of_job(job))
    return Reply(plain.of_job(job), 201)


def _spec(call: Call) -> JobSpec:
    timeout = call["timeout"]
    return JobSpec(
        job_id=call["id"],
        entry_point=_entry(call["entry"]),
        arguments=call["arguments"],
        runner=RunnerKind(call["runner"]),
        restart=_made(RestartPolicy, "restart", call["restart"]),
        snapshots=_made(SnapshotPolicy, "snapshots", call["snapshots"]),
        partitions=call["partitions"],
        priority=call["priority"],
        slots=call["slots"],
        tags=tuple(call["tags"]),
        timeout=TimeLimits() if timeout is None else _made(TimeLimits, "timeout", timeout),
        settings=_made(JobSettings, "settings", call["settings"]),
        on_result=None if call["on_result"] is None else _made(
            OnResult, "on_result", call["on_result"]
        ),
        submitted_by=call.who,
        traceparent=call.traceparent,
    )  # fmt: skip


def _made(kind: type[T], name: str, fields: dict[str, Any]) -> T:
    """Return a value of a type whose fields a body has given."""
    known = [field.name for field in attrs.fields(kind) if field.name != "unknown"]
    for given in fields:
        if given not in known:
            raise InvalidInput(f"{name} has no field {shown(given)}; there are {', '.join(known)}")
    # JSON has no tuples.
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value
              for key, value in fields.items()}  # fmt: skip
    try:
        return kind(**values)
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{name} cannot be used: {error}") from None


def _entry(text: str) -> str:
    """Return an entry point that means the same on every host.

    Raises:
        InvalidInput: it is relative to a folder of the caller, or has another form.
    """
    place = check_entry_point(text).rpartition(":")[0]
    if ("/" in place or place.endswith(".py")) and not place.startswith("/"):
        raise InvalidInput(f"{shown(text)} must be an absolute path: masters look for it")
    return text


def _is_same(view: JobView, spec: JobSpec) -> bool:
    """Return whether a job that was submitted before is the one that is submitted now. Its digest
    says so whatever was changed or left out since. Older versions have stored none: then only a
    whole spec can tell, and that of a job with the state of another one is no submission. That of
    a result is not known to be whole if it holds no more than the smallest forms keep."""
    submitted = view.submitted
    if submitted is None:
        return False
    if submitted.submission:
        return submitted.submission == submission.of_spec(spec)
    result = view.entry.result if view.entry is not None else None
    is_whole = view.spec is not None or (
        result is not None and not result.arguments_left_out and submitted != bare(submitted)
    )
    return (
        is_whole
        and submitted.lineage is None
        and submission.asked_for(submitted) == submission.asked_for(spec)
    )


# -- a job's verbs -------------------------------------------------------------------------


def _cancel(call: Call) -> Reply:
    return Reply({"requested": call.client.job(call["id"]).cancel(reason=call["reason"])})


def _suspend(call: Call) -> Reply:
    job = call.client.job(call["id"])
    return Reply({"requested": job.suspend(reason=call["reason"], grace=call["grace"])})


def _drain(call: Call) -> Reply:
    call.client.job(call["id"]).drain(reason=call["reason"], grace=call["grace"])
    return Reply({"requested": True})


def _resume(call: Call) -> Reply:
    return Reply({"requested": call.client.job(call["id"]).resume()})


def _rescale(call: Call) -> Reply:
    call.client.job(call["id"]).rescale(call["partitions"])
    return Reply({"requested": True})


def _upgrade(call: Call) -> Reply:
    call.client.job(call["id"]).upgrade(_entry(call["entry"]))
    return Reply({"requested": True})


def _fork(call: Call) -> Reply:
    job, new = call.client.job(call["id"]), call["as_id"]
    return once(call, LineageKind.FORK, lambda: plain.of_restored(job.fork(new)))


def _retry(call: Call) -> Reply:
    job, new = call.client.job(call["id"]), call["as_id"]
    entry = None if call["entry"] is None else entry_point_of(_entry(call["entry"]))

    def retry() -> plain.Plain:
        made = job.retry(
            new, from_stage=call["from_stage"], entry=entry, arguments=call["arguments"],
            changed=call["changed"], timeout=call["timeout"],
        )  # fmt: skip
        return {"job_id": made.id, "from_job": job.id}

    def is_same(made: JobSpec) -> bool:
        if submission.is_of_retry(made.submission):
            return made.submission == submission.of_retry(
                job.id, new, call["from_stage"], entry, call["arguments"], call["changed"] or {}
            )
        before = job.view().submitted
        arguments = call["arguments"]
        if arguments is None and before is not None:
            arguments = before.arguments
        return (
            made.lineage is not None
            and made.lineage.from_stage == call["from_stage"]
            and made.entry_point == (entry or (made if before is None else before).entry_point)
            and made.arguments == {**(arguments or {}), **(call["changed"] or {})}
        )

    return once(call, LineageKind.RETRY, retry, is_same)


def once(
    call: Call,
    how: LineageKind,
    make: Callable[[], plain.Plain],
    is_same: Callable[[JobSpec], bool] = lambda made: True,
) -> Reply:
    """Make a job, `as_id`, of another one; if the same request made it before, say so."""
    before = _submitted(call)
    try:
        return Reply(make(), 201 if before is None else 200)
    except DuplicateJob:
        made = _submitted(call)
        lineage = made.lineage if made is not None else None
        if made is None or lineage is None or (lineage.job_id, lineage.how) != (call["id"], how):
            raise
        if not is_same(made):
            raise
        return Reply(
            {"job_id": made.job_id, "from_job": lineage.job_id, "number": lineage.snapshot}
        )


def _submitted(call: Call) -> JobSpec | None:
    """Return the spec of the new job; None if there is none yet."""
    try:
        return call.client.job(call["as_id"]).view().submitted
    except NoSuchJob:
        return None


def _clean_up(call: Call) -> Reply:
    return Reply({"requested": call.client.job(call["id"]).retry_cleanup()})


def _force_cleanup(call: Call) -> Reply:
    return Reply({"left": call.client.job(call["id"]).force_cleanup()})


def _expire(call: Call) -> Reply:
    return Reply({"expired": call.client.expire(call["id"])})


# -- the cluster ---------------------------------------------------------------------------


def _pause(call: Call) -> Reply:
    return Reply(to_plain(call.client.pause(reason=call["reason"])))


def _unpause(call: Call) -> Reply:
    return Reply({"was_paused": call.client.unpause()})


def _switchover(call: Call) -> Reply:
    request = call.client.switchover(call["to"], reason=call["reason"])
    return Reply(None if request is None else to_plain(request))


_SUBMITTED = (
    _ID,
    attrs.evolve(_ENTRY, required=True),
    Param("arguments", "of the function", Kind.OBJECT, default={}),
    Param("runner", "a process of its own, or a thread of the master", default="process",
          choices=tuple(one.value for one in RunnerKind)),
    Param("restart", "attempts, delay, max_delay, on_exception", Kind.OBJECT, default={}),
    Param("snapshots", "every, keep, max_age, format, on_finished, on_failed, on_canceled",
          Kind.OBJECT, default={}),
    Param("partitions", "of its streams' state", Kind.WHOLE, least=1),
    Param("priority", "a higher one starts first", Kind.WHOLE, default=0, least=-(2**31) + 1),
    Param("slots", "of a master", Kind.WHOLE, default=1, least=1),
    Param("tags", "at most 32 texts", Kind.TEXTS, default=[]),
    Param("timeout", "job, attempt, then", Kind.OBJECT),
    Param("settings", "conf, packages, jars, py_files, python, env, secrets", Kind.OBJECT,
          default={}),
    Param("on_result", "run, timeout, deadline", Kind.OBJECT),
)  # fmt: skip
_RETRIED = (
    AS,
    Param("from_stage", "a stage to run again, with all that come after it", default=""),
    _ENTRY,
    Param("arguments", "in place of all that there were", Kind.OBJECT),
    Param("changed", "single arguments that are different", Kind.OBJECT),
    Param("timeout", "seconds to wait for the job's cleanup", Kind.NUMBER, default=60.0, most=60.0),
)
MADE = {201: "made", 200: "it was made by the same request before"}
_J, _OF_JOB = "client.job(id)", "/v1/jobs/{id}"


def verb(
    path: str,
    call: Callable[[Call], Reply],
    said: str,
    stands_for: str,
    body: tuple[Param, ...] = (),
    statuses: dict[int, str] | None = None,
) -> Route:
    """Return a route that changes something; each has a reason, for the history."""
    name = call.__name__.strip("_")
    body = body if _REASON in body else (*body, _BECAUSE)
    return Route("POST", path, name, call, said, stands_for, body=body, statuses=statuses or {})


ROUTES = (
    verb("/v1/jobs", _submit, "Submit a job.", "client.submit_spec(…)", _SUBMITTED,
          {201: "submitted", 200: "the same job was submitted before"}),
    verb(f"{_OF_JOB}/cancel", _cancel, "Cancel a job.", f"{_J}.cancel(reason=…)", (_REASON,)),
    verb(f"{_OF_JOB}/suspend", _suspend, "Suspend a job at a batch boundary.",
          f"{_J}.suspend(…)", (_REASON, _GRACE)),
    verb(f"{_OF_JOB}/drain", _drain, "Have a job process its input, and finish.",
          f"{_J}.drain(…)", (_REASON, _GRACE)),
    verb(f"{_OF_JOB}/resume", _resume, "Resume a suspended or held job.", f"{_J}.resume()"),
    *on_storage(verb(
        f"{_OF_JOB}/rescale", _rescale, "Change the partitions of the state of a job's streams.",
        f"{_J}.rescale(partitions)",
        (Param("partitions", "of the state", Kind.WHOLE, required=True, least=1, most=1 << 15),))),
    verb(f"{_OF_JOB}/upgrade", _upgrade, "Replace a job's code.", f"{_J}.upgrade(entry)",
          (attrs.evolve(_ENTRY, required=True),)),
    *on_storage(
    verb(f"{_OF_JOB}/fork", _fork, "Start a new job from the job's present state.",
          f"{_J}.fork(as_id)", (AS,), MADE),
    verb(f"{_OF_JOB}/retry", _retry, "Run a job that did not finish again, as a new one.",
          f"{_J}.retry(as_id, …)", _RETRIED, MADE),
    verb(f"{_OF_JOB}/cleanup/retry", _clean_up, "Retry a failed cleanup at once.",
          f"{_J}.retry_cleanup()"),
    verb(f"{_OF_JOB}/cleanup/force", _force_cleanup, "Mark the result clean whatever is left.",
          f"{_J}.force_cleanup()"),
    ),
    verb(f"{_OF_JOB}/expire", _expire, "Delete the clean result of a job.", "client.expire(id)"),
    verb("/v1/cluster/pause", _pause, "Pause the cluster: no attempt begins.",
          "client.pause(reason=…)", (_REASON,)),
    verb("/v1/cluster/unpause", _unpause, "End the pause.", "client.unpause()"),
    verb("/v1/cluster/switchover", _switchover, "Have the leader hand over to another master.",
          "client.switchover(to, …)",
          (Param("to", "the name of a master; else the one that has waited longest"), _REASON)),
)  # fmt: skip
"""The routes that change something."""
