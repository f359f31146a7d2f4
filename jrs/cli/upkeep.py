"""``jrs cleanup``, ``expire``, ``fsck`` and ``cluster-format``: commands for operators."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import attrs
import click

from jrs.cli.common import (
    EXIT_DIFFERS,
    EXIT_REFUSED,
    ClusterRef,
    because_option,
    echo,
    echo_json,
    json_option,
    may_have_changed,
    storage_option,
    with_cluster,
)
from jrs.cli.completion import job_argument
from jrs.cli.connecting import connect
from jrs.cli.durations import DURATION
from jrs.contract.errors import CorruptRecord, InvalidInput
from jrs.contract.texts import counted
from jrs.records import keys
from jrs.records.policies import MOST

_INDEXED = 10_240
"""Results after which the raise of a format says how far it is: many pages of `result_index`."""


@click.command("cleanup")
@click.argument("action", type=click.Choice(["retry", "dry-run", "force"]))
@job_argument
@storage_option
@json_option
@because_option
@with_cluster
def cleanup_command(
    ref: ClusterRef, action: str, job_id: str, storage: str | Path | None, as_json: bool
) -> int:
    """Retry, preview or skip the cleanup of a job that has ended.

    retry makes the leader retry a failed cleanup at once. dry-run lists what a cleanup would remove
    and removes nothing. force marks the result clean and lists what is left.

    \b
    Examples:
      jrs cleanup dry-run nightly-7
      jrs cleanup retry nightly-7
    """
    with connect(ref, storage=storage) as client:
        job = client.job(job_id)
        if action == "retry":
            says = "has nothing left to do"
            retried = job.retry_cleanup()
            if retried:
                says = "is retried at once"
            elif client.results.has_dirty(job_id):
                says = f"has not ended its first try, which needs no retry; {client.leader()}"
            echo(f"the cleanup of {job_id} {says}", err=True)
            if as_json:
                echo_json({"job_id": job_id, "retried": retried})
            return 0
        left = job.force_cleanup() if action == "force" else job.left()
    if as_json:
        echo_json(left)
        return 0
    for name, found in left.items():
        for thing in found:
            echo(f"{name}: {thing}")
    if not left:
        echo("nothing is left", err=True)
    return 0


@click.command("expire")
@click.argument("job_ids", nargs=-1, metavar="[JOB_ID]...")
@click.option("--older-than", "age", type=DURATION, metavar="DURATION",
              help="Only jobs that ended at least this long ago: 90s, 30m, 12h, 7d; a number "
                   "alone is seconds.")  # fmt: skip
@click.option("--keep", type=click.IntRange(0, MOST), default=0, show_default=True,
              help="Keep this many of the newest results, whatever their age.")  # fmt: skip
@json_option
@with_cluster
def expire_command(
    ref: ClusterRef, job_ids: tuple[str, ...], age: float | None, keep: int, as_json: bool
) -> int:
    """Delete the clean results of the given jobs, or all old ones. Their ids stay used forever.

    \b
    Examples:
      jrs expire nightly-2025-11-20
      jrs expire --older-than 30d --keep 1000
    """
    if bool(job_ids) is (age is not None):
        raise InvalidInput("name jobs, or give --older-than DURATION for all that are as old")
    if job_ids and keep:
        raise InvalidInput("--keep needs --older-than: jobs that are named are not kept")
    expired = list[str]()
    with connect(ref) as client:
        try:
            gone = client.expiring(*job_ids) if age is None else client.results.expiring(age, keep)
            for job_id in gone:
                expired.append(job_id)
        except BaseException:
            if expired:  # An error in between says nothing of those that are gone.
                _echo_expired(expired, as_json=as_json)
            raise
    _echo_expired(expired, as_json=as_json)
    stay = sorted({*job_ids}.difference(expired))
    for job_id in stay:
        echo(f"the result of {job_id} has just changed, and stays: repeat it", err=True)
    return EXIT_DIFFERS if stay else 0


def _echo_expired(job_ids: list[str], *, as_json: bool) -> None:
    if as_json:
        echo_json(sorted(job_ids))
    else:
        echo(f"expired {counted(len(job_ids), 'result', 'results')}")


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
@click.option("--older-than", "age", type=DURATION, default="1d", show_default=True,
              metavar="DURATION",
              help="Remove only what has been garbage for this long: 90s, 30m, 12h, 7d; a number "
                   "alone is seconds.")  # fmt: skip
@storage_option
@json_option
@with_cluster
def gc_command(
    ref: ClusterRef, dry_run: bool, age: float, storage: str | Path | None, as_json: bool
) -> int:
    """Remove files that are no longer needed, and list them.

    It removes the outputs of jobs whose result has expired, and files that crashes have left. It
    keeps files that an unfinished job reads, and files that a listed snapshot needs. Safe while
    masters run.

    \b
    Examples:
      jrs gc --dry-run
      jrs gc --older-than 7d
    """
    with connect(ref, storage=storage) as client:
        report = client.gc(older_than=age, dry_run=dry_run)
    if report.removed and not dry_run:
        may_have_changed.set()  # Files are removed without a commit.
    if as_json:
        echo_json(attrs.asdict(report))
        return 0
    for found in report.removed:
        echo(f"{found.size:>15,} {found.path} ({found.why})")
    for line in report.left:
        echo(f"stays: {line}", err=True)
    what = f"{sum(found.size for found in report.removed):,} bytes"
    echo(f"{'would free' if dry_run else 'freed'} {what}", err=True)
    return 0


@click.command("fsck")
@click.option("--accept-damage", is_flag=True,
              help="Permanently discard damaged parts of the log, and the commits that "
              "depend on them.")  # fmt: skip
@click.option("--repair", is_flag=True,
              help="Restore a damaged epoch, or accept a store that is older than the files (ended "
                   "jobs may run again), so that masters can lead again.")  # fmt: skip
@storage_option
@json_option
@with_cluster
def fsck_command(
    ref: ClusterRef, accept_damage: bool, repair: bool, storage: str | Path | None, as_json: bool
) -> int:
    """Check the whole cluster for damage, unreadable records, left-overs and held jobs.

    Changes nothing without --accept-damage or --repair. Stop all masters before --accept-damage,
    which is refused while one leads.

    Exit code 0: no problem; 1: left-overs, or jobs that are held; 2: damage, which stdout names. 2
    also if the cluster could not be checked, for example since the backend does not answer: stdout
    is then empty, and stderr says why.

    \b
    Example:  jrs fsck
    """
    with connect(ref, storage=storage) as client:
        for line in client.accept_damage() if accept_damage else ():
            echo(f"accepted the loss of: {line}", err=True)
        if repair:
            restored = client.restore_epoch()
            if restored is not None:
                echo(f"restored {keys.EPOCH}: epoch {restored}", err=True)
        found = client.fsck()
    if as_json:
        echo_json(found)
    else:
        for line in (*found.damaged, *found.left_over, *found.held):
            echo(line)
        if not found.damaged and not found.left_over and not found.held:
            echo("all is well", err=True)
        if found.nobody_leads:
            echo(found.nobody_leads, err=True)
    if found.damaged:
        return EXIT_REFUSED
    return EXIT_DIFFERS if found.left_over or found.held else 0


@click.command("storage")
@click.option("--adopt", is_flag=True,
              help="Make the folder that --storage names the storage. No master "
                   "may run.")  # fmt: skip
@storage_option
@json_option
@with_cluster
def storage_command(ref: ClusterRef, adopt: bool, storage: str | Path | None, as_json: bool) -> int:
    """Show which storage the cluster uses, or have it use another one.

    The cluster knows its storage by a marker with a random id. The marker also has the epoch of the
    newest leader that used the storage. To move a storage, stop all masters, copy the whole folder,
    its .storage included, and start the masters with the new --storage; you do not need --adopt.
    Use --adopt for a folder whose marker is missing, or for an older copy, if you accept that files
    are missing from it.

    \b
    Examples:
      jrs storage
      jrs storage --adopt --storage /srv/jrs-files
    """
    before = None
    with connect(ref, storage=storage) as client:
        if adopt:
            with suppress(CorruptRecord):
                before = client.storage()
        record = client.adopt_storage() if adopt else client.storage()
    if as_json:
        echo_json(record)
    elif record is None:
        echo("no storage is recorded: the next leader records its own", err=True)
    else:
        echo(f"{record.path}  (id {record.id}, used up to epoch {record.epoch})")
        if before is not None and before.id != record.id:
            echo(f"instead of {before.path} (id {before.id})", err=True)
    return 0


def _tell_indexed(done: int) -> None:
    if done % _INDEXED == 0:
        echo(f"{done} results are in the index", err=True)


@click.command("cluster-format")
@click.option("--raise", "to_raise", is_flag=True,
              help="Raise the format to the newest that this version "
                   "supports. Permanent.")  # fmt: skip
@json_option
@with_cluster
def cluster_format_command(ref: ClusterRef, to_raise: bool, as_json: bool) -> int:
    """Show the format of the cluster's records, or raise it once every master is upgraded.

    Before the raise, newer versions of jrs write records that older versions can read. After it,
    older versions refuse to open the cluster. The raise is refused while a master runs that does
    not know the new format.

    \b
    Example:  jrs cluster-format --raise
    """
    with connect(ref) as client:
        if to_raise:
            before = client.raise_cluster_format(progress=_tell_indexed)
        else:
            before = client.cluster_format()
    found = before.newest if to_raise else before.version
    if as_json:
        echo_json({"format": found, "newest": before.newest, "before": before.version})
    elif to_raise:
        raised = f"raised from {before.version} to" if before.version < found else "already"
        echo(f"the cluster's format is {raised} {found}")
    else:
        echo(f"format {found}; this version supports up to {before.newest}")
    return 0
