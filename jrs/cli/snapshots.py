"""``jrs snapshot``: commands for the snapshots of jobs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from jrs.cli.common import (
    ClusterRef,
    Suggesting,
    because_option,
    echo,
    echo_json,
    json_option,
    spec_key_option,
    storage_option,
    when,
    with_cluster,
)
from jrs.cli.completion import complete_job, complete_snapshot, job_argument
from jrs.cli.connecting import connect
from jrs.cli.snapshot_table import points, print_snapshots
from jrs.client import plain
from jrs.client.client import Client
from jrs.client.job import JobHandle
from jrs.contract.errors import InvalidInput
from jrs.contract.texts import size_text
from jrs.records.snapshots import SnapshotFormat, SnapshotRecord
from jrs.recovery.snapshots.restore import Restored


@click.group("snapshot", cls=Suggesting, context_settings={"help_option_names": ["-h", "--help"]})
def snapshot_command() -> None:
    """Take snapshots of jobs and restore them: in place, in another cluster, or as new jobs.

    A snapshot has a number and, optionally, a name. verify finds files that were changed or removed
    outside jrs.

    \b
    Examples:
      jrs snapshot create orders --name before-upgrade
      jrs snapshot list orders
      jrs snapshot restore orders before-upgrade
      jrs snapshot fork orders 3 --as orders-test
    """


def _command(name: str, *, changes: bool = False) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of the group that works with a client, with the common options; those that
    change something take a reason."""

    def wrap(function: Callable[..., Any]) -> click.Command:
        def command(ref: ClusterRef, storage: str | Path | None, **options: Any) -> Any:
            spec_key = options.pop("spec_key", None)
            with connect(ref, storage=storage, spec_key=spec_key) as client:
                return function(client, **options)

        command.__doc__ = function.__doc__
        command.__click_params__ = getattr(  # type: ignore[attr-defined]
            function, "__click_params__", []
        )
        whole = storage_option(with_cluster(command))
        return snapshot_command.command(name)(because_option(whole) if changes else whole)

    return wrap


@_command("create", changes=True)
@job_argument
@click.option("--name", help="A name for the snapshot.")
@click.option("--format", "how", type=click.Choice([each.value for each in SnapshotFormat]),
              help="The format of the snapshot; by default that of the job's spec.")  # fmt: skip
@click.option("--batch", "batches", multiple=True, metavar="STAGE=N",
              help="Take an older batch of a stage, which Spark still retains.")  # fmt: skip
@click.option("--no-output", is_flag=True, help="Leave out the published output.")
@json_option
def create_command(
    client: Client, job_id: str, name: str | None, how: str | None,
    batches: tuple[str, ...], no_output: bool, as_json: bool,
) -> None:  # fmt: skip
    """Take a snapshot of a running, suspended or dead job. It stays until you delete it.

    \b
    Examples:
      jrs snapshot create orders
      jrs snapshot create orders --format cas --name nightly
      jrs snapshot create orders --batch hourly=41
    """
    with progress_of("taking") as progress:
        record = client.job(job_id).snapshots.create(
            name, format=SnapshotFormat(how) if how else None, output=not no_output,
            batches=dict(map(_batch, batches)), progress=progress,
        )  # fmt: skip
    if as_json:
        echo_json(record)
    else:
        echo(f"{record}: {points(record.stages)}, {size_text(record.bytes)}")


@_command("list")
@click.argument("job_id", required=False, shell_complete=complete_job)
@click.option("--all", "everything", is_flag=True,
              help="Also list the snapshots without files that jrs keeps for "
                   "jrs retry.")  # fmt: skip
@json_option
def list_command(client: Client, job_id: str | None, everything: bool, as_json: bool) -> None:
    """List the snapshots of a job, or of all jobs, oldest first.

    jrs keeps a snapshot of the end of each job that FAILED or was CANCELED, for jrs retry. If it
    has no files, the command only counts it; --all and --json list it.

    \b
    Examples:
      jrs snapshot list
      jrs snapshot list orders --json
    """
    if job_id:
        records = client.job(job_id).snapshots.list()
        if not records:
            client.job(job_id).view()  # Raises if the job does not exist.
    else:
        records = list(client.snapshots())
    if as_json:
        echo_json(records)
        return
    print_snapshots(records, everything=everything)


