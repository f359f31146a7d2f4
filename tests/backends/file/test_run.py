"""A run: searched where it lies, with an index, without one, and damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jrs.backends.file.base import Run
from jrs.backends.file.base import index as index_module
from jrs.backends.file.base.entries import Change
from jrs.backends.file.base.merge import write_base
from jrs.contract.errors import CorruptRecord

KEYS = st.sets(st.from_regex(r"[a-c]{1,3}/[a-z0-9]{1,12}", fullmatch=True), max_size=60)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small run have an index of many entries."""
    monkeypatch.setattr(index_module, "BLOCK", 128)


def write(folder: Path, keys: set[str]) -> tuple[Path, Path]:
    ordered = enumerate(sorted(keys))
    changes: list[Change] = [(key, (f"value of {key}".encode(), i)) for i, key in ordered]
    return merge(folder, Run(None), changes)


def merge(folder: Path, run: Run, changes: list[Change], name: str = "base") -> tuple[Path, Path]:
    path, index = folder / name, folder / f"{name}.index"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        index.write_bytes(write_base(fd, [run], changes))
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
    run = Run(path, None if kind == "no index" else index)

    for key in keys | others:
        record = run.get(key)
        assert (record.value if record else None) == (
            f"value of {key}".encode() if key in keys else None
        )
    for start in ["", *others]:
        assert [r.key for r in run.after(start, inclusive=True)] == sorted(
            key for key in keys if key >= start
        )
    run.close()


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
    run = Run(path, index)

    for key in keys | others:
        expected = f"value of {key}".encode() if key in keys else None
        try:
            record = run.get(key)
        except CorruptRecord:
            continue
        assert (record.value if record else None) == expected
    run.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(
    generations=st.lists(
        st.dictionaries(
            KEYS.map(lambda keys: min(keys, default="a/0")), st.booleans(), max_size=30
        ),
        max_size=6,
    ),
    asked=KEYS,
    indexed=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_generations_of_changes(
    tmp_path: Path, generations: list[dict[str, bool]], asked: set[str], indexed: list[bool]
) -> None:
    """Merged again and again, over runs with and without an index, a run holds what a dict does;
    keys that it does not hold are asked for in order and out of it."""
    held: dict[str, bytes] = {}
    run = Run(None)
    for number, changes in enumerate(generations):
        made: list[Change] = []
        for key, present in sorted(changes.items()):
            value = f"{key} of {number}".encode() if present else None
            made.append((key, (value, number)))
            held.pop(key, None)
            if value is not None:
                held[key] = value
        path, index = merge(tmp_path, run, made, f"base-{number}")
        run.close()
        run = Run(path, index if indexed[number] else None)
        for key in [*sorted(asked), *asked, *held]:
            record = run.get(key)
            assert (record.value if record else None) == held.get(key)
        assert {r.key: r.value for r in run.after("", inclusive=True)} == held
        assert not list(run.damage())
    run.close()
