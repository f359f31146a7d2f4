"""The form of a store: begins a store in the old form, and raises it to the newest one."""

from __future__ import annotations

import json
from pathlib import Path

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.format.folder import MARKER, publish
from jrs.contract.formats import OLDEST_FORMAT
from jrs.store.cluster_format import raise_format


def begin_in_old_form(root: Path) -> None:
    """Make the empty folder `root` an empty store of the oldest format."""
    publish(root / MARKER, json.dumps({"format": "jrs", "version": OLDEST_FORMAT}).encode())


def raise_form(handle: FileBackend) -> None:
    """Raise the cluster's format to the newest one, and begin a segment in it."""
    raise_format(handle)
    handle.compact()
