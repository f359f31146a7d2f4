"""CONTRIBUTING.md describes the house as it is: its tables name what exists, and all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.test_layers import FLOORS, floor_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROOMS = {room for floor in FLOORS for room in floor}


def first_cells(heading: str) -> list[str]:
    """Return the first cell of each row of the first table behind a row of titles."""
    table = TEXT.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| (.*?) \|", table, re.MULTILINE)


def rooms_in(cell: str) -> Iterator[str]:
    """Yield the rooms that a cell names: `jrs.backends.file`, `.memory`."""
    above = ""
    for name in re.findall(r"`([\w.]+)`", cell):
        yield above + name if name.startswith(".") else name
        above = above or name.rpartition(".")[0]


def test_the_table_of_rooms() -> None:
    """It names each room once, from the highest floor to the lowest."""
    rows = [list(rooms_in(cell)) for cell in first_cells("room")]
    floors = [floor_of(room) for row in rows for room in row]

    assert sorted(room for row in rows for room in row) == sorted(ROOMS)
    assert floors == sorted(floors, reverse=True)


def test_the_table_of_tests() -> None:
    """It names each folder of tests that mirrors no room."""
    mirrors = {room.split(".")[1] for room in ROOMS if "." in room} - {"contract", "testing"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    named = [cell.strip("`").removeprefix("tests/") for cell in first_cells("folder")]

    assert set(named) >= folders - mirrors - {"__pycache__"}
    assert set(named) <= folders
    assert len(named) == len(set(named))
