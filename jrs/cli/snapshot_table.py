"""The table of snapshots, and what is printed of one."""

from __future__ import annotations

from jrs.cli.common import echo, table, when
from jrs.contract.texts import counted, size_text
from jrs.records.snapshots import SnapshotRecord, SnapshotStage


def print_snapshots(records: list[SnapshotRecord], *, everything: bool) -> None:
    """Print a table of snapshots.

    Args:
        everything: also those that hold no file and are kept for a retry alone.
    """
    listed = [record for record in records if everything or not _is_for_retry_alone(record)]
    if listed:
        _print(listed)
    else:
        echo("no snapshots", err=True)
    if left_out := len(records) - len(listed):
        what = counted(left_out, "snapshot without files is", "snapshots without files are")
        echo(f"{what} kept for jrs retry; list them with --all", err=True)


def points(stages: tuple[SnapshotStage, ...]) -> str:
    """Return where the streams of a snapshot are."""
    said = [
        f"{stage.name} at {'its beginning' if stage.batch is None else f'batch {stage.batch}'}"
        for stage in stages
    ]
    return ", ".join(said) or "no streaming stage"


# -- inside --------------------------------------------------------------------------------


def _is_for_retry_alone(record: SnapshotRecord) -> bool:
    """Return whether a snapshot holds the records of an ended job and no file."""
    return record.at_end and record.is_systems and not record.files


def _print(records: list[SnapshotRecord]) -> None:
    table(
        [
            "JOB",
            "SNAPSHOT",
            "NAME",
            "TAKEN",
            "BY",
            "FORMAT",
            "FILES",
            "SIZE",
            "NEW",
            "STAGES",
            "WHERE",
        ],
        [_row(record) for record in records],
    )


def _row(record: SnapshotRecord) -> list[str]:
    return [
        record.job_id,
        str(record.number),
        record.name or "",
        when(record.created_at),
        _taken_by(record),
        record.format.value,
        str(record.files),
        size_text(record.bytes),
        size_text(record.new_bytes),
        points(record.stages),
        record.storage or "",
    ]


def _taken_by(record: SnapshotRecord) -> str:
    by = record.taken_by.value or ("system" if record.is_systems else "user")
    if record.for_fork:
        return f"{by}, for the fork {record.for_fork}"
    return f"{by}, at the end" if record.at_end else by
