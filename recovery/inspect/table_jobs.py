"""The jobs whose rows a table has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.records.checks import check_job_id
from jrs.records.model import JobStatus

LAST = "~"
"""Comes after every character of a job id."""
TERMINAL = frozenset(status for status in JobStatus if status.is_globally_terminal)
_RARE = {JobStatus.FAILED, JobStatus.CANCELED}
"""Statuses for which the index is read, and not all results."""


def _moment(text: str) -> float:
    """Return a time in seconds since 1970."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidInput(
            f"{shown(text)} is not a time with a zone, such as 2026-11-25T03:00:00+00:00"
        )
    return at.timestamp()


def _statuses(text: str) -> frozenset[JobStatus]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in set(JobStatus)]:
        raise InvalidInput(f"{shown(unknown[0])} is none of {', '.join(JobStatus)}")
    return frozenset(map(JobStatus, names))


@attrs.frozen
class Wanted:
    """The jobs whose rows a table has."""

    job: str | None = None
    """Only this job."""
    prefix: str = ""
    """Only jobs whose id begins with this."""
    statuses: frozenset[JobStatus] = frozenset(JobStatus)
    since: float | None = None
    """Only jobs that ended then or later, in seconds since 1970."""
    until: float | None = None
    """Only jobs that ended then or earlier."""
    low: str = ""
    """No job before this id: where a range begins."""
    below: str = LAST
    """Only jobs before this id: where the next range begins."""

    @classmethod
    def chosen(cls, options: Mapping[str, str]) -> Wanted:
        """Return what options choose: ``job``, ``prefix``, ``status`` (one or several, with commas
        between them), ``since`` and ``until`` (times as ISO 8601 has them, with their zone).

        Raises:
            InvalidInput: a value has the wrong form.
        """
        return cls(
            job=check_job_id(options["job"]) if "job" in options else None,
            prefix=options.get("prefix", ""),
            statuses=_statuses(options.get("status", ",".join(JobStatus))),
            since=_moment(options["since"]) if "since" in options else None,
            until=_moment(options["until"]) if "until" in options else None,
        )

    @property
    def first(self) -> str:
        """The first id that can be wanted."""
        return max(self.low, self.prefix)

    @property
    def end(self) -> str:
        """The first id that is not wanted any more."""
        return min(self.below, self.prefix + LAST)

    @property
    def is_timed(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def terminal(self) -> frozenset[JobStatus]:
        """The statuses of results that are wanted."""
        return self.statuses & TERMINAL

    @property
    def by_index(self) -> bool:
        """Whether the index of results finds the jobs that have ended."""
        return self.job is None and (self.is_timed or self.terminal <= _RARE)

    @property
    def can_be_unfinished(self) -> bool:
        return not self.is_timed and self.terminal != self.statuses

    def has(self, job_id: str, status: JobStatus | None, ended: float = 0.0) -> bool:
        """Return whether a job is wanted; one of unknown status is if each status is.

        Args:
            ended: when it ended, in seconds since 1970; 0 if it has not, or that is unknown.
        """
        if not self.first <= job_id < self.end or self.job not in (None, job_id):
            return False
        if self.since is not None and not ended >= self.since:
            return False
        if self.until is not None and not 0.0 < ended <= self.until:
            return False
        return status in self.statuses or (status is None and len(self.statuses) == len(JobStatus))
