"""Meddling with the disk and the clock of a host's Python processes, from outside of them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import attrs

PAGE = "JRS_CHAOS_PAGE"
"""The environment variable with the page of a process's host; see `hooks/sitecustomize.py`."""
_HOOKS = Path(__file__).with_name("hooks")


@attrs.frozen
class Meddler:
    """The page of one host. Its processes look at it with each sync and each look at the clock."""

    path: Path

    def __attrs_post_init__(self) -> None:
        self.write()

    def write(self, *, delay: float = 0.0, fails: float = 0.0, skew: float = 0.0) -> None:
        """Have the host's processes see this.

        Args:
            delay: seconds that each sync takes longer.
            fails: 1, to have each sync fail with EIO.
            skew: seconds by which the wall clock is ahead.
        """
        mode = "r+b" if self.path.exists() else "w+b"
        with self.path.open(mode) as file:
            file.write(struct.pack("ddd", delay, fails, skew))

    def heal(self) -> None:
        """Let everything be as it is. Idempotent."""
        self.write()

    def environment(self) -> dict[str, str]:
        """Return what the host's processes need in their environment."""
        path = os.pathsep.join(filter(None, (str(_HOOKS), os.environ.get("PYTHONPATH", ""))))
        return {PAGE: str(self.path), "PYTHONPATH": path}
