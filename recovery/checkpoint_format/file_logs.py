"""The logs of file sources, ``sources/K/N``, and of file sinks.

A log consists of numbered entries. A sink numbers them like the batches; a source counts its own.
Every so many entries Spark writes a *compacted* one: ``N.compact`` has the lines of all entries up
to N. An entry begins with its version. Each further line is JSON and names one file by its URI.

Other kinds of sources keep logs of their own in the same folder. Their lines name no files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import attrs

from .listing import entries, number
from .unreadable import UnreadableCheckpoint, check_version, decode, has_version, load_object

KNOWN = ("v1",)

_COMPACT = ".compact"
_URI = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/]*)?)(/.*)", re.DOTALL)
_LOCAL = ("file:", "file://")
_LONGEST_VERSION = 32


@attrs.frozen
class LoggedFile:
    """A file that a log names."""

    line: str
    """The whole line, unchanged: it says more than jrs reads."""
    prefix: str
    """The beginning of the URI: the scheme and the host."""
    quoted: str
    """The path as the URI spells it."""
    path: str
    """The path as the filesystem spells it."""

    @property
    def uri(self) -> str:
        return self.prefix + self.quoted

    @property
    def is_local(self) -> bool:
        return self.prefix in _LOCAL

    def at(self, quoted: str) -> str:
        """Return the line with another path, which the caller has quoted."""
        entry = {**json.loads(self.line), "path": self.prefix + quoted}
        return json.dumps(entry, separators=(",", ":"))


@attrs.frozen
class FileLog:
    """One entry of a log, compacted or not."""

    lines: tuple[str, ...]
    """All lines, unchanged, the version first."""
    files: tuple[LoggedFile | None, ...]
    """For each line the file that it names, or None."""

    @property
    def named(self) -> tuple[LoggedFile, ...]:
        return tuple(file for file in self.files if file is not None)


def parse_sink(data: bytes, where: Path) -> FileLog:
    """Parse an entry of a file sink's log.

    Raises:
        UnreadableCheckpoint: the file holds something else, or has an unknown version.
    """
    lines = _lines(data, where)
    check_version(lines[0], KNOWN, "the log of a file sink", where)
    last = len(lines) - 1
    files = [
        None if index == 0 or (index == last and not line) else _file(line, where)
        for index, line in enumerate(lines)
    ]
    return FileLog(tuple(lines), tuple(files))


def parse_source(data: bytes, where: Path) -> FileLog:
    """Parse an entry of a source's log. That of another kind of source names no files.

    Raises:
        UnreadableCheckpoint: the entry is a file source's, and is damaged or has an unknown
            version.
    """
    lines = _lines(data, where)
    if not has_version(lines[0]):
        return FileLog(tuple(lines), (None,) * len(lines))
    files = [_file_of_any(line, where) if index else None for index, line in enumerate(lines)]
    if any(files):
        check_version(lines[0], KNOWN, "the log of a file source", where)
    return FileLog(tuple(lines), tuple(files))


def read_sink(path: Path) -> FileLog:
    """Read an entry of a file sink's log.

    Raises:
        FileNotFoundError: the file is missing.
        UnreadableCheckpoint: the file holds something else, or has an unknown version.
    """
    return parse_sink(path.read_bytes(), path)


def read_source(path: Path) -> FileLog:
    """Read an entry of a source's log.

    Raises:
        FileNotFoundError: the file is missing.
        UnreadableCheckpoint: the entry is a file source's, and is damaged or has an unknown
            version.
    """
    return parse_source(path.read_bytes(), path)


# -- which entries a log has -----------------------------------------------------------------


@attrs.frozen
class Entries:
    """The numbers of a log's entries."""

    single: frozenset[int]
    compacted: frozenset[int]

    @property
    def newest(self) -> int:
        """The newest of all; -1 if the log is empty."""
        return max(self.single | self.compacted, default=-1)


def list_entries(log: Path) -> Entries:
    """Return the numbers of a log's entries; none if the log is missing."""
    single: set[int] = set()
    compacted: set[int] = set()
    for entry in entries(log):
        name = entry.name.removesuffix(_COMPACT)
        found = number(name)
        if found is not None:
            (single if name == entry.name else compacted).add(found)
    return Entries(frozenset(single), frozenset(compacted))


def files_of(log: Path) -> list[Path]:
    """Return the files of a log's entries; none if the log is missing."""
    found = list_entries(log)
    names = [*map(compacted_name, found.compacted), *map(str, found.single)]
    return [log / name for name in sorted(names)]


def compacted_name(entry: int) -> str:
    """Return the name of the file of a compacted entry."""
    return f"{entry}{_COMPACT}"


def log_until(log: Path, last: int, *, whole: bool) -> list[str]:
    """Return the names of the files that hold a log's entries up to `last`.

    Args:
        whole: whether to check that no entry is missing and that all versions are known.

    Raises:
        FileNotFoundError: an entry is missing.
        UnreadableCheckpoint: an entry has an unknown version, or none, as after a power cut.
    """
    found = list_entries(log)
    base = max((entry for entry in found.compacted if entry <= last), default=-1)
    wanted = range(base + 1, last + 1)
    if whole:
        for entry in wanted:
            if entry not in found.single:
                raise FileNotFoundError(2, "is missing", str(log / str(entry)))
    names = [compacted_name(base)] if base >= 0 else []
    names += [str(entry) for entry in sorted(found.single) if entry in wanted]
    for name in names if whole else ():
        with open(log / name, "rb") as file:
            first = file.readline(_LONGEST_VERSION)
        check_version(decode(first, log / name).rstrip("\n"), KNOWN, "a log", log / name)
    return names


# -- inside --------------------------------------------------------------------------------


def _lines(data: bytes, where: Path) -> list[str]:
    return decode(data, where).split("\n")


def _file_of_any(line: str, where: Path) -> LoggedFile | None:
    """Return the file that a line of any kind of source names; None if it names none."""
    if not line.startswith("{"):
        return None  # Another kind of source wrote it.
    uri = load_object(line, "a log of files", where).get("path")
    return _file(line, where) if isinstance(uri, str) and _URI.fullmatch(uri) else None


def _file(line: str, where: Path) -> LoggedFile:
    uri = load_object(line, "a log of files", where).get("path")
    match = _URI.fullmatch(uri) if isinstance(uri, str) else None
    if match is None:
        raise UnreadableCheckpoint(f"{where}: not a log of files of Spark: it names {uri!r:.80}")
    return LoggedFile(line, match[1], match[2], _decoded(match[2], where))


def _decoded(quoted: str, where: Path) -> str:
    """Return a path as the filesystem spells it."""
    path = unquote(quoted)
    try:
        path.encode("utf-8")
        if "\0" in path:
            raise ValueError("it has a zero byte")
    except ValueError as error:
        raise UnreadableCheckpoint(f"{where}: {quoted!r:.80} is no path: {error}") from error
    return path
