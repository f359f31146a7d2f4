"""``jrs doctor``: checks whether a backend is fit for use from this host."""

from __future__ import annotations

from pathlib import Path

import click

from jrs.cli.common import EXIT_DIFFERS, ClusterRef, echo, echo_json, json_option, with_cluster
from jrs.cli.durations import ABOVE_ZERO
from jrs.client.client import diagnose
from jrs.contract.backend import Diagnostic


@click.command("doctor")
@click.option("--ttl", type=ABOVE_ZERO, metavar="DURATION", default=15.0, show_default=True,
              help="The ttl of the masters.")  # fmt: skip
@click.option("--storage", type=click.Path(path_type=Path, file_okay=False),
              help="Where jobs keep their files, if the masters have this option.")  # fmt: skip
@click.option("--create", is_flag=True,
              help="Create a cluster that does not exist yet, and check it whole.")  # fmt: skip
@json_option
@with_cluster
def doctor_command(
    place: ClusterRef, ttl: float, storage: Path | None, create: bool, as_json: bool
) -> int:
    """Check whether a backend is fit for use from this host.

    Connects, then checks versions, encryption, permissions, sessions, writing, fencing, watching,
    the latency of commits, and the filesystem that jobs keep their files on. Prints one line for
    each check, with a remedy if it fails. Safe next to running masters: it writes one key of its
    own and never campaigns. Of a cluster that does not exist yet, it checks only whether it could
    be created, and changes nothing.

    Exit code 0: fit. 1: a check failed. 2: the backend could not be opened.

    \b
    Example:  jrs doctor --backend etcd://10.0.0.1,10.0.0.2,10.0.0.3/jrs
    """
    found: list[Diagnostic] = []
    for finding in diagnose(
        place.url, cluster=place.cluster, storage=storage, ttl=ttl, create=create
    ):
        found.append(finding)
        if not as_json:
            echo(_line(finding))
    wrong = sum(finding.remedy is not None for finding in found)
    if as_json:
        echo_json(found)
    elif wrong:
        echo(f"not fit: {wrong} of {len(found)} need attention")
    else:
        echo("fit")
    return EXIT_DIFFERS if wrong else 0


def _line(finding: Diagnostic) -> str:
    line = f"{'ok ' if finding.remedy is None else 'BAD'}  {finding.what:10}  {finding.detail}"
    return line if finding.remedy is None else f"{line}: {finding.remedy}"
