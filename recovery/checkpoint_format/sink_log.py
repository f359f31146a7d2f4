"""The log of a file sink, ``_spark_metadata``: it names the files of a table that count."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..files.visible_files import is_hidden
from . import file_logs
from .file_logs import LoggedFile, compacted_name, list_entries, log_until
from .unreadable import damage, decode

SINK_LOG = "_spark_metadata"


def counted(output: Path) -> Iterator[Path]:
    """Yield the files of a stage's output that a reader is to read.

    If the output has the log of a file sink, these are the files that it names. The log itself is
    none of them: it holds for this place alone.

    Raises:
        UnreadableCheckpoint: the log is damaged.
        OSError: the log cannot be read now.
    """
    log = output / SINK_LOG
    if log.is_dir():
        yield from (output / name for name in sorted(_named(log)))
    else:
        yield from (path for path in sorted(output.rglob("*")) if path.is_file())


def uncounted(log: Path) -> Iterator[Path]:
    """Yield the data files next to a log that it does not name.

    Raises:
        UnreadableCheckpoint: the log is damaged, so which rows count is not known.
        OSError: the log cannot be read now.
    """
    table = log.parent
    counted = set(_named(log))
    for path in sorted(table.rglob("*")):
        inside = path.relative_to(table)
        if path.is_file() and not is_hidden(inside) and inside.as_posix() not in counted:
            yield path


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


def _named(log: Path) -> Iterator[str]:
    """Yield the paths of the named files, relative to the table, which may have been moved."""
    with damage(f"{log}: not the log of a file sink"):
        for _, files in files_until(log, list_entries(log).newest):
            for file in files:
                yield Path(file.path).as_posix().rpartition(f"/{log.parent.name}/")[2]


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
