"""Writing an attempt's logs: each stream in parts, of which the first and the newest are kept.

::

    attempt-3.err      the beginning of the stream
    attempt-3.err.7    its later parts, numbered from 1: only the newest three are kept
    attempt-3.err.8

The beginning stays, because it names versions and settings; the newest parts stay, because they
name the error. No file is ever renamed, so that a reader can follow the stream by the numbers, and
the gap between the numbers tells how much is left out. A write that fails never fails the attempt:
what cannot be written is dropped and counted, and the log says so once it can be written again.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from pathlib import Path

from jrs.contract import masks
from jrs.contract.runtime import JrsThread

PARTS = 4
"""The parts of a stream that are kept: the first, and the newest of the others."""
_CHUNK = 256 * 1024
_KEPT = 64 * 1024
"""Bytes that are kept of a stream whose log is not known yet."""


def part_path(stream: Path, number: int) -> Path:
    """Return the path of a part; 0 is the beginning."""
    return stream if number == 0 else stream.with_name(f"{stream.name}.{number}")


def parts_of(stream: Path) -> list[int]:
    """Return the numbers of the stream's parts on disk, in order; empty if it has none."""
    start = f"{stream.name}."
    try:
        names = os.listdir(stream.parent)
    except OSError:
        return []
    later = [name[len(start) :] for name in names if name.startswith(start)]
    found = [int(number) for number in later if number.isascii() and number.isdigit()]
    return sorted([*([0] if stream.name in names else ()), *found])


class LogWriter:
    """Appends to one stream's parts. Never raises: what cannot be written is dropped and counted.

    Args:
        stream: the path of its beginning.
        limit: the most bytes that all parts together take.
    """

    def __init__(self, stream: Path, limit: int) -> None:
        self._stream = stream
        self._size = max(1, limit // PARTS)
        self._number = max(parts_of(stream), default=0)
        self._file: int | None = None
        self._room = 0
        self._lost = 0
        with suppress(OSError):
            self._open()

    def write(self, data: bytes) -> None:
        """Append `data`, or drop what cannot be written."""
        if self._lost:
            note = b"\n[jrs: %d bytes of output are lost: they could not be written]\n" % self._lost
            if self._append(note) < len(note):
                self._lost += len(data)
                return
            self._lost = 0
        self._lost += len(data) - self._append(data)

    def close(self) -> None:
        """Close the file. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            # It is closed also if the disk has refused what was written; the number may be
            # another file's by now.
            with suppress(OSError):
                os.close(file)

    def _append(self, data: bytes) -> int:
        """Return how many bytes of `data` were written."""
        left = memoryview(data)
        try:
            while left:
                if self._file is None:
                    self._open()
                elif not self._room:
                    self._next()
                assert self._file is not None
                written = os.write(self._file, left[: self._room])
                self._room -= written
                left = left[written:]
        except OSError:
            pass
        return len(data) - len(left)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(part_path(self._stream, self._number), flags, 0o600)
        self._file = file
        self._room = max(0, self._size - os.fstat(file).st_size)

    def _next(self) -> None:
        self.close()
        self._number += 1
        # First remove, then write: on a full disk the old part makes room for the new one.
        if (oldest := self._number - PARTS + 1) > 0:
            with suppress(OSError):
                part_path(self._stream, oldest).unlink()
        self._open()


class Pump:
    """Moves what an attempt prints from its pipes to its logs, in a thread; masks its secrets.

    A disk that hangs holds up this thread, and not the process that ends the attempt. What is
    printed before the logs are known is kept, up to 64 KiB of each stream.
    """

    def __init__(self, streams: int) -> None:
        self._streams: dict[int, _Output] = {}
        self.ends: list[int] = []
        """For the attempt: the ends of the pipes to write to, in the order of the streams."""
        for _ in range(streams):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            self._streams[reader] = _Output()
            self.ends.append(writer)
        self._outputs = [*self._streams.values()]
        self._thread = JrsThread(target=self._run, name="jrs-logs", daemon=True)

    def start(self) -> None:
        """Begin, and close this process's own ends: the attempt has inherited them."""
        for end in self.ends:
            os.close(end)
        self._thread.start()

    def write_to(self, limit: int, *streams: Path) -> None:
        """Write each stream to a log of at most `limit` bytes, from what was kept on."""
        for output, stream in zip(self._outputs, streams, strict=True):
            output.write_to(LogWriter(stream, limit))

    def kept(self, stream: int) -> bytes:
        """Return what was kept of a stream whose log is not known."""
        return self._outputs[stream].kept

    def join(self, seconds: float) -> None:
        """Wait until every process that has inherited an end has closed it."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while self._streams:
            ready, _, _ = select.select([*self._streams], [], [])
            for reader in ready:
                output = self._streams[reader]
                if data := os.read(reader, _CHUNK):
                    output.feed(data)
                    continue
                output.close()
                os.close(reader)
                del self._streams[reader]


class _Output:
    """One stream: kept until its log is known, then written there. Safe for use by many threads."""

    def __init__(self) -> None:
        self.kept = b""
        self._masked = masks.Stream()
        self._log: LogWriter | None = None
        self._lock = threading.Lock()

    def write_to(self, log: LogWriter) -> None:
        with self._lock:
            self._log = log
            if self.kept:
                log.write(self._masked.feed(self.kept))

    def feed(self, data: bytes) -> None:
        with self._lock:
            if self._log is None:
                self.kept = (self.kept + data)[-_KEPT:]
            else:
                self._log.write(self._masked.feed(data))

    def close(self) -> None:
        with self._lock:
            if self._log is not None:
                self._log.write(self._masked.rest())
                self._log.close()
