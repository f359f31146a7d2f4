"""``jrs cleanup``, ``expire``, ``fsck`` and ``cluster-format``: commands for operators."""

from __future__ import annotations

import re
from pathlib import Path

import click

from jrs.cli.common import (
    EXIT_DIFFERS,
    EXIT_REFUSED,
    ClusterRef,
    echo,
    echo_json,
    json_option,
    with_cluster,
)
from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, NoSuchResult
from jrs.contract.formats import NEWEST_FORMAT
from jrs.records import keys
from jrs.records.checks import check_job_id
from jrs.records.policies import MOST
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files.job_folders import JobStorage, storage_of
from jrs.recovery.inspect.fsck import left_over, unreadable
from jrs.recovery.inspect.restore_epoch import restore_epoch
from jrs.store import cluster_format
from jrs.store.result_store import JobResultStore

_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

storage_option = click.option(
    "--storage", type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where jobs keep their files; the same as for the masters.",
)  # fmt: skip


@click.command("cleanup")
@click.argument("action", type=click.Choice(["retry", "dry-run", "force"]))
@click.argument("job_id")
@storage_option
@json_option
@with_cluster
def cleanup_command(
    place: ClusterRef, action: str, job_id: str, storage: Path | None, as_json: bool
) -> int:
    """Retry, preview or skip the cleanup of a job that has ended.

    retry makes the leader retry a failed cleanup at once. dry-run lists what a cleanup would remove
    and removes nothing. force marks the result clean and lists what is left.

    \b
    Examples:
      jrs cleanup dry-run nightly-7
      jrs cleanup retry nightly-7
    """
    check_job_id(job_id)
    with place.open() as backend:
        resources = default_resources(backend, required_storage(backend, storage))
        cleanup = JobCleanup(backend, resources)
        store = JobResultStore(backend)
        if not store.has_entry(job_id):
            raise NoSuchResult(f"job {job_id!r} has no result; there is nothing to clean up")
        if action == "retry":
            again = cleanup.retry(job_id)
            says = "is retried at once" if again else "has nothing left to do"
            echo(f"the cleanup of {job_id} {says}", err=True)
            return 0
        if action == "force":
            if not store.has_dirty(job_id):
                raise InvalidInput(f"the result of job {job_id!r} is not dirty")
            left = cleanup.force(job_id)
        else:
            left = cleanup.left(job_id)
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
@click.option("--older-than", "age", required=True, metavar="AGE",
              help="The least time since the job ended: 90s, 30m, 12h, 7d.")  # fmt: skip
@click.option("--keep", type=click.IntRange(0, MOST), default=0, show_default=True,
              help="Keep this many of the newest results, whatever their age.")  # fmt: skip
@json_option
@with_cluster
def expire_command(place: ClusterRef, age: str, keep: int, as_json: bool) -> int:
    """Delete old clean results. Their job ids stay used forever.

    \b
    Example:  jrs expire --older-than 30d --keep 1000
    """
    match = _AGE.fullmatch(age)
    if match is None:
        raise InvalidInput(f"not an age: {age!r}; write 90s, 30m, 12h or 7d")
    with place.open() as backend:
        gone = JobResultStore(backend).expire(float(match[1]) * _UNITS[match[2]], keep)
    echo_json(gone) if as_json else echo(f"expired {len(gone)} results")
    return 0


@click.command("fsck")
@click.option("--accept-damage", is_flag=True,
              help="Permanently discard damaged parts of the log, and the commits that "
              "depend on them.")  # fmt: skip
@click.option("--repair", is_flag=True,
              help="Restore a damaged epoch, so that masters can lead again.")  # fmt: skip
@storage_option
@json_option
@with_cluster
def fsck_command(
    place: ClusterRef, accept_damage: bool, repair: bool, storage: Path | None, as_json: bool
) -> int:
    """Check the whole cluster for damage, unreadable records and left-overs.

    Changes nothing without --accept-damage or --repair. Exit code 0: no problem; 1: left-overs;
    2: damage.

    \b
    Example:  jrs fsck
    """
    with place.open() as backend:
        for line in backend.accept_damage() if accept_damage else ():
            echo(f"accepted the loss of: {line}", err=True)
        if repair:
            restored = restore_epoch(backend, storage_of(backend, storage))
            if restored is not None:
                echo(f"restored {keys.EPOCH}: epoch {restored}", err=True)
        damage = list(backend.check())
        left: list[str] = []
        try:
            damage += unreadable(backend)
            left += left_over(backend, storage_of(backend, storage))
        except CorruptRecord as error:
            if not damage:
                damage.append(str(error))
    if as_json:
        echo_json({"damaged": damage, "left_over": left})
    else:
        for line in (*damage, *left):
            echo(line)
        if not damage and not left:
            echo("all is well", err=True)
    if damage:
        return EXIT_REFUSED
    return EXIT_DIFFERS if left else 0


@click.command("cluster-format")
@click.option("--raise", "to_raise", is_flag=True,
              help="Raise it to the newest that this version supports. Permanent.")  # fmt: skip
@json_option
@with_cluster
def cluster_format_command(place: ClusterRef, to_raise: bool, as_json: bool) -> int:
    """Show the format of the cluster's records, or raise it once every master is upgraded.

    Before the raise, newer versions of jrs write records that older versions can read. After it,
    older versions refuse to open the cluster. The raise is refused while a master runs that does
    not know the new format.

    \b
    Example:  jrs cluster-format --raise
    """
    with place.open() as backend:
        before = (
            cluster_format.raise_format(backend) if to_raise else cluster_format.format_of(backend)
        )
    found = NEWEST_FORMAT if to_raise else before
    if as_json:
        echo_json({"format": found, "newest": NEWEST_FORMAT, "before": before})
    elif to_raise:
        raised = f"raised from {before} to {found}" if before < found else f"already {found}"
        echo(f"the cluster's format is {raised}")
    else:
        echo(f"format {found}; this version supports up to {NEWEST_FORMAT}")
    return 0


# -- inside --------------------------------------------------------------------------------


def required_storage(backend: Backend, storage: Path | None) -> JobStorage:
    found = storage_of(backend, storage)
    if found is None:
        raise InvalidInput("no storage: give the folder of the jobs' files with --storage DIR")
    return found
