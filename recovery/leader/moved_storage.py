"""Relocating the streams of a job whose storage was moved, or is named by another path now.

The logs of file sources and file sinks hold absolute paths, and so do the links of closed inputs to
the output of other jobs. Spark would not find its files again, or read them as new ones. Records of
a stream hold some of its logs as well: its plan has their texts, and its head has a digest.

The records change first, since they are compared with the logs as they are. The note of the root
changes last, and each step can be repeated, so that the next take-over completes what a death
interrupted. Snapshots may share a log by a hard link: logs are replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, CorruptRecord, Unavailable
from jrs.contract.operations import Fence, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.heads import StreamPlan
from jrs.store import heads

from ..checkpoint_format import file_logs, relocation
from ..checkpoint_format.position import input_digest
from ..checkpoint_format.sink_log import sink_logs
from ..checkpoint_format.unreadable import UnreadableCheckpoint
from ..files import written_root
from ..files.job_folders import JobStorage
from ..files.safe_listing import is_file, names_in, walk
from ..files.sync import sync

_CLOSED = "(.+)/{job}/in/{stage}/[0-9a-f]{{16}}/"
"""A file of a closed input, below the root of a storage."""

_Moved = Callable[[Path, bytes], str]
"""Returns what becomes of an entry of a source's log."""


def relocate_streams(
    backend: Backend, storage: JobStorage, job_id: str, epoch: Path, fence: Fence
) -> None:
    """Make the logs and links of a job's streams, and their records, name files below the present
    root.

    The epoch's folder is this leader's, and nothing of the job runs. Durable and idempotent.

    Raises:
        Fenced: a newer leader exists.
        Unavailable, OutcomeUnknown: a file cannot be read or replaced now, or a record; the call
            may be repeated.
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
                _relocate_records(backend, storage.folder(job_id), stream, old, fence)
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


def _relocate_records(backend: Backend, job: Path, stream: Path, old: Path, fence: Fence) -> None:
    """Make the records of a stream have its logs as they will be."""

    def moved(log: Path, data: bytes) -> str:
        return relocation.relocated_source(data, log, str(old / job.name), str(job))

    ops = [*_of_plan(backend, job.name, stream, moved), *_of_head(backend, job.name, stream, moved)]
    if not ops:
        return
    try:
        backend.commit(*ops, fence=fence)
    except Conflict as error:  # A restore has just begun.
        raise Unavailable(f"the records of {job}, stage {stream.name!r}, change: {error}") from None


def _of_plan(backend: Backend, job_id: str, stream: Path, moved: _Moved) -> Iterator[Update]:
    with suppress(CorruptRecord):  # The attempt holds the job for it.
        stored = backend.get(keys.plan(job_id, stream.name))
        if stored is None:
            return
        plan = decode(StreamPlan, stored.value, stored.key)
        files = dict(plan.files)
        for name, text in files.items():
            log = stream / "ck" / name
            with suppress(UnreadableCheckpoint):  # So it was when the function was called.
                if relocation.has_paths(log.relative_to(stream.parents[1]).as_posix()):
                    files[name] = moved(log, text.encode())
        if files != plan.files:
            yield Update(stored.key, encode(attrs.evolve(plan, files=files)), stored.version)


def _of_head(backend: Backend, job_id: str, stream: Path, moved: _Moved) -> Iterator[Update]:
    with suppress(CorruptRecord, UnreadableCheckpoint):  # As above.
        found = heads.stored(backend, job_id, stream.name)
        if found is None:
            return
        (head, stored), checkpoint = found, stream / "ck"
        if not head.plan or head.plan != input_digest(checkpoint, head.batch):
            return  # It is of a checkpoint that is gone, or was changed already.
        plan = input_digest(
            checkpoint, head.batch, lambda log: moved(log, log.read_bytes()).encode()
        )
        if plan != head.plan:
            yield Update(stored.key, encode(attrs.evolve(head, plan=plan)), stored.version)


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
