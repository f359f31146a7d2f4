"""The routes that read: each is one call of the client, as JSON."""

from __future__ import annotations

import re
import time

from jrs.client import plain
from jrs.client.job_overview import job_overview
from jrs.client.listing import JobOrder
from jrs.client.overview import overview
from jrs.contract.errors import NoSuchResult
from jrs.contract.moments import moment
from jrs.records.codec import to_plain
from jrs.records.model import JobStatus, ResultState
from jrs.sidecar.paging import page_of
from jrs.sidecar.route_form import Call, Kind, Param, Reply, Route
from jrs.store.feed import MOST

LONGEST_WAIT = 60.0
"""Seconds of a long poll, at most."""
MOST_JOBS = 1000
"""Jobs of one page, at most."""
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")

FILTERS = (
    Param("status", "only jobs of that status", choices=tuple(one.value for one in JobStatus)),
    Param("state", "only jobs whose result has that state",
          choices=tuple(one.value for one in ResultState)),
    Param("tag", "only jobs with this tag"),
    Param("prefix", "only jobs whose id begins so", default=""),
    Param("since", "only jobs that ended then or later, in seconds since 1970", Kind.NUMBER),
    Param("until", "only jobs that ended then or earlier, in seconds since 1970", Kind.NUMBER),
    Param("order", "by id, or by the end, the newest first",
          choices=tuple(one.value for one in JobOrder)),
    Param("after", "begin after this job; the answer's `next` names it", default=""),
    Param("limit", "the most jobs of this page, which ends before if it has 2 MB", Kind.WHOLE,
          default=50, least=1, most=MOST_JOBS),
)  # fmt: skip


def _cluster(call: Call) -> Reply:
    return Reply(plain.of_cluster(call.client))


def _overview(call: Call) -> Reply:
    return Reply(overview(call.client).plain())


def _leader(call: Call) -> Reply:
    try:
        return Reply(to_plain(call.client.wait_for_leader(call["after"], 0.0)))
    except TimeoutError:
        return Reply({"summary": str(call.client.leader())}, 202, is_final=False)


def _queue(call: Call) -> Reply:
    return Reply({"queue": list(call.client.queue())})


def _cluster_history(call: Call) -> Reply:
    return Reply({"history": plain.of_history(call.client.history())})


def _all_history(call: Call) -> Reply:
    page = call.client.history_after(call["after"], call["limit"])
    return Reply(plain.of_page(page), is_final=page.cursor != call["after"])


def _jobs(call: Call) -> Reply:
    status, state = call["status"], call["state"]
    order = None if call["order"] is None else JobOrder(call["order"])
    views = call.client.views(
        status=None if status is None else JobStatus(status),
        state=None if state is None else ResultState(state),
        order=order,
        tag=call["tag"],
        prefix=call["prefix"],
        since=call["since"],
        until=call["until"],
        after=call["after"],
    )
    found, last = page_of(views, call["limit"], to_plain)
    more = None if last is None else (order or JobOrder.ID).after(last)
    return Reply({"jobs": found, "next": more})


def _job(call: Call) -> Reply:
    return Reply(plain.of_job(call.client.job(call["id"])))


def _job_overview(call: Call) -> Reply:
    return Reply(job_overview(call.client, call["id"]).plain())


def _explain(call: Call) -> Reply:
    return Reply(plain.of_explanation(call.client.job(call["id"]).explain()))


def _explain_past(call: Call) -> Reply:
    job, at = call.client.job(call["id"]), call["at"]
    then = None if at is None else _then(at)
    return Reply(plain.of_past(job.id, job.explain_past(at=then, epoch=call["epoch"])))


def _then(text: str) -> float:
    """Return a moment in seconds since 1970: a number is one, as everywhere in the API."""
    return float(text) if _NUMBER.fullmatch(text) else moment("at", text, time.time())


def _history(call: Call) -> Reply:
    found = plain.of_history(call.client.job(call["id"]).history(call["after"]))
    return Reply({"history": found}, is_final=bool(found))


def _stages(call: Call) -> Reply:
    view = call.client.job(call["id"]).view()
    result = view.entry.result if view.entry is not None else None
    finished = result.stages if result is not None else [one.summary() for one in view.stages]
    steps = dict(view.stop.stages) if view.stop is not None else {}
    return Reply({"stages": to_plain(list(finished)), "stopping": steps})


def _stage(call: Call) -> Reply:
    job = call.client.job(call["id"])
    try:
        return Reply(to_plain(job.wait_stage(call["stage"], 0.0)))
    except TimeoutError:
        return Reply({"job_id": job.id, "name": call["stage"]}, 202, is_final=False)


def _files(call: Call) -> Reply:
    return Reply(plain.of_files(call.client.job(call["id"]).files(call["stage"], call["since"])))


def _stop(call: Call) -> Reply:
    job = call.client.job(call["id"])
    try:
        stop = job.wait_stopped(0.0)
    except TimeoutError:
        return Reply({"stop": to_plain(job.view().stop)}, 202, is_final=False)
    return Reply({"stop": None if stop is None else to_plain(stop)})


