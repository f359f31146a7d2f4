"""The records of a job as resources: its spec, and what it would be recovered with."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, CorruptRecord
from jrs.contract.operations import Delete, Fence, Op
from jrs.records import keys
from jrs.store import heads

from ..rules.resource import FencedResource

_ONE_FOR_EACH_STAGE = (keys.HEADS, keys.STAGES, keys.STREAMS, keys.PLANS, keys.INPUTS)
_ONE_EACH = (
    keys.ATTEMPTS,
    keys.FENCES,
    keys.REFERENCES,
    keys.CANCEL,
    keys.STOPS,
    keys.RESTORES,
)


class JobRecords(FencedResource):
    """Records of the job. If nothing else is left of it, they go with its result's marker."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        delete_records(self._backend, self.keys(job_id, fence), fence)

    @abc.abstractmethod
    def describe(self, job_id: str) -> list[str]:
        """Return the keys of the records."""

    def keys(self, job_id: str, fence: Fence | None) -> list[str]:
        """Return the keys of the records, now to be deleted.

        Raises:
            CorruptRecord: the record of a key cannot be read.
            Fenced, Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
        """
        return self.describe(job_id)

    def _stored(self, wanted: Sequence[str]) -> list[str]:
        """Return the keys that have a record; raises as `keys`."""
        found = self._backend.get_many(wanted)
        for one in found:
            if isinstance(one, CorruptRecord):
                raise one
        return [key for key, one in zip(wanted, found, strict=True) if one is not None]


class RecoveryRecords(JobRecords):
    """The records with which the job would be recovered: all but its spec."""

    name = "recovery records"
    """In every version, names of records end like this: see `KeptForRetry`."""

    def keys(self, job_id: str, fence: Fence | None) -> list[str]:
        # An interrupted restore, which ends here, may have taken batches back.
        heads.give_up_restore(self._backend, job_id, fence)
        return self.describe(job_id)

    def describe(self, job_id: str) -> list[str]:
        below = (
            record.key
            for prefix in _ONE_FOR_EACH_STAGE
            for record in self._backend.scan(f"{prefix}{job_id}/")
        )
        return [*below, *self._stored([prefix + job_id for prefix in _ONE_EACH])]


class Spec(JobRecords):
    """The job's spec. It goes last: a dirty result alone keeps the job from being started."""

    name = "jobs records"
    last = True

    def describe(self, job_id: str) -> list[str]:
        return self._stored([keys.JOBS + job_id])


def delete_records(
    backend: Backend, names: Iterable[str], fence: Fence | None, conditions: Sequence[Op] = ()
) -> None:
    """Delete records by their keys; those that are gone are no error. Durable.

    Args:
        conditions: operations of each commit.

    Raises:
        Conflict: a condition does not hold.
        CorruptRecord: a key may be damaged.
        Fenced: a newer leader exists.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    left, most = list(names), backend.capabilities.max_ops - len(conditions)
    while left:
        try:
            backend.commit(*conditions, *map(Delete, left[:most]), fence=fence)
        except Conflict as conflict:
            if conflict.op in conditions:
                raise
            left.remove(conflict.op.key)  # It is gone already.
        else:
            del left[:most]
