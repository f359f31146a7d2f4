"""How large the replies of a server may be, so that they come in time over this link."""

from __future__ import annotations

MOST = 8 << 20
"""Bytes of the largest reply that is asked for."""
_GUESS = 8 << 10
"""Bytes of a record, before one was seen."""
_SHRINK, _GROWTH = 16, 4


class ReplySize:
    """How many bytes a reply may have: learned from all reads of a handle, and shared by them.

    The one number is read and written without a lock: what is lost of it is learned again.

    Args:
        most: bytes of the largest reply.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._bytes = most

    def missed(self) -> None:
        """Note that a reply did not come in time: perhaps it was too large."""
        self._bytes = max(_GUESS, self._bytes // _SHRINK)

    def came(self) -> None:
        """Note that a reply came in time."""
        self._bytes = min(self._most, self._bytes * _GROWTH)

    def first(self, most: int) -> int:
        """Return how many records to ask for at first, at most `most`."""
        return min(most, max(1, self._bytes // _GUESS))

    def fewer(self, count: int) -> int:
        """Return how many records to ask for where `count` of them did not come in time."""
        return max(1, count // _SHRINK)

    def after(self, count: int, size: int, most: int) -> int:
        """Return how many records to ask for behind `count` records of `size` bytes, at most
        `most`: the next ones may be larger."""
        return max(1, min(most, _GROWTH * count, self._bytes * count // max(size, 1)))
