"""The order of the jobs that wait for slots: by priority, then by submission. Pure."""

from __future__ import annotations

import attrs

from jrs.records.model import JobSpec


@attrs.frozen(order=True)
class Turn:
    """A job's turn in the queue. Of two turns, the smaller one comes first."""

    rank: int
    """The job's priority, negated: the highest comes first."""
    submitted_at: float
    job_id: str
    slots: int = attrs.field(default=1, order=False)
    """How many slots the job asks for."""

    @classmethod
    def of(cls, spec: JobSpec) -> Turn:
        """Return the turn of a job."""
        return cls(-spec.priority, spec.submitted_at, spec.job_id, spec.slots)

    def needed(self, slots: int | None) -> int:
        """Return how many slots the job takes of a master that has so many; None: any number."""
        return self.slots if slots is None else min(self.slots, slots)
