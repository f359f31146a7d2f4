"""The tools that check the kit: a test says what to install where one is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.fixtures import missing

ROOT = Path(__file__).parents[2]
KIT = ROOT / "deploy"
_TIMEOUT = 120.0


def tool(name: str, package: str) -> str:
    """Return the path of a program; without it the test is skipped, and fails in CI."""
    near_python = Path(sys.executable).parent / name
    found = str(near_python) if near_python.exists() else shutil.which(name)
    if found is None:
        missing(ServerMissing(f"no '{name}' on the PATH: {package}"))
    return found


def output(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """Return what a command prints; fail with it if the command fails."""
    ended = subprocess.run(
        command, cwd=folder, text=True, timeout=_TIMEOUT, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert ended.returncode == 0, f"{command[0]}: {ended.stdout}"
    return ended.stdout
