"""Which files below a folder Spark reads, by their names and through links."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import PurePath


def is_hidden(path: PurePath) -> bool:
    """Return whether Spark passes over a path, relative to the folder that it lists, because of one
    of its names: ``.crc``, ``_temporary``, what `hdfs` is still copying.

    A name such as ``_year=2026`` is that of a partition, which Spark reads.
    """
    return any(_is_hidden(name) for name in path.parts)


def visible_files(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the files that Spark reads below a folder: their paths in it, and without links.

    Spark follows links to folders, so they are followed here, but for those that lead back to a
    folder above them. A link that leads nowhere is none of the files.

    Raises:
        OSError: something cannot be listed, so that files may be missing from what was yielded.
    """
    real = os.path.realpath(folder)
    return _below(real, "", frozenset({real}))


def _below(folder: str, place: str, above: frozenset[str]) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if _is_hidden(entry.name):
            continue
        inside = os.path.join(place, entry.name)
        real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
        kind = _kind(entry)
        if kind == stat.S_IFDIR:
            if real not in above:
                yield from _below(real, inside, above | {real})
        elif kind == stat.S_IFREG:
            yield inside, real


def _kind(entry: os.DirEntry[str]) -> int:
    """Return what an entry is, through links; 0 for a link that leads nowhere, or to itself."""
    try:
        return stat.S_IFMT(entry.stat().st_mode)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return 0


def _is_hidden(name: str) -> bool:
    # `HadoopFSUtils.shouldFilterOutPathName`, but for the summaries of Parquet, which have no rows.
    return (
        name.startswith(".")
        or (name.startswith("_") and "=" not in name)
        or name.endswith("._COPYING_")
    )
