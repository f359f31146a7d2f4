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
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from jrs.backend import Record
from jrs.backends.file.lines import base_line, checked, unescape
from jrs.errors import CorruptRecord

_CHUNK = 1 << 20
_BLOCK = 16 << 10
"""Bytes that are searched for a key sooner than bisected further: a few microseconds' worth."""


class Base:
    """A mapped base, or the empty one where `path` is None."""

    def __init__(self, path: Path | None, index: Path | None = None) -> None:
        self.path = path
        self.size = 0
        self._map: mmap.mmap | bytes = b""
        self._index_path = index
        self._index: _Index | None = None
        self._sound: dict[int, bool] = {}
        self._few: dict[str, frozenset[str] | None] = {}
        if path is not None:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.size = os.fstat(fd).st_size
                if self.size:
                    self._map = mmap.mmap(fd, self.size, prot=mmap.PROT_READ)
            finally:
                os.close(fd)

    def close(self) -> None:
        if isinstance(self._map, mmap.mmap):
            self._map.close()
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
        block = self._sound_block(name)
        if block is not None:
            # Values have no tabs, so this is where the key of a line stands.
            field = block.find(b"\t%s\t" % name)
            if field < 0:
                return None
            end = block.find(b"\n", field)
            record = self._record(block[block.rfind(b"\n", 0, field) + 1 : end])
            if record is not None and record.key == key:
                return record
        at, suspect = self._lower_bound(name)
        while at < self.size:
            line, at = self._line(at)
            record = self._record(line)
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
        at = self._lower_bound(start.encode())[0] if self.size else 0
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

        while at < self.size:
            line, at = self._line(at)
            record = self._record(line)
            if record is None:
                salvaged = _salvaged(line)
                if salvaged is not None:
                    doubtful.append(salvaged)
            elif record.key > start or (inclusive and record.key == start):
                yield from fitting(record.key)
                last = record.key
                yield record
        yield from fitting(None)

    def lines(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield every line as (key, line with its newline); the key of a damaged one is None."""
        at = 0
        while at < self.size:
            line, at = self._line(at)
            body = checked(line)
            yield None if body is None else body.split(b"\t", 2)[1], line + b"\n"

    def damage(self) -> Iterator[tuple[int, str]]:
        """Yield the offset and the apparent key of every damaged line; reads the whole base."""
        at, last = 0, b""
        while at < self.size:
            line, following = self._line(at)
            body = checked(line)
            key = body.split(b"\t", 2)[1] if body is not None else b""
            if body is None or key <= last:
                salvaged = _salvaged(line)
                yield at, salvaged.key if salvaged else "?"
            else:
                last = key
            at = following

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
        # Up to the first byte that no part of a key holds and that is above them all.
        high, above = self._lower_bound(folder.encode() + b"\x7f")
        few: set[str] | None = None
        if high - low <= _BLOCK and suspect is None and above is None:
            few = set()
            while low < high and few is not None:
                line, low = self._line(low)
                record = self._record(line)
                if record is None:
                    few = None
                else:
                    few.add(record.key)
        found = self._few[folder] = None if few is None else frozenset(few)
        return found

    def _block(self, key: bytes) -> tuple[int, int, int]:
        """Return the number of the block where `key` would stand, where it begins and ends."""
        if self._index is None:
            self._index = _load_index(self._index_path)
        starts = self._index.starts
        number = bisect_right(self._index.keys, key) - 1
        low = starts[number] if number >= 0 else 0
        return number, low, starts[number + 1] if number + 1 < len(starts) else self.size

    def _sound_block(self, key: bytes) -> bytes | None:
        """Return the block where `key` stands if it does at all; None if that is not certain."""
        number, low, high = self._block(key)
        sound = self._sound.get(number)
        if sound is False:
            return None
        block = self._map[low:high]
        if sound is None:
            assert self._index is not None
            crc = self._index.crcs[number] if number >= 0 else b""
            # Once: it costs more than the search.
            sound = self._sound[number] = crc == b"%08x" % zlib.crc32(block)
        return block if sound else None

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

    @staticmethod
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


Change = tuple[str, tuple[bytes | None, int]]
"""A key with its escaped value and version; None for a record that was deleted."""


def write_base(fd: int, base: Base, changes: Iterable[Change]) -> bytes:
    """Write `base` with `changes` (in key order) over it to `fd`; sync it, return its index."""
    buffer = bytearray()
    index = bytearray()
    begin = crc = at = 0
    first: bytes | None = None
    sound = True
    for line, is_sound in _merged(base, changes):
        if is_sound and (first is None or at >= begin + _BLOCK):
            if first is not None:
                index += _index_line(begin, crc if sound else None, first)
            begin, crc, first, sound = at, 0, line.split(b"\t", 3)[2], True
        sound = sound and is_sound
        crc = zlib.crc32(line, crc)
        at += len(line)
        buffer += line
        if len(buffer) >= _CHUNK:
            write_all(fd, buffer)
            buffer.clear()
    if first is not None:
        index += _index_line(begin, crc if sound else None, first)
    write_all(fd, buffer)
    os.fsync(fd)
    return b"%08x\n%s" % (zlib.crc32(index), index)


class _Index(NamedTuple):
    """The blocks of a base: their first keys, where they begin, and their checksums in hex."""

    keys: list[bytes]
    starts: list[int]
    crcs: list[bytes]


def _index_line(start: int, crc: int | None, key: bytes) -> bytes:
    """Return a line of an index; no checksum for a block with a damaged line in it."""
    return b"%d\t%s\t%s\n" % (start, b"-" if crc is None else b"%08x" % crc, key)


def _load_index(path: Path | None) -> _Index:
    """Return an index; one of no blocks, if it is not there or damaged."""
    try:
        data = b"" if path is None else path.read_bytes()
    except OSError:
        data = b""
    crc, _, body = data.partition(b"\n")
    if crc != b"%08x" % zlib.crc32(body):
        return _Index([], [], [])
    fields = body.replace(b"\n", b"\t").split(b"\t")[:-1]
    return _Index(fields[2::3], list(map(int, fields[0::3])), fields[1::3])


def _merged(base: Base, changes: Iterable[Change]) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of the new base, and whether each is sound.

    A damaged line stays beside every key that it may have held, so that what can not be told does
    not become absent: it follows the sound line that it followed, and again what comes behind it.
    """
    below = base.lines()
    gap: list[tuple[bytes, bool]] = []

    def ahead() -> tuple[bytes | None, bytes]:
        """Return the next sound line; the damaged ones before it are left in `gap`."""
        gap.clear()
        for key, line in below:
            if key is not None:
                return key, line
            gap.append((line, False))
        return None, b""

    key, line = ahead()
    yield from gap
    for changed, (value, version) in changes:
        name = changed.encode()
        while key is not None and key < name:
            yield line, True
            key, line = ahead()
            yield from gap
        if value is not None:
            yield base_line(version, name, value), True
        if key == name:
            key, line = ahead()
            yield from gap
        elif value is not None:
            yield from gap
    while key is not None:
        yield line, True
        key, line = ahead()
        yield from gap


def write_all(fd: int, data: bytes | bytearray) -> None:
    """Write all of `data`, however often that takes."""
    with memoryview(data) as view:
        written = 0
        while written < len(view):
            written += os.write(fd, view[written:])
