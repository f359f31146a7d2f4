"""JuiceFS as a storage: which mounts of it are known to be right.

A host caches names and attributes for a second by default, as an NFS client does for longer. That
leaks nothing into the folders that a new leader makes. The leader has to see what an attempt on
another host has written, and what an attempt has written has to outlive its host. Some options take
that away. The kernel does not list them; JuiceFS has them in a file of the mounted folder, for the
user who mounted it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CONFIGS = (".config", ".jfs.config")
_WRONG = {
    ("Chunk", "Writeback"): (
        "--writeback",
        "what is written may be lost with the host, and other hosts cannot read it yet",
    ),
    ("Meta", "OpenCache"): (
        "--open-cache",
        "a leader may see a file as it was before",
    ),
    ("ReaddirCache",): (
        "--readdir-cache",
        "a leader may see a folder as it was before",
    ),
    ("NegEntryTimeout",): (
        "--negative-entry-cache",
        "a leader may miss files that an attempt has written",
    ),
    ("FuseOpts", "EnableWriteback"): (
        "-o writeback_cache",
        "a leader may see a file as it was before",
    ),
}
"""The options with which it is not right, by their places in the file."""


def problem(point: Path) -> tuple[str, str] | None:
    """Return why jobs cannot keep their files on the JuiceFS that is mounted at `point`, and the
    remedy; None if they can. The first one continues a sentence on the kind of filesystem."""
    found, why = _config(point)
    if found is None:
        return (
            f", and {point / _CONFIGS[0]}, which has the options of the mount, "
            f"cannot be read ({why})",
            "mount the whole filesystem there, as the user that runs the masters",
        )
    for place, (option, wrong) in _WRONG.items():
        if _at(found, place):
            return (
                f" with {option}, where {wrong}",
                f"mount it without {option} on every host, then start again",
            )
    return None


def _config(point: Path) -> tuple[dict[str, Any] | None, str]:
    """Return what the mount was made with; None, and why, if it cannot be known."""
    why = ""
    for name in _CONFIGS:
        try:
            found = json.loads((point / name).read_bytes())
        except FileNotFoundError as error:
            why = why or str(error.strerror)
            continue
        except OSError as error:
            return None, str(error.strerror)
        except ValueError:
            return None, "it is not JSON"
        if isinstance(found, dict):
            return found, ""
        return None, "it is not what JuiceFS writes"
    return None, why


def _at(found: Any, place: tuple[str, ...]) -> Any:
    for name in place:
        found = found.get(name) if isinstance(found, dict) else None
    return found
