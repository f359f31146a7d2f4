"""The batches of a log: what is lost, added or changed in one is noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jrs.backends.file.format import lines
from jrs.backends.file.format.batches import Damaged, Reader

FIRST = lines.sealed(b"L\t3\t0\tid")


def read(path: Path, accepted: bool = False) -> list[tuple[int, bytes]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        reader = Reader(fd, 0, FIRST, lambda at: accepted)
        return [line for batch in reader.read(os.fstat(fd).st_size) for line in batch.lines]
    finally:
        os.close(fd)


def batches(path: Path, count: int = 8) -> list[bytes]:
    """Write a log by a writer that reads what it appends; return its batches."""
    path.write_bytes(FIRST)
    made = []
    for number in range(count):
        fd = os.open(path, os.O_RDWR | os.O_APPEND)
        reader = Reader(fd, 0, FIRST, lambda at: False)
        list(reader.read(os.fstat(fd).st_size))
        made.append(reader.batch([b"C\t-\t+k/%d\t%d" % (number, n) for n in range(3)]))
        os.write(fd, made[-1])
        os.close(fd)
    return made


def test_whole_batches_and_lines(tmp_path: Path) -> None:
    """D4: a batch or a line that is removed, doubled, swapped or zeroed in front of the newest
    batch is noticed; so is each flipped bit, that of the last newline included."""
    log = tmp_path / "log"
    made = batches(log)
    whole = log.read_bytes()
    assert len(read(log)) == 24
    damaged: list[bytes] = []
    for number in range(len(made) - 1):
        rest = made[:number] + made[number + 1 :]
        damaged.append(FIRST + b"".join(rest))
        if number < len(made) - 2:  # Nearer to the end only the next batch shows it.
            damaged.append(FIRST + b"".join([*made[: number + 1], *made[number:]]))
            swapped = [*made[:number], made[number + 1], made[number], *made[number + 2 :]]
            damaged.append(FIRST + b"".join(swapped))
        zeroed = [*made[:number], bytes(len(made[number])), *made[number + 1 :]]
        damaged.append(FIRST + b"".join(zeroed))
    split = whole.splitlines(keepends=True)
    for number in range(1, len(split) - 4):
        damaged.append(b"".join(split[:number] + split[number + 1 :]))
        if number < len(split) - 8:
            damaged.append(b"".join(split[: number + 1] + split[number:]))
    damaged += [
        whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :]
        for at in range(len(FIRST), len(whole))
        for bit in (0, 5)
    ]
    for number, data in enumerate(damaged):
        log.write_bytes(data)
        with pytest.raises(Damaged):
            read(log)
            pytest.fail(f"number {number}")


def test_lines_that_are_missing_in_front_of_the_last_one(tmp_path: Path) -> None:
    """D4: whichever consecutive lines are removed, what is left is told from a torn batch by the
    line behind them."""
    log = tmp_path / "log"
    batches(log)
    split = log.read_bytes().splitlines(keepends=True)
    for begin in range(1, len(split) - 1):
        for end in range(begin + 1, len(split)):
            log.write_bytes(b"".join(split[:begin] + split[end:]))
            with pytest.raises(Damaged):
                read(log)
                pytest.fail(f"lines {begin} to {end}")


def test_the_beginning_of_the_newest_batch_is_there_twice(tmp_path: Path) -> None:
    """D4: it is told from a torn batch in front of another one, which would move all behind it."""
    log = tmp_path / "log"
    newest = batches(log)[-1]
    whole = log.read_bytes()
    for size in range(10, newest.index(b"\n")):
        log.write_bytes(whole[: -len(newest)] + newest[:size] + newest)
        with pytest.raises(Damaged):
            read(log)


def test_what_a_crash_leaves(tmp_path: Path) -> None:
    """D3: the newest batch cut anywhere, or without a sector, is no damage."""
    log = tmp_path / "log"
    made = batches(log)
    whole = log.read_bytes()
    kept = len(whole) - len(made[-1])
    fd = os.open(log, os.O_RDONLY)
    reader = Reader(fd, 0, FIRST, lambda at: False)
    list(reader.read(kept))
    os.close(fd)
    later = reader.batch([b"C\t-\t+l/%d\tv" % n for n in range(3)])
    for size in range(kept, len(whole)):
        lost = bytes(len(whole) - size)
        for tail in (b"", lost) if size == kept or size % 512 == 0 else (b"",):
            log.write_bytes(whole[:size] + tail)
            assert len(read(log)) == 21
            log.write_bytes(whole[:size] + tail + later)
            assert len(read(log)) == 24


@pytest.mark.parametrize("lost", [(1, 1, 1), (1, 14, 20), (14, 1, 40), (20, 60, 3), (1, 14, 0)])
def test_several_crashes_one_behind_the_other(tmp_path: Path, lost: tuple[int, ...]) -> None:
    """D4: what a crash left behind another crash's remnant is passed over like the first one."""
    log = tmp_path / "log"
    log.write_bytes(FIRST)
    for number, cut in enumerate((*lost, 0)):
        with log.open("r+b") as file:
            reader = Reader(file.fileno(), 0, FIRST, lambda at: False)
            list(reader.read(os.fstat(file.fileno()).st_size))
            batch = reader.batch([b"C\t-\t+k/%d\tv" % number])
            file.seek(0, os.SEEK_END)
            file.write(batch[: len(batch) - cut])
        assert len(read(log)) == [*lost, 0][: number + 1].count(0)


def test_what_was_accepted(tmp_path: Path) -> None:
    """D4: behind a batch that was removed and given up, versions are what they were."""
    log = tmp_path / "log"
    made = batches(log)
    before = {line: version for version, line in read(log)}
    log.write_bytes(FIRST + b"".join(made[:3] + made[4:]))
    after = read(log, accepted=True)
    assert len(after) == 21
    assert all(before[line] == version for version, line in after)


def test_what_no_crash_leaves_at_the_end(tmp_path: Path) -> None:
    """D4: garbage behind the newest batch, or a part of it that is there twice, is noticed."""
    log = tmp_path / "log"
    made = batches(log)
    whole = log.read_bytes()
    head, _, body = made[-1].partition(b"\n")
    more = [b"garbage", b"~~garbage", b"\n", body[:5], body, made[-1], made[-2] + made[-1]]
    damaged = [whole + end for end in more]
    damaged.append(whole.removesuffix(made[-1]) + head + b"\n" + made[-1])
    for number, data in enumerate(damaged):
        log.write_bytes(data)
        with pytest.raises(Damaged):
            read(log)
            pytest.fail(f"number {number}")
