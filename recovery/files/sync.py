"""Syncing a file or a folder. Apart, since Spark's Python workers get it by value."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Sync a file or a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
