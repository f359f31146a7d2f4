"""Relocating the streams of a job whose storage was moved, or is named by another path now.

The logs of file sources and file sinks hold absolute paths, and so do the links of closed inputs to
the output of other jobs. Spark would not find its files again, or read them as new ones.

The note of the root changes last, and each step can be repeated, so that the next take-over
completes what a death interrupted. Snapshots may share a log by a hard link: logs are replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jrs.contract.errors import Unavailable

from ..checkpoint_format import file_logs, relocation
from ..checkpoint_format.sink_log import sink_logs
from ..checkpoint_format.unreadable import UnreadableCheckpoint
from ..files import written_root
from ..files.job_folders import JobStorage
from ..files.safe_listing import is_file, names_in, walk
from ..files.sync import sync

_CLOSED = "(.+)/{job}/in/{stage}/[0-9a-f]{{16}}/"
"""A file of a closed input, below the root of a storage."""


def relocate_streams(storage: JobStorage, job_id: str, epoch: Path) -> None:
    """Make the logs and links of a job's streams name files below the present root.

    The epoch's folder is this leader's, and nothing of the job runs. Durable and idempotent.

    Raises:
        Unavailable: a file cannot be read or replaced now; the call may be repeated.
    """
    for stage in names_in(epoch / "streams"):
        stream = epoch / "streams" / stage
        if not stream.is_dir():
            continue
        try:
            before = written_root.noted(stream)
            if before == storage.root:
                continue
            known = {before} if before is not None else set(_roots_in_logs(stream, job_id))
            for old in known - {storage.root}:
                _relocate(storage, job_id, stream, old)
            written_root.note(stream, storage.root)
        except OSError as error:
            raise Unavailable(
                f"the files of job {job_id!r}, stage {stage!r}, cannot be relocated to "
                f"{storage.root}: {error}"
            ) from error


# -- inside --------------------------------------------------------------------------------


def _roots_in_logs(stream: Path, job_id: str) -> Iterator[Path]:
    """Yield the roots below which the logs of a stream name the files of its closed inputs."""
    closed = re.compile(_CLOSED.format(job=re.escape(job_id), stage=re.escape(stream.name)))
    for log in _source_logs(stream):
        with suppress(UnreadableCheckpoint):  # The attempt finds it damaged.
            for file in file_logs.read_source(log).named:
                if file.is_local and (match := closed.match(file.path)):
                    yield Path(match[1])


def _relocate(storage: JobStorage, job_id: str, stream: Path, old: Path) -> None:
    job, new = storage.folder(job_id), str(storage.root)
    logs = [*_source_logs(stream)]
    for parent in ("out", "tmp"):
        for log in sink_logs(job / parent / stream.name):
            logs += file_logs.files_of(log)
    for log in logs:
        with suppress(UnreadableCheckpoint):  # As above, and readers of the table name it.
            relocation.relocate(log, str(old / job_id), str(job))
    folders = {log.parent for log in logs}
    for folder, _, others in walk(job / "in" / stream.name, missing_ok=True):
        for link in (folder / name for name in others):
            if link.is_symlink() and _move(link, str(old), new):
                folders.add(folder)
    for folder in folders:
        sync(folder)


def _move(link: Path, old: str, new: str) -> bool:
    """Make a link lead below `new` if it leads below `old`; return whether it does."""
    leads_to = os.readlink(link)
    moved = relocation.moved_path(leads_to, old, new)
    if moved == leads_to:
        return False
    half = link.with_name(f".{link.name}.half")
    half.unlink(missing_ok=True)
    half.symlink_to(moved)
    os.replace(half, link)
    return True


def _source_logs(stream: Path) -> Iterator[Path]:
    # Besides `ck`, a death may have left a rescaled checkpoint that is not in place yet.
    for checkpoint in names_in(stream):
        sources = stream / checkpoint / "sources"
        for source in names_in(sources):
            # A source of another kind may keep folders there.
            yield from filter(is_file, file_logs.files_of(sources / source))
