"""A base: the live records at a seal, one line each, sorted by key; searched where it lies.

It is mapped, never loaded, and every line that a search visits is checked by its checksum. A
damaged line costs the answers that depend on it, and no others. An index beside it has the first
key of every block of about 16 KB and the block's checksum, so that a search needs no more than one
look through one block; without it, or where it is damaged, searches only take longer.
"""

from __future__ import annotations

import mmap
import os
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jrs.backend import Record
from jrs.backends.file.lines import checked, unescape
from jrs.errors import CorruptRecord, Unavailable

BLOCK = 16 << 10
"""Bytes after which a block ends: a few microseconds' worth of search."""

_CHUNK = 64 << 10

_ABOVE_ALL = b"\x7f"
"""Above every byte of a key."""


class Base:
    """A mapped base, or the empty one where `path` is None."""

    def __init__(self, path: Path | None, index: Path | None = None) -> None:
        self.path = path
        self.size = 0
        self._fd = -1
        self._map: mmap.mmap | bytes = b""
        self._index_path = index
        self._index: _Index | None = None
        self._sound: dict[int, bool] = {}
        self._last_block = -1
        self._gap = (b"", b"")
        """Two keys with none between them."""
        self._few: dict[str, frozenset[str] | None] = {}
        if path is not None:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.size = os.fstat(self._fd).st_size
                if self.size:
                    self._map = mmap.mmap(self._fd, self.size, prot=mmap.PROT_READ)
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
        self._index = None

    def get(self, key: str) -> Record | None:
        """Return the record of `key`, or None.

        Raises:
            CorruptRecord: a damaged line stands where the key would be.
        """
        if not self.size:
            return None
        few = self._few_of(key.partition("/")[0])
        if few is not None and key not in few:
            return None
        name = key.encode()
        after, before = self._gap
        if after < name < before:
            return None
        number, low, high = self._block(name)
        if self._loaded().lines:
            block = self._read(low, high)
            # Values have no tabs, so this is where the key of a line stands.
            field = block.find(b"\t%s\t" % name)
            if field >= 0:
                begin = block.rfind(b"\n", 0, field) + 1
                record = _record(block[begin : block.find(b"\n", field)])
                if record is not None and record.key == key:
                    return record
            elif self._is_sound(number, block):
                self._note_gap(number, block, name)
                return None
        at, suspect = self._lower_bound(name)
        while at < self.size:
            line, at = self._line(at)
            record = _record(line)
            if record is not None:
                if record.key == key:
                    return record
                break
        if suspect is not None:
            raise CorruptRecord(
                f"{key}: can not be told from the damaged line at byte {suspect} of {self.path}"
            )
        return None

    def after(self, start: str, *, inclusive: bool) -> Iterator[Record]:
        """Yield the records from `start` in key order.

        A damaged line is yielded as far as it can be read, so that what decodes its value refuses
        it by name; one without a readable key is passed over here and named by `damage`.
        """
        if not self.size:
            return
        last = start
        doubtful: list[Record] = []

        def fitting(before: str | None) -> Iterator[Record]:
            """Yield the damaged lines whose keys are in order; of the others none can be told."""
            nonlocal last
            for salvaged in doubtful:
                first = inclusive and salvaged.key == last == start
                if (salvaged.key > last or first) and (before is None or salvaged.key < before):
                    last = salvaged.key
                    yield salvaged
            doubtful.clear()

        for _, line in self._lines(self._lower_bound(start.encode())[0], self.size):
            record = _record(line)
            if record is None:
                salvaged = _salvaged(line)
                if salvaged is not None:
                    doubtful.append(salvaged)
            elif record.key > start or (inclusive and record.key == start):
                yield from fitting(record.key)
                last = record.key
                yield record
        yield from fitting(None)

    def blocks(self) -> Iterator[Block]:
        """Yield all of it, block by block."""
        index = self._loaded()
        for number in range(max(1, len(index.lines))):
            begin, end = self._edges(number)
            data = self._read(begin, end) if index.lines else b""
            sound = bool(data) and self._is_sound(number, data)
            yield Block(
                index.key(number), index.key(number + 1), begin, end, data if sound else None
            )

    def lines(self, block: Block) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield every line as (key, line with its newline); the key of a damaged one is None."""
        for _, line in self._lines(block.begin, block.end):
            body = checked(line)
            yield None if body is None else body.split(b"\t", 2)[1], line + b"\n"

    def damage(self) -> Iterator[tuple[int, str]]:
        """Yield the offset and the apparent key of every damaged line; reads the whole base."""
        last = b""
        for at, line in self._lines(0, self.size):
            body = checked(line)
            key = body.split(b"\t", 2)[1] if body is not None else b""
            if body is None or key <= last:
                salvaged = _salvaged(line)
                yield at, salvaged.key if salvaged else "?"
            else:
                last = key

    # -- inside ----------------------------------------------------------------------------

    def _few_of(self, folder: str) -> frozenset[str] | None:
        """Return the keys that begin with this part, if they are few and none is in doubt.

        Remembered: most new keys are of folders that are nearly empty in a base, such as that of
        the dirty markers.
        """
        try:
            return self._few[folder]
        except KeyError:
            pass
        low, suspect = self._lower_bound(folder.encode())
        high, above = self._lower_bound(folder.encode() + _ABOVE_ALL)
        few: set[str] | None = None
        if high - low <= BLOCK and suspect is None and above is None:
            few = set()
            for _, line in self._lines(low, high):
                record = _record(line)
                if record is None:
                    few = None
                    break
                few.add(record.key)
        found = self._few[folder] = None if few is None else frozenset(few)
        return found

    def _loaded(self) -> _Index:
        if self._index is None:
            self._index = _load_index(self._index_path)
        return self._index

    def _block(self, key: bytes) -> tuple[int, int, int]:
        """Return the number of the block where `key` stands if it does, its begin and its end."""
        number = self._loaded().find(key)
        return number, *self._edges(number)

    def _edges(self, number: int) -> tuple[int, int]:
        index = self._loaded()
        end = index.start(number + 1)
        return index.start(number) or 0, self.size if end is None else end

    def _is_sound(self, number: int, block: bytes) -> bool:
        """Return whether no line of a block is damaged; computed once, as it takes longer than a
        search."""
        sound = self._sound.get(number)
        if sound is None:
            sound = self._sound[number] = self._loaded().crc(number) == b"%08x" % zlib.crc32(block)
        return sound

    def _note_gap(self, number: int, block: bytes, key: bytes) -> None:
        """Take note of the keys around one that is not there: new keys often come in order, and so
        all into one gap."""
        if number == self._last_block:
            keys = [line.split(b"\t", 3)[2] for line in block.split(b"\n")[:-1]]
            at = bisect_right(keys, key)
            following = self._loaded().key(number + 1) or _ABOVE_ALL
            before = keys[at] if at < len(keys) else following
            self._gap = (keys[at - 1] if at else b"", before)
        self._last_block = number

    def _lower_bound(self, key: bytes) -> tuple[int, int | None]:
        """Return where the first key >= `key` begins, and a damaged line just before it, if any."""
        _, low, high = self._block(key)
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
                # Nothing readable from here to `high`: the key may be in the damaged lines.
                suspect, high = start, start
            elif found < key:
                low = following
            else:
                # Damaged lines just before the pivot may hold the key.
                suspect, high = (start if pivot > start else None), start
        return low, suspect

    def _line(self, start: int) -> tuple[bytes, int]:
        end = self._map.find(b"\n", start)
        if end < 0:
            end = self.size
        return bytes(self._map[start:end]), end + 1

    def _lines(self, at: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield where each line begins, and the line without its newline."""
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

    def _read(self, begin: int, end: int) -> bytes:
        """Return a small part: read, since mapping its pages would take longer."""
        try:
            return os.pread(self._fd, end - begin, begin)
        except OSError as error:
            raise Unavailable(f"{self.path}: {error.strerror}") from error