@_command("show")
@job_argument
@click.argument("snapshot", shell_complete=complete_snapshot)
@json_option
def show_command(client: Client, job_id: str, snapshot: str, as_json: bool) -> None:
    """Show the stages, records and files of a snapshot.

    \b
    Example:  jrs snapshot show orders 3
    """
    snapshots = client.job(job_id).snapshots
    record, manifest = snapshots.get(snapshot), snapshots.manifest(snapshot)
    if as_json:
        echo_json(manifest)
        return
    echo(f"{record}, {record.format.value}, taken {when(record.created_at)}")
    for stage in manifest.stages:
        at = "its beginning" if stage.batch is None else f"batch {stage.batch}"
        echo(f"stage {stage.name}: {at}")
    for name in sorted(manifest.records):
        echo(f"record {name}")
    for file in manifest.files:
        echo(f"{file.sha256[:12]} {file.size:>12,} {file.path}")


@_command("verify")
@job_argument
@click.argument("snapshot", required=False, shell_complete=complete_snapshot)
@json_option
def verify_command(client: Client, job_id: str, snapshot: str | None, as_json: bool) -> int:
    """Verify every byte of a snapshot.

    Without SNAPSHOT, it finds the job's newest one that can be restored. Where the storage has
    objects, that leaves out the rows that streams had published before their newest batch.

    Exit code 0: it is intact; 2: it is damaged, no snapshot is intact, or it could not be checked,
    for example since there is no such snapshot. stderr says which.

    \b
    Examples:
      jrs snapshot verify orders 3
      jrs snapshot verify orders
    """
    job = client.job(job_id)
    with progress_of("verifying") as progress:
        if snapshot is not None:
            record, what = job.snapshots.verify(snapshot, progress=progress), "is intact"
        else:
            record, what = _newest(job), "can be restored"
    echo_json(record) if as_json else echo(f"{record} {what}")
    return 0


@_command("delete", changes=True)
@job_argument
@click.argument("snapshot", shell_complete=complete_snapshot)
def delete_command(client: Client, job_id: str, snapshot: str) -> None:
    """Delete a snapshot.

    The newest one that an unfinished job could resume from is not deleted.

    \b
    Example:  jrs snapshot delete orders 3
    """
    client.job(job_id).snapshots.delete(snapshot)
    echo(f"snapshot {snapshot} of job {job_id!r} is deleted", err=True)


@_command("convert", changes=True)
@click.argument("job_id")
@click.argument("snapshot")
@click.option("--to", "how", required=True,
              type=click.Choice([each.value for each in SnapshotFormat if each.is_restorable]),
              help="The new format.")  # fmt: skip
def convert_command(client: Client, job_id: str, snapshot: str, how: str) -> None:
    """Convert a snapshot to another format. It keeps its number, its name and its contents.

    \b
    Example:  jrs snapshot convert orders 3 --to full
    """
    with progress_of("converting") as progress:
        record = client.job(job_id).snapshots.convert(
            snapshot, SnapshotFormat(how), progress=progress
        )
    echo(f"{record} has the format {record.format.value}", err=True)


@_command("move", changes=True)
@job_argument
@click.argument("snapshot", shell_complete=complete_snapshot)
@click.argument("to", type=click.Path(file_okay=False))
def move_command(client: Client, job_id: str, snapshot: str, to: str) -> None:
    """Move a snapshot to another storage, on any filesystem. It stays listed.

    \b
    Example:  jrs snapshot move orders 3 /mnt/backup
    """
    with progress_of("moving") as progress:
        record = client.job(job_id).snapshots.move(snapshot, to, progress=progress)
    echo(f"{record} is in {to}", err=True)


@_command("export")
@job_argument
@click.argument("snapshot", shell_complete=complete_snapshot)
@click.argument("folder", type=click.Path())
def export_command(client: Client, job_id: str, snapshot: str, folder: str) -> None:
    """Copy a snapshot to a new folder that contains all of it.

    You can copy the folder anywhere.

    \b
    Examples:
      jrs snapshot export orders 3 /mnt/usb/orders-3
      jrs --backend etcd://other:2379 snapshot restore --from /mnt/usb/orders-3
    """
    with progress_of("exporting") as progress:
        client.job(job_id).snapshots.export(snapshot, folder, progress=progress)
    echo(f"snapshot {snapshot} of job {job_id!r} is in {folder}", err=True)


