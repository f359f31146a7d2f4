"""A base: searched where it lies, with an index, without one, and damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jrs.backends.file import base as module
from jrs.backends.file.base import Base, write_base
from jrs.errors import CorruptRecord

KEYS = st.sets(st.from_regex(r"[a-c]{1,3}/[a-z0-9]{1,12}", fullmatch=True), max_size=60)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small base have an index of many entries."""
    monkeypatch.setattr(module, "_BLOCK", 128)


def write(folder: Path, keys: set[str]) -> tuple[Path, Path]:
    path, index = folder / "base", folder / "index"
    changes = [(key, (f"value of {key}".encode(), i)) for i, key in enumerate(sorted(keys))]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        index.write_bytes(write_base(fd, Base(None), changes))
    finally:
        os.close(fd)
    return path, index


@pytest.mark.parametrize("kind", ["index", "no index", "damaged index"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(keys=KEYS, others=KEYS)
def test_finds_what_is_there(tmp_path: Path, kind: str, keys: set[str], others: set[str]) -> None:
    """Every key is found, no other is, and ranges are in order: with whatever index there is."""
    path, index = write(tmp_path, keys)
    if kind == "damaged index":
        index.write_bytes(index.read_bytes().replace(b"a", b"b") + b"7\tx\n")
    base = Base(path, None if kind == "no index" else index)

    for key in keys | others:
        record = base.get(key)
        assert (record.value if record else None) == (
            f"value of {key}".encode() if key in keys else None
        )
    for start in ["", *others]:
        assert [r.key for r in base.after(start, inclusive=True)] == sorted(
            key for key in keys if key >= start
        )
    base.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(keys=KEYS.filter(bool), others=KEYS, data=st.data())
def test_damage_is_never_a_wrong_answer(
    tmp_path: Path, keys: set[str], others: set[str], data: st.DataObject
) -> None:
    """With flipped bits anywhere in it, each key is answered as before or by `CorruptRecord`."""
    path, index = write(tmp_path, keys)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(content))
    base = Base(path, index)

    for key in keys | others:
        expected = f"value of {key}".encode() if key in keys else None
        try:
            record = base.get(key)
        except CorruptRecord:
            continue
        assert (record.value if record else None) == expected
    base.close()
