"""Carrying out the commits of an attempt's streams, while the backend comes and goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from jrs.contract.clock import Clock
from jrs.contract.errors import Fenced, JrsError, OutcomeUnknown, Unavailable

from .waiting import Waiting

_AGAIN = 0.25
"""Seconds until a commit is tried again that the backend or the storage did not answer: at first,
and then twice as many each time."""
_LONGEST = 4.0
"""Seconds until then at most: a store that refuses requests because there are too many gets fewer,
and a backend that is back is soon noticed."""


class Commits:
    """Carries out the commits of one attempt's streams.

    Args:
        fail: called with the error of a commit that ends the attempt.
        waiting: called now and then while a commit waits, with what it waits for.
    """

    def __init__(
        self,
        fail: Callable[[BaseException], None],
        waiting: Callable[[str], None],
        clock: Clock = time.monotonic,
    ) -> None:
        self._fail = fail
        self._waiting = waiting
        self._clock = clock
        self._closed = threading.Event()

    def carry_out(self, commit: Callable[[], None]) -> None:
        """Call `commit` until the backend, and the storage, have answered.

        A leader that cannot reach the backend ends its attempts; until then the batch waits.

        Raises:
            Fenced: the attempt has ended meanwhile.
            JrsError: of `commit`; the attempt ends because of it.
        """
        says, pause = Waiting(self._waiting, self._clock), _AGAIN
        while True:
            try:
                commit()
                return
            except (Unavailable, OutcomeUnknown) as error:
                says.say(str(error))
                if self._closed.wait(pause):
                    raise Fenced("the attempt has ended") from None
                pause = min(2 * pause, _LONGEST)
            except JrsError as error:
                self._fail(error)
                raise

    def close(self) -> None:
        """Let no commit wait any longer. Idempotent."""
        self._closed.set()
