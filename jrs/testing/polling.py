"""Polling: how long to sleep until the next look at a condition that reports no change."""

from __future__ import annotations

import time

LEAST, MOST = 0.005, 0.1
"""Seconds between two looks."""


class Poll:
    """Sleeps for a share of the time that has been waited, so that what takes long costs little.

    Example::

        poll = Poll()
        while not path.exists():
            poll.sleep()
    """

    def __init__(self) -> None:
        self._began = time.monotonic()

    def sleep(self) -> None:
        waited = time.monotonic() - self._began
        time.sleep(min(MOST, max(LEAST, waited / 20)))
