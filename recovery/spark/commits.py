"""Carrying out the commits of an attempt's streams, while the backend comes and goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from jrs.contract.clock import Clock
from jrs.contract.errors import Fenced, JrsError, OutcomeUnknown, Unavailable

from .waiting import Waiting

_AGAIN = 0.25
"""Seconds until a commit is tried again that the backend or the storage did not answer."""


def _say_nothing(why: str) -> None:
    """Tell nobody else that a commit waits."""


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

    def carry_out(
        self, commit: Callable[[], None], waiting: Callable[[str], None] = _say_nothing
    ) -> None:
        """Call `commit` until the backend, and the storage, have answered.

        A leader that cannot reach the backend ends its attempts; until then the batch waits.

        Args:
            waiting: also called now and then while this commit waits; raises nothing.

        Raises:
            Fenced: the attempt has ended meanwhile.
            JrsError: of `commit`; the attempt ends because of it.
        """

        def tell(why: str) -> None:
            self._waiting(why)
            waiting(why)

        says = Waiting(tell, self._clock)
        while True:
            try:
                commit()
                return
            except (Unavailable, OutcomeUnknown) as error:
                says.say(str(error))
                if self._closed.wait(_AGAIN):
                    raise Fenced("the attempt has ended") from None
            except JrsError as error:
                self._fail(error)
                raise

    def close(self) -> None:
        """Let no commit wait any longer. Idempotent."""
        self._closed.set()
