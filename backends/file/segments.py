"""Segments: the files of a log, named by the offset they begin at, and how the next one begins.

A segment of format 3, the form that the cluster's version has to be raised to::

    <offset>.tail     the commits; its first line has the offset and the identity of the log
    <offset>.segment  the header: the same, and the runs; of tail and header, each tells that the
                      other is lost or damaged
    <offset>.run      the records that were live when the segment began (the first one has none)

A segment begins with its tail and a header without runs. Until its run is written it *continues*
the one before it: whoever opens the folder reads both. Then the header names the run, in one
rename, and what is before the segment is removed.

One of format 2, the form of the first releases, has ``<offset>.log``, ``<offset>.base`` (the first
has none) and ``<offset>.index``.

A process that knows format 2 alone and slept with the folder open must neither go on behind the
first segment that it cannot read nor write one: `FENCE` is the base of a segment above all others,
which has no log. It refuses there. Nothing else reads that file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from jrs.contract.errors import CorruptRecord, Unavailable, UnsupportedVersion
from jrs.records import keys

from .base import Base
from .batches import head_at
from .folder import sync_folder
from .index import TRAILER_MOST, Trailer, digest_of
from .lines import checked, sealed
from .merge import Change, write_all, write_base, write_run
from .overlay import Layer

OLD_FORM, NEW_FORM = 2, 3

SINCE_FORMAT = 3
"""The format of a cluster from which on its segments begin in the new form."""

FENCE = "99999999999999999999.base"
_FENCE_TEXT = b"jrs: this folder was converted by a newer version of jrs: stop this process\n"

VERSION_KEY = keys.FORMAT


def form_in(version: int) -> int:
    """Return the form in which a segment begins in a cluster of that format."""
    return NEW_FORM if version >= SINCE_FORMAT else OLD_FORM


def form_at(value: bytes | None) -> int:
    """Return the form of the segment behind a seal at which `VERSION_KEY` has this value (None: it
    does not exist)."""
    try:
        stored = json.loads(value or b"{}")
        return form_in(int(stored["body"]["version"]))
    except (ValueError, TypeError, KeyError):
        return OLD_FORM


class Header(NamedTuple):
    """What a segment of format 3 begins with."""

    start: int
    identity: bytes
    """Of the cluster's log: two logs differ in it."""
    runs: tuple[tuple[int, Trailer], ...] = ()
    """Newest first: the offset that names the file, and what it ends with."""

    def line(self) -> bytes:
        runs = [b"%d:%s" % (start, trailer.describe()) for start, trailer in self.runs]
        return sealed(
            b"\t".join((b"L", b"%d" % NEW_FORM, b"%d" % self.start, self.identity, *runs))
        )

    def bare(self) -> Header:
        """Return the header of the tail, which never changes."""
        return self._replace(runs=())


def parse_header(data: bytes) -> Header | None:
    """Return the header that `data` begins with, or None.

    Raises:
        UnsupportedVersion: it is of a newer form.
    """
    line, newline, _ = data.partition(b"\n")
    body = checked(line) if newline else None
    fields = [] if body is None else body.split(b"\t")
    if len(fields) < 4 or fields[0] != b"L":
        return None
    runs = [field.partition(b":") for field in fields[4:]]
    if fields[1] != b"%d" % NEW_FORM or len(runs) > 1:
        raise UnsupportedVersion("a segment in the form of a newer jrs; upgrade this one")
    return Header(
        int(fields[2]),
        fields[3],
        tuple((int(start), Trailer.described(rest)) for start, _, rest in runs),
    )


class Segment(NamedTuple):
    """An open segment."""

    start: int
    form: int
    fd: int
    base: Layer
    first: bytes
    """The first line of a log of format 3."""
    flaws: list[str]
    following: int | None = None
    """Where the segment begins that continues it, if there is one."""


def log_path(folder: Path, start: int, form: int = OLD_FORM) -> Path:
    return folder / f"{start:020}.{'tail' if form == NEW_FORM else 'log'}"


def base_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.base"


def index_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.index"


def suspect_path(folder: Path, start: int) -> Path:
    """Return the file that tells that a sync of this segment's log has failed.

    It need not be durable: after a power cut there is no page cache to mistrust.
    """
    return folder / f"{start:020}.suspect"


def run_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.run"


def header_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.segment"


def newest(folder: Path) -> int:
    """Return where the newest segment that continues no other one begins; 0 for the first."""
    return _newest(folder)[0]


def _newest(folder: Path) -> tuple[int, int]:
    """Return where the newest segment that continues no other one begins, and its form."""
    found = {(0, OLD_FORM), *_begun(folder)}
    return next(
        (start, form)
        for start, form in sorted(found, reverse=True)
        if form == OLD_FORM or not _continues(folder, start)
    )


