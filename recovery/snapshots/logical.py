"""A logical snapshot: the rows of a job's state, which Spark exports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jrs.records.snapshots import SnapshotFile

from ..files import permissions, transfer
from ..files.safe_listing import walk
from . import folders
from .contents import Contents

ExportState = Callable[[Path, int, Path], None]
"""Writes the rows of a checkpoint's state at a batch below a folder."""


def export_stages(
    folder: Path, found: Contents, export: ExportState, progress: transfer.Progress
) -> tuple[SnapshotFile, ...]:
    """Have Spark export the state of each stage, from links that no maintenance removes."""
    files_at = folder / folders.FILES
    permissions.make(files_at)
    pinned = folder / ".pinned"
    transfer.remove(pinned)
    transfer.parents(pinned / item.path for item in found.items)
    try:
        for item in found.items:
            transfer.link_or_copy(item.source, pinned / item.path)
        for done, stage in enumerate(found.stages):
            progress(done, len(found.stages))
            if stage.batch is not None:
                export(
                    pinned / "streams" / stage.name / "ck",
                    stage.batch,
                    files_at / "state" / stage.name,
                )
    finally:
        transfer.remove(pinned)
    files = []
    for where, _, names in walk(files_at):
        for name in names:
            path = where / name
            transfer.sync(path)
            status = path.stat()
            relative = path.relative_to(files_at).as_posix()
            files.append(
                SnapshotFile(relative, status.st_size, transfer.digest(path), status.st_mtime_ns)
            )
    return tuple(files)
