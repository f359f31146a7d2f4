"""A dict with ordered range reads, for the backends that hold (part of) the map in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedSet

V = TypeVar("V")


class OrderedMap(Generic[V]):
    """A dict whose keys can be read in order.

    Writes are as cheap as a dict's: the order is brought up to date by the next ordered read, and
    a key that came and went in between never costs anything.
    """

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._order = SortedSet()
        self._touched: set[str] = set()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str) -> V | None:
        return self._values.get(key)

    def set(self, key: str, value: V) -> None:
        if key not in self._values:
            self._touched.add(key)
        self._values[key] = value

    def discard(self, key: str) -> None:
        if self._values.pop(key, None) is not None:
            self._touched.add(key)

    def after(self, start: str, *, inclusive: bool) -> Iterator[tuple[str, V]]:
        """Yield from `start` in key order. The map must not change meanwhile."""
        if self._touched:
            gone = [key for key in self._touched if key not in self._values]
            self._order.difference_update(gone)
            self._order.update(key for key in self._touched if key in self._values)
            self._touched.clear()
        for key in self._order.irange(start, inclusive=(inclusive, True)):
            yield key, self._values[key]
