"""The form of a store: begins a store in the old form, and raises it to the newest one."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.format.folder import MARKER, publish
from jrs.contract.errors import Conflict
from jrs.contract.formats import NEWEST_FORMAT, OLDEST_FORMAT
from jrs.contract.operations import create_or_update
from jrs.records import keys
from jrs.records.cluster import FormatRecord
from jrs.records.codec import encode


def begin_in_old_form(root: Path) -> None:
    """Make the empty folder `root` an empty store of the oldest format."""
    publish(root / MARKER, json.dumps({"format": "jrs", "version": OLDEST_FORMAT}).encode())


def raise_form(handle: FileBackend) -> None:
    """Raise the format of a cluster without results to the newest one, by one commit, and begin a
    segment in it."""
    stored = handle.get(keys.FORMAT)
    raised = FormatRecord(NEWEST_FORMAT, complete=NEWEST_FORMAT)
    with suppress(Conflict):  # Another handle has just raised it.
        handle.commit(create_or_update(keys.FORMAT, encode(raised), stored and stored.version))
    handle.compact()
