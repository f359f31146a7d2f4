"""``jrs list``, ``explain`` and ``masters``: commands that change nothing."""

from __future__ import annotations

import time
from itertools import islice

import click

from jrs.cli.common import (
    ClusterRef,
    echo,
    echo_json,
    json_option,
    shortened,
    table,
    took,
    when,
    with_cluster,
)
from jrs.cli.completion import job_argument
from jrs.cli.connecting import connect, tell_pause
from jrs.client import plain
from jrs.client.job import JobHandle
from jrs.client.listing import JobOrder
from jrs.client.overview import JobLine, job_lines
from jrs.contract.moments import moment
from jrs.contract.texts import one_line
from jrs.records.model import JobStatus, ResultState
from jrs.records.policies import MOST
from jrs.store.job_views import JobView
from jrs.store.masters import MasterRole

_LONGEST_NOTE = 200
"""Characters of a failure or a reason that `jrs list` shows; `jrs show` shows the whole text."""
_ROLES = {
    MasterRole.LEADER: "leads, epoch {}",
    MasterRole.STANDBY: "stands by",
    MasterRole.FORMER: "lost its lead, epoch {}",
    MasterRole.GONE: "gone",
}


@click.command(
    "list",
    epilog="Times are ages (90s, 12h, 7d: that long ago) or moments in UTC (14:03, 2026-11-20, "
    "2026-11-20T18:30). docs/reference.md says what each filter costs.",
)
@click.option("--status", metavar="STATUS",
              type=click.Choice([status.value for status in JobStatus], case_sensitive=False),
              help=f"Only jobs with this status, in capitals or not: "
              f"{', '.join(status.value for status in JobStatus)}.")  # fmt: skip
@click.option("--state", type=click.Choice([state.value for state in ResultState]),
              help="Only jobs whose result is dirty, clean or expired.")  # fmt: skip
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--prefix", default="", help="Only jobs whose id begins with this.")
@click.option("--since", metavar="TIME", help="Only jobs that ended then or later.")
@click.option("--until", metavar="TIME", help="Only jobs that ended then or earlier.")
@click.option("--sort", type=click.Choice([order.value for order in JobOrder]),
              help="By job id; or by the end, the newest first, after the jobs that have not ended."
              "  [default: ended with --since or --until, else id]")  # fmt: skip
@click.option("--after", metavar="JOB_ID", default="",
              help="Begin after this job of the list. In a list by the end, write "
              "unfinished:JOB_ID if the job had not ended when it was listed.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, MOST), default=50, show_default=True,
              help="List at most this many jobs.")  # fmt: skip
@json_option
@with_cluster
def list_command(
    ref: ClusterRef,
    status: str | None,
    state: str | None,
    tag: str | None,
    prefix: str,
    since: str | None,
    until: str | None,
    sort: str | None,
    after: str,
    limit: int,
    as_json: bool,
) -> int:
    """List jobs: submitted, running and ended.

    \b
    Examples:
      jrs list
      jrs list --state dirty
      jrs list --status FAILED --since 7d
      jrs list --tag nightly --sort ended --json
    """
    now = time.time()
    with connect(ref) as client:
        order = None if sort is None else JobOrder(sort)
        views = client.views(
            status=None if status is None else JobStatus(status),
            state=None if state is None else ResultState(state),
            tag=tag,
            prefix=prefix,
            since=None if since is None else moment("--since", since, now),
            until=None if until is None else moment("--until", until, now),
            order=order,
            after=after,
        )
        found = list(islice(views, limit + 1))
        if as_json:
            echo_json(found[:limit])
            _tell_more(order, found, limit)
            return 0
        if not found:
            echo("no jobs", err=True)
            return 0
        lines = job_lines(client, found[:limit])
        leader = client.leader() if any(not view.has_ended for view in found[:limit]) else None
        tell_pause(client)
    table(
        ["JOB", "STATUS", "RESULT", "ATTEMPT", "STAGES", "STARTED (UTC)", "TOOK", ""],
        list(map(_row, found, lines)),
    )
    if leader is not None and leader.leader is None:
        echo(str(leader), err=True)
    _tell_more(order, found, limit)
    return 0


