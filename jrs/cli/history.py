"""``jrs history``: what happened to a job, or to the cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from jrs.cli.common import (
    ClusterRef,
    echo,
    echo_json,
    json_option,
    shortened,
    table,
    when,
    with_cluster,
)
from jrs.cli.completing import optional_job_argument
from jrs.cli.connecting import connect
from jrs.client import plain
from jrs.contract.errors import InvalidInput
from jrs.records.policies import MOST
from jrs.recovery.inspect.history import HistoryEntry

_LONGEST_NOTE = 200
"""Characters of a text that are shown; with --json all of them are."""


@click.command("history")
@optional_job_argument
@click.option("-f", "--follow", is_flag=True, help="Wait for more until the job is cleaned up.")
@click.option("--after", metavar="ID", default="",
              help="Only what was committed after that entry.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, MOST), metavar="NUMBER",
              help="Only the newest entries, so many.")  # fmt: skip
@json_option
@with_cluster
def history_command(
    place: ClusterRef, job_id: str | None, follow: bool, after: str, limit: int | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Show what happened to a job: when, who did it, and why.

    In the order of the commits; the times are of the hosts that wrote them. What a leader had
    decided is in brackets. With --json, each entry has an id for --after; with --follow, each is
    one line. Without JOB: which masters were elected, and how each leadership ended.

    \b
    Examples:
      jrs history nightly-2026-11-20
      jrs history nightly-2026-11-20 --limit 20 --json
      jrs history -f nightly-2026-11-20
      jrs history
    """
    if follow and limit is not None:
        raise InvalidInput("--limit is of what there is already: leave it out with --follow")
    if job_id is None and (follow or after):
        raise InvalidInput("--follow and --after are of one job: name it")
    with connect(place) as client:
        if job_id is None:
            entries = client.history()
        elif follow:
            for entry in client.job(job_id).follow_history(after):
                echo(json.dumps(plain.of_history([entry])[0]) if as_json else _told(entry))
            return 0
        else:
            entries = client.job(job_id).history(after)
    shown = entries if limit is None else entries[-limit:]
    if as_json:
        echo_json(plain.of_history(shown))
    else:
        _show(shown)
    return 0


def _show(entries: Sequence[HistoryEntry]) -> None:
    rows = [[when(one.at), one.by, str(one.epoch or ""), _what(one)] for one in entries]
    table(["TIME (UTC)", "BY", "EPOCH", "WHAT"], rows)


def _what(entry: HistoryEntry) -> str:
    action = f" [{entry.action}]" if entry.action else ""
    return f"{shortened(entry.text, _LONGEST_NOTE)}{action}"


def _told(entry: HistoryEntry) -> str:
    """Return an entry as a line of its own."""
    epoch = f", epoch {entry.epoch}" if entry.epoch else ""
    return f"{when(entry.at)} {entry.by or '-'}{epoch}: {_what(entry)}"
