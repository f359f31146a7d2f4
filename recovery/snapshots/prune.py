"""Which snapshots are kept while a job is alive; deleting the others."""

from __future__ import annotations

from collections.abc import Callable

from jrs.contract.errors import SnapshotInUse, Unavailable
from jrs.contract.operations import Fence
from jrs.records.policies import SnapshotPolicy
from jrs.records.snapshots import SnapshotRecord

from . import delete, for_forks
from .index import SnapshotIndex


def prune(
    catalog: SnapshotIndex,
    job_id: str,
    policy: SnapshotPolicy,
    *,
    fence: Fence | None = None,
    before: Callable[[float], float] | None = None,
) -> list[SnapshotRecord]:
    """Delete the snapshots of a live job that the policy does not keep; return those deleted.

    Those that a user has taken stay. Those that forks take for themselves do not count, and go once
    their forks have died. Idempotent. Snapshots in use stay until the next call.

    Args:
        before: returns the moment before which things are older than so many seconds; by default
            by the clock of this host.

    Raises:
        Fenced: a newer leader exists.
        Unavailable: from the backend or the disk; repeat it.
    """

    def until(age: float) -> float:
        return catalog.now() - age if before is None else before(age)

    listed = catalog.list(job_id)
    known = [each for each in listed if each.is_systems and not each.for_fork]
    doomed = known[: -policy.keep] if policy.keep is not None else []
    if policy.max_age is not None:
        eldest = until(policy.max_age)
        doomed += [each for each in known if each.created_at < eldest and each not in doomed]
    doomed += for_forks.needless(catalog.backend, listed, until(for_forks.PATIENCE))
    entries = delete.Entries.of(catalog.backend, doomed)
    gone = []
    away: Unavailable | None = None
    for record in doomed:
        try:
            delete.delete(catalog, job_id, record.number, fence, entries)
        except SnapshotInUse:
            continue
        except Unavailable as error:
            away = error  # One storage may not be mounted: delete the others all the same.
            continue
        gone.append(record)
    if away is not None:
        raise away
    return gone
