"""Segments: the files of a log, each named by its offset, and the beginning of the next segment.

A segment of format 3, the form after the cluster's format was raised::

    <offset>.tail     the commits; its first line has the offset and the identity of the log
    <offset>.segment  the header: the same, and the runs; tail and header each show that the other
                      is lost or damaged
    <offset>.run      the records that were live when the segment began (not for the first one)

A segment begins with its tail and a header without runs. Until its run is written, the segment
*continues* the previous one, and readers of the folder read both. Then a rename replaces the header
by one that names the run, and the earlier segments are removed.

A segment of format 2, the form of the first releases, has ``<offset>.log``, ``<offset>.base`` (not
for the first one) and ``<offset>.index``.

A process that knows only format 2 may have slept with the folder open. It must neither continue
behind the first segment that it cannot read nor write one. `FENCE` stops it: this file is the base
of a segment above all others, which has no log. No other code reads the file.
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
from .base.index import TRAILER_MOST, Trailer, digest_of
from .base.merge import Change, write_all, write_base, write_run
from .batches import head_at
from .folder import sync_folder
from .lines import checked, sealed
from .overlay import Layer

OLD_FORM, NEW_FORM = 2, 3

SINCE_FORMAT = 3
"""The first cluster format whose segments begin in the new form."""

FENCE = "99999999999999999999.base"
_FENCE_TEXT = b"jrs: this folder was converted by a newer version of jrs: stop this process\n"

VERSION_KEY = keys.FORMAT


def form_in(version: int) -> int:
    """Return the form in which a segment begins in a cluster of that format."""
    return NEW_FORM if version >= SINCE_FORMAT else OLD_FORM


def form_at(value: bytes | None) -> int:
    """Return the form of the segment behind a seal, given the value of `VERSION_KEY` at the seal
    (None: absent)."""
    try:
        stored = json.loads(value or b"{}")
        return form_in(int(stored["body"]["version"]))
    except (ValueError, TypeError, KeyError):
        return OLD_FORM


class Header(NamedTuple):
    """The header of a segment of format 3."""

    start: int
    identity: bytes
    """The identity of the cluster's log, which no other log has."""
    runs: tuple[tuple[int, Trailer], ...] = ()
    """Newest first: the offset that names the file, and the file's trailer."""

    def line(self) -> bytes:
        runs = [b"%d:%s" % (start, trailer.describe()) for start, trailer in self.runs]
        return sealed(
            b"\t".join((b"L", b"%d" % NEW_FORM, b"%d" % self.start, self.identity, *runs))
        )

    def bare(self) -> Header:
        """Return the header without runs: the first line of the tail, which never changes."""
        return self._replace(runs=())


def parse_header(data: bytes) -> Header | None:
    """Return the header that `data` begins with, or None.

    Raises:
        UnsupportedVersion: the header has a newer form.
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
    """The offset of the segment that continues this one, or None."""


def log_path(folder: Path, start: int, form: int = OLD_FORM) -> Path:
    return folder / f"{start:020}.{'tail' if form == NEW_FORM else 'log'}"


def base_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.base"


def index_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.index"


def suspect_path(folder: Path, start: int) -> Path:
    """Return the file whose existence says that a sync of this segment's log has failed.

    It need not be durable, because a power cut also discards the page cache in doubt.
    """
    return folder / f"{start:020}.suspect"


def run_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.run"


def header_path(folder: Path, start: int) -> Path:
    return folder / f"{start:020}.segment"


def newest(folder: Path) -> int:
    """Return the offset of the newest segment that continues no other one; 0 for the first."""
    return _newest(folder)[0]


def _newest(folder: Path) -> tuple[int, int]:
    """Return the offset and the form of the newest segment that continues no other one."""
    found = {(0, OLD_FORM), *_begun(folder)}
    return next(
        (start, form)
        for start, form in sorted(found, reverse=True)
        if form == OLD_FORM or not _continues(folder, start)
    )


def _begun(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield the offset and the form of each segment, once for each file that shows it."""
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
    """Return the header from its file; None if the file is missing, damaged or misplaced."""
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
    """Write the base of the segment at `start` from `base` and the `changes` since (in key order).

    Begins the segment if necessary; afterwards it continues no other one. Deterministic: it does
    not matter which process wins, and if one dies, the next one completes the work.
    """
    if form == NEW_FORM:
        with _published(run_path(folder, start)) as fd:
            trailer = write_run(fd, base, changes)
        # The run's name has to be durable before the header names it.
        sync_folder(folder)
        # The fence must exist before the first segment of this form is visible.
        fence(folder)
        found = _newest(folder)
        if found > (start, NEW_FORM) or found == (start, OLD_FORM):
            # Other processes are already in a later segment and have swept the new files; or a
            # process that knows only the old form has begun the segment before it saw the fence.
            return
        # A log that began in the old form gets the digest of its first run as its identity.
        header = Header(start, identity or digest_of(trailer.line()), ((start, trailer),))
        _begin_tail(folder, header)
        _write(header_path(folder, start), header.line(), over=True)
        sync_folder(folder)
        return
    # The log first, so that a process that sees the base can open the log without creating it: a
    # process that slept through a whole segment must not create an old log again.
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
    """Begin a segment without a run. Durable and idempotent."""
    _begin_tail(folder, header)
    _write(header_path(folder, header.start), header.line())
    sync_folder(folder)


