"""Sweeps over rows in columns: sorted, grouped and numbered by their keys, all keys at once."""

from __future__ import annotations

from typing import TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from jrs.testing.chaos.checking.columns import Flags, Ints

T = TypeVar("T", bound=np.generic)

NEVER = -(1 << 63)
"""For a number that there is none of."""
LATEST = (1 << 63) - 1
_ROOM = 62
"""How many bits a key has together with a number."""


@attrs.frozen
class Ranks:
    """Numbers as smaller ones in the same order, from 0 on.

    Attributes:
        bits: how many bits they need.
        columns: the smaller numbers.
    """

    bits: int
    columns: list[Ints]
    _low: int
    _different: Ints | None = None

    @classmethod
    def of(cls, room: int, *columns: Ints) -> Ranks:
        """Rank the numbers of some columns together, so that they fit into some bits. As many
        bits as the number of all rows has are always enough."""
        low = min(int(column.min(initial=LATEST)) for column in columns)
        high = max(int(column.max(initial=NEVER)) for column in columns)
        if (bits := max(high - low, 0).bit_length()) <= room:
            return cls(bits, [column - low for column in columns], low)
        different, ranks = np.unique(np.concatenate(columns), return_inverse=True)
        ends = np.cumsum([len(column) for column in columns])[:-1]
        return cls(len(different).bit_length(), np.split(ranks, ends), low, different)

    def undone(self, ranks: Ints) -> Ints:
        """Return the numbers that have some ranks."""
        return ranks + self._low if self._different is None else self._different[ranks]


def sorting(key: Ints, column: Ints) -> Ints:
    """Return the order of rows by their key and another column. Rows that are nearly in this order
    are sorted in nearly no time, if both fit into one number."""
    if not len(key):
        return np.zeros(0, np.int64)
    low, high, last = int(column.min()), int(column.max()), int(key.max())
    bits = (high - low).bit_length()
    if bits + last.bit_length() <= _ROOM:
        return np.argsort(key << bits | column - low, kind="stable")
    return np.lexsort((column, key.astype(np.uint16) if last < 1 << 16 else key))


def highest(key: Ints, at: Ints, value: Ints, asked: Ints, before: Ints) -> Ints:
    """Return the highest value that a row of the asked key has at a moment before the asked one;
    `NEVER` if there is no such row."""
    found = np.full(len(asked), NEVER)
    if not len(key) or not len(asked):
        return found
    room = _ROOM - max(int(key.max()), int(asked.max())).bit_length()
    times, values = Ranks.of(room, at, before), Ranks.of(room, value)
    moments = key << times.bits | times.columns[0]
    order = np.argsort(moments, kind="stable")
    # The key is the upper part, so that the maxima of one key end where the next one begins.
    maxima = np.maximum.accumulate((key << values.bits | values.columns[0])[order])
    place = np.searchsorted(moments[order], asked << times.bits | times.columns[1]) - 1
    maximum = maxima[place]
    known = (place >= 0) & (maximum >> values.bits == asked)
    found[known] = values.undone(maximum[known] & ((1 << values.bits) - 1))
    return found


def numbered(key: Ints, column: Ints) -> Ints:
    """Return the place of each row among those of its key, in the order of a column; from 1 on."""
    order = sorting(key, column)
    places = np.arange(len(order))
    first = np.ones(len(order), bool)
    first[1:] = np.diff(key[order]) != 0
    found = np.empty(len(order), np.int64)
    found[order] = places - np.maximum.accumulate(np.where(first, places, 0)) + 1
    return found


@attrs.frozen
class Groups:
    """Rows that are equal in some columns.

    Attributes:
        order: the rows, those of a group together.
        starts: where each group begins in this order.
    """

    order: Ints
    starts: Ints

    @classmethod
    def of(cls, key: Ints, column: Ints) -> Groups:
        order = sorting(key, column)
        first = np.ones(len(order), bool)
        first[1:] = (np.diff(key[order]) != 0) | (np.diff(column[order]) != 0)
        return cls(order, np.flatnonzero(first))

    def sizes(self) -> Ints:
        return np.diff(self.starts, append=len(self.order))

    def least(self, column: Ints) -> Ints:
        return np.minimum.reduceat(column[self.order], self.starts) if len(self.order) else column

    def most(self, column: Ints) -> Ints:
        return np.maximum.reduceat(column[self.order], self.starts) if len(self.order) else column

    def sums(self, flags: Flags) -> Ints:
        counts = flags.astype(np.int64)
        return np.add.reduceat(counts[self.order], self.starts) if len(self.order) else counts

    def spread(self, column: npt.NDArray[T]) -> npt.NDArray[T]:
        """Return for each row what its group has."""
        found = np.empty(len(self.order), column.dtype)
        found[self.order] = np.repeat(column, self.sizes())
        return found

    def rows(self, groups: Flags) -> Ints:
        """Return a row of each of some groups."""
        return self.order[self.starts[groups]]
