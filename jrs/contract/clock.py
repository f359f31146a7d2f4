"""Time: deadlines on the monotonic clock, leases on one that counts a host's sleep, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown

Clock = Callable[[], float]
"""Returns seconds. ``time.monotonic`` for durations, ``time.time`` for stamps that people read,
`lease_time` for what others judge meanwhile."""

NAP = 0.25
"""The longest wait at a time, in seconds, for a moment of `lease_time`: the kernel's timeouts stand
still while the host sleeps."""


def lease_time() -> float:
    """Return seconds on the clock by which leases are judged, the same for all processes of a host.

    Unlike ``time.monotonic`` it counts while the host sleeps: the hosts that may lead next do not
    sleep with it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@attrs.frozen
class Deadline:
    """An absolute moment on a monotonic clock, passed down through every call that may wait."""

    at: float
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Clock = time.monotonic) -> Deadline:
        """Return the moment so many seconds from now.

        Raises:
            InvalidInput: `seconds` is no number.
        """
        if not isinstance(seconds, (int, float)) or seconds != seconds:
            raise InvalidInput(f"not a number of seconds: {shown(seconds)}")
        return cls(clock() + min(seconds, threading.TIMEOUT_MAX), clock)

    def remaining(self) -> float:
        """Return the seconds left, never below zero."""
        return max(0.0, self.at - self.clock())

    @property
    def expired(self) -> bool:
        return self.clock() >= self.at

    def sooner(self, share: float) -> Deadline:
        """Return the moment at which that share of the time left is over."""
        return attrs.evolve(self, at=self.clock() + share * self.remaining())

    def bounded(self) -> float:
        """Return `remaining` in the range that the operating system's waits accept."""
        return min(self.remaining(), threading.TIMEOUT_MAX)
