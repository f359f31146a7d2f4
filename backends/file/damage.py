"""Damage in a log: finding it, and accepting the loss of the damaged parts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .format import lines
from .format.batches import Reader
from .format.folder import open_or_create, sync_folder


def damaged_lines(log: Path) -> Iterator[int]:
    """Yield the offset of each line of a log of lines that was valid once and is damaged now."""
    at = 0
    with log.open("rb") as file:
        for line in file:
            text = line.removesuffix(b"\n")
            if text is line:
                if lines.lost_its_newline(text):
                    yield at
            elif text != lines.MARK and lines.checked(text) is None and not lines.is_remnant(text):
                yield at
            at += len(line)


def damaged_batches(log: Path, start: int, first: bytes) -> list[int]:
    """Return the offset of each batch that is damaged or shows damage before it."""
    found: list[int] = []

    def accepted(at: int) -> bool:
        found.append(at)
        return True

    fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in Reader(fd, start, first, accepted).read(os.fstat(fd).st_size):
            pass
    finally:
        os.close(fd)
    return found


def acceptance_mark(log: Path, at: int) -> Path:
    """Return the file that exists once an operator has accepted the damage at `at`."""
    return log.with_name(f"{log.stem}.damaged.{at}")


def text_at(log: Path, at: int) -> str:
    """Return the readable text at byte `at` of a log, for an operator."""
    with log.open("rb") as file:
        file.seek(at)
        text = file.read(400).split(b"\n~~")[0]
    return text[:200].decode(errors="replace").replace("\t", " ").strip()


def accept(log: Path, places: list[int]) -> list[str]:
    """Accept the damage at these bytes of a log, durably and for every process.

    Returns the text that is still readable there. The commits there are lost: check whether they
    held the result of a job that must not run again.
    """
    accepted = []
    for at in places:
        if not acceptance_mark(log, at).exists():
            os.close(open_or_create(acceptance_mark(log, at), os.O_WRONLY))
            accepted.append(text_at(log, at))
    sync_folder(log.parent)
    return accepted
