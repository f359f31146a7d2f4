"""Moving a checkpoint to another place, or giving it to another query.

Two kinds of Spark's files hold absolute paths, and no others do: the logs of file sources and those
of file sinks. The query's id is in the checkpoint's ``metadata``.
"""

from __future__ import annotations

import os
import re
import unicodedata
import uuid
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote

from ..files import transfer
from . import file_logs, metadata
from .file_logs import FileLog, LoggedFile
from .sink_log import SINK_LOG

_HOLDS_PATHS = re.compile(
    r"streams/[^/]+/ck/sources/[^/]+/[0-9]+(\.compact)?"
    rf"|(out|tmp)/.+/{SINK_LOG}/[0-9]+(\.compact)?"
)
_SAFE = "/!$&'()*+,;=:@~"
_NO_OTHERS = ("Cc", "Zs", "Zl", "Zp")
"""Controls and spaces. A `java.net.URI` calls all else beyond ASCII "other" and leaves it."""


def has_paths(path: str) -> bool:
    """Return whether a file of a snapshot is one of the logs that hold absolute paths."""
    return _HOLDS_PATHS.fullmatch(path) is not None


def relocate(file: Path, old: str, new: str) -> None:
    """Make a log name files below `new` where it named them below `old`. Idempotent.

    This replaces the file and never writes into it: snapshots may share it by a hard link.

    Raises:
        UnreadableCheckpoint: the file is no such log.
    """
    log = _read(file)
    moved = _text(log, old, new)
    if moved != "\n".join(log.lines):
        _replace(file, moved)


def relocated_source(data: bytes, where: Path, old: str, new: str) -> str:
    """Return what `relocate` makes of an entry of a source's log.

    Raises:
        UnreadableCheckpoint: it is no such entry.
    """
    return _text(file_logs.parse_source(data, where), old, new)


def folders_in(log: Path) -> set[Path]:
    """Return the local folders of the files that a log names.

    Raises:
        UnreadableCheckpoint: the file is no such log.
    """
    return {Path(file.path).parent for file in _read(log).named if file.is_local}


def moved_path(path: str, old: str, new: str) -> str:
    """Return `path` below `new` if it is below `old`."""
    below = PurePosixPath(path)
    return str(PurePosixPath(new) / below.relative_to(old)) if below.is_relative_to(old) else path


def moved_link(leads_to: str, old: str, new: str) -> str:
    """Return where a job's link is to lead once the job's folder is `new` and no longer `old`.

    A link to another job's output leads below the folder of all jobs, which may have been moved.
    """
    moved = moved_path(leads_to, old, new)
    if moved == leads_to and not os.path.lexists(leads_to):
        there = moved_path(leads_to, os.path.dirname(old), os.path.dirname(new))
        return there if os.path.lexists(there) else leads_to
    return moved


def give_new_id(file: Path) -> str:
    """Give the checkpoint with this ``metadata`` file a new query id, and return the id.

    Raises:
        UnreadableCheckpoint: the file is no metadata.
    """
    changed = metadata.read(file).with_id(str(uuid.uuid4()))
    _replace(file, changed.text())
    return changed.id


# -- inside --------------------------------------------------------------------------------


def _read(log: Path) -> FileLog:
    of_sink = log.parent.name == SINK_LOG
    return file_logs.read_sink(log) if of_sink else file_logs.read_source(log)


def _text(log: FileLog, old: str, new: str) -> str:
    """Return the text of a log that names files below `new` where it named them below `old`."""
    return "\n".join(
        line if named is None else _moved(named, old, new)
        for line, named in zip(log.lines, log.files, strict=True)
    )


def _moved(file: LoggedFile, old: str, new: str) -> str:
    parts, root = file.quoted.split("/"), old.rstrip("/").split("/")
    if not file.is_local or [unquote(part) for part in parts[: len(root)]] != root:
        return file.line
    rest = "/".join(parts[len(root) :])
    return file.at(f"{_quoted(new)}/{rest}")


def _quoted(path: str) -> str:
    """Quote what a `java.net.URI` quotes and nothing else: Spark compares URIs as strings."""
    return "".join(
        char if char > "\x7f" and unicodedata.category(char) not in _NO_OTHERS
        else quote(char, safe=_SAFE)
        for char in path
    )  # fmt: skip


def _replace(file: Path, text: str) -> None:
    stamp = file.stat()
    # Checksums of the text that it replaces, which Spark would believe; it does without.
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    transfer.sync(file.parent)
    transfer.write(file, text.encode())
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
