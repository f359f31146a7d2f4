"""What a checkpoint needs to be of another place, or of another query.

Absolute paths are in two places of Spark's files and no others: the log of a file source and the
log of a file sink. A checkpoint's query id is in its ``metadata``.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
import uuid
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

from jrs.contract.errors import CorruptRecord

from ..files import transfer
from .checkpoint import read

_HOLDS_PATHS = re.compile(
    r"streams/[^/]+/ck/sources/[^/]+/[0-9]+(\.compact)?"
    r"|(out|tmp)/.+/_spark_metadata/[0-9]+(\.compact)?"
)
_URI = re.compile(r"(file:(?://)?)(/.*)", re.DOTALL)
_SAFE = "/!$&'()*+,;=:@~"
_NO_OTHERS = ("Cc", "Zs", "Zl", "Zp")
"""Controls and spaces. What else is beyond ASCII, a `java.net.URI` calls "other", and leaves."""


def holds_paths(path: str) -> bool:
    """Return whether a file of a snapshot is one of the logs that hold absolute paths."""
    return _HOLDS_PATHS.fullmatch(path) is not None


def relocate(file: Path, old: str, new: str) -> None:
    """Let a log name files below `new` where it named them below `old`. Idempotent.

    The file is replaced, never written to: others may share it.

    Raises:
        CorruptRecord: it is no such log.
    """
    lines = read(file).split("\n")
    moved = [lines[0], *(_moved(line, old, new, file) for line in lines[1:])]
    if moved != lines:
        _replace(file, "\n".join(moved))


def folders_in(log: Path) -> set[Path]:
    """Return the local folders of the files that a log names.

    Raises:
        CorruptRecord: it is no such log.
    """
    found = (_entry(line, log)[1] for line in read(log).split("\n")[1:])
    return {Path(unquote(parent)) for parent in {m[2].rpartition("/")[0] for m in found if m}}


def moved_path(path: str, old: str, new: str) -> str:
    """Return `path` below `new` if it is below `old`."""
    below = PurePosixPath(path)
    return str(PurePosixPath(new) / below.relative_to(old)) if below.is_relative_to(old) else path


def give_new_id(metadata: Path) -> str:
    """Make a checkpoint that of a query of its own; return the new query's id."""
    try:
        body = json.loads(metadata.read_bytes())
        body["id"] = str(uuid.uuid4())
    except (ValueError, TypeError) as error:
        raise CorruptRecord(f"{metadata}: not the metadata of a query: {error}") from error
    _replace(metadata, json.dumps(body, separators=(",", ":")))
    return str(body["id"])


# -- inside --------------------------------------------------------------------------------


def _entry(line: str, where: Path) -> tuple[dict[str, Any], re.Match[str] | None]:
    """Return an entry of a log, and the local path that it names, if it does."""
    if not line.startswith("{"):
        return {}, None  # Another source's own log: a number, or what it began with.
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise CorruptRecord(f"{where}: not a log of files: {error}") from error
    path = entry.get("path")
    return entry, _URI.fullmatch(path) if isinstance(path, str) else None


def _moved(line: str, old: str, new: str, where: Path) -> str:
    entry, match = _entry(line, where)
    if match is None:
        return line
    parts, root = match[2].split("/"), old.rstrip("/").split("/")
    if [unquote(part) for part in parts[: len(root)]] != root:
        return line
    rest = "/".join(parts[len(root) :])
    entry["path"] = f"{match[1]}{_quoted(new)}/{rest}"
    return json.dumps(entry, separators=(",", ":"))


def _quoted(path: str) -> str:
    """Quote what Java's URIs quote and nothing else: Spark compares them as they are written."""
    return "".join(
        char if char > "\x7f" and unicodedata.category(char) not in _NO_OTHERS
        else quote(char, safe=_SAFE)
        for char in path
    )  # fmt: skip


def _replace(file: Path, text: str) -> None:
    stamp = file.stat()
    transfer.write(file, text.encode())
    # Checksums of the text that it replaces; Spark does without.
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
