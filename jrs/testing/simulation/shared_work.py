"""What the processes of an exploration share: the states that they have been in, and the work."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Visited:
    """A hash table in shared memory, of states as numbers of 64 bits.

    Processes may claim the same state at the same moment: then both explore it, which costs time
    and does no harm.

    Args:
        bits: the table has 2 to this power places, and takes 10 bytes for each that is used.
    """

    def __init__(self, bits: int = 25) -> None:
        size = 1 << bits
        self._mask = size - 1
        self._states = memoryview(mmap.mmap(-1, 8 * size)).cast("Q")
        self._depths = memoryview(mmap.mmap(-1, 2 * size)).cast("H")

    def reserve(self, state: int, depth: int) -> bool:
        """Return whether this state is to be explored: nobody has been in it, or only deeper."""
        state = state or 1
        place = state & self._mask
        while (found := self._states[place]) != state:
            if not found:
                self._states[place] = state
                self._depths[place] = depth
                return True
            place = (place + 1) & self._mask
        if self._depths[place] <= depth:
            return False
        self._depths[place] = depth
        return True


class Work:
    """Ways into the scenario that are still to be gone, and the counts of what was done.

    A way is the numbers of the choices that lead there. Every process of an exploration can add
    one.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._numbers = memoryview(mmap.mmap(-1, 8 * len(_NAMES))).cast("Q")

    def put(self, way: list[int]) -> None:
        """Leave a way to a worker that is free."""
        with self._locked():
            os.write(self._file, json.dumps(way).encode() + b"\n")

    def take(self) -> list[int] | None:
        """Return a way that nobody has taken; None if there is none for now."""
        with self._locked():
            begin = self["taken"]
            line = os.pread(self._file, 1 << 16, begin).partition(b"\n")[0]
            if not line:
                return None
            self.add("taken", len(line) + 1)
            self.add("busy", 1)
        way: list[int] = json.loads(line)
        return way

    def give_back(self) -> None:
        """Note that a way was gone to its end."""
        with self._locked():
            self.add("busy", -1)

    def is_over(self) -> bool:
        """Return whether there is nothing left, and nobody who may still add something."""
        with self._locked():
            return not self["busy"] and os.fstat(self._file).st_size == self["taken"]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Of records, and not of files: the processes share the file that one of them has opened.
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def __getitem__(self, name: str) -> int:
        return self._numbers[_NAMES.index(name)]

    def add(self, name: str, number: int) -> None:
        self._numbers[_NAMES.index(name)] += number

    def at_least(self, name: str, number: int) -> None:
        place = _NAMES.index(name)
        self._numbers[place] = max(number, self._numbers[place])


_NAMES = ("taken", "busy", "stop", "states", "steps", "ends", "longest")
