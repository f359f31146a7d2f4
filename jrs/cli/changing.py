"""``jrs rescale``, ``upgrade`` and ``fork``: change a job's partitions or code, or copy it."""

from __future__ import annotations

from pathlib import Path

import click

from jrs.cli.common import (
    EXIT_DIFFERS,
    ClusterRef,
    because_option,
    echo,
    import_from_here,
    json_option,
    no_wait_option,
    spec_key_option,
    storage_option,
    with_cluster,
)
from jrs.cli.completion import job_argument
from jrs.cli.connecting import connect
from jrs.cli.snapshots import echo_restored, progress_of
from jrs.cli.suspend import echo_held, telling_unled
from jrs.client.job import JobHandle
from jrs.contract.errors import NotFound
from jrs.records.checks import check_job_id
from jrs.records.model import StopMode
from jrs.records.policies import MOST_PARTITIONS, check_count
from jrs.records.signing import SpecKey
from jrs.recovery.attempt.entry_check import check_entry


@click.command("rescale")
@job_argument
@click.option("--partitions", type=int, required=True, metavar="N",
              help="The new number of partitions of its streams' state.")  # fmt: skip
@no_wait_option
@storage_option
@spec_key_option
@because_option
@with_cluster
def rescale_command(
    ref: ClusterRef,
    job_id: str,
    partitions: int,
    no_wait: bool,
    storage: str | Path | None,
    spec_key: SpecKey | None,
) -> int:
    """Change the number of partitions of the state of a job's streams.

    The job is suspended at a batch boundary, its state is rewritten next to the old state, and the
    job starts again.

    \b
    Example:  jrs rescale hourly-delays --partitions 16
    """
    check_count("--partitions", partitions, MOST_PARTITIONS)
    check_job_id(job_id)
    with connect(ref, storage=storage, spec_key=spec_key) as client:
        job = client.job(job_id)
        job.rescale(partitions)
        return _restarted(job, f"has {partitions} partitions", no_wait=no_wait)


@click.command("upgrade")
@job_argument
@click.option("--entry", "entry_point", required=True, metavar="MODULE:FUNCTION",
              help="The code that resumes from the job's state.")  # fmt: skip
@click.option("--no-check", is_flag=True,
              help="Do not import the entry point on this host.")  # fmt: skip
@no_wait_option
@spec_key_option
@because_option
@with_cluster
def upgrade_command(
    ref: ClusterRef,
    job_id: str,
    entry_point: str,
    no_check: bool,
    no_wait: bool,
    spec_key: SpecKey | None,
) -> int:
    """Replace a job's code; the new code resumes from the job's state.

    Finished stages stay finished. The queries of other stages may change as far as Spark can resume
    from their checkpoints.

    \b
    Example:  jrs upgrade hourly-delays --entry etl.v2:hourly
    """
    check_job_id(job_id)
    with connect(ref, spec_key=spec_key) as client:
        job = client.job(job_id)
        if not no_check:
            import_from_here()
            spec = job.view().spec
            check_entry(entry_point, spec.arguments if spec else {})
        job.upgrade(entry_point)
        return _restarted(job, f"runs {entry_point}", no_wait=no_wait)


@click.command("fork")
@job_argument
@click.option("--as", "as_id", required=True, metavar="NEW", help="The id of the new job.")
@storage_option
@spec_key_option
@json_option
@because_option
@with_cluster
def fork_command(
    ref: ClusterRef,
    job_id: str,
    as_id: str,
    storage: str | Path | None,
    spec_key: SpecKey | None,
    as_json: bool,
) -> int:
    """Start a new job from the current state of a job, which keeps running.

    The new job also has the published output, and its queries get new ids. To fork an older state,
    use jrs snapshot fork.

    \b
    Example:  jrs fork hourly-delays --as hourly-delays-v2
              jrs upgrade hourly-delays-v2 --entry etl.v2:hourly
    """
    with (
        connect(ref, storage=storage, spec_key=spec_key) as client,
        progress_of("forking") as progress,
    ):
        restored = client.job(job_id).fork(as_id, progress=progress)
    echo_restored(restored, as_json)
    return 0


def _restarted(job: JobHandle, what: str, *, no_wait: bool) -> int:
    stop = job.view().stop
    if stop is not None and not stop.again:
        echo(f"{job.id} {what} when it is resumed", err=True)
        return 0
    echo(f"requested a restart of {job.id} with the change", err=True)
    if no_wait:
        return 0
    try:
        stop = job.wait_stopped(notify=telling_unled())
    except NotFound:  # The leader removes the stop when it restarts the job.
        echo(f"{job.id} {what} from now on", err=True)
        return 0
    if stop is None:
        ended = job.result(timeout=0).status.name
        echo(
            f"{job.id} ended {ended}; 'jrs history {job.id}' says whether it was restarted before",
            err=True,
        )
    elif stop.mode is StopMode.HOLD:
        echo_held(stop)
    else:
        echo(f"another request has suspended {job.id}: it {what} when it is resumed", err=True)
    return EXIT_DIFFERS
