"""The log of a file sink, ``_spark_metadata``: which files of a table count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jrs.contract.errors import CorruptRecord

from .checkpoint import log_until, newest_logged

SINK_LOG = "_spark_metadata"


def counted(output: Path) -> Iterator[Path]:
    """Yield the files of a stage's output that are to be read: those that the log of a file sink
    names, if there is one; it holds for this place alone, so it is not one of them.

    Raises:
        CorruptRecord: the log cannot be read.
    """
    log = output / SINK_LOG
    if log.is_dir():
        yield from (output / name for name in sorted(_named(log)))
    else:
        yield from (path for path in sorted(output.rglob("*")) if path.is_file())


def uncounted(log: Path) -> Iterator[Path]:
    """Yield the data files next to a log that it does not name.

    Raises:
        CorruptRecord: the log cannot be read, so that nobody knows which rows count.
    """
    table = log.parent
    counted = set(_named(log))
    for path in sorted(table.rglob("*")):
        hidden = any(part[0] in "._" for part in path.relative_to(table).parts)
        if path.is_file() and not hidden and path.relative_to(table).as_posix() not in counted:
            yield path


def _named(log: Path) -> Iterator[str]:
    try:
        for name in log_until(log, newest_logged(log), whole=True):
            version, *lines = (log / name).read_text(encoding="utf-8").splitlines()
            if not version.startswith("v"):
                raise ValueError(f"{name} has no version")
            for line in lines:
                path = Path(unquote(urlsplit(json.loads(line)["path"]).path))
                # Wherever the table was when it was written: its files are named below it.
                yield path.as_posix().rpartition(f"/{log.parent.name}/")[2]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptRecord(f"{log}: not the log of a file sink: {error}") from error
