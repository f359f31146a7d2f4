"""Merge: writes one run from the changes of a segment and from the runs that they lie on.

Unchanged blocks of the oldest of these runs are copied. The output depends only on the input lines,
so every process writes the same bytes.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence

from ..format.folder import write_all
from ..format.lines import escape
from . import index as indexes
from .blocks import Block
from .entries import Change, Held, span, stacked
from .filter import FilterWriter
from .index import Names, Trailer, digest_of
from .record_lines import DELETED, HELD, check_of, held_line, record_line
from .run import Run

_CHUNK = 1 << 20
_SYNC = 8 << 20
"""Bytes after which a large base is synced: unsynced data delays the syncs of commits."""

_LINES = re.compile(rb"[^\n]+").findall


def write_base(fd: int, runs: Sequence[Run], changes: Iterable[Change]) -> bytes:
    """Write `runs` with `changes` (in key order) to `fd` in format 2, sync it, and return its
    index."""
    writer = _Writer(fd)
    _write(writer, runs, changes, _Lines())
    index = writer.finish()
    os.fsync(fd)
    return b"%08x\n%s" % (zlib.crc32(index), index)


def write_run(
    fd: int,
    runs: Sequence[Run],
    changes: Iterable[Change],
    below: Names = (),
    *,
    levelled: bool = False,
) -> tuple[Trailer, FilterWriter]:
    """Write `runs` with `changes` (in key order) to `fd` in format 3, sync it, and return its
    trailer and its filter.

    Args:
        runs: the runs to merge, the newest first.
        below: the runs that the new one lies on.
        levelled: a reader knows the lines that hold a key or delete it.
    """
    made = list(changes)
    filtered = FilterWriter(len(made) + sum(run.lines_about for run in runs))
    writer = _Writer(fd, filtered)
    _write(writer, runs, made, _Lines(levelled=levelled, deletions=bool(below)))
    index = writer.finish()
    checks = bytes(writer.checks)
    trailer = Trailer(
        writer.size, writer.count, len(index), digest_of(index), len(checks), digest_of(checks),
        below,
    )  # fmt: skip
    write_all(fd, index + checks + trailer.line())
    os.fsync(fd)
    return trailer, filtered


def _write(writer: _Writer, runs: Sequence[Run], changes: Iterable[Change], lines: _Lines) -> None:
    *newer, oldest = runs or [Run(None)]
    found: Iterator[Change | Held] = iter(changes)
    for run in newer:
        found = stacked(found, _changes_of(run))
    ahead = _Ahead(found)
    for block in oldest.blocks():
        if block.data is not None and block.first is not None and not ahead.concerns(block):
            writer.add_block(block.first, block.data)
        else:
            for line, sound in _merged(oldest, block, ahead, lines):
                writer.add_line(line, sound)


def _changes_of(run: Run) -> Iterator[Change | Held]:
    """Yield what a run says, as changes of the runs below it."""
    for entry in run.entries("", inclusive=True):
        if isinstance(entry, Held):
            yield entry
        else:
            value = None if entry.version < 0 else escape(entry.value)
            yield entry.key, (value, entry.version)


class _Lines:
    """How a change is written: it depends on the readers and on what lies below."""

    def __init__(self, *, levelled: bool = False, deletions: bool = False) -> None:
        self._levelled = levelled
        self._deletions = deletions

    def of(self, key: bytes, value: bytes | None, version: int) -> tuple[bytes, bool] | None:
        """Return the line of a change, and whether it is sound; None if none is needed."""
        if value is not None:
            return record_line(version, key, value), True
        if version == HELD:
            return (record_line(HELD, key), True) if self._levelled else (held_line(key), False)
        return (record_line(DELETED, key), True) if self._deletions else None


class _Ahead:
    """The changes and the held ranges, with the next one visible."""

    def __init__(self, changes: Iterable[Change | Held]) -> None:
        self._changes = iter(changes)
        self._show(next(self._changes, None))

    def _show(self, entry: Change | Held | None) -> None:
        self.entry = entry
        self.key = None if entry is None else span(entry)[0].encode()

    def concerns(self, block: Block) -> bool:
        """Return whether the next change belongs in `block` or in an earlier block."""
        return self.key is not None and (block.following is None or self.key < block.following)

    def pass_by(self) -> None:
        self._show(next(self._changes, None))

    def pass_range(self, held: Held, following: bytes | None) -> None:
        """Pass by a range, or by the part of it that is in front of the key `following`."""
        if following is None or held.high.encode() <= following:
            self.pass_by()
        else:
            self._show(held._replace(low=following.decode()))


def _merged(run: Run, block: Block, ahead: _Ahead, lines: _Lines) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of a block with its changes, and whether each is sound.

    A damaged line is repeated next to every key that it may have contained, so that no such key
    becomes absent: it follows the same sound line as before, and every line inserted behind that.
    """
    below = run.lines(block)
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
        name, entry = ahead.key, ahead.entry
        assert name is not None
        assert entry is not None
        while key is not None and key < name:
            yield line, True
            key, line = following()
            yield from gap
        if isinstance(entry, Held):
            yield held_line(name), False
            while key is not None and key < entry.high.encode():
                key, line = following()
            yield from gap
            ahead.pass_range(entry, block.following)
            continue
        written = lines.of(name, *entry[1])
        if written is not None:
            yield written
        if key == name:
            key, line = following()
            yield from gap
        elif written is not None and written[1]:
            yield from gap
        ahead.pass_by()
    while key is not None:
        yield line, True
        key, line = following()
        yield from gap


class _Writer:
    """Writes lines and blocks, and builds their index.

    With a filter, as in format 3, the index also has a checksum and a flag for a block with damaged
    lines. Format 2 has none of these.
    """

    def __init__(self, fd: int, filtered: FilterWriter | None = None) -> None:
        self._fd = fd
        self._filtered = filtered
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
        if self._filtered is not None:
            self.checks += check_of(line)
            if sound:
                self._filtered.add(line.split(b"\t", 3)[2])
            else:
                self._filtered.give_up()
        self._crc = zlib.crc32(line, self._crc)
        self._add(line)

    def add_block(self, first: bytes, data: bytes) -> None:
        """Add a block of sound lines."""
        self._end_block()
        self._first = first
        self._crc = zlib.crc32(data, self._crc)  # Damaged lines may precede the block.
        self.count += data.count(b"\n")
        if self._filtered is not None:
            for line in _LINES(data):
                self.checks += bytes.fromhex(line[:8].decode())
                self._filtered.add(line.split(b"\t", 3)[2])
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
            crc = b"!" + crc if self._filtered is not None else b"-"
        ordinal = b"\t%d" % self._before if self._filtered is not None else b""
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
