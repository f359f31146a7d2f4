"""The routes that read: each is one call of the client, as JSON."""

from __future__ import annotations

from itertools import islice

from jrs.client import plain
from jrs.client.listing import JobOrder
from jrs.contract.errors import NoSuchResult
from jrs.records.codec import to_plain
from jrs.records.model import JobStatus, ResultState
from jrs.sidecar.table import Call, Kind, Param, Reply, Route
from jrs.store.feed import MOST

LONGEST_WAIT = 60.0
"""Seconds of a long poll, at most."""
MOST_JOBS = 1000
"""Jobs of one page, at most."""

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
    Param("limit", "the most jobs of this page", Kind.WHOLE, default=50, least=1, most=MOST_JOBS),
)  # fmt: skip


def _cluster(call: Call) -> Reply:
    return Reply(plain.of_cluster(call.client))


def _cluster_history(call: Call) -> Reply:
    return Reply({"history": plain.of_history(call.client.history())})


def _all_history(call: Call) -> Reply:
    page = call.client.history_after(call["after"], call["limit"])
    return Reply(plain.of_page(page), is_final=page.cursor != call["after"])


def _jobs(call: Call) -> Reply:
    status, state, order = call["status"], call["state"], call["order"]
    views = call.client.views(
        status=None if status is None else JobStatus(status),
        state=None if state is None else ResultState(state),
        order=None if order is None else JobOrder(order),
        tag=call["tag"],
        prefix=call["prefix"],
        since=call["since"],
        until=call["until"],
        after=call["after"],
    )
    found = list(islice(views, call["limit"] + 1))
    page = found[: call["limit"]]
    more = page[-1].job_id if len(found) > len(page) else None
    return Reply({"jobs": to_plain(page), "next": more})


def _job(call: Call) -> Reply:
    return Reply(plain.of_job(call.client.job(call["id"])))


def _explain(call: Call) -> Reply:
    return Reply(plain.of_explanation(call.client.job(call["id"]).explain()))


def _history(call: Call) -> Reply:
    found = plain.of_history(call.client.job(call["id"]).history(call["after"]))
    return Reply({"history": found}, is_final=bool(found))


def _stages(call: Call) -> Reply:
    view = call.client.job(call["id"]).view()
    result = view.entry.result if view.entry is not None else None
    finished = result.stages if result is not None else [one.summary() for one in view.stages]
    steps = dict(view.stop.stages) if view.stop is not None else {}
    return Reply({"stages": to_plain(list(finished)), "stopping": steps})


def _snapshots(call: Call) -> Reply:
    job = call.client.job(call["id"])
    records = job.snapshots.list()
    if not records:
        job.view()  # Raises if the job does not exist.
    return Reply({"snapshots": to_plain(records)})


def _snapshot(call: Call) -> Reply:
    snapshots = call.client.job(call["id"]).snapshots
    return Reply(to_plain(snapshots.get(call["snapshot"])))


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


_WAIT = Param("wait", "seconds to wait for the result", Kind.NUMBER, default=0.0,
              most=LONGEST_WAIT)  # fmt: skip
_HELD = {202: "the job has not ended within `wait`", 410: "the result was expired"}
_J = "client.job(id)"

ROUTES = (
    Route("GET", "/v1/cluster", "cluster", _cluster, "Who leads, since when; masters and pause.",
          "client.leader(), masters(), paused(), cluster_format()"),
    Route("GET", "/v1/cluster/history", "cluster_history", _cluster_history,
          "Which masters were elected, and how each leadership ended.", "client.history()"),
    Route("GET", "/v1/history", "history_of_all", _all_history,
          "What happened to all jobs and to the cluster, behind a cursor.",
          "client.history_after(cursor, limit)",
          (Param("after", "a cursor, the `next` of an answer; else all that is kept", default=""),
           Param("limit", "the most entries of this page", Kind.WHOLE, default=MOST, least=1,
                 most=MOST),
           Param("wait", "seconds to wait for an entry", Kind.NUMBER, default=0.0,
                 most=LONGEST_WAIT))),
    Route("GET", "/v1/jobs", "jobs", _jobs, "A page of the jobs.", "client.views(…)", FILTERS),
    Route("GET", "/v1/jobs/{id}", "job", _job, "Everything that is known of a job.",
          f"{_J}.view(), streams()"),
    Route("GET", "/v1/jobs/{id}/explain", "explain", _explain,
          "What a leader does with a job now, and why.", f"{_J}.explain()"),
    Route("GET", "/v1/jobs/{id}/history", "history", _history,
          "What happened to a job: when, who did it, and why.", f"{_J}.history(after)",
          (Param("after", "only what was committed after the entry of this id", default=""),
           Param("wait", "seconds to wait for an entry", Kind.NUMBER, default=0.0,
                 most=LONGEST_WAIT))),
    Route("GET", "/v1/jobs/{id}/stages", "stages", _stages,
          "The finished stages, and how far the others are with a stop.", f"{_J}.view().stages"),
    Route("GET", "/v1/jobs/{id}/snapshots", "snapshots", _snapshots, "A job's snapshots.",
          f"{_J}.snapshots.list()"),
    Route("GET", "/v1/jobs/{id}/snapshots/{snapshot}", "snapshot", _snapshot,
          "A snapshot by its number or name.", f"{_J}.snapshots.get(…)"),
    Route("GET", "/v1/jobs/{id}/result", "result", _result,
          "The result, as soon as it is durable.", f"{_J}.result(wait)", (_WAIT,),
          statuses=_HELD),
    Route("GET", "/v1/jobs/{id}/left", "left", _left, "What an ended job has left.",
          f"{_J}.left()"),
)  # fmt: skip
"""The routes that read and answer at once, or after a wait."""
