"""``jrs retry``: run a job again that did not finish; its finished stages are skipped."""

from __future__ import annotations

from pathlib import Path

import click

from jrs.cli.common import (
    ClusterRef,
    because_option,
    echo,
    echo_json,
    import_from_here,
    json_option,
    spec_key_option,
    storage_option,
    with_cluster,
)
from jrs.cli.connecting import connect
from jrs.cli.durations import DURATION
from jrs.cli.jobs import arguments_of, wait_for
from jrs.cli.snapshots import progress_of
from jrs.records.signing import SpecKey
from jrs.records.snapshots import SnapshotRecord


@click.command("retry")
@click.argument("job_id")
@click.option("--as", "as_id", metavar="NEW",
              help="The id of the new job; by default the next free of JOB_ID.2, ….")  # fmt: skip
@click.option("--from-stage", default="", metavar="STAGE",
              help="Run this stage again, and all stages that come after it.")  # fmt: skip
@click.option("--entry", "entry_point", metavar="MODULE:FUNCTION", help="Run other code.")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE",
              help="Change an argument; VALUE is JSON if it parses, else text.")  # fmt: skip
@click.option("--args", "arguments", metavar="JSON",
              help="Replace all arguments by a JSON object.")  # fmt: skip
@click.option("--no-check", is_flag=True,
              help="Do not import the entry point on this host.")  # fmt: skip
@click.option("--timeout", type=DURATION, default="60s", show_default=True, metavar="DURATION",
              help="Wait this long for the cleanup of the old job.")  # fmt: skip
@click.option("--wait", "waits", is_flag=True, help="Wait for the result and print it.")
@storage_option
@spec_key_option
@json_option
@because_option
@with_cluster
def retry_command(
    ref: ClusterRef,
    job_id: str,
    as_id: str | None,
    from_stage: str,
    entry_point: str | None,
    pairs: tuple[str, ...],
    arguments: str | None,
    no_check: bool,
    timeout: float,
    waits: bool,
    storage: str | Path | None,
    spec_key: SpecKey | None,
    as_json: bool,
) -> int:
    """Run a job that FAILED or was CANCELED again, as a new job.

    The new job takes over the finished stages with their output, and the newest state of the
    streams. The rest runs again. The old job keeps its result. If a retry is already under way, the
    command completes it and starts no second one.

    \b
    Examples:
      jrs retry nightly-2026-11-20
      jrs retry nightly-2026-11-20 --from-stage report --arg top=20
    """
    everything = None if arguments is None else arguments_of((), arguments)
    changed = arguments_of(pairs, None)
    import_from_here()
    with (
        connect(ref, storage=storage, spec_key=spec_key) as client,
        progress_of("taking over") as progress,
    ):
        new = client.job(job_id).retry(
            as_id,
            from_stage=from_stage,
            entry=entry_point,
            arguments=everything,
            timeout=timeout,
            progress=progress,
            skipped=_skipped,
            changed=changed,
            check=entry_point is not None and not no_check,
        )
        view = new.view()
        lineage = view.spec.lineage if view.spec else None
        stages = [stage.name for stage in view.stages]
        if as_json and not waits:
            echo_json({"job_id": new.id, "retry_of": job_id, "stages": stages})
        else:
            echo(f"{new.id} is a {lineage or f'retry of job {job_id!r}'}", err=True)
            taken = ", ".join(stages) or "none"
            echo(f"finished stages that are taken over: {taken}", err=True)
        return wait_for(new, None, as_json=as_json) if waits else 0


def _skipped(record: SnapshotRecord, why: str) -> None:
    echo(f"skipped: {record}: {why}", err=True)
