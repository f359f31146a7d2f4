"""``jrs doctor``: checks whether a backend, and Spark, are fit for use from this host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from jrs.cli.common import (
    DEFAULT_TTL,
    EXIT_DIFFERS,
    ClusterRef,
    echo,
    echo_json,
    json_option,
    storage_name_option,
    with_cluster,
)
from jrs.cli.durations import ABOVE_ZERO
from jrs.cli.job_options import settings_options
from jrs.cli.toml_file import from_file
from jrs.client.client import diagnose
from jrs.client.spark_doctor import diagnose_spark
from jrs.contract.backend import Diagnostic
from jrs.contract.errors import InvalidInput
from jrs.records.settings import JobSettings


@click.command("doctor")
@click.option("--ttl", type=ABOVE_ZERO, metavar="DURATION", default=from_file("ttl", DEFAULT_TTL),
              help=f"The ttl of the masters.  [default: {DEFAULT_TTL:g}s]")  # fmt: skip
@click.option("--create", is_flag=True,
              help="Create the cluster if it does not exist yet, and make all checks.")  # fmt: skip
@click.option("--spark", is_flag=True,
              help="Also start Spark as a job would, with the options below.")  # fmt: skip
@click.option("--timeout", type=ABOVE_ZERO, metavar="DURATION", default="60s", show_default=True,
              help="With --spark: wait this long for the cluster's master, and then for "
              "executors.")  # fmt: skip
@settings_options
@storage_name_option
@json_option
@with_cluster
def doctor_command(
    ref: ClusterRef,
    ttl: float,
    create: bool,
    spark: bool,
    timeout: float,
    settings: JobSettings,
    storage: str | Path | None,
    as_json: bool,
) -> int:
    """Check whether a backend, and Spark, are fit for use from this host.

    Connects, then checks versions, encryption, permissions, sessions, writing, fencing, watching,
    the latency of commits, and the filesystem of the storage. Prints one line for each check, with
    a remedy if it fails. Safe next to running masters: it writes one key of its own and never
    campaigns. If the cluster does not exist yet, it checks only whether the cluster could be
    created, and changes nothing.

    With --spark it also runs a short job, with the Spark that jobs of this host get: Java and
    PySpark, the cluster's master, its executors and their packages, and whether the driver and the
    executors can use each other's files in the storage. It needs no backend for that.

    Exit code 0: fit. 1: a check failed. 2: the backend could not be opened.

    \b
    Examples:
      jrs doctor --backend etcd://10.0.0.1,10.0.0.2,10.0.0.3/jrs
      jrs doctor --spark --storage /srv/jrs --conf spark.master=spark://spark1:7077
    """
    if settings.given and not spark:
        raise InvalidInput("the options of a job's settings, such as --conf, need --spark")
    found: list[Diagnostic] = []

    def checks() -> Iterator[Diagnostic]:
        if ref.backend is not None or not spark:
            yield from diagnose(
                ref.url, cluster=ref.cluster, storage=storage, ttl=ttl, create=create
            )
        if spark:
            yield from diagnose_spark(
                settings,
                url=ref.backend and ref.url,
                cluster=ref.cluster,
                storage=storage,
                timeout=timeout,
            )

    for finding in checks():
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
