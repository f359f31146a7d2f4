"""``jrs top``: the overview of a cluster, or of one job, in a terminal, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jrs.cli.common import (
    ClusterRef,
    echo_json,
    print_drawn,
    shortened,
    took,
    when,
    with_cluster,
)
from jrs.cli.completion import optional_job_argument
from jrs.cli.connecting import connect
from jrs.cli.durations import Duration
from jrs.cli.live import Pictures
from jrs.cli.top_job import drawn_job
from jrs.client.client import Client
from jrs.client.job_overview import job_overview
from jrs.client.overview import JobLine, Overview, overview
from jrs.contract.texts import one_line, printable

_PARTS = (
    ("held", "yellow"),
    ("dirty", "yellow"),
    ("failed", "red"),
    ("running", "blue"),
    ("waiting", "default"),
)
"""What needs a person comes first."""
_TITLES = {"dirty": "not cleaned up", "failed": "failed in the last day"}
_MOST = 15
"""Jobs of each part."""
_LONGEST_ID = 32
"""Characters of an id, of which the middle is left out: ids often differ at their end."""
_LONGEST_REASON = 160
"""Characters of why the cluster is paused."""

_TOGETHER = 0.5
"""Seconds that are waited for more changes: one seldom comes alone."""
_AGAIN = 1.0
"""Seconds until a backend that could not be read is asked again."""


@click.command("top")
@optional_job_argument
@click.option("--every", type=Duration(above_zero=True), default="2s", show_default=True,
              metavar="DURATION", help="The time between two updates, unless something changes "
                                       "earlier.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print it once.")
@click.option("--json", "as_json", is_flag=True, help="Print it once, as JSON, for programs.")
@with_cluster
def top_command(
    ref: ClusterRef, job_id: str | None, every: float, once: bool, as_json: bool
) -> int:
    """Show who leads, and which jobs are held, failed, running or waiting, and why. Live; end it
    with Ctrl-C. While the backend does not answer, or cannot be read, the last state stays on the
    screen, with a line that says since when.

    With JOB: its state and the reason, its newest attempt, its stages, how its streams progress,
    what happened last, and the commands that you would run next.

    \b
    Examples:
      jrs top
      jrs top --json
      jrs top nightly-2026-11-20
    """
    with connect(ref) as client:

        def draw(most: int) -> RenderableType:
            if job_id is None:
                return drawn_cluster(overview(client), most, live=most < sys.maxsize)
            return drawn_job(job_overview(client, job_id), most)

        if as_json:
            found = overview(client) if job_id is None else job_overview(client, job_id)
            echo_json(found.plain())
        elif once or not sys.stdout.isatty():
            width = None if sys.stdout.isatty() else 160
            print_drawn(Console(width=width), draw(sys.maxsize))
        else:
            _live(client, every, lambda: draw(_MOST))
    return 0


def _live(client: Client, every: float, draw: Callable[[], RenderableType]) -> None:
    with client.backend.watch("") as watch:
        pictures = Pictures(draw, lambda drawn: screen.update(drawn, refresh=True))
        # Before the screen is taken: a job may be unknown, or the backend away.
        first = pictures.first()
        with Live(first, screen=True, auto_refresh=False) as screen, suppress(KeyboardInterrupt):
            is_new = True
            while True:
                if is_new and watch.changes(every) != frozenset():
                    time.sleep(_TOGETHER)
                is_new = pictures.renew()
                if not is_new:
                    time.sleep(_AGAIN)


def drawn_cluster(found: Overview, most: int, *, live: bool) -> RenderableType:
    """Return the overview as rich draws it.

    Args:
        live: whether it has to fit a screen: each job is one line then.
    """
    cluster = found.cluster
    leads = "bold green" if cluster["leader"] else "bold red"
    summary = Text(printable(cluster["summary"]), leads)
    if cluster["leader"] and cluster["since"]:
        summary.append(f", since {when(cluster['since'])}", "default")
    lines: list[RenderableType] = [summary]
    if cluster["paused"] is not None:
        why = one_line(cluster["paused"]["reason"] or "jrs unpause")
        lines.append(Text(f"paused: {printable(shortened(why, _LONGEST_REASON))}", "yellow"))
    if live:
        lines.append(_counts(found))
    for name, colour in _PARTS:
        jobs = getattr(found, name)
        if live and not jobs:
            continue
        lines.append(Text(f"\n{_TITLES.get(name, name)}: {found.count(name)}", f"bold {colour}"
                          if jobs else "dim"))  # fmt: skip
        if jobs:
            draw = _lines if live else _table
            lines.append(draw(jobs[:most], found.at))
    if found.cut:
        lines.append(
            Text("\nWhere a number has a +, there may be more jobs; jrs list has all.", "dim")
        )
    return Group(*lines)


def _counts(found: Overview) -> Text:
    """Return how many jobs each part has: the lower parts may be below the screen."""
    counts = Text()
    for name, colour in _PARTS:
        jobs = getattr(found, name)
        counts.append(f"{', ' if counts else ''}{found.count(name)} {_TITLES.get(name, name)}",
                      f"bold {colour}" if jobs else "dim")  # fmt: skip
    return counts


def _lines(jobs: tuple[JobLine, ...], now: float) -> RenderableType:
    """Return each job in one line of a screen, which cuts what is too long."""
    rows = [(_folded(job.job_id), *_cells(job, now)) for job in jobs]
    widths = [max(map(len, column)) for column in zip(*(row[:3] for row in rows), strict=True)]
    lines = ("  ".join((*map(str.ljust, row, widths), printable(row[3]))) for row in rows)
    return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")


def _table(jobs: tuple[JobLine, ...], now: float) -> RenderableType:
    drawn = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    drawn.add_column(overflow="fold")
    for job in jobs:
        drawn.add_row(*(Text(printable(cell)) for cell in (job.job_id, *_cells(job, now))))
    return drawn


def _cells(job: JobLine, now: float) -> tuple[str, str, str]:
    """Return the newest attempt of a job, how long it lasts, and what happens to it."""
    began = job.started_at
    lasts = took(max(0.0, (job.finished_at or now) - began)) if began else "-"
    attempt = f"attempt {job.attempt}" if job.attempt else "-"
    return attempt, lasts, shortened(job.reason, 200)


def _folded(job_id: str) -> str:
    if len(job_id) <= _LONGEST_ID:
        return job_id
    half = _LONGEST_ID // 2
    return f"{job_id[: half - 1]}…{job_id[-half:]}"
