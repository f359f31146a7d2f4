"""``jrs logs``: what the attempts of a job have printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from jrs.cli.common import ClusterRef, storage_option, with_cluster
from jrs.cli.completion import job_argument
from jrs.cli.connecting import connect
from jrs.contract.texts import printable
from jrs.records.policies import MOST

_CONTROLS = re.compile("[^\n\t]+")


@click.command("logs")
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Wait for more output until the job has ended.")
@click.option("--attempt", type=click.IntRange(1, MOST), metavar="N",
              help="An attempt by its number.  [default: the newest]")  # fmt: skip
@click.option("--out", "stream", flag_value="out", help="Only stdout.")
@click.option("--err", "stream", flag_value="err", help="Only stderr.")
@click.option("--tail", type=click.IntRange(0, MOST), metavar="N",
              help="Begin with the last N lines of each stream.")  # fmt: skip
@storage_option
@with_cluster
def logs_command(
    ref: ClusterRef,
    job_id: str,
    follow: bool,
    attempt: int | None,
    stream: str | None,
    tail: int | None,
    storage: str | Path | None,
) -> int:
    """Print the output of a job's attempt: its log, stdout and stderr.

    Logs are files in the masters' storage, and are kept after the job's end: 30 days if it FAILED,
    else 3, unless the masters have another policy. jrs keeps the beginning and the end of a long
    log. On a terminal, control characters of the job are shown as escapes; a pipe gets the job's
    own bytes.

    \b
    Examples:
      jrs logs nightly-2026-11-20 --err --tail 50
      jrs logs -f nightly-2026-11-20
    """
    with connect(ref, storage=storage) as client:
        parts = client.job(job_id).logs(attempt=attempt, stream=stream, tail=tail, follow=follow)
        # Two streams in one output are told apart as by tail(1).
        shown: tuple[int, str] | None = None
        terminal = sys.stdout.isatty()
        for part in parts:
            if (part.attempt, part.stream) != shown and (stream is None or shown is not None):
                title = f"==> attempt {part.attempt}, std{part.stream} <==\n"
                _write((title if shown is None else f"\n{title}").encode(), escaped=False)
            shown = part.attempt, part.stream
            _write(part.data, escaped=terminal)
    return 0


def _write(data: bytes, *, escaped: bool) -> None:
    out = sys.stdout.buffer
    if escaped:
        text = data.decode(errors="backslashreplace")
        data = _CONTROLS.sub(lambda found: printable(found[0]), text).encode()
    out.write(data)
    out.flush()
