"""``jrs migrate``: moves a paused cluster to another backend."""

from __future__ import annotations

from pathlib import Path

import click

from jrs.cli.common import ClusterRef, echo, echo_json, json_option, storage_option
from jrs.cli.snapshots import progress_of
from jrs.client.migrate import MigrationReport, abandon_migration, migrate
from jrs.contract.errors import InvalidInput
from jrs.contract.texts import counted, size_text


@click.command("migrate")
@click.option("--from", "source", metavar="URL", required=True,
              help="The backend that the cluster leaves.")  # fmt: skip
@click.option("--to", "target", metavar="URL", required=True,
              help="The backend that it moves to: a new folder, or an empty prefix.")  # fmt: skip
@click.option("--cluster", metavar="ID", help="The cluster; its id stays.  [default: as for jrs]")
@storage_option
@click.option("--accept-storage", is_flag=True,
              help="Move although the storage seems to be on this host alone: all masters stay "
              "here, or you know that their hosts share it.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be moved; change nothing.")
@click.option("--abandon", is_flag=True,
              help="End a migration that is not complete: open the old backend again.")  # fmt: skip
@click.option("--copy-lost", is_flag=True,
              help="With --abandon: the new backend has lost the cluster for good, and with it "
              "whatever the cluster did there.")  # fmt: skip
@json_option
@click.pass_context
def migrate_command(
    ctx: click.Context,
    source: str,
    target: str,
    cluster: str | None,
    storage: str | Path | None,
    accept_storage: bool,
    dry_run: bool,
    abandon: bool,
    copy_lost: bool,
    as_json: bool,
) -> int:
    """Move a paused cluster to another backend, whose masters then continue its jobs.

    First pause the cluster and stop its masters. Every record is copied and compared; the files of
    the jobs stay where they are. Then the old backend is closed: a process that still uses it gets
    an error that names the new backend. Repeat the command if it was interrupted, at any step. Then
    start masters with the new backend, and end the pause there.

    \b
    Example:  jrs pause
              jrs migrate --from file:///var/lib/jrs --to etcd://h1,h2,h3/jrs --dry-run
              jrs migrate --from file:///var/lib/jrs --to etcd://h1,h2,h3/jrs
              jrs --backend etcd://h1,h2,h3/jrs unpause
    """
    above = ctx.obj.cluster if isinstance(ctx.obj, ClusterRef) else "default"
    cluster = above if cluster is None else cluster
    if abandon:
        if dry_run:
            raise InvalidInput("--abandon and --dry-run exclude each other")
        _abandon(source, target, cluster, copy_lost=copy_lost, as_json=as_json)
        return 0
    if copy_lost:
        raise InvalidInput("--copy-lost needs --abandon")
    with progress_of("moving") as progress:
        report = migrate(
            source, target, cluster=cluster, storage=storage,
            accept_storage=accept_storage, dry_run=dry_run, progress=progress,
        )  # fmt: skip
    if as_json:
        echo_json(report)
    elif report.already:
        echo(f"cluster {report.cluster} was moved to {report.target} already", err=True)
    elif dry_run:
        _show_plan(report)
    else:
        echo(
            f"moved {_amount(report)} of cluster {report.cluster} to {report.target}; all compared"
        )
        if report.storage:
            echo(f"the jobs' files stay in {report.storage}; start the masters with it", err=True)
        _warn_of_storage(report)
        echo(f"the cluster is paused there: jrs --backend {report.target} unpause", err=True)
    return 0


def _abandon(source: str, target: str, cluster: str, *, copy_lost: bool, as_json: bool) -> None:
    was_closed = abandon_migration(source, target, cluster=cluster, copy_lost=copy_lost)
    if as_json:
        echo_json({"cluster": cluster, "was_closed": was_closed})
        return
    says = "open again" if was_closed else "open: there is nothing to abandon"
    echo(f"cluster {cluster} is {says}; what was copied to the target can be removed", err=True)


def _show_plan(report: MigrationReport) -> None:
    echo(f"would move {_amount(report)} of cluster {report.cluster} to {report.target}:")
    for kind, number in sorted(report.by_kind.items()):
        echo(f"{number:>10,} {kind}")
    if report.storage:
        echo(f"the jobs' files stay in {report.storage}", err=True)
    _warn_of_storage(report)
    for line in report.first:
        echo(f"before that: {line}", err=True)


def _warn_of_storage(report: MigrationReport) -> None:
    if report.storage_in_source:
        echo(
            "they are inside the folder of the old backend: of that, remove only "
            f"clusters/{report.cluster}; or move the storage first (docs/storage.md)",
            err=True,
        )


def _amount(report: MigrationReport) -> str:
    return f"{counted(report.records, 'record', 'records')} ({size_text(report.value_bytes)})"
