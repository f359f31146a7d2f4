"""Meddling with the disk and the clock of a host's Python processes, from outside of them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import attrs

PAGE = "JRS_CHAOS_PAGE"
"""The environment variable with the page of a process's host; see `hooks/sitecustomize.py`."""
_HOOKS = Path(__file__).with_name("hooks")


@attrs.define
class Meddler:
    """The page of one host. Its processes look at it with each sync and each look at the clock.

    Attributes:
        delay: seconds that each sync takes longer.
        fails: whether each sync fails with EIO.
        skew: seconds by which the wall clock is ahead.
    """

    path: Path
    delay: float = 0.0
    fails: bool = False
    skew: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.write()

    def write(self) -> None:
        """Have the host's processes see what the attributes say."""
        mode = "r+b" if self.path.exists() else "w+b"
        with self.path.open(mode) as file:
            file.write(struct.pack("ddd", self.delay, float(self.fails), self.skew))

    def heal(self) -> None:
        """Let everything be as it is. Idempotent."""
        self.delay, self.fails, self.skew = 0.0, False, 0.0
        self.write()

    def environment(self) -> dict[str, str]:
        """Return what the host's processes need in their environment."""
        path = os.pathsep.join(filter(None, (str(_HOOKS), os.environ.get("PYTHONPATH", ""))))
        return {PAGE: str(self.path), "PYTHONPATH": path}
