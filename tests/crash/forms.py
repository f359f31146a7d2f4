"""Folders whose log begins in the old form, as a folder that was converted does."""

from __future__ import annotations

from pathlib import Path

from jrs.backends.file import segments
from jrs.backends.file.folder import MARKER, marker_text


def begin_in_old_form(root: Path, cluster: str = "default") -> None:
    """Make a converted folder with an empty log of the old form."""
    log = root / "clusters" / cluster / "log"
    log.mkdir(parents=True)
    segments.log_path(log, 0).touch()
    segments.fence(log)
    (root / MARKER).write_bytes(marker_text())
