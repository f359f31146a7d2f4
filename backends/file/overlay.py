"""An overlay: a base and the changes since, read as one.

The changes are those of a segment's log. While the next base is being made of a sealed segment, the
overlay of that segment is the base of the segment that follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record

from ..shared.ordered_map import OrderedMap
from . import lines
from .merge import HELD

Stored = tuple[bytes | None, int]
"""An escaped value and its version; None for a record of the base that was deleted since, or, at
version `HELD`, one of which nothing can be told."""

UNKNOWN: Stored = (None, HELD)


class Layer(Protocol):
    """What changes lie on."""

    @property
    def answers(self) -> bool:
        """Return whether a look-up can find anything: a record, or that its key is held."""

    def get(self, key: str) -> Record | None:
        """Return the record of `key`, or None.

        Raises:
            CorruptRecord: the key is held: damage may have hit it.
        """

    def after(self, start: str, *, inclusive: bool) -> Iterator[Record]:
        """Yield the records from `start` in key order."""

    def damage(self) -> Iterator[str]:
        """Yield a line for everything that is wrong with it."""

    def close(self) -> None:
        """Let go of its files. Idempotent."""


class Overlay:
    """The changes of one segment over what it began with.

    Args:
        below: what it began with.
        changes: by key.
        log: of the segment, for messages.
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

    def after(self, start: str, *, inclusive: bool) -> Iterator[Record]:
        below = self.below.after(start, inclusive=inclusive)
        record = next(below, None)
        for key, (value, version) in self.changes.after(start, inclusive=inclusive):
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

    def damage(self) -> Iterator[str]:
        yield from self.below.damage()

    def close(self) -> None:
        self.below.close()

    def check_known(self, key: str, stored: Stored) -> None:
        """Raise `CorruptRecord` for a key that is held."""
        if stored[1] == HELD:
            raise CorruptRecord(
                f"{key}: held, since a commit to it in {self._log} needs what damage hides; "
                "restore the folder from a copy, or go on without the commit by "
                "'jrs fsck --accept-damage'"
            )
