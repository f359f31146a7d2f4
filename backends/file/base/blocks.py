"""The blocks of a run: where each is in the file now, and whether it can be trusted.

The index says where each block was and what it contained when it was written. Damage may have
removed or doubled lines since, so that the blocks behind the damage have moved.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from enum import Enum
from typing import NamedTuple

from .index import Index
from .line_file import LineFile
from .remains import Remains


class State(Enum):
    """The condition of a block."""

    SOUND = "sound"
    DAMAGED = "damaged"
    """Some of its lines are invalid; the sound lines around them are still trusted."""
    HELD = "held"
    """Its lines differ from the written ones, and the sound ones cannot be identified."""


class Block(NamedTuple):
    """A part of a run: whole lines, from one first line of a block to the next."""

    number: int
    first: bytes | None
    following: bytes | None
    """The first key of the next block."""
    begin: int
    end: int
    data: bytes | None
    """The whole block; None if a line is damaged."""
    held: bool
    """Nothing in the block can be trusted."""


class Blocks(ABC):
    """The blocks of one run. The two forms of a run differ in how they examine damage."""

    def __init__(self, file: LineFile) -> None:
        self.file = file
        self.index = Index([])
        self.flaws: list[str] = []
        """Flaws of the file as a whole, a line for each."""
        self.lost = False
        """Nothing in the file can be trusted."""
        self.cut = False
        """Keys behind the last line may have been lost."""
        self.remains: dict[int, Remains] = {}
        """The remains of the damaged blocks."""
        self._places: list[tuple[int, int]] | None = None
        """Where each block begins and ends now, if lines were removed or doubled."""
        self._states: dict[int, State] = {}

    @property
    @abstractmethod
    def all_found(self) -> bool:
        """Return whether `edges` is right for every block, even for a damaged one."""

    @property
    def lost_checks(self) -> bool:
        """Return whether the recorded checksums of the lines are damaged."""
        return False

    def edges(self, number: int) -> tuple[int, int]:
        """Return where a block begins and ends, always within the file."""
        if self._places is not None:
            return self._places[number]
        begin, end = self.index.start(number) or 0, self.index.start(number + 1)
        end = self.file.size if end is None else min(end, self.file.size)
        return min(begin, end), end

    def state(self, number: int, block: bytes | None = None) -> State:
        """Return the state of a block, whose bytes the caller may already have read.

        Cached, because computing it takes longer than a search.
        """
        state = self._states.get(number)
        if state is None:
            state = self._examine(
                number, self.file.read(*self.edges(number)) if block is None else block
            )
            if self.index.lines:
                self._states[number] = state
        return state

    @abstractmethod
    def _examine(self, number: int, block: bytes) -> State:
        """Return the state of a block with these bytes; may keep the remains of a damaged one."""

    def fits(self, number: int, block: bytes) -> bool:
        """Return whether these are the bytes that were written as this block."""
        crc = (self.index.crc(number) or b"").removeprefix(b"!")
        return crc == b"%08x" % zlib.crc32(block)

    def _search(self, shift: int, size: int) -> list[tuple[int, int] | None]:
        """Return where each block is that has not moved, or has moved by `shift`; None for others.

        `size` is the size of the lines when they were written.
        """
        places: list[tuple[int, int] | None] = []
        for number, (begin, end) in enumerate(self._written(size)):
            fits = None
            for moved in (0, shift):
                data = self.file.read(begin + moved, end + moved)
                if len(data) == end - begin and self.fits(number, data):
                    fits = (begin + moved, end + moved)
                    break
            places.append(fits)
        return places

    def _place(self, found: list[tuple[int, int] | None], size: int) -> None:
        """Give every block a place: the bytes between two matching blocks are the remains of the
        blocks that do not match."""
        self._places = []
        at = 0
        written = self._written(size)
        for number, place in enumerate(found):
            if place is None:
                after = next((p[0] for p in found[number + 1 :] if p), self.file.size)
                last_lost = number + 1 >= len(found) or found[number + 1] is not None
                end = max(at, after) if last_lost else max(at, min(written[number][1], after))
                place = (at, end)
            self._places.append(place)
            at = place[1]

    def _written(self, size: int) -> list[tuple[int, int]]:
        """Return where each block began and ended when it was written."""
        starts = [self.index.start(number) or 0 for number in range(len(self.index.lines))]
        return list(zip(starts, [*starts[1:], size], strict=True))
