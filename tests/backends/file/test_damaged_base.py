"""A base with damage of every kind: each key is answered as before or held, and it is named."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jrs.backends.file.base import UNREADABLE, Run
from jrs.backends.file.base import index as index_module
from jrs.backends.file.base.entries import Change
from jrs.backends.file.base.index import Trailer
from jrs.backends.file.base.merge import write_base, write_run
from jrs.contract.errors import CorruptRecord, Unavailable

KEYS = [f"{folder}/{number:03}" for folder in ("dirty", "jobs", "results") for number in range(60)]
OTHERS = [f"{folder}/{number:03}x" for folder in ("a", "jobs", "z") for number in range(0, 60, 4)]

Damage = Callable[[bytearray, random.Random, bytes], None]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BLOCK", 512)


def changes(keys: list[str], salt: str) -> list[Change]:
    return [(key, (f"{salt}{key}".encode() * 2, n + 7)) for n, key in enumerate(sorted(keys))]


def write_old(folder: Path, made: list[Change], run: Run | None = None) -> Path:
    path = folder / "old.base"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    (folder / "old.index").write_bytes(write_base(fd, [run] if run else [], made))
    os.close(fd)
    return path


def write_new(folder: Path, made: list[Change], run: Run | None = None) -> tuple[Path, Trailer]:
    path = folder / "new.run"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    write_run(fd, [run] if run else [], made)
    os.close(fd)
    trailer = Trailer.at_the_end(path.read_bytes()[-256:])
    assert trailer is not None
    return path, trailer


def split(data: bytearray) -> list[bytes]:
    return [bytes(line) for line in data.splitlines(keepends=True)]


def flip(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def cut(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    del data[rng.randrange(len(data)) :]


def cut_between_lines(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    lines = split(data)
    data[:] = b"".join(lines[: rng.randrange(len(lines))])


def empty(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    data.clear()


def zero(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    at = rng.randrange(len(data))
    size = min(rng.choice([1, 7, 512, 1500]), len(data) - at)
    data[at : at + size] = bytes(size)


def remove_line(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    lines = split(data)
    del lines[rng.randrange(len(lines))]
    data[:] = b"".join(lines)


def double_line(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    lines = split(data)
    at = rng.randrange(len(lines))
    lines.insert(at, lines[at])
    data[:] = b"".join(lines)


def swap_lines(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    lines = split(data)
    one, other = rng.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    data[:] = b"".join(lines)


def foreign_line(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    lines = split(data)
    others = split(bytearray(foreign))
    at = rng.randrange(min(len(lines), len(others)))
    lines[at] = others[at]
    data[:] = b"".join(lines)


def foreign_block(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    at = rng.randrange(len(data)) // 512 * 512
    part = foreign[at : at + 512]
    data[at : at + len(part)] = part


def remove_block(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    at = rng.randrange(len(data))
    del data[at : at + 512]


def insert_block(data: bytearray, rng: random.Random, foreign: bytes) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + 512]


DAMAGES: list[Damage] = [
    flip, cut, cut_between_lines, empty, zero, remove_line, double_line, swap_lines, foreign_line,
    foreign_block, remove_block, insert_block,
]  # fmt: skip


def check_answers(run: Run, truth: dict[str, bytes]) -> int:
    """Check that every key is answered as before or held; return how many are held."""
    held = set()
    for key in [*KEYS, *OTHERS]:
        try:
            record = run.get(key)
        except CorruptRecord:
            held.add(key)
            continue
        assert (record.value if record else None) == truth.get(key), key
    page = list(run.after("", inclusive=True))
    assert [r.key for r in page] == sorted({r.key for r in page})
    # Named by what can be read of its line, which may be no key that was ever written.
    assert all(is_held(run, r.key) for r in page if r.value == UNREADABLE)
    seen = [r for r in page if r.value != UNREADABLE and r.key not in held]
    assert all(truth.get(r.key) == r.value for r in seen)
    assert truth.keys() - held <= {r.key for r in seen}
    return len(held)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("form", ["old", "new"])
def test_no_damage_is_a_wrong_answer(tmp_path: Path, form: str, damage: Damage) -> None:
    """D2: with any one thing damaged, missing, doubled, swapped or foreign, every key is answered
    as before or is held, the damage is named, and the next base over it holds the same."""
    if form == "old" and damage is foreign_block:
        pytest.skip("foreign lines next to a torn one cannot be told in the old form")
    rng = random.Random(f"{form} {damage.__name__}")
    made = changes(KEYS, "v")
    truth = {key: value or b"" for key, (value, _) in made}
    trailer = None
    if form == "old":
        path = write_old(tmp_path, made)
    else:
        path, trailer = write_new(tmp_path, made)
    whole = path.read_bytes()
    (tmp_path / "other").mkdir()
    newer = changes(KEYS, "w")
    other = write_old if form == "old" else lambda *a: write_new(*a)[0]
    foreign = other(tmp_path / "other", newer).read_bytes()
    assert len(foreign) == len(whole)
    for number in range(60):
        data = bytearray(whole)
        damage(data, rng, foreign)
        path.write_bytes(data)
        run = Run(path, tmp_path / "old.index" if form == "old" else None, trailer)
        check_answers(run, truth)
        assert bytes(data) == whole or list(run.damage()), f"{number}: not named"
        if number % 6 == 0:
            merged, end = write_new(tmp_path / "other", changes(["jobs/007"], "n"), run)
            with_it = Run(merged, trailer=end)
            check_answers(with_it, truth | {"jobs/007": b"njobs/007" * 2})
            for key in KEYS:
                if key != "jobs/007":
                    assert is_held(with_it, key) or not is_held(run, key), key
            with_it.close()
        run.close()


def is_held(run: Run, key: str) -> bool:
    try:
        run.get(key)
    except CorruptRecord:
        return True
    return False


@pytest.mark.parametrize("form", ["old", "new"])
def test_damage_costs_its_block_and_no_more(tmp_path: Path, form: str) -> None:
    """D2: a removed line costs the keys of its block; a flipped bit those of its line."""
    made = changes(KEYS, "v")
    truth = {key: value or b"" for key, (value, _) in made}
    trailer = None
    if form == "old":
        path = write_old(tmp_path, made)
    else:
        path, trailer = write_new(tmp_path, made)
    whole = path.read_bytes()
    for at in range(997, whole.index(b"results/059"), 997):
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        begin = whole.rfind(b"\n", 0, at) + 1
        removed = whole[:begin] + whole[whole.index(b"\n", at) + 1 :]
        for data, most in ((flipped, 5), (removed, 30)):
            path.write_bytes(data)
            run = Run(path, tmp_path / "old.index" if form == "old" else None, trailer)
            assert 0 < check_answers(run, truth) <= most
            run.close()


def test_an_index_of_another_base(tmp_path: Path) -> None:
    """D2: an intact index of another base makes no key absent, and is named."""
    made = changes(KEYS, "v")
    truth = {key: value or b"" for key, (value, _) in made}
    write_old(tmp_path, changes(KEYS[::2], "w"))
    shutil.copy(tmp_path / "old.index", tmp_path / "foreign")
    path = write_old(tmp_path, made)
    run = Run(path, tmp_path / "foreign")
    assert check_answers(run, truth) == 0
    assert any("another base" in line for line in run.damage())
    run.close()


@pytest.mark.parametrize("index", [b"", b"00000000\n", b"xx", None])
def test_a_damaged_index(tmp_path: Path, index: bytes | None) -> None:
    """D2: without its index, a base of the old form answers as before, and that is named."""
    made = changes(KEYS, "v")
    path = write_old(tmp_path, made)
    if index is None:
        (tmp_path / "old.index").unlink()
    else:
        (tmp_path / "old.index").write_bytes(index)
    run = Run(path, tmp_path / "old.index")
    assert check_answers(run, {key: value or b"" for key, (value, _) in made}) == 0
    assert list(run.damage())
    run.close()


def test_another_run_in_its_place(tmp_path: Path) -> None:
    """D2: a whole run that is not the one that was written holds every key."""
    _, trailer = write_new(tmp_path, changes(KEYS, "v"))
    path, _ = write_new(tmp_path, changes(KEYS, "w"))
    run = Run(path, trailer=trailer)
    assert all(is_held(run, key) for key in [*KEYS, *OTHERS])
    assert list(run.damage())
    run.close()


CUT_OFF = """
import os, sys
from pathlib import Path
from jrs.backends.file.backend import FileBackend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Create
with FileBackend(Path(sys.argv[1])) as backend:
    for number in range(400):
        backend.commit(Create(f"results/{number:03}", b"x" * 200))
    backend.compact()
    (run,) = [one.path for one in backend.replica.segment.base.runs if one.size]
    os.truncate(run, 100)
    try:
        backend.get("results/300")
    except CorruptRecord as held:
        print(held)
