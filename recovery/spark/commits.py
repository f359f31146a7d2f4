"""Carrying out the commits of an attempt's streams, while the backend comes and goes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from jrs.contract.errors import Fenced, JrsError, OutcomeUnknown, Unavailable

_AGAIN = 0.25
"""Seconds until a commit is tried again that the backend did not answer."""


class Commits:
    """Carries out the commits of one attempt's streams.

    Args:
        fail: called with the error of a commit that ends the attempt.
    """

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self._closed = threading.Event()

    def carry_out(self, commit: Callable[[], None]) -> None:
        """Call `commit` until the backend has answered.

        A leader that cannot reach the backend ends its attempts; until then the batch waits.

        Raises:
            Fenced: the attempt has ended meanwhile.
            JrsError: of `commit`; the attempt ends because of it.
        """
        while True:
            try:
                commit()
                return
            except (Unavailable, OutcomeUnknown):
                if self._closed.wait(_AGAIN):
                    raise Fenced("the attempt has ended") from None
            except JrsError as error:
                self._fail(error)
                raise

    def close(self) -> None:
        """Let no commit wait any longer. Idempotent."""
        self._closed.set()
