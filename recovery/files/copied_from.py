"""What a checkpoint on this host was copied from, where the storage is of objects.

A checkpoint next to this note continues from the manifests that the note names. If one of them is
the newest that counts, the checkpoint is as good as a copy of it, and nothing has to be fetched.
The files are not synced: after a restart of the host they count for nothing.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import attrs

from jrs.host.boot import boot_id

_NAME = "copied-from"
_KEPT = 2
"""The manifest that counts, and the one that is about to."""


def note(stage: Path, generation: int, manifest: str) -> None:
    """Note that the checkpoint in a stage's folder also continues from a manifest.

    Where the note cannot be written, the next attempt fetches the checkpoint again.
    """
    before = _read(stage)
    earlier = before.manifests if before.generation == generation else []
    others = [name for name in earlier if name != manifest]
    now = _Note(generation, [*others[1 - _KEPT :], manifest], boot_id())
    whole = stage / f".{_NAME}"
    with suppress(OSError):
        whole.write_text(json.dumps(attrs.asdict(now)))
        os.replace(whole, stage / _NAME)


def continues(stage: Path, generation: int, manifest: str) -> bool:
    """Return whether the checkpoint in a stage's folder continues from a manifest."""
    found = _read(stage)
    return (
        (stage / "ck").is_dir()
        and found.boot == boot_id() != ""
        and found.generation == generation
        and manifest in found.manifests
    )


def forget(stage: Path) -> None:
    """Stop using the checkpoint in a stage's folder."""
    (stage / _NAME).unlink(missing_ok=True)


@attrs.frozen
class _Note:
    generation: int = 0
    manifests: list[str] = attrs.field(factory=list)
    boot: str = ""
    """Which start of the host it was written in."""


def _read(stage: Path) -> _Note:
    try:
        return _Note(**json.loads((stage / _NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return _Note()
