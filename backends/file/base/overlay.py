"""An overlay: a base and the changes since, read as one.

The changes come from a segment's log. While the next base of a sealed segment is being written, the
overlay of that segment is the base of the next segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record

from ...shared.ordered_map import OrderedMap
from ..format import lines
from .entries import TOP
from .record_lines import HELD

Stored = tuple[bytes | None, int]
"""An escaped value and its version. The value None is a deletion or, at version `HELD`, a held
key."""

UNKNOWN: Stored = (None, HELD)


class Layer(Protocol):
    """The layer below a segment's changes."""

    @property
    def answers(self) -> bool:
        """Whether a look-up can find anything: a record or a held key."""

    def get(self, key: str) -> Record | None:
        """Return the record of `key`, or None.

        Raises:
            CorruptRecord: the key is held, because damage may have hit it.
        """

    def after(self, start: str, *, inclusive: bool, up_to: str = TOP) -> Iterator[Record]:
        """Yield the records from `start` in key order; of the keys above `up_to` some or none.

        Without the bound, what was deleted behind the last one would be read, too.
        """

    def damaged_between(self, low: str, high: str) -> str:
        """Return the file whose damage may have hit a key from `low` to `high`; "" if none has."""

    def damage(self) -> Iterator[str]:
        """Yield a line for each flaw of the layer."""

    def close(self) -> None:
        """Close its files. Idempotent."""


class Overlay:
    """The changes of one segment on top of the layer below it.

    Args:
        below: the layer at the segment's begin.
        changes: the changes by key.
        log: the path of the segment's log, for messages.
    """

    def __init__(self, below: Layer, changes: OrderedMap[Stored], log: Path) -> None:
        self.below = below
        self.changes = changes
        self._log = log

    @property
    def answers(self) -> bool:
        return bool(self.changes) or self.below.answers

    def get(self, key: str) -> Record | None:
        stored = self.changes.get(key)
        if stored is None:
            return self.below.get(key)
        if stored[0] is None:
            self.check_known(key, stored)
            return None
        return Record(key, lines.unescape(stored[0]), stored[1])

    def after(self, start: str, *, inclusive: bool, up_to: str = TOP) -> Iterator[Record]:
        below = self.below.after(start, inclusive=inclusive, up_to=up_to)
        record = next(below, None)
        for key, (value, version) in self.changes.after(start, inclusive=inclusive):
            if key > up_to:
                break
            while record is not None and record.key < key:
                yield record
                record = next(below, None)
            if record is not None and record.key == key:
                record = next(below, None)
            if value is not None:
                yield Record(key, lines.unescape(value), version)
        while record is not None:
            yield record
            record = next(below, None)

    def damaged_between(self, low: str, high: str) -> str:
        for key, stored in self.changes.after(low, inclusive=True):
            if key > high:
                break
            if stored == UNKNOWN:
                return str(self._log)
        return self.below.damaged_between(low, high)

    def damage(self) -> Iterator[str]:
        yield from self.below.damage()

    def close(self) -> None:
        self.below.close()

    def check_known(self, key: str, stored: Stored) -> None:
        """Raise `CorruptRecord` for a key that is held."""
        if stored[1] == HELD:
            raise CorruptRecord(
                f"{key}: held, because a commit to it in {self._log} depends on damaged data; "
                "restore the folder from a copy, or discard the commit with "
                "'jrs fsck --accept-damage'"
            )
