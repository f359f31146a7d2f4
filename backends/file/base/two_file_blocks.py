"""A base of format 2: two files, the lines and their index.

It has no trailer and no recorded line checksums, and the index may be missing or belong to another
base. The keys between the neighbours of an invalid line are held, and the whole block for any other
damage. One kind of damage stays undetected: foreign but valid lines right next to an invalid line.
"""

from __future__ import annotations

from pathlib import Path

from .blocks import Blocks, State
from .index import Index, load
from .line_file import LineFile
from .record_lines import key_in


class TwoFileBlocks(Blocks):
    """The blocks of a base whose index is another file.

    Args:
        path: the index's file; None for a base without an index.
    """

    def __init__(self, file: LineFile, path: Path | None) -> None:
        super().__init__(file)
        self._compared = False
        """The whole file was compared with its index."""
        self._open(path)

    def _open(self, path: Path | None) -> None:
        """Load the index, which alone tells where the lines end."""
        loaded = load(path)
        if loaded is None:
            self.flaws += [] if path is None else [f"{path} is missing or damaged: compact the log"]
            return
        self.index = loaded
        last = len(loaded.lines) - 1
        if last < 0:
            if self.file.size and key_in(self.file.line(0)[0]) is not None:
                self._disown()
            return
        if not self.file.is_record_at(loaded.start(last) or 0, loaded.key(last)):
            self._compare()

    @property
    def all_found(self) -> bool:
        return self._compared

    def _examine(self, number: int, block: bytes) -> State:
        index, end = self.index, self.edges(number)[1]
        following = index.key(number + 1)
        if self.fits(number, block) and (
            following is None or self.file.is_record_at(end, following)
        ):
            return State.SOUND
        if not self._compared:
            self._compare()
            if not self.index.lines:
                return State.DAMAGED
        if self.fits(number, block):
            return State.SOUND  # The next block is damaged, not the index.
        if index.crc(number) == b"-":
            return State.DAMAGED
        if (
            self.file.is_line_at(self.edges(number)[0])
            and (following is None or self.file.is_record_at(end, following))
            and _is_one_gap(block)
        ):
            return State.DAMAGED
        return State.HELD

    def _compare(self) -> None:
        """Find each block after lines were removed, doubled or cut off, or discard the index."""
        self._compared = True
        index, size = self.index, self.file.size
        last = len(index.lines) - 1
        written = index.start(last) or 0
        at = self.file.find(b"\t%s\t" % index.key(last), 0, size)
        begin = self.file.after_newline(0, max(at, 0))
        shift = begin - written if at >= 0 else 0
        found = self._search(shift, size - shift)
        fitting = sum(place is not None for place in found)
        cut = written >= size
        if not cut and 2 * fitting < len(found) and self._is_whole():
            self._disown()
        elif shift or cut:
            self._place(found, size - shift)

    def _is_whole(self) -> bool:
        """Return whether all lines are valid and in order, so that the index must be wrong."""
        last = b""
        for at, line in self.file.lines(0, self.file.size):
            key = key_in(line)
            if key is None or at + len(line) >= self.file.size or key <= last:
                return False
            last = key
        return bool(last)

    def _disown(self) -> None:
        """Discard an index that belongs to another base."""
        self.flaws.append("its index belongs to another base: compact the log")
        self.index = Index([])
        self._places = None
        self._states.clear()


def _is_one_gap(block: bytes) -> bool:
    """Return whether a block has invalid lines at one place only, and all others are in order."""
    last, gaps, sound = b"", 0, True
    if not block:
        return False
    for line in block.split(b"\n")[: -1 if block.endswith(b"\n") else None]:
        key = key_in(line)
        if key is not None:
            if key <= last:
                return False
            last = key
        elif sound:
            gaps += 1
        sound = key is not None
    return gaps == 1
