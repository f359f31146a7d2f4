"""What a job's spec says of its restarts and of its snapshots."""

from __future__ import annotations

import enum
import math
from typing import Any

import attrs

from jrs.errors import InvalidInput
from jrs.stored import Stored
from jrs.texts import shown


def seconds(instance: object, attribute: attrs.Attribute[Any], value: float) -> None:
    """Validate a field that is a number of seconds."""
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise InvalidInput(f"{attribute.name} must be a number of seconds, not {shown(value)}")


def at_least_one(instance: object, attribute: attrs.Attribute[Any], value: int) -> None:
    """Validate a field that counts."""
    if type(value) is not int or value < 1:
        raise InvalidInput(
            f"{attribute.name} must be a whole number of at least 1, not {shown(value)}"
        )


@attrs.frozen
class RestartPolicy(Stored):
    """How often a job is started again after it died without a result.

    Attempts that ended because their leader did are recovered and do not count.
    """

    attempts: int = attrs.field(default=3, validator=at_least_one)
    """Attempts in all before the job is FAILED."""
    delay: float = attrs.field(default=1.0, validator=seconds)
    """Seconds before the second attempt; doubled for each further one."""
    max_delay: float = attrs.field(default=60.0, validator=seconds)
    on_exception: bool = False
    """Whether a job whose function raised is started again too, instead of being FAILED."""

    def delay_after(self, deaths: int) -> float:
        """Return the seconds from the latest of so many deaths to the next start."""
        # The exponent is bounded because 2.0**1024 is no float.
        return min(self.delay * 2.0 ** min(deaths - 1, 64), self.max_delay)


class Keep(enum.Enum):
    """What becomes of a job's snapshots when it ends."""

    KEEP = "keep"
    """They stay listed, until somebody deletes them."""
    DELETE = "delete"


def _keep(value: Keep | str) -> Keep:
    for each in Keep:
        if value in (each, each.value):
            return each
    raise InvalidInput(f"what becomes of snapshots is keep or delete, not {shown(value)}")


@attrs.frozen
class SnapshotPolicy(Stored):
    """When snapshots of a job's streams are taken, and how long they are kept.

    While the job goes on, those that somebody has named are kept, and so is the newest one that it
    could go on from, whatever its age. Old ones are deleted when another one is taken.
    """

    every: float | None = attrs.field(default=None, validator=attrs.validators.optional(seconds))
    """Seconds between two while the job runs; None for none but those at a stop."""
    keep: int | None = attrs.field(
        default=3,
        validator=attrs.validators.optional(at_least_one),  # type: ignore[arg-type]
    )
    """The most to keep; None for any number."""
    max_age: float | None = attrs.field(default=None, validator=attrs.validators.optional(seconds))
    """Seconds after which one is deleted; None for never."""
    on_finished: Keep = attrs.field(default=Keep.DELETE, converter=_keep)
    on_failed: Keep = attrs.field(default=Keep.KEEP, converter=_keep)
    on_canceled: Keep = attrs.field(default=Keep.KEEP, converter=_keep)
