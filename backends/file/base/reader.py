"""A base: the live records at a seal, one line each, sorted by key and searched in the file.

A base is mapped, never loaded. Its index has the first key of every
block of about 16 KB and the block's checksum. A look-up reads one block and trusts it only if the
checksum matches. Damage affects only the keys that the damaged part may have contained:

- in a damaged block, only lines whose checksums were recorded at writing are trusted; where such a
  line is missing, the keys between its neighbours are held;
- in a file that is too short, the keys behind its last sound line are held.

Reading a held key raises `CorruptRecord`; it is never reported as absent. A base in the old form
(format 2) has no trailer and no recorded line checksums. Its index is a separate file, which may be
missing or belong to another base. There, the keys between the neighbours of an invalid line are
held, and the whole block for any other damage. (One kind of damage stays undetected: foreign but
valid lines right next to an invalid line.)
"""

from __future__ import annotations

import mmap
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.contract.operations import Record

from ..lines import checked, held_line, unescape
from . import index as indexes
from .index import Index, Trailer

BLOCK = 16 << 10
"""Bytes after which a block ends: searching it takes a few microseconds."""

UNREADABLE = b"\0damaged"
"""The value, in a page, of a record whose key alone is readable: every decoder refuses it."""

_CHUNK = 64 << 10
_ABOVE_ALL = b"\x7f"
"""Above every byte of a key."""


class State(Enum):
    """The condition of a block."""

    SOUND = "sound"
    DAMAGED = "damaged"
    """Some of its lines are invalid; the sound lines around them are still trusted."""
    HELD = "held"
    """Its lines differ from the written ones, and the sound ones cannot be identified."""


