"""The segments whose page cache may contain data that the disk does not have."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..format.folder import open_or_create


class Suspects:
    """The segments of which a sync has failed, in this or in another process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: set[int] = set()

    def add(self, start: int) -> None:
        """Mark the segment at `start` for all processes, or for this one if the disk is full.

        The mark need not be durable, because a power cut also discards the page cache.
        """
        self._own.add(start)
        with contextlib.suppress(OSError):
            os.close(open_or_create(self._mark(start), os.O_WRONLY))

    def __contains__(self, start: int) -> bool:
        if start in self._own:
            return True
        try:
            os.stat(self._mark(start))  # Not `exists`, which takes some errors for an absence.
        except FileNotFoundError:
            return False
        return True

    def _mark(self, start: int) -> Path:
        return self._folder / f"{start:020}.suspect"
