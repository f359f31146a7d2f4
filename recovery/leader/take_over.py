"""Taking over the files of a job that an earlier leader has run."""

from __future__ import annotations

from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Fence
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import StageRecord

from ..checkpoint_format.links import link_checkpoint
from ..files import epoch_folders
from ..files.job_folders import JobStorage


def take_over(backend: Backend, storage: JobStorage, job_id: str, fence: Fence) -> Path:
    """Put the job's newest epoch folder in place as this leader's; return it.

    The job's earlier attempts must be shut out (see `jrs.store.attempt_fence`): staging that no
    record names is deleted. Durable and idempotent; raises as `JobStorage.take_over`.
    """
    if not epoch_folders.are_renewed(backend):
        return storage.take_over(job_id, fence.epoch)
    return storage.take_over(
        job_id,
        fence.epoch,
        staged=_staged(backend, job_id),
        link_checkpoint=link_checkpoint,
    )


def _staged(backend: Backend, job_id: str) -> set[str] | None:
    """Return the staging folders that the records of finished stages name; None if one of them
    cannot be read."""
    try:
        records = [
            decode(StageRecord, stored.value, stored.key)
            for stored in backend.scan(keys.stages(job_id))
        ]
    except CorruptRecord:
        return None
    return {record.published for record in records if record.published is not None}
