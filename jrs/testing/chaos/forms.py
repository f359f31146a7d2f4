"""The form in which a store is written: begun in the old one, raised to the newest one."""

from __future__ import annotations

import json
from pathlib import Path

from jrs.backends.file import FileBackend
from jrs.backends.file.folder import MARKER, publish
from jrs.contract.formats import OLDEST_FORMAT
from jrs.store.cluster_format import raise_format


def begin_in_old_form(root: Path) -> None:
    """Make the empty folder `root` one of the oldest format, with nothing in it."""
    publish(root / MARKER, json.dumps({"format": "jrs", "version": OLDEST_FORMAT}).encode())


def raise_form(handle: FileBackend) -> None:
    """Raise the cluster's format to the newest that this jrs knows, and begin a segment in it."""
    raise_format(handle)
    handle.compact()
