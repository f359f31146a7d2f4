"""A file of lines that is read part by part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from jrs.contract.errors import Unavailable

from .record_lines import key_in

_CHUNK = 64 << 10
_WINDOW = 4 << 10
"""Bytes that are read at once to find the end of a line."""


class LineFile:
    """A file of lines, or no lines if `path` is None.

    It is not mapped into memory: reading a mapped page that the disk cannot return, or that a
    person has cut off, kills the process with SIGBUS. Here the first is `Unavailable`, which names
    the file, and the second is damage like any other.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.size = 0
        """Bytes of lines; the file may have other parts behind them."""
        self._fd = -1
        if path is None:
            return
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(self._fd).st_size
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file, which then has no lines. Idempotent."""
        fd, self._fd, self.size = self._fd, -1, 0
        if fd >= 0:
            os.close(fd)

    def read(self, begin: int, end: int) -> bytes:
        """Return a part of the file, shorter where the file ends before.

        Raises:
            Unavailable: the disk did not return it.
        """
        begin = max(0, begin)
        if end <= begin or self._fd < 0:
            return b""
        try:
            found = os.pread(self._fd, end - begin, begin)
            while len(found) < end - begin:  # One call returns at most 2 GB, and fewer after EINTR.
                more = os.pread(self._fd, end - begin - len(found), begin + len(found))
                if not more:
                    break
                found += more
        except OSError as error:
            raise Unavailable(f"{self.path}: {error.strerror}") from error
        return found

    def find(self, part: bytes, begin: int, end: int) -> int:
        """Return where `part` first begins in these bytes of the file; -1 if it is not there."""
        size = _WINDOW
        while begin < end:
            window = self.read(begin, min(begin + size, end))
            at = window.find(part)
            if at >= 0:
                return begin + at
            if len(window) < len(part):
                return -1
            begin += len(window) - len(part) + 1
            size = _CHUNK
        return -1

    def after_newline(self, begin: int, end: int) -> int:
        """Return the offset behind the last newline in these bytes of the file; `begin` if there
        is none."""
        size = _WINDOW
        while end > begin:
            at = max(begin, end - size)
            found = self.read(at, end).rfind(b"\n")
            if found >= 0:
                return at + found + 1
            end, size = at, _CHUNK
        return begin

    def line(self, start: int) -> tuple[bytes, int]:
        """Return the line at `start` without its newline, and the offset of the next line."""
        end = self.find(b"\n", start, self.size)
        if end < 0:
            end = self.size
        return self.read(start, end), end + 1

    def lines(self, at: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the offset of each line, and the line without its newline."""
        while at < end:
            chunk = self.read(at, min(at + _CHUNK, end))
            whole = chunk.rfind(b"\n")
            if whole < 0:
                line, following = self.line(at)
                yield at, line
                at = following
                continue
            for line in chunk[:whole].split(b"\n"):
                yield at, line
                at += len(line) + 1

    def is_line_at(self, at: int) -> bool:
        """Return whether a line begins at byte `at`, as far as the byte before it shows."""
        return not at or self.read(at - 1, at) == b"\n"

    def is_record_at(self, at: int, key: bytes | None) -> bool:
        """Return whether a sound line with `key` begins at byte `at`."""
        if key is None or at >= self.size or not self.is_line_at(at):
            return False
        return key_in(self.line(at)[0]) == key
