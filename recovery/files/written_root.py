"""The root of the storage under which the files of a stream were written.

Spark's logs have absolute paths. So each folder of a stream notes below which folder its logs
name the files of jobs, in ``streams/<stage>/root``. The note moves with the files: where it names
another folder than the present one, the storage was moved, or is named by another path, and the
next take-over relocates the logs.
"""

from __future__ import annotations

import os
from pathlib import Path

from . import transfer
from .sync import sync

_NAME = "root"


def note(stream: Path, root: Path) -> None:
    """Note the root in the folder of a stream. Durable; the note appears as a whole.

    Raises:
        OSError: it cannot be written.
    """
    transfer.write(stream / _NAME, os.fsencode(root))
    sync(stream)


def noted(stream: Path) -> Path | None:
    """Return the noted root; None if there is no note: a version without notes wrote the files.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        return Path(os.fsdecode((stream / _NAME).read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
