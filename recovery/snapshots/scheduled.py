"""Scheduled snapshots: those that jrs takes by itself, as a job's policy requests."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import attrs

from jrs.contract.errors import CorruptRecord, JrsError
from jrs.contract.operations import Fence
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, StreamRecord
from jrs.records.policies import SnapshotPolicy
from jrs.records.snapshots import Manifest, TakenBy

from ..checkpoint_format.checkpoint import commit_of
from ..checkpoint_format.position import position
from ..checkpoint_format.unreadable import UnreadableCheckpoint
from . import create_in_objects
from .catalog import SnapshotCatalog
from .prune import prune


@attrs.frozen
class Outcome:
    """What became of a scheduled snapshot."""

    said: str = ""
    """A message; empty if none was due."""
    why_not: str = ""
    """Why it could not be taken; empty if it was, or was not due."""


def until_scheduled_snapshot(catalog: SnapshotCatalog, job_id: str, every: float) -> float:
    """Return the seconds until the next snapshot that jrs takes by itself is due: 0 to `every`.

    The interval begins with the newest of these snapshots, or with the job's first start: not with
    a leadership, or leaders that are replaced more often would take none. It is measured by the
    clocks of several hosts; a time that is more than an interval ahead does not count.

    Raises:
        Unavailable: from the backend; the call may be repeated.
    """
    try:
        taken = [each for each in catalog.list(job_id) if each.is_systems and not each.for_fork]
        since = [each.created_at for each in taken]
        if not since:
            key = keys.ATTEMPTS + job_id
            attempt = catalog.backend.get(key)
            since = [decode(AttemptRecord, attempt.value, key).first_started_at] if attempt else []
    except CorruptRecord:
        return 0.0  # Taking the snapshot reports the problem.
    now = catalog.now()
    begin = max((at for at in since if at <= now + every), default=0.0)
    return min(max(0.0, begin + every - now), every)


def take_scheduled_snapshot(
    catalog: SnapshotCatalog,
    job_id: str,
    policy: SnapshotPolicy,
    fence: Fence,
    before: Callable[[float], float] | None = None,
) -> Outcome:
    """Take a snapshot of a job that has streams, and delete what the policy does not keep.

    The snapshot is one more recovery point and nothing depends on it, so a failure is only
    reported. No snapshot is taken at the end of a stream: nothing could resume from it, and it
    would push out the last useful one. For the same reason none is taken if nothing was committed
    since the newest one.

    Args:
        before: as that of `prune`.
    """
    streams = [
        decode(StreamRecord, stored.value, stored.key).name
        for stored in catalog.backend.scan(keys.streams(job_id))
    ]
    try:
        if not streams or any(_is_at_its_end(catalog, job_id, each, fence) for each in streams):
            return Outcome()
        if not _is_anything_new(catalog, job_id, streams, fence):
            return Outcome()
        taken = catalog.create(job_id, taken_by=TakenBy.SYSTEM, fence=fence)
    except (JrsError, OSError, ValueError) as error:
        return Outcome(f"could not be taken: {error}", str(error) or type(error).__name__)
    try:
        prune(catalog, job_id, policy, fence=fence, before=before)
    except (JrsError, OSError) as error:
        said = f"snapshot {taken.number} is taken; an older one could not be deleted: {error}"
        return Outcome(said)
    return Outcome(f"snapshot {taken.number} is taken")


def _is_at_its_end(catalog: SnapshotCatalog, job_id: str, stage: str, fence: Fence) -> bool:
    if catalog.backend.get(keys.stage(job_id, stage)) is not None:
        return False  # It has finished: a snapshot holds that mark.
    try:
        return position(catalog.storage.checkpoint(job_id, fence.epoch, stage)).at_the_end
    except UnreadableCheckpoint:
        return False  # Taking the snapshot reports the problem.


def _is_anything_new(
    catalog: SnapshotCatalog, job_id: str, streams: list[str], fence: Fence
) -> bool:
    """Return whether a batch or a stage was committed since the newest snapshot that can be
    restored."""
    known = [each for each in catalog.list(job_id) if not each.for_fork]
    newest = [each for each in known if each.format.is_restorable][-1:]
    if not newest:
        return True
    try:
        then = catalog.manifest(job_id, newest[0].number)
    except (JrsError, OSError):
        return True  # Nothing can be restored from it now.
    if catalog.storage.objects is not None:
        return create_in_objects.is_anything_new(catalog, job_id, then)
    prefix = keys.stages(job_id)
    finished = {record.key.removeprefix(prefix) for record in catalog.backend.scan(prefix)}
    recorded = {name.removeprefix(keys.STAGES) for name in then.records if _is_of_stage(name)}
    return finished != recorded or any(
        _has_committed_since(catalog, job_id, stage, fence, then) for stage in streams
    )


def _is_of_stage(record: str) -> bool:
    return record.startswith(keys.STAGES)


def _has_committed_since(
    catalog: SnapshotCatalog, job_id: str, stage: str, fence: Fence, known: Manifest
) -> bool:
    folder = catalog.storage.checkpoint(job_id, fence.epoch, stage)
    try:
        batch = position(folder).committed
    except UnreadableCheckpoint:
        return True  # Taking the snapshot reports the problem.
    if batch < 0:
        return any(each.name == stage and each.batch is not None for each in known.stages)
    with suppress(FileNotFoundError):
        # Not by its number alone: a job that was put back commits the same numbers again.
        commit = os.stat(folder / commit_of(batch))
        path = f"streams/{stage}/ck/{commit_of(batch)}"
        return (commit.st_size, commit.st_mtime_ns) not in {
            (file.size, file.mtime_ns) for file in known.files if file.path == path
        }
    return True
