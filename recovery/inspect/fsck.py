"""fsck: damage, records that cannot be read, and left-overs without an owner. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import (
    AttemptRecord,
    CancelRequest,
    CleanupJournal,
    EpochRecord,
    FormatRecord,
    JobResult,
    JobSpec,
    MasterInfo,
    StageRecord,
    StopRecord,
    StreamRecord,
    Tombstone,
)
from jrs.records.snapshots import RestoreRecord, SnapshotRecord
from jrs.store import attempt_fence, restores

from ..cleanup.half_published import HalfPublished
from ..files.job_folders import JobStorage
from ..snapshots import find_orphans

_KINDS: dict[str, type] = {
    keys.JOBS: JobSpec,
    keys.RESULTS: JobResult,
    keys.TOMBSTONES: Tombstone,
    keys.ATTEMPTS: AttemptRecord,
    keys.STAGES: StageRecord,
    keys.STREAMS: StreamRecord,
    keys.STOPS: StopRecord,
    keys.CANCEL: CancelRequest,
    keys.CLEANUP: CleanupJournal,
    keys.MASTERS: MasterInfo,
    keys.FORMAT: FormatRecord,
    keys.SNAPSHOTS: SnapshotRecord,
    keys.RESTORES: RestoreRecord,
}


@attrs.frozen
class FsckReport:
    """What is wrong with a cluster, one line for each thing."""

    damaged: tuple[str, ...]
    """Damage of the backend, and records that cannot be read."""
    left_over: tuple[str, ...]
    """Records, files and folders without an owner."""


def fsck(backend: Backend, folders: JobStorage | None) -> FsckReport:
    """Check the whole cluster; change nothing.

    Args:
        folders: where jobs keep their files; without it, only records are checked.
    """
    damaged = list(backend.check())
    left: list[str] = []
    try:
        damaged += unreadable(backend)
        left += left_over(backend, folders)
    except CorruptRecord as error:
        if not damaged:
            damaged.append(str(error))
    return FsckReport(tuple(damaged), tuple(left))


def unreadable(backend: Backend) -> Iterator[str]:
    """Yield the records that cannot be read, one line each."""
    epoch = backend.get(keys.EPOCH)
    if epoch is not None:
        yield from _problem(EpochRecord, epoch.value, epoch.key)
    for prefix, kind in _KINDS.items():
        for record in backend.scan(prefix):
            restore = kind is JobSpec and restores.took_place_of(record)
            yield from _problem(RestoreRecord if restore else kind, record.value, record.key)

    for record in backend.scan(keys.FENCES):
        try:
            attempt_fence.check(record)
        except CorruptRecord as error:
            yield str(error)


def _problem(kind: type, value: bytes, key: str) -> Iterator[str]:
    try:
        decode(kind, value, key)
    except CorruptRecord as error:
        yield str(error)


def left_over(backend: Backend, folders: JobStorage | None) -> Iterator[str]:
    """Yield what is left over without an owner, one line each.

    Args:
        folders: where jobs keep their files; without it, only records are checked.
    """

    def known(job_id: str) -> bool:
        return any(
            backend.get(prefix + job_id) for prefix in (keys.JOBS, keys.RESULTS, keys.TOMBSTONES)
        )

    for record in backend.scan(keys.DIRTY):
        if backend.get(keys.RESULTS + keys.job_of(record.key)) is None:
            yield f"{record.key}: a dirty marker without its result; its job is held"
    ended = set()
    for prefix in keys.WHILE_IT_RUNS:
        for record in backend.scan(prefix):
            job_id = keys.job_of(record.key)
            live = backend.get(keys.JOBS + job_id) or backend.get(keys.DIRTY + job_id)
            if live is None:
                ended.add(job_id)
                yield f"{record.key}: left over by a job that has ended or never was"
    for job_id in sorted(ended):
        for copy in HalfPublished(backend).describe(job_id):
            yield f"{copy}: half published by job {job_id!r}, which has ended"
    if folders is None:
        return
    yield from find_orphans(backend, folders)
    for job_id in folders.jobs():
        if not known(job_id):
            yield f"{folders.folder(job_id)}: the folder of an unknown job"
        elif not any(backend.get(prefix + job_id) for prefix in (keys.JOBS, keys.DIRTY)):
            for path in folders.left_in_staging(job_id):
                yield f"{path}: left over by a job that has ended"
