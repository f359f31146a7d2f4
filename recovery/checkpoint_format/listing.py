"""Listing Spark's folders. Names that begin with a dot are half-written files or checksums."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NUMBER = re.compile(r"[0-9]{1,18}")


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted by name; none if the folder is missing."""
    try:
        with os.scandir(folder) as found:
            return sorted(
                (entry for entry in found if not entry.name.startswith(".")),
                key=lambda entry: entry.name,
            )
    except FileNotFoundError:
        return []


def number(name: str) -> int | None:
    """Return a name as the number of a batch or a partition; None for any other name."""
    return int(name) if _NUMBER.fullmatch(name) else None


def numbers(folder: Path) -> set[int]:
    """Return the numbers among the names in a folder: the batches in a log."""
    return {found for entry in entries(folder) if (found := number(entry.name)) is not None}


def newest(folder: Path) -> int:
    """Return the newest batch in a log; -1 if the log is empty."""
    return max(numbers(folder), default=-1)
