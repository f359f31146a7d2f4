"""Time: deadlines on the monotonic clock, and the injected sources of both clocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import attrs

from jrs.errors import InvalidInput
from jrs.texts import shown

Clock = Callable[[], float]
"""Returns seconds. ``time.monotonic`` for durations, ``time.time`` for stamps that people read."""


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

    def bounded(self) -> float:
        """Return `remaining` in the range that the operating system's waits accept."""
        return min(self.remaining(), threading.TIMEOUT_MAX)
