"""Lineage: which job a job was made from, and which jobs were made from it."""

from __future__ import annotations

import enum

import attrs

from jrs.records.checks import a_job_id
from jrs.records.stored import Stored


class LineageKind(enum.StrEnum):
    """How a job was made from another one."""

    RETRY = "retry"
    """It runs again what the other job has not finished."""
    FORK = "fork"
    """It continues next to the other job, with queries of its own."""
    RESTORE = "restore"
    """It continues from a snapshot of the other job, in its place."""


@attrs.frozen
class Lineage(Stored):
    """The job that a job was made from, in the new job's spec."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the other job."""
    how: LineageKind
    """How the new job was made from it."""
    snapshot: int
    """The number of the other job's snapshot that the new job began with."""
    from_stage: str = ""
    """The stage that a retry runs again, with all that come after it; empty: what had finished was
    taken over."""

    def __str__(self) -> str:
        again = f", again from stage {self.from_stage}" if self.from_stage else ""
        return f"{self.how.value} of job {self.job_id!r}, from snapshot {self.snapshot}{again}"


@attrs.frozen
class Descendant(Stored):
    """A job that was made from another one, recorded with the other one."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job that it was made from."""
    descendant: str = attrs.field(validator=a_job_id)
    """The id of the new job."""
    how: LineageKind
    """How it was made."""
    at: float = 0.0
    """When it was made: seconds since 1970."""
