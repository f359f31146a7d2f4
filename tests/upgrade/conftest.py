"""Older versions of jrs, to share a cluster with this one.

``tests/fixtures/older-versions.tar.xz`` holds the sources of three commits: ``jrs-format-1`` is the
last one that refuses records with fields that it does not know, ``jrs-format-2`` the first one that
ignores them, ``jrs-format-4`` the last one of that format. Add one only where the format of a
cluster is raised.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from jrs.testing.masters import MasterProcess, Masters

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "older-versions.tar.xz"


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


@pytest.fixture(scope="session")
def _older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("older-versions")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="fully_trusted")  # Ours; it has links to its own folders.
    return folder


@pytest.fixture
def format_1(_older: Path) -> OlderVersion:
    return OlderVersion(_older / "jrs-format-1", 1)


@pytest.fixture
def rolling(_older: Path, request: pytest.FixtureRequest) -> OlderVersion:
    """A version that can share a cluster with this one; its format is given indirectly."""
    return OlderVersion(_older / f"jrs-format-{request.param}", request.param)
