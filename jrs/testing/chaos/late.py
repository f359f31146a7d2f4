"""Late bases: even on a small store, commits and reads continue before the next base is written."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from jrs.backends.file import segments
from jrs.backends.file.base_writer import write_next
from jrs.backends.file.compaction import Compaction


class LateCompaction(Compaction):
    """Writes each base in this process instead of a child, so that an observer sees every call.

    Args:
        folder: the folder of the log.
        due: returns whether to write the next base now; called at each look for it.
    """

    small = 0
    poll_interval = 0.0

    def __init__(self, folder: Path, due: Callable[[], bool]) -> None:
        super().__init__(folder)
        self._due = due

    def begin(self, start: int, size: int = 0, write: Callable[[], None] | None = None) -> bool:
        if write is not None:
            return super().begin(start, 0, write)
        if self._due():
            with self._turn(start) as turn:
                if turn is not None:
                    write_next(self._folder)
        return segments.newest(self._folder) >= start


def late(rng: random.Random) -> Callable[[Path], Compaction]:
    """Return a factory of compactions that are late by a random number of looks each time."""
    own = random.Random(rng.random())
    return lambda folder: LateCompaction(folder, lambda: own.random() < 0.15)
