"""``jrs list``, ``show``, ``explain`` and ``masters``: commands that change nothing."""

from __future__ import annotations

import json
import time
from itertools import islice

import attrs
import click

from jrs.cli.common import ClusterRef, echo, echo_json, json_option, table, took, when, with_cluster
from jrs.cli.connecting import connect
from jrs.records.codec import to_plain
from jrs.records.model import JobStatus, ResultState
from jrs.records.policies import MOST
from jrs.store.jobs import JobView
from jrs.store.masters import MasterRole

_MOST_OF_A_NOTE = 200
"""Characters of a failure or a reason that `jrs list` shows; `jrs show` shows the whole text."""
_ROLES = {
    MasterRole.LEADER: "leads, epoch {}",
    MasterRole.STANDBY: "stands by",
    MasterRole.GONE: "gone",
}


@click.command("list")
@click.option("--status", type=click.Choice([status.value for status in JobStatus]))
@click.option("--state", type=click.Choice([state.value for state in ResultState]),
              help="Only jobs whose result is dirty, clean or expired.")  # fmt: skip
@click.option("--after", metavar="JOB_ID", default="", help="Begin after this job.")
@click.option("--limit", type=click.IntRange(1, MOST), default=50, show_default=True)
@json_option
@with_cluster
def list_command(
    place: ClusterRef,
    status: str | None,
    state: str | None,
    after: str,
    limit: int,
    as_json: bool,
) -> int:
    """List jobs: submitted, running and ended.

    \b
    Examples:
      jrs list
      jrs list --state dirty
      jrs list --status FAILED --json
    """
    with connect(place) as client:
        views = client.views(
            status=None if status is None else JobStatus(status),
            state=None if state is None else ResultState(state),
            after=after,
        )
        found = list(islice(views, limit + 1))
    if as_json:
        echo_json(found[:limit])
        return 0
    if not found:
        echo("no jobs", err=True)
        return 0
    table(
        ["JOB", "STATUS", "RESULT", "ATTEMPT", "STAGES", "STARTED (UTC)", "TOOK", ""],
        [_row(view) for view in found[:limit]],
    )
    if len(found) > limit:
        echo(f"more jobs: jrs list --after {found[limit - 1].job_id}", err=True)
    return 0


@click.command("show")
@click.argument("job_id")
@json_option
@with_cluster
def show_command(place: ClusterRef, job_id: str, as_json: bool) -> int:
    """Show a job: its spec, attempts, stages and result.

    \b
    Example:  jrs show nightly-2026-11-20
    """
    with connect(place) as client:
        view = client.job(job_id).view()
    if as_json:
        echo_json(view)
        return 0
    for name, value in _facts_of(view):
        echo(f"{name + ':' if name else '':12} {value}")
    return 0


@click.command("explain")
@click.argument("job_id")
@json_option
@with_cluster
def explain_command(place: ClusterRef, job_id: str, as_json: bool) -> int:
    """Explain what a leader does with a job now, and why.

    \b
    Example:  jrs explain nightly-2026-11-20
    """
    with connect(place) as client:
        found = client.job(job_id).explain()
    if as_json:
        echo_json(
            {
                "job_id": found.job_id,
                "decision": found.action.value,
                "reason": found.reason,
                "details": list(found.details),
            }
        )
        return 0
    echo(f"{job_id}: {found.action.value} ({found.reason})")
    for line in found.details:
        echo(f"  {line}")
    return 0


@click.command("masters")
@json_option
@with_cluster
def masters_command(place: ClusterRef, as_json: bool) -> int:
    """List the masters of the cluster and show which one leads.

    \b
    Example:  jrs masters
    """
    with connect(place) as client:
        masters = client.masters()
        epoch = client.epoch()
    if as_json:
        listed = [{**to_plain(view.info), "role": view.role.value} for view in masters]
        echo_json({"epoch": attrs.asdict(epoch) if epoch else None, "masters": listed})
        return 0
    rows = []
    for view in masters:
        info, role = view.info, _ROLES[view.role].format(view.info.leading)
        ago = f"{took(max(0.0, time.time() - info.seen_at))} ago"
        rows.append([info.name, role, info.host, str(info.pid), when(info.started_at), ago])
    if rows:
        table(["MASTER", "ROLE", "HOST", "PID", "STARTED (UTC)", "SEEN"], rows)
    else:
        echo("no masters", err=True)
    return 0