def _record(line: bytes) -> Record | None:
    body = checked(line)
    if body is None:
        return None
    version, key, value = body.split(b"\t", 2)
    return Record(key.decode(), unescape(value), int(version))


def _salvaged(line: bytes) -> Record | None:
    try:
        _, version, key, value = line.split(b"\t", 3)
        return Record(key.decode("ascii"), value, int(version))
    except ValueError:
        return None


class Block(NamedTuple):
    """A part of a base: whole lines from one that begins a block to the next such."""

    first: bytes | None
    following: bytes | None
    """The first key of the next block."""
    begin: int
    end: int
    data: bytes | None
    """All of it, if no line of it is damaged."""


class _Index:
    """The blocks of a base: one line each, of the block's first key, where it begins, and its
    checksum, or ``-`` where a damaged line was in it already when it was written."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    def find(self, key: bytes) -> int:
        """Return the number of the block where `key` stands if it does."""
        # What follows a key in its line sorts before whatever could continue the key.
        return max(0, bisect_left(self.lines, key + b"\n") - 1)

    def key(self, number: int) -> bytes | None:
        return self._field(number, 0)

    def start(self, number: int) -> int | None:
        field = self._field(number, 1)
        return None if field is None else int(field)

    def crc(self, number: int) -> bytes | None:
        return self._field(number, 2)

    def _field(self, number: int, at: int) -> bytes | None:
        return self.lines[number].split(b"\t")[at] if number < len(self.lines) else None


def _load_index(path: Path | None) -> _Index:
    """Return an index; an empty one, if it is not there or damaged."""
    try:
        data = b"" if path is None else path.read_bytes()
    except OSError:
        data = b""
    crc, _, body = data.partition(b"\n")
    if not body or crc != b"%08x" % zlib.crc32(body):
        return _Index([])
    return _Index(body.removesuffix(b"\n").split(b"\n"))
