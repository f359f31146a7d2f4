"""Scheduled snapshots: those that jrs takes by itself, as a job's policy requests."""

from __future__ import annotations

from jrs.contract.errors import JrsError
from jrs.contract.operations import Fence
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import StreamRecord
from jrs.records.policies import SnapshotPolicy

from ..checkpoint_format.position import position
from ..checkpoint_format.unreadable import UnreadableCheckpoint
from .catalog import SnapshotCatalog
from .retention import retain


def take_scheduled_snapshot(
    catalog: SnapshotCatalog, job_id: str, policy: SnapshotPolicy, fence: Fence
) -> str:
    """Take a snapshot of a job that has streams, and delete what the policy does not keep.

    Return the outcome as a message; an empty string if no snapshot is due. The snapshot is one more
    recovery point and nothing depends on it, so a failure is only reported. No snapshot is taken at
    the end of a stream: nothing could resume from it, and it would push out the last useful one.
    """
    streams = [
        decode(StreamRecord, stored.value, stored.key).name
        for stored in catalog.backend.scan(keys.streams(job_id))
    ]
    try:
        if not streams or any(_is_at_its_end(catalog, job_id, each, fence) for each in streams):
            return ""
        taken = catalog.create(job_id, fence=fence)
        retain(catalog, job_id, policy, fence=fence)
    except (JrsError, OSError, ValueError) as error:
        return f"could not be taken: {error}"
    return f"snapshot {taken.number} is taken"


def _is_at_its_end(catalog: SnapshotCatalog, job_id: str, stage: str, fence: Fence) -> bool:
    if catalog.backend.get(keys.stage(job_id, stage)) is not None:
        return False  # It has finished: a snapshot holds that mark.
    try:
        return position(catalog.storage.checkpoint(job_id, fence.epoch, stage)).at_the_end
    except UnreadableCheckpoint:
        return False  # Taking the snapshot reports the problem.
