"""Reading a run: looks keys up, yields records in order, and lists the damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.contract.operations import Record

from . import filter as filters
from .blocks import Block, State
from .entries import TOP, Held, span
from .filter import Filter, Hashes, hashes_of
from .index import Index, Trailer
from .line_file import LineFile
from .record_lines import ABOVE_ALL, HELD, held_line, key_in, record_in, salvaged
from .run_blocks import RunBlocks
from .two_file_blocks import TwoFileBlocks

_SHORT = 32
"""Bytes of a short line."""


class Run:
    """An open run: one file of a base, or the empty run if `path` is None.

    Args:
        path: the file.
        index: the index's file, in format 2.
        trailer: the expected end of the file, in format 3.
    """

    def __init__(
        self, path: Path | None, index: Path | None = None, trailer: Trailer | None = None
    ) -> None:
        self.path = path
        self._file = LineFile(path)
        try:
            self._blocks = (
                TwoFileBlocks(self._file, index)
                if trailer is None
                else RunBlocks(self._file, trailer)
            )
        except (OSError, Unavailable):
            self._file.close()
            raise
        self.lines_about = self.size // _SHORT if trailer is None else trailer.checks_size // 4
        """How many lines it has; in format 2 an estimate."""
        self.filter: Filter | None = None
        self._filter_flaw = ""
        if trailer is not None and path is not None:
            self.filter, self._filter_flaw = filters.load(filters.path_of(path), trailer)

    def close(self) -> None:
        self._file.close()
        if self.filter is not None:
            self.filter.close()
            self.filter = None
        self._blocks.index = Index([])

    @property
    def size(self) -> int:
        """Bytes of lines."""
        return self._file.size

    @property
    def flaws(self) -> list[str]:
        """Flaws of the file as a whole, a line for each."""
        return self._blocks.flaws

    @property
    def answers(self) -> bool:
        """Return whether a look-up can find anything: a record or a held key."""
        blocks = self._blocks
        return bool(self._file.size or blocks.lost or blocks.cut or blocks.index.lines)

    # -- looking up ------------------------------------------------------------------------

    def get(self, key: str, hashes: Hashes | None = None) -> Record | None:
        """Return the record of `key`, which may be a deletion, or None.

        Args:
            hashes: of the key, for the filter; without them the run is read.

        Raises:
            CorruptRecord: the key is held, because damage may have hit it.
        """
        record = self._find(key, hashes) if self.answers else None
        if record is not None and record.version == HELD:
            raise self._held(key, "its state was unknown when the file was written")
        return record

    def _find(self, key: str, hashes: Hashes | None) -> Record | None:
        blocks = self._blocks
        if blocks.lost:
            raise self._held(key, "the file is not what was written")
        if self.filter is not None and hashes is not None and not self.filter.may_have(hashes):
            return None
        name = key.encode()
        if blocks.index.lines:
            number = blocks.index.find(name)
            block = self._file.read(*blocks.edges(number))
            state = blocks.state(number, block)
            if state is State.HELD:
                raise self._held(key, f"the block at byte {blocks.edges(number)[0]} is another")
            if state is State.SOUND:
                # Values have no tabs, so this match is the key of a line.
                field = block.find(b"\t%s\t" % name)
                if field >= 0:
                    begin = block.rfind(b"\n", 0, field) + 1
                    record = record_in(block[begin : block.find(b"\n", field)])
                    if record is not None and record.key == key:
                        return record
                elif blocks.fits(number, block):  # It was, when it was first read.
                    return None
            elif number in blocks.remains:
                remains = blocks.remains[number]
                line = remains.lines.get(name)
                if line is None and remains.cover(name):
                    raise self._held(key, "a line is missing or damaged there")
                return None if line is None else record_in(line)
        return self._bisected(key)

    def _bisected(self, key: str) -> Record | None:
        """Return the record of `key` without the help of a sound block."""
        at, suspect = self._lower_bound(key.encode())
        behind = False
        while at < self._file.size and not behind:
            line, at = self._file.line(at)
            record = record_in(line)
            if record is not None:
                if record.key == key:
                    return record
                behind = True
        if suspect is not None:
            raise self._held(key, f"the line at byte {suspect} is damaged")
        if self._blocks.cut and not behind:
            raise self._held(key, "its end is missing")
        return None

    def _held(self, key: str, why: str) -> CorruptRecord:
        return CorruptRecord(
            f"{key}: held, because damage in {self.path} may have hit it ({why}); restore the file "
            "from a copy"
        )

    def _lower_bound(self, key: bytes) -> tuple[int, int | None]:
        """Return the offset of the first key >= `key`, and of a damaged line just before it."""
        file, blocks = self._file, self._blocks
        low, high = 0, file.size
        if blocks.index.lines:
            number = blocks.index.find(key)
            if blocks.all_found or blocks.state(number) is State.SOUND:
                low, high = blocks.edges(number)
        suspect: int | None = None
        while high > low:
            start = pivot = file.after_newline(low, (low + high) // 2)
            found = None
            following = start
            while found is None and pivot < high:
                line, following = file.line(pivot)
                found = key_in(line)
                if found is None:
                    pivot = following
            if found is None:
                # No line is readable from here to `high`: the key may be in the damaged lines.
                suspect, high = start, start
            elif found < key:
                low = following
            else:
                # Damaged lines just before the pivot may hold the key.
                suspect, high = (start if pivot > start else None), start
        return low, suspect

    # -- reading in order ------------------------------------------------------------------

    def after(self, start: str, *, inclusive: bool, up_to: str = TOP) -> Iterator[Record]:
        """Yield the records from `start` up to `up_to` in key order, if there are no runs below
        this one.

        A damaged line is yielded with the value `UNREADABLE`, so that the decoder refuses it by
        name. Lines without a readable key and blocks in the state `HELD` are skipped here and
        reported by `damage`.
        """
        for entry in self.entries(start, inclusive=inclusive, up_to=up_to):
            if isinstance(entry, Held):
                yield from entry.readable
            elif entry.version >= 0:
                yield entry

    def entries(self, start: str, *, inclusive: bool, up_to: str = TOP) -> Iterator[Record | Held]:
        """Yield the records, the deletions and the held ranges that are or begin from `start` up to
        `up_to`, in key order."""
        last, gap = start, False
        doubtful: list[Record] = []

        def held(low: str, high: str) -> Held:
            """Return a range with the damaged lines whose keys are in order; other keys are
            unreliable."""
            nonlocal last, gap
            readable = []
            for record in doubtful:
                first = inclusive and record.key == last == start
                if (record.key > last or first) and record.key < high:
                    last = record.key
                    readable.append(record)
            doubtful.clear()
            gap = False
            return Held(low, high, tuple(readable))

        for found, sound in self._found(start.encode()):
            if isinstance(found, Held):
                if gap:
                    yield held(last, found.low)
                if found.low > up_to:
                    return
                doubtful += found.readable
                yield held(found.low, found.high)
            elif not sound:
                gap = True
                doubtful += [] if found is None else [found]
            elif found is not None:
                follows = found.key > last or (inclusive and found.key == last == start)
                if gap and follows:
                    yield held(last, found.key)
                if found.key > up_to:
                    return
                if follows:
                    last = found.key
                    yield found
                gap = False
                doubtful.clear()
        if gap or self._blocks.cut:
            yield held(last, TOP)

    def _found(self, start: bytes) -> Iterator[tuple[Record | Held | None, bool]]:
        """Yield what lines and blocks say from a key on, or from a little before it, and whether
        it is trusted; None for a damaged line without a readable key."""
        blocks, index = self._blocks, self._blocks.index
        if blocks.lost:
            yield Held("", TOP), False
            return
        number = index.find(start)
        at = -1
        while number < len(index.lines):
            begin, end = blocks.edges(number)
            state = blocks.state(number)
            if blocks.index is not index:
                break  # The index belonged to another base and was discarded.
            remains = blocks.remains.get(number)
            if at < 0:
                begin = self._lower_bound(start)[0] if state is State.SOUND else begin
            if remains is not None:
                for entry in remains.entries():
                    yield entry, True
            elif state is State.HELD:
                low = (index.key(number) or b"") if number else b""
                yield Held(low.decode(), (index.key(number + 1) or ABOVE_ALL).decode()), False
            else:
                yield from self._raw(begin, end)
            number, at = number + 1, end
        if not blocks.index.lines:
            if at < 0:
                at, suspect = self._lower_bound(start)
                if suspect is not None:
                    yield None, False
            yield from self._raw(at, self._file.size)

    def _raw(self, at: int, end: int) -> Iterator[tuple[Record | None, bool]]:
        for _, line in self._file.lines(at, end):
            record = record_in(line)
            yield (salvaged(line), False) if record is None else (record, True)

    def is_damaged_between(self, low: str, high: str) -> bool:
        """Return whether damage may have hit a key from `low` to `high`; reads all lines there."""
        for entry in self.entries(low, inclusive=True) if self.answers else ():
            begin, end = span(entry)
            if begin > high:
                break
            if isinstance(entry, Held):
                if end > low:
                    return True
            elif entry.version == HELD:
                return True
        return False

    # -- for the merge ---------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Yield the whole run, block by block."""
        blocks = self._blocks
        if blocks.lost:
            yield Block(0, None, None, 0, 0, None, held=True)
            return
        for number in range(len(blocks.index.lines)):
            blocks.state(number)  # First of all: their states show whether the index is right.
        index = blocks.index
        for number in range(max(1, len(index.lines))):
            begin, end = blocks.edges(number)
            state = blocks.state(number) if index.lines else State.DAMAGED
            data = self._file.read(begin, end) if state is State.SOUND else None
            yield Block(
                number, index.key(number), index.key(number + 1), begin, end, data,
                held=state is State.HELD,
            )  # fmt: skip

    def lines(self, block: Block) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield every line as (key, line with its newline); the key of a damaged one is None."""
        remains = self._blocks.remains.get(block.number)
        if block.held:
            yield None, held_line(block.first or b"?")
        elif remains is not None:
            yield from remains.all()
        else:
            for _, line in self._file.lines(block.begin, block.end):
                yield key_in(line), line + b"\n"
        if self._blocks.cut and block.following is None:
            yield None, held_line(ABOVE_ALL)

    # -- checking --------------------------------------------------------------------------

    def damage(self) -> Iterator[str]:
        """Yield a line for each flaw of the run; reads all of it."""
        blocks = self._blocks
        yield from (f"{self.path}: {flaw}" for flaw in blocks.flaws)
        if self._filter_flaw:
            yield self._filter_flaw
        if blocks.lost:
            return
        for number in range(len(blocks.index.lines)):
            if blocks.state(number) is State.HELD or number in blocks.remains:
                first, following = blocks.index.key(number), blocks.index.key(number + 1)
                upto = f"up to {following.decode()}" if following else "onwards"
                held = "its keys are" if blocks.state(number) is State.HELD else "some keys may be"
                yield (
                    f"{self.path}: the block at byte {blocks.edges(number)[0]}, of the keys from "
                    f"{(first or b'?').decode(errors='replace')} {upto}, is not what was written; "
                    f"{held} held"
                )
        if blocks.index.lines and blocks.lost_checks:
            yield f"{self.path}: its checks are damaged"
        last = b""
        for at, line in self._file.lines(0, self._file.size):
            key = key_in(line)
            if key is None or key <= last:
                readable = salvaged(line)
                what = readable.key if readable else "?"
                yield f"{self.path}: the record of {what} at byte {at} is damaged; it is held"
            else:
                last = key
                if self.filter is not None and not self.filter.may_have(hashes_of(key)):
                    yield f"{self.path}: its filter does not have {key.decode()}; remove that file"
