"""A base: sorted runs, the newest first, read as one.

Each run has the changes since the one below it; the oldest one has no deletions. Merging a segment
into the whole base would write all of a large base again for each few megabytes of log. So the
changes become a run of their own, and runs are merged when they are of similar size. Every record
is written a few times in its life, whatever the size of the base, and a look-up reads few runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from jrs.contract.errors import Unavailable
from jrs.contract.operations import Record

from .entries import TOP, visible
from .filter import hashes_of
from .index import Names
from .record_lines import DELETED
from .run import Run

_RATIO = 3
"""A run is merged with newer ones that have a third of its bytes."""

_MOST_RUNS = 8


class Base:
    """The runs that a segment lies on; none for the first segment.

    Args:
        runs: the open files, the newest first.
        names: what the segment's header says of each; empty in format 2.
    """

    def __init__(self, runs: Sequence[Run] = (), names: Names = ()) -> None:
        self.runs = runs
        self.names = names
        self.answers = any(run.answers for run in runs)
        """Whether a look-up can find anything: a record or a held key."""
        self._has_filters = any(run.filter is not None for run in runs)

    @classmethod
    def open(cls, names: Names, path: Callable[[int], Path]) -> Self:
        """Open the runs of a segment of format 3.

        Raises:
            OSError, Unavailable: a run cannot be opened; no other one stays open.
        """
        runs = list[Run]()
        try:
            for start, trailer in names:
                runs.append(Run(path(start), trailer=trailer))
        except (OSError, Unavailable):
            for run in runs:
                run.close()
            raise
        return cls(runs, names)

    @classmethod
    def two_files(cls, path: Path, index: Path) -> Self:
        """Open a base of format 2."""
        return cls([Run(path, index)])

    def close(self) -> None:
        for run in self.runs:
            run.close()

    @property
    def size(self) -> int:
        """Bytes of lines."""
        return sum(run.size for run in self.runs)

    def get(self, key: str) -> Record | None:
        """Return the record of `key`, or None.

        Raises:
            CorruptRecord: the key is held, because damage may have hit it.
        """
        hashes = hashes_of(key.encode()) if self._has_filters else None
        for run in self.runs:
            record = run.get(key, hashes)
            if record is not None:
                return None if record.version == DELETED else record
        return None

    def after(self, start: str, *, inclusive: bool, up_to: str = TOP) -> Iterator[Record]:
        """Yield the records from `start` up to `up_to` in key order, as `Run.after`."""
        if not self.runs:
            return iter(())
        *newer, oldest = self.runs
        found = oldest.after(start, inclusive=inclusive, up_to=up_to)
        for run in reversed(newer):
            found = visible(run.entries(start, inclusive=inclusive, up_to=up_to), found)
        return found

    def damaged_between(self, low: str, high: str) -> str:
        """Return the file whose damage may have hit a key from `low` to `high`; "" if none has.
        Newer runs may know better what became of the key; that is not looked into."""
        damaged = (run.path for run in self.runs if run.is_damaged_between(low, high))
        return str(next(damaged, ""))

    def damage(self) -> Iterator[str]:
        """Yield a line for each flaw of a run; reads all of them."""
        for run in self.runs:
            yield from run.damage()

    def merged_with(self, weight: int) -> int:
        """Return how many runs, the newest first, become one with `weight` bytes of changes."""
        sizes = [trailer.size for _, trailer in self.names]
        if not sizes:
            return len(self.runs)
        count = 0
        while count < len(sizes) and (
            sizes[count] <= _RATIO * weight or len(sizes) - count >= _MOST_RUNS
        ):
            weight += sizes[count]
            count += 1
        return count

    def bytes_merged_with(self, weight: int) -> int:
        """Return the bytes of these changes and of the runs that they are merged with."""
        return weight + sum(run.size for run in self.runs[: self.merged_with(weight)])
