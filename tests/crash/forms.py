"""Folders whose log is of the old form, as those of a cluster of format 2 are."""

from __future__ import annotations

import json
from pathlib import Path

from jrs.backends.file import segments
from jrs.backends.file.format.folder import MARKER
from jrs.contract.formats import OLDEST_FORMAT


def begin_in_old_form(root: Path, cluster: str = "default") -> None:
    """Make the folder of a cluster of format 2 with an empty log."""
    log = root / "clusters" / cluster / "log"
    log.mkdir(parents=True)
    segments.log_path(log, 0).touch()
    (root / MARKER).write_text(json.dumps({"format": "jrs", "version": OLDEST_FORMAT}))
