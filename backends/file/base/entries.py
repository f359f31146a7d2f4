"""What a run says of its keys, in order, and how a newer run hides an older one.

A key that a run does not mention is known by the runs below it. So a run must also say which keys
it does not know any more, because damage may have hit them: a range of held keys hides what older
runs say of these keys, since the damaged part may have changed them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jrs.contract.operations import Record

TOP = "\x7f"
"""Above every key."""


class Held(NamedTuple):
    """A range of keys that damage may have hit: from `low` up to, and without, `high`."""

    low: str
    high: str
    readable: tuple[Record, ...] = ()
    """What damaged lines in it show, each with the value `UNREADABLE`, in order."""


Change = tuple[str, tuple[bytes | None, int]]
"""A key with its escaped value and version. The value None is a deletion or, at version `HELD`, a
held key."""


def visible(newer: Iterator[Record | Held], older: Iterator[Record]) -> Iterator[Record]:
    """Yield the records of two runs, of which the newer one may delete and hold keys."""
    below = next(older, None)
    for entry in newer:
        low, high = (entry.low, entry.high) if isinstance(entry, Held) else (entry.key, "")
        while below is not None and below.key < low:
            yield below
            below = next(older, None)
        while below is not None and (below.key < high or below.key == low):
            below = next(older, None)
        if isinstance(entry, Held):
            yield from entry.readable
        elif entry.version >= 0:
            yield entry
    while below is not None:
        yield below
        below = next(older, None)


def stacked(
    newer: Iterator[Change | Held], older: Iterator[Change | Held]
) -> Iterator[Change | Held]:
    """Yield the changes and the held ranges of two runs as those of one, in order."""
    below = next(older, None)
    for entry in newer:
        low, high = span(entry)
        while below is not None and span(below)[0] < low:
            if isinstance(below, Held) and below.high > low:
                yield below._replace(high=low)
                below = below._replace(low=low)
            else:
                yield below
                below = next(older, None)
        while below is not None and span(below)[0] < high:
            if isinstance(below, Held) and below.high > high:
                below = below._replace(low=high)
            else:
                below = next(older, None)
        yield entry
    while below is not None:
        yield below
        below = next(older, None)


def span(entry: Change | Record | Held) -> tuple[str, str]:
    """Return the first key that an entry is about, and the first one behind it."""
    if isinstance(entry, Held):
        return entry.low, entry.high
    if isinstance(entry, Record):
        return entry.key, entry.key + "!"
    return entry[0], entry[0] + "!"  # "!" is below every byte of a key.