class Base:
    """A mapped base, or the empty base if `path` is None.

    Args:
        path: the file.
        index: the index's file, in format 2.
        trailer: the expected end of the file, in format 3.
    """

    def __init__(
        self, path: Path | None, index: Path | None = None, trailer: Trailer | None = None
    ) -> None:
        self.path = path
        self.size = 0
        """Bytes of lines."""
        self.flaws: list[str] = []
        """Flaws of the file as a whole, a line for each."""
        self._fd = -1
        self._map: mmap.mmap | bytes = b""
        self._index = Index([])
        self._bound = trailer is not None
        """The index is known to belong to this base."""
        self._lost = False
        """Nothing in the file can be trusted."""
        self._cut = False
        """Keys behind the last line may have been lost."""
        self._places: list[tuple[int, int]] | None = None
        """Where each block begins and ends now, if lines were removed or doubled."""
        self._compared = False
        """The whole file was compared with its index."""
        self._states: dict[int, State] = {}
        self._checks: bytes | None = None
        """The checksum of every written line; empty if the checks are damaged."""
        self._trailer = trailer
        self._remains: dict[int, _Remains] = {}
        """The remains of the damaged blocks."""
        self._last_block = -1
        self._gap = (b"", b"")
        """Two keys with no key between them."""
        self._few: dict[str, frozenset[str] | None] = {}
        if path is None:
            return
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(self._fd).st_size
            if self.size:
                self._map = mmap.mmap(self._fd, self.size, prot=mmap.PROT_READ)
            if trailer is None:
                self._open_two_files(index)
            else:
                self._open_run(trailer)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if isinstance(self._map, mmap.mmap):
            self._map.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._map, self.size = b"", 0
        self._index = Index([])

    @property
    def answers(self) -> bool:
        """Return whether a look-up can find anything: a record or a held key."""
        return bool(self.size or self._lost or self._cut or self._index.lines)

    def get(self, key: str) -> Record | None:
        """Return the record of `key`, or None.

        Raises:
            CorruptRecord: the key is held, because damage may have hit it.
        """
        if not self.answers:
            return None
        if self._lost:
            raise self._held(key, "the file is not what was written")
        few = self._few_of(key.partition("/")[0])
        if few is not None and key not in few:
            return None
        name = key.encode()
        after, before = self._gap
        if after < name < before:
            return None
        if self._index.lines:
            number = self._index.find(name)
            block = self._read(*self._edges(number))
            state = self._state(number, block)
            if state is State.HELD:
                raise self._held(key, f"the block at byte {self._edges(number)[0]} is another")
            if state is State.SOUND:
                # Values have no tabs, so this match is the key of a line.
                field = block.find(b"\t%s\t" % name)
                if field < 0:
                    self._note_gap(number, block, name)
                    return None
                begin = block.rfind(b"\n", 0, field) + 1
                record = _record(block[begin : block.find(b"\n", field)])
                if record is not None and record.key == key:
                    return record
            elif number in self._remains:
                remains = self._remains[number]
                line = remains.lines.get(name)
                if line is None and remains.holds(name):
                    raise self._held(key, "a line is missing or damaged there")
                return None if line is None else _record(line)
        at, suspect = self._lower_bound(name)
        behind = False
        while at < self.size and not behind:
            line, at = self._line(at)
            record = _record(line)
            if record is not None:
                if record.key == key:
                    return record
                behind = True
        if suspect is not None:
            raise self._held(key, f"the line at byte {suspect} is damaged")
        if self._cut and not behind:
            raise self._held(key, "its end is missing")
        return None

    def after(self, start: str, *, inclusive: bool) -> Iterator[Record]:
        """Yield the records from `start` in key order.

        A damaged line is yielded with the value `UNREADABLE`, so that the decoder refuses it by
        name. Lines without a readable key and blocks in the state `HELD` are skipped here and
        reported by `damage`.
        """
        if not self.size or self._lost:
            return
        last = start
        doubtful: list[Record] = []

        def fitting(before: str | None) -> Iterator[Record]:
            """Yield the damaged lines whose keys are in order; other keys are unreliable."""
            nonlocal last
            for salvaged in doubtful:
                first = inclusive and salvaged.key == last == start
                if (salvaged.key > last or first) and (before is None or salvaged.key < before):
                    last = salvaged.key
                    yield salvaged
            doubtful.clear()

        for record, sound in self._records(start.encode()):
            if not sound:
                doubtful.append(record)
            elif record.key > last or (inclusive and record.key == last == start):
                yield from fitting(record.key)
                last = record.key
                yield record
        yield from fitting(None)

    def blocks(self) -> Iterator[Block]:
        """Yield the whole base, block by block."""
        if self._lost:
            yield Block(0, None, None, 0, 0, None, held=True)
            return
        for number in range(len(self._index.lines)):
            self._state(number)  # First of all: their states show whether the index is right.
        index = self._index
        for number in range(max(1, len(index.lines))):
            begin, end = self._edges(number)
            state = self._state(number) if index.lines else State.DAMAGED
            data = self._read(begin, end) if state is State.SOUND else None
            yield Block(
                number, index.key(number), index.key(number + 1), begin, end, data,
                held=state is State.HELD,
            )  # fmt: skip

    def lines(self, block: Block) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield every line as (key, line with its newline); the key of a damaged one is None."""
        remains = self._remains.get(block.number)
        if block.held:
            yield None, held_line(block.first or b"?")
        elif remains is not None:
            yield from remains.all()
        else:
            for _, line in self._lines(block.begin, block.end):
                body = checked(line)
                yield None if body is None else body.split(b"\t", 2)[1], line + b"\n"
        if self._cut and block.following is None:
            yield None, held_line(_ABOVE_ALL)

    def damage(self) -> Iterator[str]:
        """Yield a line for each flaw of the base; reads all of it."""
        yield from (f"{self.path}: {flaw}" for flaw in self.flaws)
        if self._lost:
            return
        for number in range(len(self._index.lines)):
            if self._state(number) is State.HELD or number in self._remains:
                first, following = self._index.key(number), self._index.key(number + 1)
                upto = f"up to {following.decode()}" if following else "onwards"
                held = "its keys are" if self._state(number) is State.HELD else "some keys may be"
                yield (
                    f"{self.path}: the block at byte {self._edges(number)[0]}, of the keys from "
                    f"{(first or b'?').decode(errors='replace')} {upto}, is not what was written; "
                    f"{held} held"
                )
        if self._bound and self._index.lines and not self._checked_lines():
            yield f"{self.path}: its checks are damaged"
        last = b""
        for at, line in self._lines(0, self.size):
            body = checked(line)
            key = body.split(b"\t", 2)[1] if body is not None else b""
            if body is None or key <= last:
                salvaged = _salvaged(line)
                what = salvaged.key if salvaged else "?"
                yield f"{self.path}: the record of {what} at byte {at} is damaged; it is held"
            else:
                last = key

    # -- opening ---------------------------------------------------------------------------

    def _open_two_files(self, path: Path | None) -> None:
        """Open a base of format 2, whose index alone tells where it ends."""
        loaded = indexes.load(path)
        if loaded is None:
            self.flaws += [] if path is None else [f"{path} is missing or damaged: compact the log"]
            return
        self._index = loaded
        last = len(loaded.lines) - 1
        if last < 0:
            if self.size and checked(self._line(0)[0]) is not None:
                self.flaws.append("its index belongs to another base: compact the log")
            return
        if not self._begins(loaded.start(last) or 0, loaded.key(last)):
            self._place()

    def _open_run(self, expected: Trailer) -> None:
        """Open a run: check its trailer, and that the index belongs to the run."""
        size = self.size
        end = bytes(self._map[max(0, size - indexes.TRAILER_MOST) :])
        found = Trailer.at_the_end(end)
        if found is not None and found != expected:
            self._lost, self.size = True, 0
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
            body = bytes(self._map[max(0, begin) : begin + expected.index_size])
            if begin >= 0 and indexes.digest_of(body) == expected.digest:
                self.size, self._index = begin, indexes.parse(body)
                break
        else:
            self.size = min(size, expected.size)
            self._cut = size < expected.size
            if not self._cut:
                self.flaws.append("its index is damaged")
                # The same damage may have hit the lines in front of the index.
                if not self._is_as_checked():
                    self._lost, self.size = True, 0
        if self.size != expected.size and self._index.lines:
            self._place(expected.size)

    def _place(self, size: int | None = None) -> None:
        """Find each block after lines were removed, doubled or cut off.

        `size` is the size of the lines when they were written, if known.
        """
        index, count = self._index, len(self._index.lines)
        self._compared = True
        starts = [index.start(number) or 0 for number in range(count)]
        if size is not None:
            shift = self.size - size
        else:
            at = self._map.find(b"\t%s\t" % index.key(count - 1))
            begin = self._map.rfind(b"\n", 0, max(at, 0)) + 1
            shift = begin - starts[-1] if at >= 0 else 0
            size = self.size - shift
        ends = [*starts[1:], size]
        places: list[tuple[int, int] | None] = []
        for number, (begin, end) in enumerate(zip(starts, ends, strict=True)):
            fits = None
            for moved in (0, shift):
                data = bytes(self._map[max(0, begin + moved) : max(0, end + moved)])
                if len(data) == end - begin and self._fits(number, data):
                    fits = (begin + moved, end + moved)
                    break
            places.append(fits)
        fitting = sum(place is not None for place in places)
        cut = starts[-1] >= self.size
        if not self._bound and not cut and 2 * fitting < count and self._is_whole():
            self._disown()
            return
        if not shift and not cut:
            return  # Nothing has moved.
        # The bytes between two matching blocks are the remains of the blocks that do not match.
        self._places = []
        at = 0
        for number, place in enumerate(places):
            if place is None:
                after = next((p[0] for p in places[number + 1 :] if p), self.size)
                last_lost = number + 1 >= count or places[number + 1] is not None
                end = max(at, after) if last_lost else max(at, min(ends[number], after))
                place = (at, end)
            self._places.append(place)
            at = place[1]

    def _is_as_checked(self) -> bool:
        """Return whether every line is as written; reads all of them."""
        checks = self._checked_lines()
        found = b"".join(check_of(line) for _, line in self._lines(0, self.size))
        return found == checks and all(
            checked(line) is not None or line[:1] == b"?" for _, line in self._lines(0, self.size)
        )

    def _is_whole(self) -> bool:
        """Return whether all lines are valid and in order, so that the index must be wrong."""
        last = b""
        for at, line in self._lines(0, self.size):
            body = checked(line)
            if body is None or at + len(line) >= self.size:
                return False
            last, before = body.split(b"\t", 2)[1], last
            if last <= before:
                return False
        return bool(last)

    def _disown(self) -> None:
        """Discard an index that belongs to another base."""
        self.flaws.append("its index belongs to another base: compact the log")
        self._index = Index([])
        self._places = None
        self._states.clear()
        self._remains.clear()

    # -- inside ----------------------------------------------------------------------------

    def _held(self, key: str, why: str) -> CorruptRecord:
        return CorruptRecord(
            f"{key}: held, because damage in {self.path} may have hit it ({why}); restore the file "
            "from a copy"
        )

    def _begins(self, at: int, key: bytes | None) -> bool:
        """Return whether a sound line with `key` begins at byte `at`."""
        if key is None or at >= self.size or (at and self._map[at - 1 : at] != b"\n"):
            return False
        body = checked(self._line(at)[0])
        return body is not None and body.split(b"\t", 2)[1] == key

    def _few_of(self, folder: str) -> frozenset[str] | None:
        """Return the keys that begin with this part, if they are few and all are sound.

        The result is cached, because most new keys belong to folders that are nearly empty in a
        base, such as the folder of the dirty markers.
        """
        try:
            return self._few[folder]
        except KeyError:
            pass
        name = folder.encode()
        found: frozenset[str] | None = None
        index = self._index
        numbers = range(index.find(name), index.find(name + _ABOVE_ALL) + 1) if index.lines else ()
        if (
            not self._cut
            and len(numbers) < 4
            and all(self._state(number) is State.SOUND for number in numbers)
        ):
            low, suspect = self._lower_bound(name)
            high, above = self._lower_bound(name + _ABOVE_ALL)
            if high - low <= BLOCK and suspect is None and above is None:
                records = [_record(line) for _, line in self._lines(low, high)]
                if None not in records:
                    found = frozenset(record.key for record in records if record)
        self._few[folder] = found
        return found

    def _edges(self, number: int) -> tuple[int, int]:
        """Return where a block begins and ends, always within the file."""
        if self._places is not None:
            return self._places[number]
        begin, end = self._index.start(number) or 0, self._index.start(number + 1)
        end = self.size if end is None else min(end, self.size)
        return min(begin, end), end

    def _state(self, number: int, block: bytes | None = None) -> State:
        """Return the state of a block. Cached, because computing it takes longer than a search."""
        state = self._states.get(number)
        if state is None:
            state = self._judge(
                number, self._read(*self._edges(number)) if block is None else block
            )
            if self._index.lines:
                self._states[number] = state
        return state

    def _judge(self, number: int, block: bytes) -> State:
        index, end = self._index, self._edges(number)[1]
        crc = index.crc(number) or b""
        following = index.key(number + 1)
        if self._fits(number, block) and (
            self._bound or (following is None or self._begins(end, following))
        ):
            return State.DAMAGED if crc[:1] in b"!-" else State.SOUND
        if self._bound:
            checks = self._checks_of(number)
            first = (index.key(number) or b"") if number else b""
            if checks is None:
                return State.HELD
            self._remains[number] = _Remains(
                block,
                checks,
                first,
                following or _ABOVE_ALL,
            )
            return State.DAMAGED
        if not self._compared:
            self._place()
            if not self._index.lines:
                return State.DAMAGED
        if self._fits(number, block):
            return State.SOUND  # The next block is damaged, not the index.
        if crc == b"-":
            return State.DAMAGED
        begin = self._edges(number)[0]
        whole_lines = not begin or self._map[begin - 1 : begin] == b"\n"
        if (
            whole_lines
            and (following is None or self._begins(end, following))
            and _is_one_gap(block)
        ):
            return State.DAMAGED
        return State.HELD

    def _checks_of(self, number: int) -> list[bytes] | None:
        """Return the recorded checksums of a block's lines; None if the checks are damaged."""
        checks = self._checked_lines()
        if not checks:
            return None
        low, high = self._index.ordinal(number), self._index.ordinal(number + 1)
        part = checks[4 * (low or 0) : len(checks) if high is None else 4 * high]
        return [part[at : at + 4] for at in range(0, len(part), 4)]

    def _checked_lines(self) -> bytes:
        """Return the recorded checksums of all lines; empty if the checks are damaged."""
        if self._checks is None:
            assert self._trailer is not None
            begin = self.size + self._trailer.index_size
            checks = bytes(self._map[begin : begin + self._trailer.checks_size])
            fit = indexes.digest_of(checks) == self._trailer.checks_digest
            self._checks = checks if fit else b""
        return self._checks

    def _fits(self, number: int, block: bytes) -> bool:
        crc = (self._index.crc(number) or b"").removeprefix(b"!")
        return crc == b"%08x" % zlib.crc32(block)

    def _note_gap(self, number: int, block: bytes, key: bytes) -> None:
        """Remember the keys around an absent key: new keys often come in order, and so all fall
        into one gap."""
        if number == self._last_block:
            keys = [line.split(b"\t", 3)[2] for line in block.split(b"\n")[:-1]]
            at = bisect_right(keys, key)
            following = self._index.key(number + 1) or _ABOVE_ALL
            before = keys[at] if at < len(keys) else following
            self._gap = (keys[at - 1] if at else b"", before)
        self._last_block = number

    def _lower_bound(self, key: bytes) -> tuple[int, int | None]:
        """Return the offset of the first key >= `key`, and of a damaged line just before it."""
        low, high = 0, self.size
        if self._index.lines:
            number = self._index.find(key)
            if self._bound or self._compared or self._state(number) is State.SOUND:
                low, high = self._edges(number)
        suspect: int | None = None
        while high > low:
            start = pivot = self._map.rfind(b"\n", low, (low + high) // 2) + 1 or low
            found = None
            following = start
            while found is None and pivot < high:
                line, following = self._line(pivot)
                body = checked(line)
                if body is None:
                    pivot = following
                else:
                    found = body.split(b"\t", 2)[1]
            if found is None:
                # No line is readable from here to `high`: the key may be in the damaged lines.
                suspect, high = start, start
            elif found < key:
                low = following
            else:
                # Damaged lines just before the pivot may hold the key.
                suspect, high = (start if pivot > start else None), start
        return low, suspect

    def _line(self, start: int) -> tuple[bytes, int]:
        end = self._map.find(b"\n", start, self.size)
        if end < 0:
            end = self.size
        return bytes(self._map[start:end]), end + 1

    def _lines(self, at: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the offset of each line, and the line without its newline."""
        while at < end:
            chunk = self._map[at : min(at + _CHUNK, end)]
            whole = chunk.rfind(b"\n")
            if whole < 0:
                line, following = self._line(at)
                yield at, line
                at = following
                continue
            for line in chunk[:whole].split(b"\n"):
                yield at, line
                at += len(line) + 1

    def _records(self, start: bytes) -> Iterator[tuple[Record, bool]]:
        """Yield the readable records from a key on, or a little before it, and whether each is
        trusted."""
        index = self._index
        number = index.find(start)
        at = -1
        while number < len(index.lines):
            begin, end = self._edges(number)
            state = self._state(number)
            if self._index is not index:
                break  # The index belonged to another base and was discarded.
            remains = self._remains.get(number)
            if at < 0:
                begin = self._lower_bound(start)[0] if state is State.SOUND else begin
            if remains is not None:
                yield from remains.records()
            else:
                yield from self._raw(begin, end if state is not State.HELD else begin)
            number, at = number + 1, end
        if not self._index.lines:
            yield from self._raw(self._lower_bound(start)[0] if at < 0 else at, self.size)

    def _raw(self, at: int, end: int) -> Iterator[tuple[Record, bool]]:
        for _, line in self._lines(at, end):
            record = _record(line)
            if record is None:
                record = _salvaged(line)
                if record is not None:
                    yield record, False
            else:
                yield record, True

    def _read(self, begin: int, end: int) -> bytes:
        """Return a small part with `pread`, which is faster than mapping its pages."""
        try:
            return os.pread(self._fd, end - begin, begin)
        except OSError as error:
            raise Unavailable(f"{self.path}: {error.strerror}") from error


def check_of(line: bytes) -> bytes:
    """Return the checksum that a line contains, or zeros if it contains none."""
    try:
        return bytes.fromhex(line[:8].decode())
    except ValueError:
        return bytes(4)


class _Remains:
    """The remains of a damaged block: its sound lines, and the held keys between them."""

    def __init__(self, block: bytes, checks: list[bytes], first: bytes, following: bytes) -> None:
        self.lines: dict[bytes, bytes] = {}
        """The sound lines by key, in order, without their newlines."""
        self._held: list[tuple[bytes, bytes]] = []
        """Ranges of held keys: the first key, and the key after the range."""
        self._damaged: dict[bytes, Record] = {}
        """The readable parts of other lines, by key."""
        found: dict[bytes, tuple[bytes, bytes]] = {}
        for line in block.split(b"\n"):
            body = checked(line)
            if body is not None and body.count(b"\t") >= 2:
                found[check_of(line)] = body.split(b"\t", 2)[1], line
            elif (salvaged := _salvaged(line)) is not None:
                self._damaged[salvaged.key.encode()] = salvaged
        low, missing = first, False
        for check in checks:
            if check in found:
                key, line = found[check]
                if missing:
                    self._held.append((low, key))
                low, missing = key + b"!", False  # "!" is below every byte of a key.
                self.lines[key] = line
            else:
                missing = True
        if missing:
            self._held.append((low, following))

    def holds(self, key: bytes) -> bool:
        return any(low <= key < high for low, high in self._held)

    def records(self) -> Iterator[tuple[Record, bool]]:
        """Yield the readable records in order, and whether each is trusted."""
        held = {key: record for key, record in self._damaged.items() if self.holds(key)}
        for key in sorted(self.lines.keys() | held.keys()):
            record = _record(self.lines[key]) if key in self.lines else held[key]
            if record is not None:
                yield record, key in self.lines

    def all(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield the lines like `Base.lines`."""
        parts: list[tuple[bytes, bytes | None, bytes]] = [
            (low, None, held_line(low)) for low, _ in self._held
        ]
        parts += [(key, key, line + b"\n") for key, line in self.lines.items()]
        for _, key, line in sorted(parts, key=lambda part: part[0]):
            yield key, line


def _is_one_gap(block: bytes) -> bool:
    """Return whether a block has invalid lines at one place only, and all others are in order."""
    last, gaps, sound = b"", 0, True
    if not block:
        return False
    for line in block.split(b"\n")[: -1 if block.endswith(b"\n") else None]:
        body = checked(line)
        if body is not None:
            key = body.split(b"\t", 2)[1]
            if key <= last:
                return False
            last = key
        elif sound:
            gaps += 1
        sound = body is not None
    return gaps == 1


def _record(line: bytes) -> Record | None:
    body = checked(line)
    if body is None:
        return None
    try:
        version, key, value = body.split(b"\t", 2)
        return Record(key.decode(), unescape(value), int(version))
    except ValueError:
        return None  # A line of another file.


def _salvaged(line: bytes) -> Record | None:
    if line.startswith(b"?"):
        return None  # The line only marks held keys around it.
    try:
        _, version, key, _ = line.split(b"\t", 3)
        return Record(key.decode("ascii"), UNREADABLE, int(version))
    except ValueError:
        return None


class Block(NamedTuple):
    """A part of a base: whole lines, from one first line of a block to the next."""

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
