"""Policies: how a job's spec controls its restarts and its snapshots."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from typing import Any

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.inputs import member_of
from jrs.contract.texts import shown
from jrs.records.snapshots import SnapshotFormat
from jrs.records.stored import Stored

MOST = 2**31 - 1
"""The largest count: the largest int of the JVM."""
MOST_PARTITIONS = 1 << 15
"""Most partitions of a stream's state. Each is a folder, and a task of every batch."""
LONGEST = int(threading.TIMEOUT_MAX)
"""The longest wait of the operating system, in seconds: 292 years."""


def seconds(instance: object, attribute: attrs.Attribute[Any], value: float) -> None:
    """Validate a field that is a number of seconds."""
    check_seconds(attribute.name, value)


def check_seconds(name: str, value: object) -> None:
    """Raise `InvalidInput` unless `value` is a number of seconds, from 0 to `LONGEST`."""
    if type(value) not in (int, float) or not 0 <= value <= LONGEST:  # type: ignore[operator]
        raise InvalidInput(
            f"{name} must be a number of seconds, at most {LONGEST}, not {shown(value)}"
        )


def check_count(name: str, value: object, most: int = MOST, *, least: int = 1) -> None:
    """Raise `InvalidInput` unless `value` is a whole number from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(
            f"{name} must be a whole number from {least} to {most}, not {shown(value)}"
        )


def count(most: int = MOST) -> Callable[[object, attrs.Attribute[Any], int], None]:
    """Return the validator of a field that holds a whole number from 1 to `most`."""

    def check(instance: object, attribute: attrs.Attribute[Any], value: int) -> None:
        check_count(attribute.name, value, most)

    return check


_LONG = 600.0
"""Seconds, and ten times the longest delay, after which a run that got on has recovered."""


@attrs.frozen
class RestartPolicy(Stored):
    """How often a job is started again after it died without a result.

    Attempts that ended because their leader died are recovered and do not count. Nor do those that
    the backend, the storage or the host failed: they are tried again later. After an attempt that
    ran for ten minutes, and for ten times `max_delay`, and committed a batch or finished a stage,
    the count begins again.

    Args:
        attempts: total attempts before the job is FAILED.
        delay: seconds before the second attempt; doubled before each further attempt.
        max_delay: the longest delay, in seconds.
        on_exception: whether a job whose function raised is started again too, instead of being
            FAILED.

    Raises:
        InvalidInput: a value is not a valid count or number of seconds.
    """

    attempts: int = attrs.field(default=3, validator=count())
    delay: float = attrs.field(default=1.0, validator=seconds)
    max_delay: float = attrs.field(default=60.0, validator=seconds)
    on_exception: bool = False

    def deaths_after(self, before: int, ran: float, *, got_on: bool) -> int:
        """Return the number of deaths after one more: 1 if that run had recovered from the others.

        Args:
            before: the deaths before it.
            ran: the seconds that it ran.
            got_on: whether it committed a batch, or finished a stage.
        """
        return 1 if got_on and self.is_long(ran) else before + 1

    def is_long(self, ran: float) -> bool:
        """Return whether the count of deaths may begin again after a run of so many seconds."""
        return ran >= max(_LONG, 10 * self.max_delay)

    def delay_after(self, deaths: int) -> float:
        """Return the seconds from the latest of `deaths` deaths to the next start."""
        # The exponent is bounded because 2.0**1024 overflows.
        return min(self.delay * 2.0 ** min(deaths - 1, 64), self.max_delay)


class Keep(enum.StrEnum):
    """What happens when the job ends to the snapshots that jrs took by itself."""

    KEEP = "keep"
    """They stay listed. The cleanup takes another one, of the job's end, so that the job can be
    retried."""
    DELETE = "delete"


def _keep(value: Keep | str) -> Keep:
    return member_of(Keep, value, "the policy for snapshots")


def _format(value: SnapshotFormat | str) -> SnapshotFormat:
    found = member_of(SnapshotFormat, value, "the format of a job's snapshots")
    if not found.is_restorable:
        raise InvalidInput(f"the format of a job's snapshots is link, full or cas, not {found}")
    return found


@attrs.frozen
class SnapshotPolicy(Stored):
    """When jrs takes snapshots of a job by itself, in which format, and how long it keeps them.

    jrs never deletes what a user has taken. Until the job ends, the newest snapshot that it could
    resume from is kept, whatever its age. Old snapshots are deleted when another one is taken.

    Args:
        every: seconds between two snapshots while the job runs. With None, jrs takes snapshots only
            at a stop. No snapshot is taken if nothing was committed since the newest one.
        keep: most snapshots to keep; None for any number.
        max_age: seconds after which a snapshot is deleted; None for never.
        on_finished: what happens to the snapshots that jrs took, once the job is FINISHED.
        on_failed: the same, once the job is FAILED.
        on_canceled: the same, once the job is CANCELED.
        format: of all snapshots of the job for which none is named.

    Raises:
        InvalidInput: a value is not a valid number, `Keep` or format.
    """

    every: float | None = attrs.field(default=None, validator=attrs.validators.optional(seconds))
    keep: int | None = attrs.field(
        default=3,
        validator=attrs.validators.optional(count()),  # type: ignore[arg-type]
    )
    max_age: float | None = attrs.field(default=None, validator=attrs.validators.optional(seconds))
    on_finished: Keep = attrs.field(default=Keep.DELETE, converter=_keep)
    on_failed: Keep = attrs.field(default=Keep.KEEP, converter=_keep)
    on_canceled: Keep = attrs.field(default=Keep.KEEP, converter=_keep)
    format: SnapshotFormat = attrs.field(default=SnapshotFormat.LINK, converter=_format)
