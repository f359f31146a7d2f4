"""Outage: how a master waits while the backend does not answer, or until an operator repairs it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from jrs.contract.backend import Backend
from jrs.contract.errors import OutcomeUnknown, Unavailable, WrongAddress

_PAUSE = 1.0
"""Seconds before the backend is asked again."""


class Outage:
    """Reports why a master waits, once for each reason, and pauses before the next try.

    Args:
        stop: ends the waiting.
        emit: called with the reason.
    """

    def __init__(self, stop: threading.Event, emit: Callable[[str], None]) -> None:
        self._stop = stop
        self._emit = emit
        self._last_reported = ""

    def wait(self, error: Unavailable | OutcomeUnknown, *, answers: bool = False) -> None:
        """Pause before the next try of what has failed with `error`.

        Args:
            answers: the backend does answer; an operator has to mend something.
        """
        if str(error) != self._last_reported:
            self._last_reported = str(error)
            # As `start_thread` raises it: it is this host that lacks something.
            answers = answers or isinstance(error.__cause__, (RuntimeError, MemoryError))
            self._emit(str(error) if answers else f"the backend does not answer: {error}")
        self._stop.wait(_PAUSE)

    def over(self) -> None:
        """Record that the backend has answered: the next outage is a new one and is reported."""
        self._last_reported = ""

    def open(self, opener: Callable[[], Backend]) -> Backend | None:
        """Return the backend as soon as it can be opened; None once `stop` is set.

        Raises:
            WrongAddress: waiting cannot help.
            Whatever else `opener` raises that is not `Unavailable` or `OutcomeUnknown`.
        """
        while not self._stop.is_set():
            try:
                opened = opener()
            except WrongAddress:
                raise
            except (Unavailable, OutcomeUnknown) as error:
                self.wait(error)
            else:
                self.over()
                return opened
        return None
