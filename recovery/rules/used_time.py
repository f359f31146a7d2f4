"""The time that a job has used of its limits, computed from its stored attempt. Pure.

A leader brings the stored time up to date once in every interval while an attempt runs. So after a
leader's death at most one interval is unknown, and it counts as used.
"""

from __future__ import annotations

import attrs

from jrs.records.model import AttemptRecord, JobSpec
from jrs.records.time_limits import OnTimeout, TimeLimits

TIMEOUT = "timeout"
"""The kind of a failure by a time limit."""

_LONGEST = 30.0
_SHORTEST = 1.0
_SHARE = 0.1
"""An interval is this share of the job's limit, in seconds within these bounds."""


def interval(limits: TimeLimits) -> float | None:
    """Return the seconds between two updates of the stored time; None if it is not needed."""
    if limits.job is None:
        return None
    return min(_LONGEST, max(_SHORTEST, limits.job * _SHARE))


def used(record: AttemptRecord | None, limits: TimeLimits, now: float) -> float:
    """Return the seconds that the job has run at the time `now`."""
    every = interval(limits)
    if record is None or every is None:
        return 0.0
    if not record.counted_at:
        return record.used
    return record.used + min(every, max(0.0, now - record.counted_at))


def is_final(record: AttemptRecord | None, spec: JobSpec) -> bool:
    """Return whether the job has to end FAILED because a time limit has passed."""
    failure = None if record is None else record.failure
    return spec.timeout.then is OnTimeout.FAIL and failure is not None and failure.kind == TIMEOUT


def left(limits: TimeLimits, used_before: float) -> float | None:
    """Return how long an attempt may run; None for any time.

    Args:
        used_before: the seconds that the job had run before the attempt.
    """
    of_job = None if limits.job is None else max(0.0, limits.job - used_before)
    return min((one for one in (of_job, limits.attempt) if one is not None), default=None)


@attrs.frozen
class Passed:
    """A time limit that has passed."""

    said: str
    """Which one, for people."""
    of_job: bool
    """Whether it is that of all attempts together."""


def passed(limits: TimeLimits, used_before: float, ran: float) -> Passed | None:
    """Return which limit has passed, if any.

    Args:
        used_before: the seconds that the job had run before its attempt.
        ran: the seconds that the attempt has run; 0 if none runs.
    """
    if limits.job is not None and used_before + ran >= limits.job:
        return Passed(f"the job has run for longer than {limits.job:g} s", of_job=True)
    if limits.attempt is not None and ran >= limits.attempt:
        return Passed(f"its attempt has run for longer than {limits.attempt:g} s", of_job=False)
    return None
