"""The form of a store: begins a store in an old form, and raises it to the newest one."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from jrs.backends.file import segments
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.format.folder import MARKER, publish
from jrs.contract.errors import Conflict
from jrs.contract.formats import NEWEST_FORMAT, OLDEST_FORMAT
from jrs.contract.operations import create_or_update
from jrs.records import keys
from jrs.records.cluster import FormatRecord
from jrs.records.codec import encode


def begin_in_old_form(
    root: Path, cluster: str = "default", *, version: int = OLDEST_FORMAT
) -> None:
    """Make a folder, and in it a cluster with an empty log, as versions of jrs do whose newest
    format is `version`."""
    log = root / "clusters" / cluster / "log"
    log.parent.mkdir(parents=True)
    publish(root / MARKER, json.dumps({"format": "jrs", "version": version}).encode())
    if (form := segments.form_in(version)) == segments.Form.LINES:
        log.mkdir()
        segments.log_path(log, 0).touch()
    else:
        segments.create(log, form)


def raise_form(handle: FileBackend) -> None:
    """Raise the format of a cluster without results to the newest one, by one commit, and begin a
    segment in it."""
    stored = handle.get(keys.FORMAT)
    raised = FormatRecord(NEWEST_FORMAT, complete=NEWEST_FORMAT)
    with suppress(Conflict):  # Another handle has just raised it.
        handle.commit(create_or_update(keys.FORMAT, encode(raised), stored and stored.version))
    handle.compact()
