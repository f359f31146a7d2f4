"""Opening a segment: checks that its files exist and belong together, and repairs its header."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from jrs.contract.errors import CorruptRecord, Unavailable

from ..base import Base
from ..base.overlay import Layer, Stored
from ..format.batches import head_at
from ..format.folder import open_or_create, publish, sync_folder
from .begin import begin_bare
from .forms import Form
from .header import Header
from .names import (
    FENCE,
    base_path,
    begun,
    header_of,
    header_path,
    index_path,
    log_path,
    newest,
    newest_with_form,
    run_path,
    trailer_of,
)

_AS_IT_IS = os.O_NOFOLLOW | os.O_CLOEXEC
"""A log is no link: with one, the folder's owner could have root append to any file of the host."""


class Segment(NamedTuple):
    """An open segment."""

    start: int
    form: Form
    fd: int
    file: os.stat_result
    """Of the log, as it was opened: which file it is."""
    base: Layer
    first: bytes
    """The first line of a log, since format 3."""
    flaws: list[str]
    following: int | None = None
    """The offset of the segment that continues this one, or None."""
    epoch: Stored | None = None
    """The epoch's record at its begin, if its header has it."""

    def close(self) -> None:
        os.close(self.fd)
        self.base.close()


def open_newest(folder: Path) -> Segment:
    """Open the newest segment.

    Raises:
        Unavailable: a file of the segment is missing.
        CorruptRecord: the segment's files are damaged or do not belong together.
    """
    while True:
        start, form = newest_with_form(folder)
        try:
            following = _following(folder, start)
            opener = _open_line_log if form == Form.LINES else _open_batch_log
            segment = opener(folder, start)
        except FileNotFoundError as error:
            if newest_with_form(folder) == (start, form):
                raise _missing(error) from None
            continue
        # Between listing and opening, an older segment may have been swept, and even created again
        # by a process that slept. Then a newer segment exists by now.
        with contextlib.ExitStack() as opened:
            opened.callback(segment.close)
            if newest_with_form(folder) == (start, form):
                opened.pop_all()
                return segment._replace(following=following)


def _following(folder: Path, start: int) -> int | None:
    """Return the offset of the segment that continues the one at `start`, or None.

    Raises:
        FileNotFoundError: that segment has lost its tail.
    """
    found = {each for each, form in begun(folder) if form != Form.LINES and each > start}
    for each in found:
        _tail_path(folder, each).stat()
    return min(found, default=None)


def _missing(error: FileNotFoundError) -> Unavailable:
    return Unavailable(
        f"{error.filename} is missing: another program removed files; restore the folder from a "
        "copy"
    )


def _open_line_log(folder: Path, start: int) -> Segment:
    # Create the first log only if no file shows that the log had later segments.
    names = os.listdir(folder)
    fresh = (
        not start
        and FENCE not in names
        and not any(
            name.endswith(".log") and name[:20].isdigit() and int(name[:20]) for name in names
        )
    )
    log, flags = log_path(folder, start), os.O_RDWR | os.O_APPEND
    base = Base()
    if start:
        base = Base.two_files(base_path(folder, start), index_path(folder, start))
    with contextlib.ExitStack() as opened:
        opened.callback(base.close)
        fd = open_or_create(log, flags) if fresh else os.open(log, flags | _AS_IT_IS)
        opened.callback(os.close, fd)
        if fresh:
            sync_folder(folder)
        segment = Segment(start, Form.LINES, fd, os.fstat(fd), base, b"", [])
        opened.pop_all()
    return segment


def _open_batch_log(folder: Path, start: int) -> Segment:
    fd, header, flaws = _open_tail(folder, start)
    try:
        if start and not header.runs and (trailer := trailer_of(folder, start)) is not None:
            header = header.with_run(trailer)
        if start and not header.runs:
            raise _strange(folder, start)
        base = Base.open(header.runs, lambda run: run_path(folder, run))
        return _segment(header, fd, base, flaws)
    except BaseException:
        os.close(fd)
        raise


def open_next(folder: Path, next_one: Header, base: Layer, place: Path) -> Segment | None:
    """Begin the segment with this header, unless it exists, and open it; it continues the previous
    one.

    Returns None if other processes are already in a later segment: open the newest one instead.

    Args:
        base: the layer below the segment.
        place: a path of the folder that leads to no other one, even if it is replaced now.

    Raises:
        CorruptRecord, Unavailable: as `open_newest`.
    """
    start = next_one.start
    try:
        begin_bare(place, next_one)
        fd, header, flaws = _open_tail(folder, start)
    except FileNotFoundError as error:
        if newest(folder) >= start:
            return None  # The segment was swept.
        raise _missing(error) from None
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, fd)
        # If this process slept, it has just begun a segment that was swept long ago.
        if newest(folder) >= start:
            return None
        if header.identity != next_one.identity:
            raise _strange(folder, start)
        segment = _segment(header, fd, base, flaws)
        opened.pop_all()
    return segment


def _segment(header: Header, fd: int, base: Layer, flaws: list[str]) -> Segment:
    first, file = header.bare().line(), os.fstat(fd)
    return Segment(header.start, header.form, fd, file, base, first, flaws, epoch=header.epoch)


def _open_tail(folder: Path, start: int) -> tuple[int, Header, list[str]]:
    """Open a tail; return its descriptor, the segment's header, and flaws of both files."""
    log, header = _tail_path(folder, start), header_path(folder, start)
    flaws = []
    fd = os.open(log, os.O_RDWR | os.O_APPEND | _AS_IT_IS)
    try:
        own = Header.parse(os.pread(fd, 4096, 0), log)
        found = header_of(folder, start)
        if found is None and own is not None:
            if header.exists():
                flaws.append(f"{header}: damaged; the first line of {log} replaces it")
            else:
                # Its first writer died too early, or the header was removed: write it again.
                found = own
                with contextlib.suppress(FileNotFoundError):
                    trailer = trailer_of(folder, start) if start else None
                    found = own if trailer is None else own.with_run(trailer)
                publish(header, found.line())
        if own is None and found is not None and _fits(fd, found.bare()):
            flaws.append(f"{log}: its first line is damaged; {header} replaces it")
            own = found.bare()
        if own is None or own.start != start or (found is not None and own != found.bare()):
            raise _strange(folder, start)
        if os.fstat(fd).st_size < len(own.line()):
            raise CorruptRecord(
                f"{log}: cut off within its first line, so all commits in it are lost; restore it "
                "from a copy"
            )
        return fd, found or own, flaws
    except BaseException:
        os.close(fd)
        raise


def _strange(folder: Path, start: int) -> CorruptRecord:
    log, header = _tail_path(folder, start), header_path(folder, start)
    return CorruptRecord(
        f"{log}: its first line and {header} are damaged or do not belong together; restore both "
        "from a copy"
    )


def _tail_path(folder: Path, start: int) -> Path:
    return log_path(folder, start, Form.BATCHES)


def _fits(fd: int, header: Header) -> bool:
    """Return whether a log with a damaged first line continues like a log with this header."""
    first = header.line()
    data = os.pread(fd, 4096, 0)
    found = head_at(data, len(first))
    if found is None:
        return len(data) == len(first)
    return (found.offset, found.chain) == (header.start + len(first), crc32(first))
