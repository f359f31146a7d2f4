"""Taking over the files of a job that an earlier leader has run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, Fenced, JobHeld, Unavailable
from jrs.contract.operations import Fence
from jrs.contract.whole_scan import scan_whole
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import StageRecord
from jrs.store import heads

from ..checkpoint_format.links import link_checkpoint
from ..files import batch_folders, epoch_folders
from ..files.job_folders import JobStorage
from .moved_storage import relocate_streams


def take_over(backend: Backend, storage: JobStorage, job_id: str, fence: Fence) -> Path:
    """Put the job's newest epoch folder in place as this leader's; return it.

    The job's earlier attempts must be shut out (see `jrs.store.attempt_fence`): staging that no
    record names is deleted. What they have committed is published first. Durable and idempotent;
    raises as `JobStorage.take_over`.

    Raises:
        JobHeld: it is not known which rows of a stream count. The files were taken over.
    """
    problem = _publish_committed(backend, storage, job_id)
    if problem is not None or not epoch_folders.are_renewed(backend):
        # All staging is kept: it may have the rows of a batch that was committed.
        taken = storage.take_over(job_id, fence.epoch)
    else:
        staged = _staged(backend, job_id)
        taken = storage.take_over(
            job_id, fence.epoch, staged=staged, link_checkpoint=link_checkpoint
        )
    relocate_streams(backend, storage, job_id, taken, fence)
    if problem is not None:
        raise problem
    return taken


def publish_finished(backend: Backend, storage: JobStorage, job_id: str, fence: Fence) -> None:
    """Publish the output of finished stages whose attempt ended before it did so, of a job that
    ends here; its files must have been taken over. Idempotent. The next attempt of a job that
    resumes does the same.

    What the job publishes at a path of its user's own is left out: nothing there may keep a job
    from ending.

    Raises:
        Unavailable: the disk is full, or a similar error; the call may be repeated.
        Fenced: a newer leader has taken the files over.
    """
    folder = storage.epoch_folder(job_id, fence.epoch)
    for stored in backend.scan(keys.stages(job_id)):
        with suppress(CorruptRecord):  # A record that cannot be read keeps no job from ending.
            record = decode(StageRecord, stored.value, stored.key)
            if record.published is None or record.target is not None:
                continue
            if not (folder / record.published).is_dir():
                continue
            try:
                storage.publish(record, fence.epoch)
            except Fenced as error:
                if not backend.is_current(fence):
                    raise
                raise Unavailable(str(error)) from error  # Another process has moved its files.


def _publish_committed(backend: Backend, storage: JobStorage, job_id: str) -> JobHeld | None:
    """Publish the batches that the heads name and whose attempt died before it published them.

    Returns why it is not known which rows count, for one of the stages.
    """
    found = epoch_folders.of_job(storage.folder(job_id))
    problem: JobHeld | None = None
    if not found:
        return None
    for head in heads.of_job(backend, job_id):
        if isinstance(head, CorruptRecord):
            problem = JobHeld(f"{head}; restore the job from a snapshot")
            continue
        staged = found[max(found)] / "streams" / head.stage / "staging" / head.folder
        if not head.folder or not staged.is_dir():
            continue
        output = storage.published(job_id, head.stage, temporary=False)
        try:
            storage.make_folder(output)
            batch_folders.publish(staged, output, head.stage, head.batch)
        except JobHeld as error:
            problem = error
        except OSError as error:
            raise Unavailable(f"a batch of job {job_id!r} cannot be published: {error}") from error
    return problem


def _staged(backend: Backend, job_id: str) -> set[str] | None:
    """Return the staging folders that the records of finished stages name; None if one of them
    cannot be read, or may be lost."""
    try:
        records = [
            decode(StageRecord, stored.value, stored.key)
            for stored in scan_whole(backend, keys.stages(job_id))
        ]
    except CorruptRecord:
        return None
    return {record.published for record in records if record.published is not None}