def _begin_tail(folder: Path, header: Header) -> None:
    """Create the tail before its header: a header without a tail means that the tail was lost.

    Raises:
        FileNotFoundError: the tail was lost, or the segment was swept.
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
    """Create the log's folder with its first segment, atomically. Idempotent.

    A folder with files in it stays unchanged.
    """
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    temporary.mkdir(mode=0o700)
    try:
        fence(temporary)
        _begin_bare(temporary, Header(0, uuid.uuid4().hex.encode()))
        with contextlib.suppress(OSError):
            os.rename(temporary, folder)  # Fails if the folder exists and is not empty.
    finally:
        with contextlib.suppress(FileNotFoundError):
            for path in list(temporary.iterdir()):
                path.unlink(missing_ok=True)
            temporary.rmdir()
    sync_folder(folder.parent)


def fence(folder: Path) -> None:
    """Stop processes that know only format 2 and have the folder open. Idempotent."""
    if not (folder / FENCE).exists():
        _write(folder / FENCE, _FENCE_TEXT)
        sync_folder(folder)


@contextlib.contextmanager
def _published(path: Path, *, over: bool = False) -> Iterator[int]:
    """Write a file that appears atomically under its name when the block ends without an error.

    Args:
        over: replace an existing file; otherwise the existing file stays.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            yield fd
        finally:
            os.close(fd)
        # The file exists already, or processes in a later segment have swept the temporary file.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            (os.replace if over else os.link)(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def open_newest(folder: Path) -> Segment:
    """Open the newest segment.

    Raises:
        Unavailable: a file of the segment is missing.
        CorruptRecord: the segment's files are damaged or do not belong together.
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
        # Between listing and opening, an older segment may have been swept, and even created again
        # by a process that slept. Then a newer segment exists by now.
        if _newest(folder) == (start, form):
            return segment._replace(following=following)
        os.close(segment.fd)
        segment.base.close()


def _following(folder: Path, start: int) -> int | None:
    """Return the offset of the segment that continues the one at `start`, or None.

    Raises:
        FileNotFoundError: that segment has lost its tail.
    """
    found = {each for each, form in _begun(folder) if form == NEW_FORM and each > start}
    for each in found:
        log_path(folder, each, NEW_FORM).stat()
    return min(found, default=None)


def _missing(error: FileNotFoundError) -> Unavailable:
    return Unavailable(
        f"{error.filename} is missing: another program removed files; restore the folder from a "
        "copy"
    )


def _open_old(folder: Path, start: int) -> Segment:
    # Create the first log only if no file shows that the log had later segments.
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
    """Begin the segment at `start`, unless it exists, and open it; it continues the previous one.

    Returns None if other processes are already in a later segment: open the newest one instead.

    Args:
        base: the layer below the segment.

    Raises:
        CorruptRecord, Unavailable: as `open_newest`.
    """
    try:
        _begin_bare(folder, Header(start, identity))
        fd, header, flaws = _open_tail(folder, start)
    except FileNotFoundError as error:
        if newest(folder) >= start:
            return None  # The segment was swept.
        raise _missing(error) from None
    # If this process slept, it has just begun a segment that was swept long ago.
    if newest(folder) >= start:
        os.close(fd)
        return None
    if header.identity != identity:
        os.close(fd)
        raise _strange(folder, start)
    return Segment(start, NEW_FORM, fd, base, header.bare().line(), flaws)


def _open_tail(folder: Path, start: int) -> tuple[int, Header, list[str]]:
    """Open a tail; return its descriptor, the segment's header, and flaws of both files."""
    log, header = log_path(folder, start, NEW_FORM), header_path(folder, start)
    flaws = []
    fd = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        own = parse_header(os.pread(fd, 4096, 0))
        found = _header_of(folder, start)
        if found is None and own is not None:
            if header.exists():
                flaws.append(f"{header}: damaged; the first line of {log} replaces it")
            else:
                # Its first writer died too early, or the header was removed: write it again.
                found = own
                with contextlib.suppress(FileNotFoundError):
                    trailer = _trailer_of(folder, start) if start else None
                    found = own if trailer is None else own._replace(runs=((start, trailer),))
                _write(header, found.line())
                sync_folder(folder)
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
    log, header = log_path(folder, start, NEW_FORM), header_path(folder, start)
    return CorruptRecord(
        f"{log}: its first line and {header} are damaged or do not belong together; restore both "
        "from a copy"
    )


def _trailer_of(folder: Path, start: int) -> Trailer | None:
    """Return the trailer of a segment's run, if it is readable."""
    with run_path(folder, start).open("rb") as file:
        file.seek(-min(TRAILER_MOST, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return Trailer.at_the_end(file.read())


def _fits(fd: int, header: Header) -> bool:
    """Return whether a log with a damaged first line continues like a log with this header."""
    first = header.line()
    data = os.pread(fd, 4096, 0)
    found = head_at(data, len(first))
    if found is None:
        return len(data) == len(first)
    return (found.offset, found.chain) == (header.start + len(first), crc32(first))


def sweep(folder: Path, start: int) -> None:
    """Remove the segments before the one at `start`; readers keep their open files."""
    for name in os.listdir(folder):
        number = name.removeprefix(".")[:20]
        if number.isdigit() and int(number) < start:
            with contextlib.suppress(OSError):
                os.unlink(folder / name)
