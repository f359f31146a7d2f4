"""A mapped file of lines."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from jrs.contract.errors import Unavailable

from .lines import key_in

_CHUNK = 64 << 10


class MappedLines:
    """A file of lines, or no lines if `path` is None."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.size = 0
        """Bytes of lines; the file may have other parts behind them."""
        self.data: mmap.mmap | bytes = b""
        """The whole file."""
        self._fd = -1
        if path is None:
            return
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(self._fd).st_size
            if self.size:
                self.data = mmap.mmap(self._fd, self.size, prot=mmap.PROT_READ)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file, which then has no lines. Idempotent."""
        if isinstance(self.data, mmap.mmap):
            self.data.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.data, self.size = b"", 0

    def read(self, begin: int, end: int) -> bytes:
        """Return a small part with `pread`, which is faster than mapping its pages."""
        try:
            return os.pread(self._fd, end - begin, begin)
        except OSError as error:
            raise Unavailable(f"{self.path}: {error.strerror}") from error

    def line(self, start: int) -> tuple[bytes, int]:
        """Return the line at `start` without its newline, and the offset of the next line."""
        end = self.data.find(b"\n", start, self.size)
        if end < 0:
            end = self.size
        return bytes(self.data[start:end]), end + 1

    def lines(self, at: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the offset of each line, and the line without its newline."""
        while at < end:
            chunk = self.data[at : min(at + _CHUNK, end)]
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
        return not at or self.data[at - 1 : at] == b"\n"

    def is_record_at(self, at: int, key: bytes | None) -> bool:
        """Return whether a sound line with `key` begins at byte `at`."""
        if key is None or at >= self.size or not self.is_line_at(at):
            return False
        return key_in(self.line(at)[0]) == key
