"""Meddling with the disk and the clock of a host's Python processes, from outside of them."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

PAGE = "JRS_CHAOS_PAGE"
"""The environment variable with the page of a process's host; see `hooks/sitecustomize.py`."""
_HOOKS = Path(__file__).with_name("hooks")


@attrs.frozen
class Meddling:
    """What one fault does to a host's disk and clock.

    Attributes:
        delay: seconds that each sync takes longer.
        fails: whether each sync fails with EIO.
        skew: seconds by which the wall clock is ahead.
    """

    delay: float = 0.0
    fails: bool = False
    skew: float = 0.0

    def __str__(self) -> str:
        said = {"delay": f"{self.delay:+.3g}", "fails": "+1", "skew": f"{self.skew:+.3g}"}
        return ", ".join(f"{name} {text}" for name, text in said.items() if getattr(self, name))


@attrs.frozen
class Meddler:
    """The page of one host. Its processes look at it with each sync and each look at the clock."""

    path: Path

    def __attrs_post_init__(self) -> None:
        self.show(())

    def show(self, meddlings: Sequence[Meddling]) -> None:
        """Have the host's processes see all of these together: the longest delay, any failure, and
        the sum of the skews."""
        delay = max((one.delay for one in meddlings), default=0.0)
        fails = any(one.fails for one in meddlings)
        skew = sum(one.skew for one in meddlings)
        mode = "r+b" if self.path.exists() else "w+b"
        with self.path.open(mode) as file:
            file.write(struct.pack("ddd", delay, fails, skew))

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return what the host's processes need in their environment besides that of this process,
        these variables included."""
        modules = variables.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        path = os.pathsep.join(filter(None, (str(_HOOKS), modules)))
        return {**variables, PAGE: str(self.path), "PYTHONPATH": path}
