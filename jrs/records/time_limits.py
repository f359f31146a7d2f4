"""TimeLimits: how long a job, its attempts and its stages may run."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.inputs import member_of
from jrs.contract.texts import shown
from jrs.records.policies import LONGEST
from jrs.records.stored import Stored


class OnTimeout(enum.StrEnum):
    """What becomes of a job whose time is up."""

    FAIL = "fail"
    """It ends FAILED; the failure's kind is ``timeout``."""
    RESTART = "restart"
    """Its attempt ends as a death, and the restart policy decides."""


def _limit(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_limit(f"the {attribute.name}'s time limit", value)


def check_limit(name: str, value: object) -> None:
    """Raise `InvalidInput` unless `value` is None or a positive number of seconds."""
    if value is not None and (type(value) not in (int, float) or not 0 < value <= LONGEST):  # type: ignore[operator]
        raise InvalidInput(f"{name} must be a number of seconds above 0, not {shown(value)}")


def _then(value: OnTimeout | str) -> OnTimeout:
    return member_of(OnTimeout, value, "what happens at a time-out")


@attrs.frozen
class TimeLimits(Stored):
    """How long a job may run. The time in which no attempt runs does not count.

    The leader computes the time from stored records, so that a failover does not begin it again. It
    may be wrong by up to 30 seconds for each leader that died.

    Args:
        job: seconds over all attempts; None for any time.
        attempt: seconds of each attempt; None for any time.
        then: what happens at the end of one of these limits, or of a stage's. After a restart the
            job has its whole time again.

    Raises:
        InvalidInput: a limit is not a number of seconds above 0, or `then` is not an
            `OnTimeout`.
    """

    job: float | None = attrs.field(default=None, validator=_limit)
    attempt: float | None = attrs.field(default=None, validator=_limit)
    then: OnTimeout = attrs.field(default=OnTimeout.FAIL, converter=_then)

    @property
    def any(self) -> bool:
        """Whether the leader has to measure the job's time."""
        return self.job is not None or self.attempt is not None


def limits_of(value: TimeLimits | float | None) -> TimeLimits:
    """Return the limits that a caller gave: a number of seconds limits the whole job."""
    if isinstance(value, TimeLimits):
        return value
    return TimeLimits(job=value)
