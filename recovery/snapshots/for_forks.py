"""Snapshots that forks take for themselves: each names the job that its fork makes of it.

The restore that completes a fork uses its snapshot up. A fork that dies before it has stored its
restore leaves the snapshot behind, and nothing but its age tells that from a fork at work.
"""

from __future__ import annotations

from collections.abc import Iterable

from jrs.contract.backend import Backend
from jrs.records.snapshots import SnapshotRecord
from jrs.store import restores

PATIENCE = 86400.0
"""Seconds within which a fork stores its restore, or has died."""


def needless(
    backend: Backend, known: Iterable[SnapshotRecord], until: float
) -> list[SnapshotRecord]:
    """Return which snapshots were taken for a fork, until a moment, and are not needed: no restore
    has begun from them.

    Raises:
        CorruptRecord: what restores have begun cannot be read.
    """
    ours = [one for one in known if one.for_fork and one.created_at <= until]
    if not ours:
        return []
    begun = {(restore.from_job, restore.source) for restore in restores.begun(backend)}
    return [one for one in ours if (one.job_id, str(one.number)) not in begun]
