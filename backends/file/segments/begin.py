"""Beginning a segment, and writing the base that it lies on."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from ..base import Base, merge
from ..base import filter as filters
from ..base.entries import Change
from ..base.index import digest_of
from ..format.folder import (
    make_folder,
    open_or_create,
    publish,
    published,
    sync_folder,
    write_all,
)
from .forms import Form
from .header import Header
from .names import (
    FENCE,
    base_path,
    header_path,
    index_path,
    log_path,
    newest_with_form,
    run_path,
    trailer_of,
)

_FENCE_TEXT = b"jrs: this folder was converted by a newer version of jrs: stop this process\n"


def create(folder: Path, form: Form = Form.LEVELS) -> None:
    """Create the log's folder with its first segment, atomically. Idempotent.

    A folder with files in it stays unchanged.
    """
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    make_folder(temporary)
    try:
        _fence(temporary)
        begin_bare(temporary, Header(0, uuid.uuid4().hex.encode(), form))
        with contextlib.suppress(OSError):
            os.rename(temporary, folder)  # Fails if the folder exists and is not empty.
    finally:
        with contextlib.suppress(FileNotFoundError):
            for path in list(temporary.iterdir()):
                path.unlink(missing_ok=True)
            temporary.rmdir()
    sync_folder(folder.parent)


def begin_bare(folder: Path, header: Header) -> None:
    """Begin a segment without a run. Durable and idempotent.

    Raises:
        FileNotFoundError: the tail was lost, or the segment was swept.
    """
    # Another process may have begun the tail with another form or epoch, and died.
    publish(header_path(folder, header.start), _begun(folder, header).bare().line())


def write_base(
    folder: Path, following: Header, base: Base, changes: Iterable[Change], *, weight: int = 0
) -> None:
    """Write the base of the `following` segment from `base` and the `changes` since (in key order).

    Begins the segment if necessary; afterwards it continues no other one. It does not matter which
    process wins, and if one dies, the next one completes the work.

    Args:
        weight: the bytes of the changes; they decide which runs are merged.
    """
    if following.form == Form.LINES:
        _write_two_files(folder, following.start, base, changes)
    else:
        _write_run(folder, following, base, changes, weight)


def _write_run(
    folder: Path, header: Header, base: Base, changes: Iterable[Change], weight: int
) -> None:
    start = header.start
    if header.identity:
        # A process that knows no levels may have begun the segment: the tail tells its form.
        header = _begun(folder, header)
    count = base.merged_with(weight) if header.form == Form.LEVELS else len(base.runs)
    with published(run_path(folder, start)) as fd:
        own, filtered = merge.write_run(
            fd, base.runs[:count], changes, base.names[count:],
            levelled=header.form == Form.LEVELS,
        )  # fmt: skip
        if filtered.is_whole:
            with published(filters.path_of(run_path(folder, start))) as filter_fd:
                filtered.write(filter_fd, own)
    # The run's name has to be durable before the header names it.
    sync_folder(folder)
    # The fence must exist before the first log of batches is visible.
    _fence(folder)
    found = newest_with_form(folder)
    if found > (start, Form.BATCHES) or found == (start, Form.LINES):
        # Other processes are already in a later segment and have swept the new files; or a process
        # that knows only logs of lines has begun the segment before it saw the fence.
        return
    try:
        # Another process may have written another run, from other damage: the name is its own.
        trailer = trailer_of(folder, start) or own
    except FileNotFoundError:
        return  # Swept in this moment.
    # A log that began in the form of lines gets the digest of its first run as its identity.
    if not header.identity:
        header = _begun(folder, header._replace(identity=digest_of(trailer.line())))
    publish(header_path(folder, start), header.with_run(trailer).line(), replace=True)


def _begun(folder: Path, header: Header) -> Header:
    """Return the header with the form and the epoch of the segment's tail; begin the segment if
    necessary."""
    path = log_path(folder, header.start, Form.BATCHES)
    if not path.exists():
        _begin_tail(folder, header)
    try:
        with path.open("rb") as file:
            found = Header.parse(file.read(4096), path.resolve())
    except FileNotFoundError:
        return header  # The segment was swept, and is nothing that counts.
    return header if found is None else header._replace(form=found.form, epoch=found.epoch)


def _write_two_files(folder: Path, start: int, base: Base, changes: Iterable[Change]) -> None:
    # The log first, so that a process that sees the base can open the log without creating it: a
    # process that slept through a whole segment must not create an old log again.
    os.close(open_or_create(log_path(folder, start), os.O_RDWR | os.O_APPEND))
    sync_folder(folder)
    with published(base_path(folder, start)) as fd:
        index = merge.write_base(fd, base.runs, changes)
        with published(index_path(folder, start)) as index_fd:
            write_all(index_fd, index)
            os.fsync(index_fd)
        sync_folder(folder)  # A base without its index looks damaged.
    sync_folder(folder)


def _begin_tail(folder: Path, header: Header) -> None:
    """Create the tail before its header: a header without a tail means that the tail was lost."""
    path = log_path(folder, header.start, Form.BATCHES)
    if header_path(folder, header.start).exists() and not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.resolve()))
    publish(path, header.bare().line())


def _fence(folder: Path) -> None:
    """Stop processes that know only format 2 and have the folder open. Idempotent."""
    if not (folder / FENCE).exists():
        publish(folder / FENCE, _FENCE_TEXT)
