"""Reporting now and then what a stage or a commit waits for."""

from __future__ import annotations

from collections.abc import Callable

from jrs.contract.clock import Clock

_SAY = 30.0
"""Seconds between two reports."""


class Waiting:
    """Reports a wait when it begins, and then every half a minute.

    Args:
        tell: called with what is waited for.
    """

    def __init__(self, tell: Callable[[str], None], clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._said_at: float | None = None

    def say(self, why: str) -> None:
        """Report the reason, unless one was reported a moment ago."""
        now = self._clock()
        if self._said_at is None or now - self._said_at >= _SAY:
            self._said_at = now
            self._tell(why)