def _begun(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield where each segment begins of which a file tells so, and its form."""
    forms = {"base": OLD_FORM, "tail": NEW_FORM, "segment": NEW_FORM}
    for name in os.listdir(folder):
        start, _, suffix = name.partition(".")
        if len(start) == 20 and start.isdigit() and suffix in forms and name != FENCE:
            yield int(start), forms[suffix]


def _continues(folder: Path, start: int) -> bool:
    """Return whether a segment of format 3 has no run yet."""
    if not start or run_path(folder, start).exists():
        return False
    header = _header_of(folder, start)
    return header is None or not header.runs


def _header_of(folder: Path, start: int) -> Header | None:
    """Return the header in its own file; None if that is missing, damaged, or another one's."""
    try:
        header = parse_header(header_path(folder, start).read_bytes())
    except FileNotFoundError:
        return None
    return None if header is None or header.start != start else header


def begin(
    folder: Path,
    start: int,
    base: Base,
    changes: Iterable[Change],
    form: int = OLD_FORM,
    identity: bytes = b"",
) -> None:
    """Begin the segment at `start` with `base` and the `changes` since (in key order); or, if it
    was begun and continues another one, let it do so no longer.

    Deterministic: it does not matter which process wins, and one that dies is helped by the next.
    """
    if form == NEW_FORM:
        with _published(run_path(folder, start)) as fd:
            trailer = write_run(fd, base, changes)
        # Its name has to be durable before that of what names it.
        sync_folder(folder)
        # Before the first segment of this form can be seen.
        fence(folder)
        found = _newest(folder)
        if found > (start, NEW_FORM) or found == (start, OLD_FORM):
            # Others are behind it by now, and have swept what was just written; or a process that
            # knows the old form alone has begun it, before it could see the fence.
            return
        # The name of a log that began in the old form: that of its first run.
        header = Header(start, identity or digest_of(trailer.line()), ((start, trailer),))
        _begin_tail(folder, header)
        _write(header_path(folder, start), header.line(), over=True)
        sync_folder(folder)
        return
    # The log first, so that whoever sees the base can open the log without creating it: a
    # process that slept through a whole segment must not make an old one again.
    os.close(
        os.open(log_path(folder, start), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    )
    sync_folder(folder)
    with _published(base_path(folder, start)) as fd:
        index = write_base(fd, base, changes)
        with _published(index_path(folder, start)) as index_fd:
            write_all(index_fd, index)
            os.fsync(index_fd)
        sync_folder(folder)  # A base without its index looks damaged.
    sync_folder(folder)


def _begin_bare(folder: Path, header: Header) -> None:
    """Begin a segment that has no run. Durable and idempotent."""
    _begin_tail(folder, header)
    _write(header_path(folder, header.start), header.line())
    sync_folder(folder)


def _begin_tail(folder: Path, header: Header) -> None:
    """Make the tail, before its header: a header without a tail tells that the tail was lost.

    Raises:
        FileNotFoundError: it was, or the segment was swept.
    """
    path = log_path(folder, header.start, NEW_FORM)
    if header_path(folder, header.start).exists() and not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    _write(path, header.bare().line())
    sync_folder(folder)


def _write(path: Path, data: bytes, *, over: bool = False) -> None:
    with _published(path, over=over) as fd:
        write_all(fd, data)
        os.fsync(fd)


def create(folder: Path) -> None:
    """Make the log's folder with its first segment; it appears whole. Idempotent.

    A folder that has files in it is left as it is.
    """
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    temporary.mkdir(mode=0o700)
    try:
        fence(temporary)
        _begin_bare(temporary, Header(0, uuid.uuid4().hex.encode()))
        with contextlib.suppress(OSError):
            os.rename(temporary, folder)  # Onto nothing, or onto an empty folder.
    finally:
        with contextlib.suppress(FileNotFoundError):
            for path in list(temporary.iterdir()):
                path.unlink(missing_ok=True)
            temporary.rmdir()
    sync_folder(folder.parent)


def fence(folder: Path) -> None:
    """Keep processes that know format 2 alone and have the folder open from writing. Idempotent."""
    if not (folder / FENCE).exists():
        _write(folder / FENCE, _FENCE_TEXT)
        sync_folder(folder)


@contextlib.contextmanager
def _published(path: Path, *, over: bool = False) -> Iterator[int]:
    """Write a file that appears whole, under its name, when the block has ended well.

    Args:
        over: another one of that name is replaced; else it stays.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            yield fd
        finally:
            os.close(fd)
        # It is there already, or others are behind it by now and have swept ours away.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            (os.replace if over else os.link)(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def open_newest(folder: Path) -> Segment:
    """Open the newest segment.

    Raises:
        Unavailable: a file of it is missing.
        CorruptRecord: what it consists of cannot be told.
    """
    while True:
        start, form = _newest(folder)
        try:
            following = _following(folder, start)
            segment = _open_new(folder, start) if form == NEW_FORM else _open_old(folder, start)
        except FileNotFoundError as error:
            if _newest(folder) == (start, form):
                raise _missing(error) from None
            continue
        # An older segment may have been swept, and even made again by a process that slept,
        # between listing and opening. Then a newer one exists by now.
        if _newest(folder) == (start, form):
            return segment._replace(following=following)
        os.close(segment.fd)
        segment.base.close()


def _following(folder: Path, start: int) -> int | None:
    """Return where the segment begins that continues the one at `start`, if there is one.

    Raises:
        FileNotFoundError: it has lost its tail.
    """
    found = {each for each, form in _begun(folder) if form == NEW_FORM and each > start}
    for each in found:
        log_path(folder, each, NEW_FORM).stat()
    return min(found, default=None)


def _missing(error: FileNotFoundError) -> Unavailable:
    return Unavailable(
        f"{error.filename} is missing: files were removed by something that is not jrs; restore "
        "the folder from a copy"
    )


def _open_old(folder: Path, start: int) -> Segment:
    # The first log is made only where nothing tells that there was more.
    names = os.listdir(folder)
    fresh = (
        not start
        and FENCE not in names
        and not any(
            name.endswith(".log") and name[:20].isdigit() and int(name[:20]) for name in names
        )
    )
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if fresh else 0)
    base = Base(base_path(folder, start), index_path(folder, start)) if start else Base(None)
    try:
        fd = os.open(log_path(folder, start), flags, 0o600)
    except OSError:
        base.close()
        raise
    if fresh:
        sync_folder(folder)
    return Segment(start, OLD_FORM, fd, base, b"", [])


def _open_new(folder: Path, start: int) -> Segment:
    fd, header, flaws = _open_tail(folder, start)
    try:
        base = Base(None)
        if start:
            if not header.runs and (trailer := _trailer_of(folder, start)) is not None:
                header = header._replace(runs=((start, trailer),))
            for name, trailer in header.runs:
                base = Base(run_path(folder, name), trailer=trailer)
            if not header.runs:
                raise _strange(folder, start)
        return Segment(start, NEW_FORM, fd, base, header.bare().line(), flaws)
    except BaseException:
        os.close(fd)
        raise


def go_on(folder: Path, start: int, identity: bytes, base: Layer) -> Segment | None:
    """Begin the segment at `start`, if nobody has, and open it: it continues the one before it.

    Return None if others are behind it by now: the newest segment is to be opened instead.

    Args:
        base: what lies under the segment.

    Raises:
        CorruptRecord, Unavailable: as `open_newest`.
    """
    try:
        _begin_bare(folder, Header(start, identity))
        fd, header, flaws = _open_tail(folder, start)
    except FileNotFoundError as error:
        if newest(folder) >= start:
            return None  # It was swept.
        raise _missing(error) from None
    # Whoever slept has just begun one that was swept long ago.
    if newest(folder) >= start:
        os.close(fd)
        return None
    if header.identity != identity:
        os.close(fd)
        raise _strange(folder, start)
    return Segment(start, NEW_FORM, fd, base, header.bare().line(), flaws)


def _open_tail(folder: Path, start: int) -> tuple[int, Header, list[str]]:
    """Open a tail; return it with what is known of the segment's header, and what is wrong."""
    log, header = log_path(folder, start, NEW_FORM), header_path(folder, start)
    flaws = []
    fd = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        own = parse_header(os.pread(fd, 4096, 0))
        found = _header_of(folder, start)
        if found is None and own is not None:
            if header.exists():
                flaws.append(f"{header}: damaged; {log} tells what it says")
            else:
                # Its first writer died in between, or it was removed: made again.
                found = own
                with contextlib.suppress(FileNotFoundError):
                    trailer = _trailer_of(folder, start) if start else None
                    found = own if trailer is None else own._replace(runs=((start, trailer),))
                _write(header, found.line())
                sync_folder(folder)
        if own is None and found is not None and _fits(fd, found.bare()):
            flaws.append(f"{log}: its first line is damaged; {header} has it")
            own = found.bare()
        if own is None or own.start != start or (found is not None and own != found.bare()):
            raise _strange(folder, start)
        if os.fstat(fd).st_size < len(own.line()):
            raise CorruptRecord(
                f"{log}: cut off within its first line, with all that was committed behind it; "
                "restore it from a copy"
            )
        return fd, found or own, flaws
    except BaseException:
        os.close(fd)
        raise


def _strange(folder: Path, start: int) -> CorruptRecord:
    log, header = log_path(folder, start, NEW_FORM), header_path(folder, start)
    return CorruptRecord(
        f"{log}: its first line and {header} are damaged, or do not belong together; restore both "
        "from a copy"
    )


def _trailer_of(folder: Path, start: int) -> Trailer | None:
    """Return what the run of a segment says of itself, if that can be read."""
    with run_path(folder, start).open("rb") as file:
        file.seek(-min(TRAILER_MOST, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return Trailer.at_the_end(file.read())


def _fits(fd: int, header: Header) -> bool:
    """Return whether a log whose first line is damaged goes on as one with this header does."""
    first = header.line()
    data = os.pread(fd, 4096, 0)
    found = head_at(data, len(first))
    if found is None:
        return len(data) == len(first)
    return (found.offset, found.chain) == (header.start + len(first), crc32(first))


def sweep(folder: Path, start: int) -> None:
    """Remove the segments before the one at `start`: whoever still reads one has it open."""
    for name in os.listdir(folder):
        number = name.removeprefix(".")[:20]
        if number.isdigit() and int(number) < start:
            with contextlib.suppress(OSError):
                os.unlink(folder / name)