"""


def test_a_run_that_is_cut_off_while_it_is_open(tmp_path: Path) -> None:
    """D2: a reader whose file is cut off behind its back holds the keys and names the file; it is
    not killed by SIGBUS, as one that has mapped the file would be."""
    ran = subprocess.run(
        [sys.executable, "-c", CUT_OFF, str(tmp_path)], capture_output=True, text=True, timeout=60
    )

    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"results/300: held, because damage in .*\.run may .*\n", ran.stdout)


def test_a_part_that_the_disk_does_not_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: what the disk does not return is no damage, and no answer either."""
    path, trailer = write_new(tmp_path, changes(KEYS, "a"))
    run = Run(path, trailer=trailer)
    bad = os.path.getsize(path) // 2

    def pread(fd: int, size: int, at: int) -> bytes:
        if at <= bad < at + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(fd, size, at)

    read = os.pread
    monkeypatch.setattr(os, "pread", pread)
    answers, refused = 0, set()
    for key in KEYS:
        try:
            answers += run.get(key) is not None
        except Unavailable as error:
            refused.add(str(error))
    assert len(KEYS) // 2 < answers < len(KEYS)
    assert refused == {f"{path}: Input/output error"}
    with pytest.raises(Unavailable, match="Input/output error"):
        list(run.after("", inclusive=True))
    monkeypatch.undo()
    assert all(run.get(key) for key in KEYS)
    run.close()
