"""A dict with ordered range reads, for the backends that hold (part of) the map in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedList

V = TypeVar("V")


class OrderedMap(Generic[V]):
    """A dict whose keys can be read in order, folder by folder.

    Writes are as cheap as a dict's: the order is brought up to date by the next ordered read, and
    only that of the folder it reads (what stands before a key's first ``/``). So to read a few
    dirty markers never sorts a million results, and a key that came and went in between costs
    nothing.
    """

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self.get = self._values.get
        """The dict's own method: this is the innermost call of every replay."""
        self._moved: set[str] = set()
        """Keys that came or went since the last ordered read."""
        self._unordered: dict[str, set[str]] = {}
        """The same of earlier ones, by folder, for the folders that none of them read."""
        self._order: dict[str, SortedList] = {}

    def __len__(self) -> int:
        return len(self._values)

    def set(self, key: str, value: V) -> None:
        values = self._values
        if key not in values:
            self._move(key)
        values[key] = value

    def discard(self, key: str) -> None:
        if self._values.pop(key, None) is not None:
            self._move(key)

    def after(self, start: str, *, inclusive: bool) -> Iterator[tuple[str, V]]:
        """Yield from `start` in key order. The map must not change meanwhile."""
        moved = defaultdict(list)
        for key in self._moved:
            moved[_folder(key)].append(key)
        self._moved.clear()
        for folder, keys in moved.items():
            self._unordered.setdefault(folder, set()).symmetric_difference_update(keys)
        first = _folder(start)
        for folder in sorted(self._unordered):
            if folder >= first:
                for key in self._ordered(folder).irange(start, inclusive=(inclusive, True)):
                    yield key, self._values[key]

    def _move(self, key: str) -> None:
        if key in self._moved:
            self._moved.remove(key)  # There and back: its order stands as it was.
        else:
            self._moved.add(key)

    def _ordered(self, folder: str) -> SortedList:
        order, moved = self._order.setdefault(folder, SortedList()), self._unordered[folder]
        came = [key for key in moved if key in self._values]
        if len(came) < len(moved):
            for key in moved.difference(came):
                order.remove(key)
        order.update(came)
        moved.clear()
        return order


def _folder(key: str) -> str:
    """Return the part of `key` up to its first ``/``; folders sort like the keys in them."""
    return key[: key.find("/") + 1] or key
