"""Whether an attempt of a job got on, as the records of the job and its checkpoints tell."""

from __future__ import annotations

import os
from collections.abc import Iterator

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.heads import StreamHead
from jrs.records.model import AttemptRecord, StageRecord
from jrs.store import heads

from ..checkpoint_format.checkpoint import commit_of
from ..checkpoint_format.position import position
from ..checkpoint_format.unreadable import UnreadableCheckpoint
from ..files.job_folders import JobStorage
from ..processes.pools import side_by_side

_STORAGE = 15.0
"""Seconds for the storage; longer than a call of the backend takes."""


def got_on(backend: Backend, storage: JobStorage, record: AttemptRecord, epoch: int) -> bool:
    """Return whether a job has finished a stage or committed a batch in an attempt, as far as that
    is known.

    Args:
        epoch: of the leader, which has taken the files of the job over.

    Raises:
        Unavailable: the backend or the storage does not answer; the call may be repeated.
    """
    if _has_finished_a_stage(backend, record):
        return True

    def has_committed() -> bool:
        batches = _newest_batches(backend, storage, record.job_id, epoch)
        return any(at >= record.started_at for at in batches)

    [asked] = side_by_side("jrs-got-on", [has_committed], Deadline.after(_STORAGE))
    if asked.hangs:
        raise Unavailable(f"{storage.root} does not answer: whether job {record.job_id!r} got on")
    if asked.error is not None:
        raise asked.error
    return bool(asked.value)


def _has_finished_a_stage(backend: Backend, record: AttemptRecord) -> bool:
    for stored in backend.scan(keys.stages(record.job_id)):
        try:
            stage = decode(StageRecord, stored.value, stored.key)
        except CorruptRecord:
            continue  # The job is held, and says why.
        if (stage.epoch, stage.attempt) == (record.epoch, record.attempt):
            return True
    return False


def _newest_batches(
    backend: Backend, storage: JobStorage, job_id: str, epoch: int
) -> Iterator[float]:
    """Yield when the newest batch of each stream was committed, in seconds since 1970."""
    for head in heads.of_job(backend, job_id):
        if isinstance(head, StreamHead) and head.report is not None:
            yield head.report.at if head.report.batch == head.batch else 0.0
    if storage.objects is not None:
        return  # Its checkpoints here are copies, with times of their own.
    for stored in backend.scan(keys.streams(job_id)):
        stage = stored.key.removeprefix(keys.streams(job_id))
        folder = storage.checkpoint(job_id, epoch, stage)
        try:
            batch = position(folder).committed
            if batch >= 0:
                yield os.stat(folder / commit_of(batch)).st_mtime
        except (UnreadableCheckpoint, OSError):
            continue  # The next start finds out what it is.
