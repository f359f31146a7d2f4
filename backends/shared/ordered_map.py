"""A dict with ordered range reads, for backends that keep (part of) the map in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedList

V = TypeVar("V")


class OrderedMap(Generic[V]):
    """A dict whose keys can be read in order, folder by folder.

    Writes are as cheap as a dict's: the next ordered read updates the order, and only for the
    folders that it reads (a folder is the part of a key before its first ``/``). So reading a few
    dirty markers never sorts a million results, and a key that was added and removed in between
    costs nothing.
    """

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self.get = self._values.get
        """The dict's own method, because every replay calls it most often."""
        self._moved: set[str] = set()
        """Keys that were added or removed since the last ordered read."""
        self._unordered: dict[str, set[str]] = {}
        """Earlier such keys by folder, for folders that were not read since."""
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
            self._moved.remove(key)  # Added and removed again: its order is unchanged.
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
