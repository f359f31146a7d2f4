"""A dict with ordered range reads, and the evaluation of a commit against one.

Shared by the backends that hold (part of) the map in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedSet

from jrs.backend import Absent, Create, Fence, Op
from jrs.errors import Conflict, Fenced, JrsError

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


def refusal(
    ops: tuple[Op, ...],
    fence: tuple[str, int] | None,
    version_of: Callable[[str], int | None],
) -> JrsError | None:
    """Return why a commit is refused, or None if every condition holds.

    `fence` is the key and version it names; `version_of` gives a key's version, None if absent.
    """
    if fence is not None and version_of(fence[0]) != fence[1]:
        return Fenced("a newer epoch exists: this leader has been replaced")
    for op in ops:
        found = version_of(op.key)
        if isinstance(op, (Create, Absent)):
            if found is not None:
                return Conflict(op, "the key is present")
        elif found is None:
            return Conflict(op, "the key is absent")
        elif op.version is not None and op.version != found:
            return Conflict(op, f"the key is at version {found}, not {op.version}")
    return None


def fence_pair(fence: Fence | None) -> tuple[str, int] | None:
    """Return the condition of `fence` in the form that `refusal` takes."""
    if fence is None:
        return None
    check = fence.check()
    return check.key, check.version
