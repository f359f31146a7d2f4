"""Time: deadlines on the monotonic clock, leases on a clock that also counts a host's sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown

Clock = Callable[[], float]
"""Returns seconds. ``time.monotonic`` for durations, ``time.time`` for timestamps that people read,
`lease_time` for leases that other processes evaluate."""

NAP = 0.25
"""The longest single wait, in seconds, for a moment of `lease_time`. The kernel's timeouts do not
advance while the host sleeps."""


def lease_time() -> float:
    """Return seconds on the clock of leases, which all processes of a host share.

    Unlike ``time.monotonic``, this clock advances while the host sleeps, because the hosts that may
    lead next do not sleep with it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@attrs.frozen
class Deadline:
    """An absolute moment on a monotonic clock, passed down through every call that may wait."""

    at: float
    """Seconds, by `clock`."""
    clock: Clock = time.monotonic
    """Returns seconds; monotonic."""

    @classmethod
    def after(cls, seconds: float, clock: Clock = time.monotonic) -> Deadline:
        """Return the deadline that is `seconds` from now.

        Raises:
            InvalidInput: `seconds` is not a number.
        """
        if not isinstance(seconds, (int, float)) or seconds != seconds:
            raise InvalidInput(f"not a number of seconds: {shown(seconds)}")
        return cls(clock() + min(seconds, threading.TIMEOUT_MAX), clock)

    @classmethod
    def of_wait(cls, timeout: float | None) -> Deadline:
        """Return the deadline of a caller who waits for so many seconds; forever if it is None.
        Below zero is zero: what is left of a caller's own time may be.

        Raises:
            InvalidInput: `timeout` is not a number.
        """
        if isinstance(timeout, bool):
            raise InvalidInput(f"a timeout must be seconds, or None, not {timeout}")
        return cls.after(threading.TIMEOUT_MAX if timeout is None else timeout)

    def remaining(self) -> float:
        """Return the seconds left, never below zero."""
        return max(0.0, self.at - self.clock())

    @property
    def expired(self) -> bool:
        """Whether the moment has come."""
        return self.clock() >= self.at

    def sooner(self, share: float) -> Deadline:
        """Return the deadline after that share of the remaining time."""
        return attrs.evolve(self, at=self.clock() + share * self.remaining())

    def bounded(self) -> float:
        """Return `remaining` in the range that the operating system's waits accept."""
        return min(self.remaining(), threading.TIMEOUT_MAX)
