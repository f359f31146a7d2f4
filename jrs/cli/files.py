"""``jrs files``: the files of a stage's output that count."""

from __future__ import annotations

from pathlib import Path

import click

from jrs.cli.common import ClusterRef, echo, echo_json, json_option, storage_option, with_cluster
from jrs.cli.completion import job_argument
from jrs.cli.connecting import connect
from jrs.client import plain


@click.command("files")
@job_argument
@click.argument("stage")
@click.option("--since", default="", metavar="CURSOR",
              help="Only files that are newer than this cursor; --json prints it.")  # fmt: skip
@json_option
@storage_option
@with_cluster
def files_command(
    ref: ClusterRef,
    job_id: str,
    stage: str,
    since: str,
    as_json: bool,
    storage: str | Path | None,
) -> int:
    """Print the committed files of a stage's output, one per line.

    For a stream that writes to the sink of jrs, these are the files of its committed batches; for
    another stage, all files once it has finished.

    \b
    Examples:
      jrs files live words
      jrs files live words --json --since g1.b41
    """
    with connect(ref, storage=storage) as client:
        found = plain.of_files(client.job(job_id).files(stage, since))
    if as_json:
        echo_json(found)
    else:
        for file in found["files"]:
            echo(file)
    return 0
