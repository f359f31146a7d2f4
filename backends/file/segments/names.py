"""The names of a log's files, and what they alone tell: which segments exist."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..base import filter as filters
from ..base.index import TRAILER_MOST, Trailer
from .forms import Form
from .header import Header

FENCE = "99999999999999999999.base"
"""Stops processes that know only format 2."""
_OF_A_BASE = ("base.", "index.", "run.", "filter.")
"""What follows the offset in the names of a base's temporary files."""


def log_path(folder: Path, start: int, form: Form = Form.LINES) -> Path:
    return folder / f"{start:020}.{'log' if form == Form.LINES else 'tail'}"


def base_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.base"


def index_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.index"


def run_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.run"


def header_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.segment"


def newest(folder: Path) -> int:
    """Return the offset of the newest segment that continues no other one; 0 for the first."""
    return newest_with_form(folder)[0]


def newest_with_form(folder: Path) -> tuple[int, Form]:
    """Return the offset and the form of the newest segment that continues no other one."""
    while True:
        found = {(0, Form.LINES), *begun(folder)}
        newest = next(
            (start, form)
            for start, form in sorted(found, reverse=True)
            if form == Form.LINES or not _continues(folder, start)
        )
        # A segment that was passed over may have been swept meanwhile, and not be pending.
        if newest == max(found) or found == {(0, Form.LINES), *begun(folder)}:
            return newest


def begun(folder: Path) -> Iterator[tuple[int, Form]]:
    """Yield the offset and the form of each segment, once for each file that shows it."""
    forms = {"base": Form.LINES, "tail": Form.BATCHES, "segment": Form.BATCHES}
    for name in os.listdir(folder):
        start, _, suffix = name.partition(".")
        if len(start) == 20 and start.isdigit() and suffix in forms and name != FENCE:
            yield int(start), forms[suffix]


def _continues(folder: Path, start: int) -> bool:
    """Return whether a segment of format 3 has no run yet."""
    if not start or run_path(folder, start).exists():
        return False
    header = header_of(folder, start)
    return header is None or not header.runs


def header_of(folder: Path, start: int) -> Header | None:
    """Return the header from its file; None if the file is missing, damaged or misplaced."""
    try:
        path = header_path(folder, start)
        header = Header.parse(path.read_bytes(), path)
    except FileNotFoundError:
        return None
    return None if header is None or header.start != start else header


def trailer_of(folder: Path, start: int) -> Trailer | None:
    """Return the trailer of a segment's run; None if it is damaged.

    Raises:
        FileNotFoundError: the segment has no run.
    """
    with run_path(folder, start).open("rb") as file:
        file.seek(-min(TRAILER_MOST, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return Trailer.at_the_end(file.read())


def sweep(folder: Path, start: int, runs: Iterable[int]) -> None:
    """Remove the segments before the one at `start`, except the runs that it lies on.

    Readers keep their open files. Later segments lie on some of these runs and on newer ones, so a
    process that slept removes none that is needed.
    """
    paths = [run_path(folder, run) for run in runs]
    kept = {path.name for path in (*paths, *map(filters.path_of, paths))}
    for name in os.listdir(folder):
        number = name.removeprefix(".")[:20]
        if number.isdigit() and int(number) < start and name not in kept:
            with contextlib.suppress(OSError):
                os.unlink(folder / name)


def discard_begun(folder: Path, start: int) -> None:
    """Remove what killed processes have written of the base at `start`. If one still writes, its
    file never gets its name."""
    begin = f".{start:020}."
    for name in os.listdir(folder):
        if name.startswith(begin) and name.removeprefix(begin).startswith(_OF_A_BASE):
            with contextlib.suppress(OSError):
                os.unlink(folder / name)