@_command("restore", changes=True)
@click.argument("job_id", required=False, shell_complete=complete_job)
@click.argument("snapshot", required=False, shell_complete=complete_snapshot)
@click.option("--from", "folder", type=click.Path(path_type=Path, file_okay=False, exists=True),
              help="The folder of an exported snapshot, from any cluster.")  # fmt: skip
@click.option("--as", "as_id", metavar="NEW", help="Restore it as a new job.")
@click.option("--claim", is_flag=True,
              help="Delete the snapshot once it is restored; by default it stays.")  # fmt: skip
@click.option("--accept-published", is_flag=True,
              help="Restore although the job has since called foreachBatch functions, written "
                   "with a sink such as Delta, or published tables: a restore cannot undo that.",
              )  # fmt: skip
@click.option("--finish", metavar="JOB", help="Complete an interrupted restore.")
@spec_key_option
@json_option
def restore_command(
    client: Client, job_id: str | None, snapshot: str | None, folder: Path | None,
    as_id: str | None, claim: bool, accept_published: bool, finish: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Restore a suspended job from a snapshot.

    Without SNAPSHOT, it takes the job's newest intact one. The restore also reverts the output that
    the job has published since the snapshot. The job stays suspended until jrs resume. A job that
    the restore creates, as with --as, starts at once if a master leads.

    \b
    Examples:
      jrs suspend orders && jrs snapshot restore orders 3 && jrs resume orders
      jrs snapshot restore orders 3 --as orders-2
      jrs snapshot restore --from /mnt/usb/orders-3
    """
    given = job_id, snapshot, folder, as_id, claim or None, accept_published or None
    if finish is not None and any(one is not None for one in given):
        raise InvalidInput("--finish completes a restore as it was begun: give nothing next to it")
    with progress_of("restoring") as progress:
        if finish is not None:
            restored = client.job(finish).snapshots.finish_restore()
        elif folder is not None:
            if job_id is not None:
                raise InvalidInput("give either JOB_ID [SNAPSHOT] or --from FOLDER, not both")
            restored = client.restore(
                folder, as_id=as_id, claim=claim, accept_published=accept_published,
                progress=progress,
            )  # fmt: skip
        elif job_id is not None:
            job = client.job(job_id)
            restored = job.snapshots.restore(
                snapshot or _newest(job).number, as_id=as_id, claim=claim,
                accept_published=accept_published, progress=progress,
            )  # fmt: skip
        else:
            raise InvalidInput(
                "nothing to restore: give JOB_ID [SNAPSHOT], --from FOLDER or --finish JOB"
            )
    echo_restored(restored, as_json)


@_command("fork", changes=True)
@job_argument
@click.argument("snapshot", required=False, shell_complete=complete_snapshot)
@click.option("--as", "as_id", required=True, metavar="NEW", help="The id of the new job.")
@spec_key_option
@json_option
def fork_command(
    client: Client, job_id: str, snapshot: str | None, as_id: str, as_json: bool
) -> None:
    """Start a new job from a snapshot of another job.

    Its queries get new ids.

    \b
    Example:  jrs snapshot fork orders --as orders-test
    """
    with progress_of("restoring") as progress:
        job = client.job(job_id)
        which = snapshot or _newest(job).number
        restored = job.snapshots.fork(which, as_id, progress=progress)
    echo_restored(restored, as_json)


# -- inside --------------------------------------------------------------------------------


def _newest(job: JobHandle) -> SnapshotRecord:
    """Return the job's newest snapshot that can be restored; name the newer ones."""
    usable = job.snapshots.newest_usable()
    for skipped, why in usable.skipped:
        echo(f"skipped: {skipped}: {why}", err=True)
    if usable.record is None:
        raise InvalidInput(f"job {job.id!r} has no snapshot that could be restored")
    return usable.record


def echo_restored(restored: Restored, as_json: bool) -> None:
    if as_json:
        echo_json(plain.of_restored(restored))
        return
    of = f"snapshot {restored.number} of job {restored.from_job!r}"
    echo(f"job {restored.job_id!r} is at {of}: {points(restored.stages)}")


def _batch(text: str) -> tuple[str, int]:
    stage, _, number = text.partition("=")
    # 19 digits are enough: Spark's batch numbers have 64 bits.
    if not stage or not re.fullmatch("[0-9]{1,19}", number):
        raise InvalidInput(f"not a batch of a stage: {text!r}; write STAGE=N, such as hourly=41")
    return stage, int(number)


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return

    # Most commands of this module show no progress.
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
