"""Places: how many requests of one sort may stay open at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jrs.contract.errors import Unavailable


class AllTaken(Unavailable):
    """As many requests are open as may be."""


class Places:
    """The places of one sort of requests. Its methods are for the event loop's thread.

    Args:
        what: the requests, for people.
        most: how many there are.
    """

    def __init__(self, what: str, most: int) -> None:
        self._what = what
        self._most = most
        self._taken = 0

    def take(self) -> None:
        """Take a place, until `leave`.

        Raises:
            AllTaken: none is free.
        """
        if self._taken >= self._most:
            raise AllTaken(f"{self._most} {self._what} are open, and there may be no more")
        self._taken += 1

    def leave(self) -> None:
        """Give a place back."""
        self._taken -= 1

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have a place meanwhile; raises as `take`."""
        self.take()
        try:
            yield
        finally:
            self.leave()
