"""The states that an exploration has been in, shared by all of its processes."""

from __future__ import annotations

import mmap


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

    def claim(self, state: int, depth: int = 0) -> bool:
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

    def __len__(self) -> int:
        return len(self._states) - self._states.tolist().count(0)
