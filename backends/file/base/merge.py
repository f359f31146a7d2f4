"""Merge: writes the next base from the previous base and the changes since.

Unchanged blocks are copied. The output depends only on the input lines, so every process writes the
same bytes.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator

from ..format.folder import write_all
from . import index as indexes
from .blocks import Block
from .index import Trailer, digest_of
from .lines import check_of, held_line, record_line
from .reader import Base

_CHUNK = 1 << 20
_SYNC = 8 << 20
"""Bytes after which a large base is synced: unsynced data delays the syncs of commits."""

_LINES = re.compile(rb"[^\n]+").findall

Change = tuple[str, tuple[bytes | None, int]]
"""A key with its escaped value and version; None for a record that was deleted."""

HELD = -1
"""The version of a held key: a commit that may have written it cannot be evaluated."""


def write_base(fd: int, base: Base, changes: Iterable[Change]) -> bytes:
    """Write `base` with `changes` (in key order) to `fd` in format 2, sync it, and return its
    index."""
    writer = _Writer(fd, flag=False)
    _write(writer, base, changes)
    index = writer.finish()
    os.fsync(fd)
    return b"%08x\n%s" % (zlib.crc32(index), index)


def write_run(fd: int, base: Base, changes: Iterable[Change]) -> Trailer:
    """Write `base` with `changes` (in key order) to `fd` in format 3, sync it, and return its
    trailer."""
    writer = _Writer(fd, flag=True)
    _write(writer, base, changes)
    index = writer.finish()
    checks = bytes(writer.checks)
    trailer = Trailer(
        writer.size, writer.count, len(index), digest_of(index), len(checks), digest_of(checks)
    )
    write_all(fd, index + checks + trailer.line())
    os.fsync(fd)
    return trailer


def _write(writer: _Writer, base: Base, changes: Iterable[Change]) -> None:
    ahead = _Ahead(changes)
    for block in base.blocks():
        if block.data is not None and block.first is not None and not ahead.concerns(block):
            writer.add_block(block.first, block.data)
        else:
            for line, sound in _merged(base, block, ahead):
                writer.add_line(line, sound)


class _Ahead:
    """The changes, with the key of the next change visible."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._changes = iter(changes)
        self._next = next(self._changes, None)
        self.key = self._key()

    def _key(self) -> bytes | None:
        return None if self._next is None else self._next[0].encode()

    def concerns(self, block: Block) -> bool:
        """Return whether the next change belongs in `block` or in an earlier block."""
        return self.key is not None and (block.following is None or self.key < block.following)

    def take(self) -> tuple[bytes | None, int]:
        assert self._next is not None
        taken = self._next[1]
        self._next = next(self._changes, None)
        self.key = self._key()
        return taken


def _merged(base: Base, block: Block, ahead: _Ahead) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of a block with its changes, and whether each is sound.

    A damaged line is repeated next to every key that it may have contained, so that no such key
    becomes absent: it follows the same sound line as before, and every line inserted behind that.
    """
    below = base.lines(block)
    gap: list[tuple[bytes, bool]] = []

    def following() -> tuple[bytes | None, bytes]:
        """Return the next sound line, and put the damaged lines before it into `gap`."""
        gap.clear()
        for key, line in below:
            if key is not None:
                return key, line
            gap.append((line, False))
        return None, b""

    key, line = following()
    yield from gap
    while ahead.concerns(block):
        name = ahead.key
        assert name is not None
        while key is not None and key < name:
            yield line, True
            key, line = following()
            yield from gap
        value, version = ahead.take()
        if version == HELD:
            yield held_line(name), False
        elif value is not None:
            yield record_line(version, name, value), True
        if key == name:
            key, line = following()
            yield from gap
        elif value is not None:
            yield from gap
    while key is not None:
        yield line, True
        key, line = following()
        yield from gap


class _Writer:
    """Writes lines and blocks, and builds their index.

    With `flag`, the index also has a checksum and a flag for a block with damaged lines. Format 2
    has neither.
    """

    def __init__(self, fd: int, *, flag: bool) -> None:
        self._fd = fd
        self._flag = flag
        self.count = 0
        self.checks = bytearray()
        self._before = self._unsynced = 0
        self._buffer = bytearray()
        self._index = bytearray()
        self._at = 0
        self._begin = self._crc = 0
        self._first: bytes | None = None
        self._sound = True

    def add_line(self, line: bytes, sound: bool) -> None:
        if sound and self._at >= self._begin + indexes.BLOCK:
            self._end_block()
        if sound and self._first is None:
            self._first = line.split(b"\t", 3)[2]
        self._sound = self._sound and sound
        self.count += sound
        if self._flag:
            self.checks += check_of(line)
        self._crc = zlib.crc32(line, self._crc)
        self._add(line)

    def add_block(self, first: bytes, data: bytes) -> None:
        """Add a block of sound lines."""
        self._end_block()
        self._first = first
        self._crc = zlib.crc32(data, self._crc)  # Damaged lines may precede the block.
        self.count += data.count(b"\n")
        if self._flag:
            self.checks += b"".join(bytes.fromhex(line[:8].decode()) for line in _LINES(data))
        self._add(data)

    @property
    def size(self) -> int:
        return self._at

    def finish(self) -> bytes:
        """Write the rest; return the index."""
        self._end_block()
        self._flush()
        return bytes(self._index)

    def _end_block(self) -> None:
        """End the block. Every block begins with a sound line, except that the first one may begin
        with damaged lines."""
        if self._first is None:
            return
        crc = b"%08x" % self._crc
        if not self._sound:
            crc = b"!" + crc if self._flag else b"-"
        ordinal = b"\t%d" % self._before if self._flag else b""
        self._index += b"%s\t%d\t%s%s\n" % (self._first, self._begin, crc, ordinal)
        self._before = len(self.checks) // 4
        self._begin, self._crc, self._first, self._sound = self._at, 0, None, True

    def _add(self, data: bytes) -> None:
        self._at += len(data)
        self._buffer += data
        if len(self._buffer) >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        write_all(self._fd, self._buffer)
        self._unsynced += len(self._buffer)
        self._buffer.clear()
        if self._unsynced >= _SYNC:
            os.fdatasync(self._fd)
            self._unsynced = 0
