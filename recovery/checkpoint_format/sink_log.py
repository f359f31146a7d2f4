"""The log of a file sink, ``_spark_metadata``: it names the files of a table that count."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ..files.safe_listing import walk
from ..files.visible_files import is_hidden
from . import file_logs
from .file_logs import LoggedFile, compacted_name, list_entries, log_until
from .unreadable import damage, decode

SINK_LOG = "_spark_metadata"
_DATA = re.compile(r"part-[0-9]{5,}(?![0-9])")
"""How the name of each data file begins that Spark writes."""


def sink_logs(output: Path, passed_over: Callable[[str], bool] | None = None) -> list[Path]:
    """Return the logs of the file sinks that write to a folder or below it. A log comes before
    those of tables inside its own table. None if the folder is missing.

    Args:
        passed_over: returns whether not to search a folder of that name in `output` itself.

    Raises:
        OSError: a folder cannot be listed now, so that a log may be missing.
    """
    return [
        folder / SINK_LOG
        for folder, folders, others in walk(output, missing_ok=True, passed_over=passed_over)
        if SINK_LOG in folders or (SINK_LOG in others and (folder / SINK_LOG).is_dir())
    ]


def is_of_sink(path: Path) -> bool:
    """Return whether a file sink has written a file, by its path in its table: if no log names it,
    it is of a batch that failed. A sink writes into the table itself and the folders of its
    partitions, ``column=value``. All other files are of functions of the user, perhaps by Spark.
    """
    in_partition = all("=" in name for name in path.parts[:-1])
    return in_partition and _DATA.match(path.name) is not None


def counted(output: Path) -> Iterator[Path]:
    """Yield the files of a stage's output that a reader is to read.

    Of a table with the log of a file sink, these are the files that the log names. The log itself
    is none of them: it holds for this place alone.

    Raises:
        UnreadableCheckpoint: a log is damaged.
        OSError: a log, or a folder, cannot be read now.
    """
    tables = _tables(output)
    named = {path for files in tables.values() for path in files}
    for folder, _, names in walk(output, missing_ok=True):
        if folder.name != SINK_LOG and tables.keys().isdisjoint((folder, *folder.parents)):
            named.update(path for name in names if (path := folder / name).is_file())
    yield from sorted(named)


def removable(output: Path) -> Iterator[Path]:
    """Yield what file sinks have left in a stage's output: the data files that lie in a table with
    a log and that no log names, and then the logs, outer ones first. What others have written is
    none of it. A table that has its log from another place is left alone, unless it lies in one of
    those.

    Raises:
        UnreadableCheckpoint: a log is damaged, so which rows count is not known.
        OSError: a log, or a folder, cannot be read now.
    """
    tables = _tables(output)
    named = {path for files in tables.values() for path in files}
    found: set[Path] = set()
    for table in tables:
        for folder, _, names in walk(table, missing_ok=True):
            found.update(
                path
                for path in (folder / name for name in names)
                if is_of_sink(inside := path.relative_to(table))
                and not is_hidden(inside)
                and path.is_file()
            )
    yield from sorted(found - named)
    yield from (table / SINK_LOG for table in tables)


def batches(log: Path) -> set[int]:
    """Return the batches that have an entry in the log, compacted or not."""
    found = list_entries(log)
    return set(found.single | found.compacted)


def files_until(log: Path, batch: int) -> Iterator[tuple[str, tuple[LoggedFile, ...]]]:
    """Yield the names of the entries that hold a log up to a batch, and the files that each names.

    Raises:
        FileNotFoundError: an entry is missing.
        UnreadableCheckpoint: an entry cannot be read.
    """
    for name in log_until(log, batch, whole=True):
        yield name, file_logs.read_sink(log / name).named


def fill(log: Path, last: int, default: int) -> None:
    """Add an entry without files for each batch up to `last` that the log lacks.

    Idempotent. Durable once the caller has synced the log's folder.

    Args:
        default: the number of entries after which Spark compacts a new log.

    Raises:
        FileNotFoundError: an entry is missing.
        UnreadableCheckpoint: an entry has no known version.
    """
    for batch in range(list_entries(log).newest + 1, last + 1):
        half = log / f".{batch}.half"
        if (batch + 1) % _compact_interval(log, default):
            name, lines = str(batch), ["v1"]
        else:
            name, lines = compacted_name(batch), ["v1", *_lines(log, batch - 1)]
        half.write_text("\n".join(lines), encoding="utf-8")
        os.rename(half, log / name)


# -- inside --------------------------------------------------------------------------------


def _tables(output: Path) -> dict[Path, set[Path]]:
    """Return the tables with a log in an output, outer ones first, and the files that each log
    names. The log of a table that a user has copied there, or renamed, does not count."""
    found = ((log.parent, _named(log)) for log in sink_logs(output))
    return {table: named for table, named in found if named is not None}


def _named(log: Path) -> set[Path] | None:
    """Return the named files, in the table, which may have been moved with the folders above it;
    None if the log was written for a table of another name."""
    found: set[Path] = set()
    with damage(f"{log}: not the log of a file sink"):
        for _, files in files_until(log, list_entries(log).newest):
            for file in files:
                _, at, inside = Path(file.path).as_posix().rpartition(f"/{log.parent.name}/")
                if not at:
                    return None
                found.add(log.parent / inside)
    return found


def _compact_interval(log: Path, default: int) -> int:
    """Return the interval at which Spark expects compacted entries. It derives that from those that
    exist (`CompactibleFileStreamLog.deriveCompactInterval`)."""
    latest = sorted(list_entries(log).compacted)
    if not latest:
        return default
    if len(latest) > 1:
        return latest[-1] - latest[-2]
    count = latest[-1] + 1
    if default < count / 2:
        return next((n for n in range(default, count // 2 + 1) if count % n == 0), count)
    return count


def _lines(log: Path, last: int) -> Iterator[str]:
    """Yield the lines of a log up to an entry, unchanged."""
    for name in log_until(log, last, whole=True):
        text = decode((log / name).read_bytes(), log / name)
        yield from text.removesuffix("\n").split("\n")[1:]
