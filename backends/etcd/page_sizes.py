"""Page sizes: how many records a handle asks for at once, by what they weighed before.

Each page costs a round trip, and a pass over all keys behind it, so pages are as large as possible.
But a page of huge records would fill the memory of client and server, before the first of them is
seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from jrs.contract.operations import Record

UNKNOWN, KNOWN, LARGEST = 64, 1000, 10_000
"""Records of a page: of the first one of a prefix without, and with a known weight; and the most.
"""
SMALL = 16
"""Records of a page that can be sent in time over any line."""
GROWTH = 4
"""How many times larger than the page before: the next records may be larger than its own."""
PAGE_BYTES = 8 << 20
OVERHEAD = 100
"""Bytes of a record besides its value."""
PREFIXES = 10_000
"""The most prefixes whose weights are kept: a job has a few of its own."""


class PageSizes:
    """The weights of a handle's records, by the prefix of their scan: those of one job say nothing
    about those of another one. How fast pages come is known for all under one folder."""

    def __init__(self) -> None:
        self._weights: dict[str, int] = {}
        self._slow = set[str]()
        """Kinds of which a page that is not small has failed since one came."""

    def first(self, prefix: str) -> int:
        """Return the size of the first page of a scan."""
        if _kind(prefix) in self._slow:
            return SMALL
        weight = self._weights.get(prefix)
        return UNKNOWN if weight is None else min(KNOWN, fitting(weight))

    def failed(self, prefix: str) -> int:
        """Return the size of the page to try instead of one that did not come in time."""
        self._slow.add(_kind(prefix))
        return SMALL

    def after(self, prefix: str, size: int, page: Sequence[Record], *, first: bool) -> int:
        """Return the size of the page behind a page of up to `size` records."""
        if len(page) > SMALL:
            self._slow.discard(_kind(prefix))
        weight = sum(len(record.value) for record in page) // len(page) + OVERHEAD
        # The heaviest page counts: the next scan may begin with its records. It fades from scan to
        # scan, in case that they are gone.
        known = self._weights.get(prefix, 0) // (2 if first else 1)
        if len(self._weights) >= PREFIXES:
            self._weights.clear()
        self._weights[prefix] = max(weight, known)
        return min(LARGEST, GROWTH * size, fitting(weight))


def fitting(weight: int) -> int:
    """Return how many records of this weight fit in a page."""
    return max(1, PAGE_BYTES // weight)


def _kind(prefix: str) -> str:
    return prefix.partition("/")[0]
