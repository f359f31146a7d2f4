"""The logs of an attempt: bounded, in parts, never in the way of the attempt (U6)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.recovery.files import logs
from jrs.recovery.files.log_writer import LogWriter, Pump, parts_of


def read(stream: Path) -> bytes:
    return b"".join(logs.LogReader(stream).read())


def test_what_fits_is_kept_whole(tmp_path: Path) -> None:
    """U6: a stream within its limit reads back as it was written, over the bounds of its parts."""
    stream = tmp_path / "attempt-1.err"
    lines = b"".join(b"line %d\n" % number for number in range(100))
    writer = LogWriter(stream, 2000)
    for start in range(0, len(lines), 7):
        writer.write(lines[start : start + 7])

    assert len(parts_of(stream)) > 1
    assert read(stream) == lines


def test_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    """U6: of a long stream the limit is kept, its beginning and its end, and the gap is named."""
    stream = tmp_path / "attempt-1.out"
    writer = LogWriter(stream, 4000)
    for number in range(5000):
        writer.write(b"line %04d\n" % number)
    found = read(stream)

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4000
    assert found.startswith(b"line 0000\n")
    assert found.endswith(b"line 4999\n")
    assert found.count(b"bytes are left out here") == 1
    after = found.partition(b"left out here]\n")[2]
    assert after.startswith(b"line ")
    assert logs.end_of(stream, 20) == b"line 4998\nline 4999\n"


def test_another_writer_appends(tmp_path: Path) -> None:
    """A second writer of the same stream continues behind the first one's parts."""
    stream = tmp_path / "attempt-1.out"
    for text in (b"a" * 30, b"b" * 30):
        writer = LogWriter(stream, 80)
        writer.write(text)
        writer.close()

    assert read(stream) == b"a" * 30 + b"b" * 30


def test_a_reader_follows(tmp_path: Path) -> None:
    """A reader gets each byte once, also while the writer moves on to other parts."""
    stream = tmp_path / "attempt-1.err"
    writer = LogWriter(stream, 400)
    reader = logs.LogReader(stream)
    found = b""
    for number in range(30):
        writer.write(b"line %d\n" % number)
        found += b"".join(reader.read())

    assert found == b"".join(b"line %d\n" % number for number in range(30))
    assert list(reader.read()) == []


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_the_last_lines(tmp_path: Path, count: int) -> None:
    """The last lines are found, whatever parts they are in; a line without an end counts."""
    stream = tmp_path / "attempt-1.err"
    lines = [b"line %d\n" % number for number in range(20)] + [b"half"]
    LogWriter(stream, 10_000).write(b"".join(lines))

    assert (
        logs.LogReader(stream).last_lines(count) == lines[len(lines) - count if count < 21 else 0 :]
    )


class CountingReader(logs.LogReader):
    """Counts what is read from its beginning on."""

    count = 0

    def read(self) -> Iterator[bytes]:
        for data in super().read():
            self.count += len(data)
            yield data


@pytest.mark.parametrize("limit", [60_000_000, 40_000_000, 3_000_000])
def test_the_last_lines_of_a_long_log(tmp_path: Path, limit: int) -> None:
    """They are found without what is before them being read, also where they begin in the part
    before, or behind a gap; the reader then follows."""
    stream = tmp_path / "attempt-1.err"
    writer = LogWriter(stream, limit)
    lines = [b"line %d" % number + b"x" * 1000 + b"\n" for number in range(20_000)]
    for line in lines:
        writer.write(line)
    for count in (1, 40, 700):
        reader = CountingReader(stream)
        found = reader.last_lines(count)
        assert found == lines[-count:]
        assert reader.count < 2_000_000
        assert b"".join(reader.read()) == b""


@pytest.mark.parametrize("newline", [b"", b"\n"])
def test_the_last_lines_with_a_progress_bar(tmp_path: Path, newline: bytes) -> None:
    """A bar without line feeds is one line, of which only the end is read and returned; lines
    behind it are found as well."""
    stream = tmp_path / "attempt-1.err"
    bar = b"".join(b"\r%7d of 1000000" % number for number in range(400_000)) + newline
    LogWriter(stream, 40_000_000).write(b"begin\n" + bar)
    reader = CountingReader(stream)
    (found,) = reader.last_lines(1)
    cut, _, end = found.partition(b"] ")
    assert cut == b"[jrs: the beginning of this line is left out"
    assert bar.endswith(end)
    assert len(end) == 64 * 1024 + len(newline)
    assert reader.count < 1_000_000

    LogWriter(stream, 40_000_000).write(b"\nthe error\n")
    found, *rest = logs.LogReader(stream).last_lines(3 if newline else 2)
    assert found.startswith(cut)
    assert rest == ([b"\n"] if newline else []) + [b"the error\n"]
    assert b"".join(logs.LogReader(stream).read()) == b"begin\n" + bar + b"\nthe error\n"


def test_a_full_disk_drops_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U6: what a full disk refuses is dropped and counted, and the log says so afterwards."""
    stream = tmp_path / "attempt-1.err"
    writer = LogWriter(stream, 10_000)
    writer.write(b"before\n")
    real = os.write

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    writer.write(b"lost")
    writer.write(b"lost, too")
    monkeypatch.setattr(os, "write", real)
    writer.write(b"after\n")

    assert read(stream) == (
        b"before\n\n[jrs: 13 bytes of output are lost: they could not be written]\nafter\n"
    )


def test_a_missing_folder_does_not_stop_the_pump(tmp_path: Path) -> None:
    """U6: an attempt whose logs cannot be opened prints on: nothing blocks, nothing is raised."""
    pump = Pump(streams=1)
    pump.write_to(1000, tmp_path / "gone" / "attempt-1.out")
    end = os.dup(pump.ends[0])
    pump.start()
    for _ in range(100):
        os.write(end, b"x" * 65536)
    os.close(end)
    pump.join(60.0)

    assert not (tmp_path / "gone").exists()


def test_room_for_another_attempt(tmp_path: Path) -> None:
    """U6: the oldest attempts' logs go until the others leave enough room."""
    for attempt in range(1, 5):
        LogWriter(logs.stream(tmp_path, attempt, "err"), 100_000).write(b"x" * 10_000)
    logs.make_room(tmp_path, 25_000)

    assert logs.attempts(tmp_path) == [3, 4]
    assert logs.size(tmp_path) == 20_000