def _result(call: Call) -> Reply:
    job = call.client.job(call["id"])
    try:
        return Reply(to_plain(job.result(0)))
    except TimeoutError:
        status = job.status()
        named = None if status is None else status.value
        return Reply({"job_id": job.id, "status": named}, 202, is_final=False)
    except NoSuchResult:
        entry = job.view().entry
        if entry is None or entry.state is not ResultState.EXPIRED:
            raise
        return Reply({"job_id": job.id, "status": entry.status, "state": "expired"}, 410)


def _left(call: Call) -> Reply:
    return Reply({"left": call.client.job(call["id"]).left()})


def _waits(what: str) -> Param:
    return Param("wait", f"seconds to wait for {what}", Kind.NUMBER, default=0.0,
                 most=LONGEST_WAIT)  # fmt: skip


_HELD = {202: "the job has not ended within `wait`", 410: "the result was expired"}
_J = "client.job(id)"

ROUTES = (
    Route("GET", "/v1/overview", "overview", _overview,
          "What `jrs top` shows: who leads, and the jobs that need a person, run or wait.",
          "client.unfinished(), held(), views(…), explanations(…)"),
    Route("GET", "/v1/cluster", "cluster", _cluster,
          "Who leads, and since when; the masters; the pause.",
          "client.leader(), masters(), epoch(), paused(), last_switchover(), cluster_format()"),
    Route("GET", "/v1/cluster/leader", "leader", _leader, "The master that leads.",
          "client.wait_for_leader(after, wait)",
          (Param("after", "only in an epoch above this one", Kind.WHOLE, default=0),
           _waits("a leader")),
          statuses={202: "none leads within `wait`"}),
    Route("GET", "/v1/cluster/history", "cluster_history", _cluster_history,
          "Which masters were elected, and how each leadership ended.", "client.history()"),
    Route("GET", "/v1/history", "history_of_all", _all_history,
          "What happened to all jobs and to the cluster, after a cursor.",
          "client.history_after(cursor, limit)",
          (Param("after", "a cursor, the `next` of an answer; else all that is kept", default=""),
           Param("limit", "the most entries of this page", Kind.WHOLE, default=MOST, least=1,
                 most=MOST),
           _waits("an entry"))),
    Route("GET", "/v1/queue", "queue", _queue,
          "The jobs that wait for the leader's slots, the next one first.", "client.queue()"),
    Route("GET", "/v1/jobs", "jobs", _jobs, "A page of the jobs.", "client.views(…)", FILTERS),
    Route("GET", "/v1/jobs/{id}", "job", _job, "Everything that is known of a job.",
          f"{_J}.view(), streams(), descendants()"),
    Route("GET", "/v1/jobs/{id}/overview", "job_overview", _job_overview,
          "What `jrs top JOB` shows: its state and why, and what you would do next.",
          f"{_J}.view(), explain(), streams(), history(), snapshots.list()", on_storage=True),
    Route("GET", "/v1/jobs/{id}/explain", "explain", _explain,
          "What a leader does with a job now, and why.", f"{_J}.explain()"),
    Route("GET", "/v1/jobs/{id}/explain-past", "explain_past", _explain_past,
          "What a leader did with a job at a given time, and why.", f"{_J}.explain_past(at, epoch)",
          (Param("at", "the last decision until then: in seconds since 1970; or in UTC, the last "
                 "14:03, or 2026-11-20T18:30; or an age, as 12h"),
           Param("epoch", "the last decision of that leader", Kind.WHOLE, least=1))),
    Route("GET", "/v1/jobs/{id}/history", "history", _history,
          "What happened to a job: when, who did it, and why.",
          f"{_J}.history(after), follow_history(after)",
          (Param("after", "only what was committed after the entry of this id", default=""),
           _waits("an entry"))),
    Route("GET", "/v1/jobs/{id}/stages", "stages", _stages,
          "The finished stages, and the step of the others in a stop.", f"{_J}.view()"),
    Route("GET", "/v1/jobs/{id}/stages/{stage}", "stage", _stage,
          "A stage, as soon as it has finished.", f"{_J}.wait_stage(stage, wait)",
          (_waits("the stage"),), statuses={202: "the stage has not finished within `wait`"}),
    Route("GET", "/v1/jobs/{id}/stages/{stage}/files", "files", _files,
          "The committed files of a stage's output.", f"{_J}.files(stage, since)",
          (Param("since", "a cursor, of an answer: only files of later batches", default=""),),
          on_storage=True),
    Route("GET", "/v1/jobs/{id}/stop", "stop", _stop,
          "The stop of a job, as soon as the job is suspended.", f"{_J}.wait_stopped(wait)",
          (_waits("the stop"),), statuses={202: "the job has not stopped within `wait`"}),
    Route("GET", "/v1/jobs/{id}/result", "result", _result,
          "The result, as soon as it is durable.", f"{_J}.result(wait)", (_waits("the result"),),
          statuses=_HELD),
    Route("GET", "/v1/jobs/{id}/left", "left", _left, "What an ended job has left behind.",
          f"{_J}.left()", on_storage=True),
)  # fmt: skip
"""The routes that read and answer at once, or after a wait."""
