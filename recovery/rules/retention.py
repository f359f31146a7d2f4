"""Retention: what of a job that has ended may be removed, and when. Pure; see
`jrs.recovery.leader.retention` for the task of the leader that removes it.

Nothing of a job that has not ended is ever removed but the oldest events of its history, and no
snapshot that a user took.
"""

from __future__ import annotations

import enum
from typing import Any

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.inputs import check_is
from jrs.contract.texts import shown
from jrs.records.model import JobStatus
from jrs.records.policies import check_count

DAY = 86400.0
APART = 3600.0
"""How far clocks may be apart, in seconds, without one of them being called wrong."""
MIB = 1024 * 1024


class Kind(enum.Enum):
    """The kinds of things that retention removes, each by a policy of its own."""

    RESULTS = "results"
    """Clean results. A tombstone stays, so that the job never runs again."""
    OUTPUTS = "outputs"
    """The published output in the job's own folder; never output with a target elsewhere."""
    SNAPSHOTS = "snapshots"
    LOGS = "logs"
    HISTORY = "history"
    """The oldest events of jobs that have not ended. The history of the others goes with their
    results."""


@attrs.frozen
class CleanJob:
    """A job that has ended and is cleaned up."""

    job_id: str
    status: JobStatus
    finished_at: float
    """Seconds since 1970; 0 if unknown."""


@attrs.frozen
class Now:
    """The present, in seconds since 1970."""

    here: float
    """By the clock of this host."""
    confirmed: float
    """As far as other clocks confirm it; see `jrs.recovery.leader.age_clock`."""

    def before(self, age: float) -> float:
        """Return the moment before which things are older than so many seconds. This host's clock
        is enough for ages up to `APART`: it does no more harm than that."""
        return (self.here if age <= APART else min(self.here, self.confirmed)) - age


@attrs.frozen
class LogLimits:
    """The bytes of logs that are kept.

    Raises:
        InvalidInput: one of them is not a whole number from 1 up.
    """

    stream: int = 16 * MIB
    """Of one stream, stdout or stderr, of one attempt: its beginning and its newest parts."""
    job: int = 64 * MIB
    """Of all attempts of one job; the oldest attempts' logs go first."""
    cluster: int = 4096 * MIB
    """Of all jobs; the logs of the jobs that ended first go first."""

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(LogLimits):
            check_count(f"the limit of logs per {field.name}", getattr(self, field.name), 2**62)

    @property
    def room_in_job(self) -> int:
        """The bytes that earlier attempts may keep when another one starts."""
        return max(0, self.job - 2 * self.stream)


def _age(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if type(value) not in (int, float) or not 0 <= value < float("inf"):  # type: ignore[operator]
        raise InvalidInput(f"{attribute.name} must be a number of seconds, not {shown(value)}")


@attrs.frozen(kw_only=True)
class RetentionPolicy:
    """How long a leader keeps what jobs that have ended left, in seconds after the job's end.

    None keeps it forever, and 0 removes it as soon as the job is cleaned up. By default only logs
    are removed.

    Args:
        results: results; a tombstone stays, so that the job never runs again.
        outputs: published output in the jobs' own folders.
        snapshots: snapshots that jrs took.
        logs: logs of jobs that are FINISHED or CANCELED.
        failed_logs: logs of jobs that FAILED.
        history: events of the history of a job that has not ended, by their own age; the newest
            one stays. The history of a job that has ended goes with its result.
        limits: the bytes of logs.

    Raises:
        InvalidInput: an age is not a number of seconds.

    Example::

        jrs.Master(backend, url=url, retention=jrs.RetentionPolicy(results=30 * 86400))
    """

    results: float | None = attrs.field(default=None, validator=_age)
    outputs: float | None = attrs.field(default=None, validator=_age)
    snapshots: float | None = attrs.field(default=None, validator=_age)
    """Snapshots that jrs took."""
    logs: float | None = attrs.field(default=3 * DAY, validator=_age)
    failed_logs: float | None = attrs.field(default=30 * DAY, validator=_age)
    history: float | None = attrs.field(default=None, validator=_age)
    limits: LogLimits = attrs.field(factory=LogLimits)

    def __attrs_post_init__(self) -> None:
        check_is(self.limits, "limits", LogLimits)


def age_of(policy: RetentionPolicy, kind: Kind, status: JobStatus) -> float | None:
    """Return the seconds for which a thing of an ended job is kept; None: forever."""
    if kind is Kind.LOGS:
        return policy.failed_logs if status is JobStatus.FAILED else policy.logs
    kept: float | None = getattr(policy, kind.value)
    return kept


def is_due(policy: RetentionPolicy, kind: Kind, job: CleanJob, now: Now) -> bool:
    """Return whether a thing of an ended job may be removed for its age, if that is known."""
    age = age_of(policy, kind, job.status)
    return age is not None and 0.0 < job.finished_at <= now.before(age)


def shortest_age(policy: RetentionPolicy) -> float | None:
    """Return the shortest age; None if nothing is ever removed for its age."""
    ages = [getattr(policy, field.name) for field in attrs.fields(RetentionPolicy)]
    return min((age for age in ages if isinstance(age, float | int)), default=None)
