"""The blocks of a run of format 3: one file with its index, its checks and its trailer.

- In a damaged block, only lines whose checksums were recorded at writing are trusted; where such a
  line is missing, the keys between its neighbours are held.
- In a file that is too short, the keys behind its last sound line are held.
"""

from __future__ import annotations

from ..format.lines import checked
from .blocks import Blocks, State
from .index import TRAILER_MOST, Trailer, digest_of, parse
from .line_file import LineFile
from .record_lines import ABOVE_ALL, check_of
from .remains import Remains


class RunBlocks(Blocks):
    """The blocks of a run.

    Args:
        trailer: the expected end of the file.
    """

    def __init__(self, file: LineFile, trailer: Trailer) -> None:
        super().__init__(file)
        self._trailer = trailer
        self._checks: bytes | None = None
        """The checksum of every written line; empty if the checks are damaged."""
        self._open()

    def _open(self) -> None:
        """Check the trailer, and that the index belongs to the run."""
        file, expected = self.file, self._trailer
        size = file.size
        end = file.read(size - TRAILER_MOST, size)
        found = Trailer.at_the_end(end)
        if found is not None and found != expected:
            self.lost, file.size = True, 0
            self.flaws.append("it is not the run that its segment names")
            return
        if size != expected.total():
            self.flaws.append(f"it has {size} bytes instead of {expected.total()}")
        elif found is None:
            self.flaws.append("its trailer is damaged")
        # If lines were removed, the index is found from the end of the file.
        parts = expected.index_size + expected.checks_size
        behind = size - len(expected.line()) if found else expected.size + parts
        for begin in (behind - parts, expected.size):
            body = file.read(begin, begin + expected.index_size)
            if begin >= 0 and digest_of(body) == expected.digest:
                file.size, self.index = begin, parse(body)
                break
        else:
            file.size = min(size, expected.size)
            self.cut = size < expected.size
            if not self.cut:
                self.flaws.append("its index is damaged")
                # The same damage may have hit the lines in front of the index.
                if not self._is_as_checked():
                    self.lost, file.size = True, 0
        if file.size != expected.size and self.index.lines:
            self._place(self._search(file.size - expected.size, expected.size), expected.size)

    @property
    def all_found(self) -> bool:
        return True

    @property
    def lost_checks(self) -> bool:
        return not self._checked_lines()

    def _examine(self, number: int, block: bytes) -> State:
        if self.fits(number, block):
            crc = self.index.crc(number) or b""
            return State.DAMAGED if crc[:1] in b"!-" else State.SOUND
        checks = self._checks_of(number)
        if checks is None:
            return State.HELD
        first = (self.index.key(number) or b"") if number else b""
        following = self.index.key(number + 1) or ABOVE_ALL
        self.remains[number] = Remains(block, checks, first, following)
        return State.DAMAGED

    def _checks_of(self, number: int) -> list[bytes] | None:
        """Return the recorded checksums of a block's lines; None if the checks are damaged."""
        checks = self._checked_lines()
        if not checks:
            return None
        low, high = self.index.ordinal(number), self.index.ordinal(number + 1)
        part = checks[4 * (low or 0) : len(checks) if high is None else 4 * high]
        return [part[at : at + 4] for at in range(0, len(part), 4)]

    def _checked_lines(self) -> bytes:
        """Return the recorded checksums of all lines; empty if the checks are damaged."""
        if self._checks is None:
            begin = self.file.size + self._trailer.index_size
            checks = self.file.read(begin, begin + self._trailer.checks_size)
            fit = digest_of(checks) == self._trailer.checks_digest
            self._checks = checks if fit else b""
        return self._checks

    def _is_as_checked(self) -> bool:
        """Return whether every line is as written; reads all of them."""
        checks = self._checked_lines()
        size = self.file.size
        found = b"".join(check_of(line) for _, line in self.file.lines(0, size))
        return found == checks and all(
            checked(line) is not None or line[:1] == b"?" for _, line in self.file.lines(0, size)
        )