# -- inside --------------------------------------------------------------------------------


def _row(view: JobView) -> list[str]:
    result = view.entry.result if view.entry else None
    stages = f"{len(view.stages)} done" if view.stages else "-"
    started = view.attempt.first_started_at if view.attempt else 0.0
    attempt = view.attempt.attempt if view.attempt else 0
    span = time.time() - started if started else 0.0
    if result is not None:
        skipped = result.stages_skipped
        stages = f"{len(result.stages) - skipped} run, {skipped} skipped" if result.stages else "-"
        if result.stages_left_out:
            stages += f", {result.stages_left_out} more"
        started, attempt = result.started_at, result.attempt
        span = result.finished_at - result.started_at
    return [
        view.job_id,
        view.status.value if view.status else ("HELD" if view.problems else "-"),
        view.entry.state.value if view.entry else "-",
        str(attempt) if attempt else "-",
        stages,
        when(started),
        took(span) if started else "-",
        _shortened(_note(view)),
    ]


def _shortened(note: str) -> str:
    return note if len(note) <= _MOST_OF_A_NOTE else f"{note[:_MOST_OF_A_NOTE]}…"


def _note(view: JobView) -> str:
    if view.problems:
        return view.problems[0]
    if view.cleanup is not None and view.cleanup.problems:
        return f"left: {', '.join(view.cleanup.problems)}"
    if view.entry is not None and view.entry.result is not None and view.entry.result.failure:
        return view.entry.result.failure.message
    if view.attempt is not None and view.attempt.failure and view.entry is None:
        return f"died {view.attempt.deaths} times: {view.attempt.failure.message}"
    if view.stop is not None and view.entry is None and view.cancel is None:
        return str(view.stop)
    return "cancel requested" if view.cancel and view.entry is None else ""


def _facts_of(view: JobView) -> list[tuple[str, str]]:
    found = [("job", view.job_id), ("status", view.status.value if view.status else "unknown")]
    if view.spec is not None:
        found += [
            ("entry point", view.spec.entry_point),
            ("arguments", json.dumps(view.spec.arguments)),
            ("submitted", when(view.spec.submitted_at)),
        ]
    if view.attempt is not None:
        by = f"by {view.attempt.master} in epoch {view.attempt.epoch}"
        found.append(("attempt", f"{view.attempt.attempt}, {by}, {when(view.attempt.started_at)}"))
    for stage in view.stages:
        found.append((f"stage {stage.name}", f"attempt {stage.attempt}, {took(stage.seconds)}"))
    result = view.entry.result if view.entry else None
    if view.entry is not None:
        found.append(("result", view.entry.state.value))
    if result is not None:
        if result.stages_left_out:
            found.append(("stages", f"{result.stages_left_out} earlier ones are not listed"))
        for done in result.stages:
            skipped = ", skipped by the last attempt" if done.attempt < result.attempt else ""
            found.append(
                (f"stage {done.name}", f"attempt {done.attempt}, {took(done.seconds)}{skipped}")
            )
        found += [
            ("attempts", str(result.attempt)),
            ("started", when(result.started_at)),
            ("finished", f"{when(result.finished_at)}, in epoch {result.epoch}"),
        ]
        if result.failure is not None:
            found.append(("failure", result.failure.message))
            found += _lines("", result.failure.detail)
        else:
            found += _lines("payload", json.dumps(result.payload, indent=2))
    if view.stop is not None and view.entry is None:
        found.append(("stop", str(view.stop)))
        found += [(f"stage {name}", step) for name, step in view.stop.stages.items()]
    found += [("problem", problem) for problem in view.problems]
    return found


def _lines(name: str, text: str) -> list[tuple[str, str]]:
    """Return a text of several lines as one fact, with its name on the first line."""
    return [(name if not at else "", line) for at, line in enumerate(text.splitlines())]
