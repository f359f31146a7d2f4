"""What kind of filesystem a path is on: what jrs keeps there needs more than some of them give."""

from __future__ import annotations

import re
from pathlib import Path

OBJECT_STORES = {
    f"fuse.{name}"
    for name in (
        *("s3fs", "goofys", "geesefs", "mountpoint-s3", "gcsfuse", "blobfuse", "blobfuse2"),
        *("rclone", "ossfs", "cosfs"),
    )
}
"""Mounts of object stores: a folder is renamed there object by object, or not at all."""


def filesystem_of(path: Path, mounts: str | None = None) -> str:
    """Return the type of the filesystem that `path` is on, as ``ext4`` or ``nfs4``; nothing where
    that can not be told.

    Args:
        mounts: the text of ``/proc/self/mountinfo``, read where it is not given.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
        except OSError:
            return ""
    resolved = str(path.resolve())
    best, kind, source = -1, "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, (kind, source) = len(point), [*after.split(" "), ""][:2]
    # Some give their name as what is mounted, and no more of a type than that.
    return f"fuse.{source}" if kind == "fuse" and f"fuse.{source}" in OBJECT_STORES else kind
