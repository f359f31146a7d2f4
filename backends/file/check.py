"""Looking over a cluster's files for damage, and going on without what is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jrs.backends.file import lines
from jrs.backends.file.base import Base
from jrs.backends.file.folder import sync_folder


def damaged_lines(log: Path) -> Iterator[int]:
    """Yield where each line begins that was valid once and is not any more."""
    at = 0
    with log.open("rb") as file:
        for line in file:
            whole = line.endswith(b"\n")
            text = line[:-1]
            if (
                whole
                and text != lines.MARK
                and lines.checked(text) is None
                and not lines.is_remnant(text)
            ):
                yield at
            at += len(line)


def marker(log: Path, at: int) -> Path:
    """Return the file by which an operator has decided to go on without the line at `at`."""
    return log.with_name(f"{log.stem}.damaged.{at}")


def problems(log: Path, base: Base) -> Iterator[str]:
    """Yield a line for each damaged place that nobody has accepted yet."""
    for at in damaged_lines(log):
        if not marker(log, at).exists():
            yield f"{log}: the line at byte {at} is damaged"
    for at, key in base.damage():
        yield f"{base.path}: the record of {key} at byte {at} is damaged; it is held"


def accept(log: Path) -> list[str]:
    """Decide, durably and for every process, to go on without the log's damaged lines.

    Return what they still show. What they committed is lost: look whether a job whose result was
    among it must not run again.
    """
    accepted = []
    data = log.read_bytes()
    for at in damaged_lines(log):
        if accept_line(log, at):
            text = data[at : data.index(b"\n", at)]
            accepted.append(text[:200].decode(errors="replace").replace("\t", " "))
    return accepted


def accept_line(log: Path, at: int) -> bool:
    """Decide to go on without the line at `at`; return False if that was decided before."""
    if marker(log, at).exists():
        return False
    marker(log, at).touch(mode=0o600)
    sync_folder(log.parent)
    return True
