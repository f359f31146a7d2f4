"""The routes that change something: each is one call of the client. Each may be repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from jrs.client import plain
from jrs.contract.errors import DuplicateJob, InvalidInput
from jrs.contract.texts import shown
from jrs.records.codec import to_plain
from jrs.records.lineage import LineageKind
from jrs.records.model import JobSpec, RunnerKind
from jrs.records.on_result import OnResult
from jrs.records.policies import RestartPolicy, SnapshotPolicy
from jrs.records.settings import JobSettings
from jrs.records.snapshots import SnapshotFormat
from jrs.records.stored import Stored
from jrs.records.time_limits import TimeLimits
from jrs.sidecar.table import Call, Kind, Param, Reply, Route

T = TypeVar("T", bound=Stored)

_ID = Param("id", "the job's id; an id that was used is refused forever", required=True)
_REASON = Param("reason", "a text that is stored with the request", default="")
_BECAUSE = Param("because", "why; a text that is in the history", default="")
_GRACE = Param("grace", "seconds in which an attempt reaches a batch boundary", Kind.NUMBER,
               default=30.0)  # fmt: skip
_ENTRY = Param("entry", "package.module:function, or /absolute/path.py:function on the masters")
_AS = Param("as_id", "the id of the new job", required=True)
_FORMATS = tuple(one.value for one in SnapshotFormat if one.is_restorable)


# -- submitting ----------------------------------------------------------------------------


def _submit(call: Call) -> Reply:
    spec = _spec(call)
    try:
        job = call.client.submit_spec(spec)
    except DuplicateJob:
        job = call.client.job(spec.job_id)
        submitted = job.view().submitted
        if submitted is None or not _is_same(submitted, spec):
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
    place, colon, function = text.rpartition(":")
    if not colon or not place or not function:
        raise InvalidInput(f"not an entry point: {shown(text)}; {_ENTRY.said}")
    if ("/" in place or place.endswith(".py")) and not place.startswith("/"):
        raise InvalidInput(f"{shown(text)} must be an absolute path: masters look for it")
    return text


def _is_same(submitted: JobSpec, spec: JobSpec) -> bool:
    """Return whether a job that was submitted before is the one that is submitted now."""

    def asked(one: JobSpec) -> JobSpec:
        return attrs.evolve(
            one,
            submitted_at=0.0,
            submitted_by="",
            signature="",
            lineage=None,
            traceparent="",
            unknown=None,
        )

    return asked(submitted) == asked(spec)


# -- a job's verbs -------------------------------------------------------------------------


def _cancel(call: Call) -> Reply:
    return Reply({"requested": call.client.job(call["id"]).cancel(call["reason"])})


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
    return _once(call, new, LineageKind.FORK, lambda: plain.of_restored(job.fork(new)))


def _retry(call: Call) -> Reply:
    job, new = call.client.job(call["id"]), call["as_id"]
    entry = None if call["entry"] is None else _entry(call["entry"])

    def retry() -> plain.Plain:
        made = job.retry(
            new, from_stage=call["from_stage"], entry=entry, arguments=call["arguments"],
            changed=call["changed"],
        )  # fmt: skip
        return {"job_id": made.id, "from_job": job.id}

    return _once(call, new, LineageKind.RETRY, retry)


def _once(call: Call, new: str, how: LineageKind, make: Callable[[], plain.Plain]) -> Reply:
    """Make a job of another one; if it was made of that one before, say so."""
    try:
        return Reply(make(), 201)
    except DuplicateJob:
        submitted = call.client.job(new).view().submitted
        made = submitted.lineage if submitted is not None else None
        if made is None or (made.job_id, made.how) != (call["id"], how):
            raise
        return Reply({"job_id": new, "from_job": made.job_id, "number": made.snapshot})


def _clean_up(call: Call) -> Reply:
    return Reply({"requested": call.client.job(call["id"]).retry_cleanup()})


def _force_cleanup(call: Call) -> Reply:
    return Reply({"left": call.client.job(call["id"]).force_cleanup()})


def _expire(call: Call) -> Reply:
    return Reply({"expired": call.client.expire(call["id"])})


# -- snapshots -----------------------------------------------------------------------------


def _create_snapshot(call: Call) -> Reply:
    snapshots, name = call.client.job(call["id"]).snapshots, call["name"]
    known = next((one for one in snapshots.list() if one.name == name), None)
    if known is not None:
        return Reply(to_plain(known))
    how = None if call["format"] is None else SnapshotFormat(call["format"])
    return Reply(to_plain(snapshots.create(name, format=how, output=call["output"])), 201)


def _delete_snapshot(call: Call) -> Reply:
    call.client.job(call["id"]).snapshots.delete(call["snapshot"])
    return Reply({"deleted": True})


def _verify_snapshot(call: Call) -> Reply:
    return Reply(to_plain(call.client.job(call["id"]).snapshots.verify(call["snapshot"])))


def _convert_snapshot(call: Call) -> Reply:
    snapshots = call.client.job(call["id"]).snapshots
    return Reply(to_plain(snapshots.convert(call["snapshot"], SnapshotFormat(call["format"]))))


def _restore_snapshot(call: Call) -> Reply:
    snapshots = call.client.job(call["id"]).snapshots

    def restore() -> plain.Plain:
        return plain.of_restored(
            snapshots.restore(
                call["snapshot"], as_id=call["as_id"], claim=call["claim"],
                accept_published=call["accept_published"],
            )
        )  # fmt: skip

    if call["as_id"] is None:
        return Reply(restore())
    return _once(call, call["as_id"], LineageKind.RESTORE, restore)


def _fork_snapshot(call: Call) -> Reply:
    snapshots, new = call.client.job(call["id"]).snapshots, call["as_id"]
    made = lambda: plain.of_restored(snapshots.fork(call["snapshot"], new))  # noqa: E731
    return _once(call, new, LineageKind.FORK, made)


def _finish_restore(call: Call) -> Reply:
    return Reply(plain.of_restored(call.client.job(call["id"]).snapshots.finish_restore()))


# -- the cluster ---------------------------------------------------------------------------


def _pause(call: Call) -> Reply:
    return Reply(to_plain(call.client.pause(call["reason"])))


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
    _AS,
    Param("from_stage", "a stage to run again, with all that come after it", default=""),
    _ENTRY,
    Param("arguments", "in place of all that there were", Kind.OBJECT),
    Param("changed", "single arguments that are different", Kind.OBJECT),
)
_TAKEN = (
    Param("name", "of the snapshot; a name that exists names that snapshot", required=True),
    Param("format", "by default, the one of the job's spec", choices=_FORMATS),
    Param("output", "whether to include the published output", Kind.FLAG, default=True),
)
_RESTORED = (
    Param("as_id", "the id of a new job; without it the suspended job itself is put back"),
    Param("claim", "use the snapshot up", Kind.FLAG, default=False),
    Param("accept_published", "let stay what the job has published since", Kind.FLAG,
          default=False),
)  # fmt: skip
_MADE = {201: "made", 200: "it was made by the same request before"}
_J, _S = "client.job(id)", "client.job(id).snapshots"
_OF_JOB, _OF_SNAPSHOT = "/v1/jobs/{id}", "/v1/jobs/{id}/snapshots/{snapshot}"


def _verb(
    path: str,
    call: Callable[[Call], Reply],
    said: str,
    stands_for: str,
    body: tuple[Param, ...] = (),
    statuses: dict[int, str] | None = None,
) -> Route:
    name = call.__name__.strip("_")
    body = body if _REASON in body else (*body, _BECAUSE)
    return Route("POST", path, name, call, said, stands_for, body=body, statuses=statuses or {})


ROUTES = (
    _verb("/v1/jobs", _submit, "Submit a job.", "client.submit_spec(…)", _SUBMITTED,
          {201: "submitted", 200: "the same job was submitted before"}),
    _verb(f"{_OF_JOB}/cancel", _cancel, "Cancel a job.", f"{_J}.cancel(reason)", (_REASON,)),
    _verb(f"{_OF_JOB}/suspend", _suspend, "Suspend a job at a batch boundary.",
          f"{_J}.suspend(…)", (_REASON, _GRACE)),
    _verb(f"{_OF_JOB}/drain", _drain, "Have a job process its input, and finish.",
          f"{_J}.drain(…)", (_REASON, _GRACE)),
    _verb(f"{_OF_JOB}/resume", _resume, "Resume a suspended or held job.", f"{_J}.resume()"),
    _verb(f"{_OF_JOB}/rescale", _rescale, "Change the partitions of the state of a job's streams.",
          f"{_J}.rescale(partitions)",
          (Param("partitions", "of the state", Kind.WHOLE, required=True, least=1, most=1 << 15),)),
    _verb(f"{_OF_JOB}/upgrade", _upgrade, "Replace a job's code.", f"{_J}.upgrade(entry)",
          (attrs.evolve(_ENTRY, required=True),)),
    _verb(f"{_OF_JOB}/fork", _fork, "Start a new job from the job's present state.",
          f"{_J}.fork(as_id)", (_AS,), _MADE),
    _verb(f"{_OF_JOB}/retry", _retry, "Run a job that did not finish again, as a new one.",
          f"{_J}.retry(as_id, …)", _RETRIED, _MADE),
    _verb(f"{_OF_JOB}/cleanup/retry", _clean_up, "Retry a failed cleanup at once.",
          f"{_J}.retry_cleanup()"),
    _verb(f"{_OF_JOB}/cleanup/force", _force_cleanup, "Mark the result clean whatever is left.",
          f"{_J}.force_cleanup()"),
    _verb(f"{_OF_JOB}/expire", _expire, "Delete the clean result of a job.", "client.expire(id)"),
    _verb(f"{_OF_JOB}/snapshots", _create_snapshot, "Take a snapshot.", f"{_S}.create(name, …)",
          _TAKEN, _MADE),
    _verb(f"{_OF_JOB}/finish-restore", _finish_restore, "Carry out a restore that was cut off.",
          f"{_S}.finish_restore()"),
    _verb(f"{_OF_SNAPSHOT}/delete", _delete_snapshot, "Delete a snapshot.", f"{_S}.delete(…)"),
    _verb(f"{_OF_SNAPSHOT}/verify", _verify_snapshot, "Check every byte of a snapshot.",
          f"{_S}.verify(…)"),
    _verb(f"{_OF_SNAPSHOT}/convert", _convert_snapshot, "Convert a snapshot to another format.",
          f"{_S}.convert(…)",
          (Param("format", "the new one", required=True, choices=_FORMATS),)),
    _verb(f"{_OF_SNAPSHOT}/restore", _restore_snapshot, "Put a job back to a snapshot.",
          f"{_S}.restore(…)", _RESTORED, _MADE),
    _verb(f"{_OF_SNAPSHOT}/fork", _fork_snapshot, "Start a new job from a snapshot.",
          f"{_S}.fork(…)", (_AS,), _MADE),
    _verb("/v1/cluster/pause", _pause, "Pause the cluster: no attempt begins.",
          "client.pause(reason)", (_REASON,)),
    _verb("/v1/cluster/unpause", _unpause, "End the pause.", "client.unpause()"),
    _verb("/v1/cluster/switchover", _switchover, "Have the leader hand over to another master.",
          "client.switchover(to, …)",
          (Param("to", "the name of a master; else the one that has waited longest"), _REASON)),
)  # fmt: skip
"""The routes that change something."""
