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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jrs.backend import Record
from jrs.backends.file.lines import checked, unescape
from jrs.errors import CorruptRecord

BLOCK = 16 << 10
"""Bytes after which a block ends: a few microseconds' worth of search."""

_ABOVE_ALL = b"\x7f"
"""Above every byte of a key."""


class Base:
    """A mapped base, or the empty one where `path` is None."""

    def __init__(self, path: Path | None, index: Path | None = None) -> None:
        self.path = path
        self.size = 0
        self._map: mmap.mmap | bytes = b""
        self._index_path = index
        self._index: _Index | None = None
        self._sound: dict[int, bool] = {}
        self._last_block = -1
        self._gap = (b"", b"")
        """Two keys with none between them."""
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
        if self._is_absent(name):
            return None
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

    def blocks(self) -> Iterator[Block]:
        """Yield all of it, block by block."""
        index = self._loaded()
        ends = [*index.starts[1:], self.size]
        following = [*index.keys[1:], None]
        for number, begin in enumerate(index.starts):
            block = bytes(self._map[begin : ends[number]])
            sound = zlib.crc32(block) == index.crcs[number]
            yield Block(index.keys[number], following[number], block, sound)

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
        high, above = self._lower_bound(folder.encode() + _ABOVE_ALL)
        few: set[str] | None = None
        if high - low <= BLOCK and suspect is None and above is None:
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

    def _loaded(self) -> _Index:
        if self._index is None:
            self._index = _load_index(self._index_path)
        return self._index

    def _block(self, key: bytes) -> tuple[int, int, int]:
        """Return the number of the block where `key` stands if it does, its begin and its end."""
        index = self._index or self._loaded()
        number = max(0, bisect_right(index.keys, key) - 1)
        starts = index.starts
        return number, starts[number], starts[number + 1] if number + 1 < len(starts) else self.size

    def _is_absent(self, key: bytes) -> bool:
        """Return whether `key` certainly has no record; False if that has to be searched for."""
        after, before = self._gap
        if after < key < before:
            return True
        number, low, high = self._block(key)
        sound = self._sound.get(number)
        if sound is False:
            return False
        block = bytes(self._map[low:high])
        if sound is None:
            # Once: it costs more than the search.
            sound = self._sound[number] = zlib.crc32(block) == self._loaded().crcs[number]
        # Values have no tabs, so this is where the key of a line would stand.
        if not sound or b"\t%s\t" % key in block:
            return False
        if number == self._last_block:
            # New keys often come in order, and so all into one gap.
            keys = [line.split(b"\t", 3)[2] for line in block.split(b"\n")[:-1]]
            at = bisect_right(keys, key)
            following = self._loaded().keys[number + 1 : number + 2]
            before = keys[at] if at < len(keys) else following[0] if following else _ABOVE_ALL
            self._gap = (keys[at - 1] if at else b"", before)
        self._last_block = number
        return True

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


class Block(NamedTuple):
    """A part of a base: whole lines from one that begins a block to the next such."""

    first: bytes
    following: bytes | None
    """The first key of the next block."""
    data: bytes
    sound: bool
    """Its checksum fits: no line of it is damaged."""

    def lines(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield every line as (key, line with its newline); the key of a damaged one is None."""
        if not self.data:
            return
        for line in self.data.removesuffix(b"\n").split(b"\n"):
            body = checked(line)
            yield None if body is None else body.split(b"\t", 2)[1], line + b"\n"


class _Index(NamedTuple):
    """The blocks of a base, of which there is always one: their first keys, where they begin, and
    their checksums; None for one that has a damaged line since it was written."""

    keys: list[bytes]
    starts: list[int]
    crcs: list[int | None]


_NO_INDEX = _Index([b""], [0], [None])


def _load_index(path: Path | None) -> _Index:
    """Return an index; one of a single block, if it is not there or damaged."""
    try:
        data = b"" if path is None else path.read_bytes()
    except OSError:
        data = b""
    crc, _, body = data.partition(b"\n")
    if not body or crc != b"%08x" % zlib.crc32(body):
        return _NO_INDEX
    fields = body.replace(b"\n", b"\t").split(b"\t")[:-1]
    crcs = [None if crc == b"-" else int(crc, 16) for crc in fields[1::3]]
    return _Index(fields[2::3], list(map(int, fields[0::3])), crcs)
