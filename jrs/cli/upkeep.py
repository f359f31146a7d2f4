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
    storage_option,
    with_cluster,
)
from jrs.cli.connecting import connect
from jrs.contract.errors import InvalidInput
from jrs.records import keys
from jrs.records.policies import MOST

_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


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
    with connect(place, storage=storage) as client:
        job = client.job(job_id)
        if action == "retry":
            says = "is retried at once" if job.retry_cleanup() else "has nothing left to do"
            echo(f"the cleanup of {job_id} {says}", err=True)
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
    with connect(place) as client:
        gone = client.results.expire(float(match[1]) * _UNITS[match[2]], keep)
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
    with connect(place, storage=storage) as client:
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
        for line in (*found.damaged, *found.left_over):
            echo(line)
        if not found.damaged and not found.left_over:
            echo("all is well", err=True)
    if found.damaged:
        return EXIT_REFUSED
    return EXIT_DIFFERS if found.left_over else 0


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
    with connect(place) as client:
        before = client.raise_cluster_format() if to_raise else client.cluster_format()
    found = before.newest if to_raise else before.version
    if as_json:
        echo_json({"format": found, "newest": before.newest, "before": before.version})
    elif to_raise:
        raised = f"raised from {before.version} to" if before.version < found else "already"
        echo(f"the cluster's format is {raised} {found}")
    else:
        echo(f"format {found}; this version supports up to {before.newest}")
    return 0
