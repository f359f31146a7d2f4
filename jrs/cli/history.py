"""``jrs history``: what happened to a job, or to the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

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
from jrs.cli.completion import optional_job_argument
from jrs.cli.connecting import connect
from jrs.client import plain
from jrs.client.client import Client
from jrs.contract.errors import InvalidInput
from jrs.records.policies import MOST
from jrs.recovery.inspect.history import HistoryEntry

_LONGEST_NOTE = 200
"""Characters of a text that are shown; with --json all of them are."""


@click.command("history")
@optional_job_argument
@click.option("-f", "--follow", is_flag=True,
              help="Wait for more events; with JOB, until the job is cleaned up.")  # fmt: skip
@click.option("--after", metavar="ID", default="",
              help="Only events that were committed after this entry; without JOB, after this "
                   "cursor.",
              )  # fmt: skip
@click.option("--limit", type=click.IntRange(1, MOST), metavar="NUMBER",
              help="Only this many of the newest entries.")  # fmt: skip
@json_option
@with_cluster
def history_command(
    ref: ClusterRef, job_id: str | None, follow: bool, after: str, limit: int | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Show what happened to a job: when, who did it, and why.

    Entries are in the order of the commits; each has the time of the host that wrote it. A leader's
    decision is in brackets. With --json, each entry has an id for --after; with --follow, each is
    one line.

    Without JOB: which masters were elected, how each leadership ended, and who paused the cluster.
    Without JOB, --follow shows the events of all jobs and of the cluster from now on, and --after
    those after the cursor of an entry. --json shows the cursors.

    \b
    Examples:
      jrs history nightly-2026-11-20
      jrs history nightly-2026-11-20 --limit 20 --json
      jrs history -f nightly-2026-11-20
      jrs history
      jrs history -f --json
    """
    if follow and limit is not None:
        raise InvalidInput("--limit is of what there is already: leave it out with --follow")
    with connect(ref) as client:
        if follow:
            for entry in _followed(client, job_id, after):
                echo(_as_line(entry) if as_json else _told(entry, named=job_id is None))
            return 0
        entries = _of_all(client, after) if job_id is None else client.job(job_id).history(after)
    shown = entries if limit is None else entries[-limit:]
    if as_json:
        echo_json(_plain(shown))
    else:
        _show(shown)
    return 0


def _followed(client: Client, job_id: str | None, after: str) -> Iterator[HistoryEntry]:
    if job_id is not None:
        return client.job(job_id).follow_history(after)
    return client.follow_history(after or client.history_cursor())


def _of_all(client: Client, after: str) -> Sequence[HistoryEntry]:
    """Return the elections; with a cursor, all that was committed behind it."""
    if not after:
        return client.history()
    entries: list[HistoryEntry] = []
    more = True
    while more:
        page = client.history_after(after)
        entries += page.entries
        after, more = page.cursor, page.more
    return entries


def _plain(entries: Sequence[HistoryEntry]) -> list[plain.Plain]:
    if entries and entries[0].cursor:
        return plain.of_fed(entries)
    return plain.of_history(entries)


def _as_line(entry: HistoryEntry) -> str:
    return json.dumps(_plain([entry])[0])


def _show(entries: Sequence[HistoryEntry]) -> None:
    of_all = any(one.cursor for one in entries)
    rows = [
        [when(one.at), *([one.job_id] if of_all else []), one.by, str(one.epoch or ""), _what(one)]
        for one in entries
    ]
    table(["TIME (UTC)", *(["JOB"] if of_all else []), "BY", "EPOCH", "WHAT"], rows)


def _what(entry: HistoryEntry) -> str:
    action = f" [{entry.action}]" if entry.action else ""
    return f"{shortened(entry.text, _LONGEST_NOTE)}{action}"


def _told(entry: HistoryEntry, *, named: bool) -> str:
    """Return an entry as a line of its own; `named`: with its job."""
    epoch = f", epoch {entry.epoch}" if entry.epoch else ""
    job = f" {entry.job_id or 'the cluster'}," if named else ""
    return f"{when(entry.at)}{job} {entry.by or '-'}{epoch}: {_what(entry)}"
