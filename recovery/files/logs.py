"""The logs of a job's attempts: reading and following them, and making room for new ones.

`log_writer` says how a stream lies on disk.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from .log_writer import part_path, parts_of

STREAMS = ("out", "err")
_NAME = re.compile(r"attempt-([0-9]+)\.(out|err)(?:\.([0-9]+))?")
_CHUNK = 256 * 1024
_LONGEST = 64 * 1024
"""Bytes of a line among the last ones. A progress bar makes a line as long as a log."""
_CUT = b"[jrs: the beginning of this line is left out] "
_LEAST = 4096
"""The bytes that a file takes on disk at least."""


def stream(folder: Path, attempt: int, name: str) -> Path:
    """Return the path of an attempt's stream: of its beginning."""
    return folder / f"attempt-{attempt}.{name}"


def attempts(folder: Path) -> list[int]:
    """Return the attempts that have logs in a job's folder of logs, in order."""
    return sorted({int(match[1]) for match in map(_NAME.fullmatch, _names(folder)) if match})


def folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield each job below the folder of all jobs that has logs, and their folder; in no order."""
    try:
        found = os.scandir(root)
    except OSError:
        return
    with found:
        for entry in found:
            folder = Path(entry.path, "logs")
            if entry.name[0] != "." and entry.is_dir(follow_symlinks=False) and folder.is_dir():
                yield entry.name, folder


def size(folder: Path) -> int:
    """Return the bytes that a job's logs take."""
    return sum(_size(folder / name) for name in _names(folder))


def newest(folder: Path) -> float:
    """Return when the newest of a job's logs was written, in seconds since 1970; 0 if none is."""
    return max((_written_at(folder / name) for name in _names(folder)), default=0.0)


def make_room(folder: Path, most: int) -> None:
    """Remove the logs of the oldest attempts until all others take `most` bytes at most."""
    by_attempt: dict[int, list[Path]] = {}
    for name in _names(folder):
        if match := _NAME.fullmatch(name):
            by_attempt.setdefault(int(match[1]), []).append(folder / name)
    sizes = {number: sum(map(_size, files)) for number, files in by_attempt.items()}
    total = sum(sizes.values())
    for number in sorted(by_attempt):
        if total <= most:
            return
        for path in by_attempt[number]:
            path.unlink(missing_ok=True)
        total -= sizes[number]


def end_of(stream: Path, most: int) -> bytes:
    """Return the last bytes of a stream; empty if it cannot be read."""
    end = b""
    for number in reversed(parts_of(stream)):
        try:
            with part_path(stream, number).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - (most - len(end))))
                end = file.read() + end
        except OSError:
            break
        if len(end) >= most or number == 1:  # In front of the first later part may be a gap.
            break
    return end[-most:]


class LogReader:
    """Reads one stream from its beginning, and then what is appended to it."""

    def __init__(self, stream: Path) -> None:
        self._stream = stream
        self._number = 0
        self._offset = 0
        self._after_gap = False

    def read(self) -> Iterator[bytes]:
        """Yield what was not yet read. Where parts are left out, a line says so."""
        while True:
            yield from self._rest_of_part()
            later = [number for number in parts_of(self._stream) if number > self._number]
            if not later:
                return
            yield from self._rest_of_part()  # It is complete now: the writer has left it.
            left_out = later[0] - self._number - 1
            if left_out:
                size = _size(part_path(self._stream, 0))  # All full parts have one size.
                yield b"\n[jrs: about %d bytes are left out here]\n" % (left_out * size)
            self._number, self._offset, self._after_gap = later[0], 0, bool(left_out)

    def last_lines(self, count: int) -> list[bytes]:
        """Go from the beginning to the end; return the last lines, with 64 KiB for each at most.

        If lines are longer on average, there are fewer.
        """
        lines: deque[bytes] = deque(maxlen=max(1, count))
        line = bytearray(_CUT if self._skip_to_last(count) else b"")
        for data in self.read():
            first, *others = data.split(b"\n")
            line += first
            for other in others:
                lines.append(_bounded(line) + b"\n")
                line = bytearray(other)
            if len(line) > 2 * _LONGEST:
                del line[: -_LONGEST - 1]  # It still counts as too long.
        if line:
            lines.append(_bounded(line))
        return list(lines)[-count:] if count else []

    def _skip_to_last(self, count: int) -> bool:
        """Go to where the last lines begin, or before; return whether that is within one of
        them."""
        newlines, left = count + 2, (count + 1) * _LONGEST  # The end of a line may be left out.
        for number in reversed(parts_of(self._stream)):
            try:
                file = part_path(self._stream, number).open("rb")
            except OSError:
                break  # It is removed: read from the beginning.
            with file:
                at = os.fstat(file.fileno()).st_size
                while at:
                    size = min(_CHUNK, at, left)
                    at, left = at - size, left - size
                    file.seek(at)
                    newlines -= file.read(size).count(b"\n")
                    if newlines <= 0 or not left:
                        self._number, self._offset = number, at
                        return newlines > 0
        return False

    def _rest_of_part(self) -> Iterator[bytes]:
        try:
            file = part_path(self._stream, self._number).open("rb")
        except OSError:
            return  # It was not begun, or is removed.
        with file:
            file.seek(self._offset)
            while data := file.read(_CHUNK):
                self._offset += len(data)
                if self._after_gap:
                    _, newline, data = data.partition(b"\n")  # The end of a line that is left out.
                    self._after_gap = not newline
                if data:
                    yield data


def _bounded(line: bytearray) -> bytes:
    return bytes(line) if len(line) <= _LONGEST else _CUT + bytes(line[-_LONGEST:])


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _size(path: Path) -> int:
    try:
        return max(_LEAST, path.stat().st_size)
    except OSError:
        return 0


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
