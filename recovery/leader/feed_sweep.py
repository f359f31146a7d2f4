"""FeedSweep: the leader keeps the feed of the history bounded.

It runs in a thread of its own: nothing waits for it, and an interruption at any point leaves only
work for the next pass.
"""

from __future__ import annotations

import threading

from jrs.contract.errors import Fenced, JrsError, OutcomeUnknown, Unavailable
from jrs.store import feed

from .context import LeaderContext

_PAUSE = 60.0
"""Seconds between two passes, and before the first one: a new leader has more urgent work."""


class FeedSweep:
    """The sweeping of one leadership; a context manager, which runs it."""

    def __init__(self, context: LeaderContext) -> None:
        self._context = context
        self._over = threading.Event()
        self._said = ""
        self._thread = context.runtime.thread(self._run, "jrs-feed")

    def __enter__(self) -> FeedSweep:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(0.5)  # It may hang in a commit; it then ends by its fence.

    def _run(self) -> None:
        while not self._over.wait(_PAUSE):
            try:
                feed.sweep(self._context.backend, self._context.fence)
            except Fenced:
                return  # The dispatcher notices it, too.
            except (OutcomeUnknown, Unavailable):
                continue  # The next pass does it.
            except JrsError as error:
                if str(error) != self._said:
                    self._said = str(error)
                    said = f"the feed of the history cannot be swept: {error}; trying again"
                    self._context.emit("error", "", said)
