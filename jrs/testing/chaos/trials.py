"""What fails although no fault disturbs it: a job or a driver that is wrong by itself.

Jobs and drivers of a run are tried again whenever they fail, since a fault may be the cause. One
that is wrong would be tried until the time of the run is over, and no check could say why it has
no result.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

_OFTEN = 5
"""Failures without any fault behind which there is no hope. The first ones may be what a fault has
left: a server that starts, a file that was half written."""


class Trials:
    """Counts such failures. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._quiet_since: Callable[[], float] = lambda: float("-inf")
        self._began: dict[str, float] = {}
        self._failed: Counter[str] = Counter()

    def watch(self, quiet_since: Callable[[], float]) -> None:
        """Have faults from now on.

        Args:
            quiet_since: returns the moment of the monotonic clock since which no fault has hurt
                anything.
        """
        self._quiet_since = quiet_since

    def begins(self, name: str) -> None:
        """Note that a job or a driver is tried now."""
        with self._lock:
            self._began[name] = time.monotonic()

    def fails(self, name: str) -> None:
        """Note that it has failed; that counts if no fault has come since it began."""
        quiet_since = self._quiet_since()
        with self._lock:
            began = self._began.pop(name, None)
            if began is not None and quiet_since < began:
                self._failed[name] += 1

    def failing(self) -> dict[str, int]:
        """Return what fails again and again, and how often it has without any fault."""
        with self._lock:
            return {name: times for name, times in self._failed.items() if times >= _OFTEN}
