"""Older versions of jrs, to share a cluster with this one.

``tests/fixtures/older-versions.tar.xz`` holds the sources of four commits: ``jrs-format-1`` is the
last one that refuses records with fields that it does not know, ``jrs-format-2`` the first one that
ignores them, ``jrs-format-3`` and ``jrs-format-4`` the last ones of these formats. Add one only
where the format of a cluster is raised.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import attrs

from jrs.testing.masters import MasterProcess, Masters

ARCHIVE = Path(__file__).parent / "fixtures" / "older-versions.tar.xz"


@attrs.frozen
class OlderVersion:
    """The sources of an older version, unpacked."""

    folder: Path
    format: int

    def prefix(self) -> Sequence[str]:
        """Return a command that has the one behind it run with this version."""
        return ["env", "-C", str(self.folder), f"PYTHONPATH={self.folder}"]

    def start(self, masters: Masters, name: str) -> MasterProcess:
        """Start a master of this version."""
        return masters.start(name, prefix=self.prefix())

    def jrs(self, url: str, cluster: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of this version and return what it printed."""
        command = [sys.executable, "-m", "jrs", "--backend", url, "--cluster", cluster, *arguments]
        return subprocess.run(
            [*self.prefix(), *command],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ},
            check=False,
        )


def unpack(folder: Path) -> None:
    """Unpack the sources of all older versions."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="fully_trusted")  # Ours; it has links to its own folders.


def version(folder: Path, format: int) -> OlderVersion:
    """Return the unpacked version whose newest cluster format is this one."""
    return OlderVersion(folder / f"jrs-format-{format}", format)