def _tell_more(order: JobOrder | None, found: list[JobView], limit: int) -> None:
    if len(found) > limit:
        behind = (order or JobOrder.ID).after(found[limit - 1])
        echo(f"more jobs: repeat it with --after {behind}", err=True)


@click.command("explain")
@job_argument
@click.option("--at", metavar="TIME",
              help="Explain the last decision on which a leader had acted at this time: an age "
                   "(90s, 12h) or a moment in UTC (14:03, the most recent; "
                   "or 2026-11-20T18:30).")  # fmt: skip
@click.option("--epoch", type=click.IntRange(1), help="Explain the last decision of this leader.")
@json_option
@with_cluster
def explain_command(
    ref: ClusterRef, job_id: str, at: str | None, epoch: int | None, as_json: bool
) -> int:
    """Explain what a leader does with a job now, and why; or what a leader did earlier.

    \b
    Examples:
      jrs explain nightly-2026-11-20
      jrs explain nightly-2026-11-20 --at 14:03
      jrs explain nightly-2026-11-20 --at 2026-11-20T03:12
    """
    then = None if at is None else moment("--at", at, time.time())
    with connect(ref) as client:
        if then is not None or epoch is not None:
            return _explain_then(client.job(job_id), then, epoch, as_json=as_json)
        found = client.job(job_id).explain()
        tell_pause(client)
    if as_json:
        echo_json(plain.of_explanation(found))
        return 0
    echo(one_line(f"{job_id}: {found}"))
    for line in found.details:
        echo(f"  {one_line(line)}")
    return 0


def _explain_then(job: JobHandle, at: float | None, epoch: int | None, *, as_json: bool) -> int:
    found = job.explain_past(at=at, epoch=epoch)
    entry = found.entry
    if as_json:
        echo_json(plain.of_past(job.id, found))
        return 0
    echo(f"{job.id}: {found}")
    echo(f"  decided by {entry.by or 'the leader'} in epoch {entry.epoch}, {when(entry.at)}")
    echo(f"  then: {entry.text}")
    for name, value in sorted((entry.facts or {}).items()):
        echo(f"  {name}: {value}")
    return 0


@click.command("masters")
@json_option
@with_cluster
def masters_command(ref: ClusterRef, as_json: bool) -> int:
    """List the masters of the cluster and show which one leads.

    \b
    Example:  jrs masters
    """
    with connect(ref) as client:
        tell_pause(client)
        if as_json:
            echo_json(plain.of_masters(client))
            return 0
        masters, leader = client.masters(), client.leader()
        switchover = client.last_switchover()
    rows = []
    for view in masters:
        info, role = view.info, _ROLES[view.role].format(view.info.leading)
        ago = f"{took(max(0.0, time.time() - info.seen_at))} ago"
        rows.append([info.name, role, info.host, str(info.pid), when(info.started_at), ago])
    if rows:
        table(["MASTER", "ROLE", "HOST", "PID", "STARTED (UTC)", "SEEN"], rows)
    else:
        echo("no masters", err=True)
    if leader.leader is None:
        echo(str(leader), err=True)
    if switchover is not None:
        echo(f"last {switchover}, {when(switchover.requested_at)}", err=True)
    return 0


# -- inside --------------------------------------------------------------------------------


def _row(view: JobView, line: JobLine) -> list[str]:
    end = line.finished_at or (time.time() if line.runs else 0.0)
    ended = f"ended {when(line.finished_at)}" if view.entry and not view.entry.result else ""
    return [
        line.job_id,
        line.status or "-",
        line.state or "-",
        str(line.attempt) if line.attempt else "-",
        _stages(view),
        when(line.started_at),
        took(max(0.0, end - line.started_at)) if line.started_at and end else "-",
        shortened(line.reason or ended, _LONGEST_NOTE),
    ]


def _stages(view: JobView) -> str:
    result = view.entry.result if view.entry else None
    if result is None:
        return f"{len(view.stages)} done" if view.stages else "-"
    if not result.stages:
        return "-"
    skipped = result.stages_skipped
    more = f", {result.stages_left_out} more" if result.stages_left_out else ""
    return f"{len(result.stages) - skipped} run, {skipped} skipped{more}"
