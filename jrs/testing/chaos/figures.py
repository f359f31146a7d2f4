"""The line of figures of a long run: command, commit, machine, counts, seconds."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import jrs


def proof_line(counts: Mapping[str, int], seconds: float) -> str:
    """Return one line for docs/proofs.md; `seconds` is the duration of the run."""
    program = Path(sys.argv[0]).stem
    command = " ".join([f"python -m jrs.testing.chaos.{program}", *sys.argv[1:]])
    found = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return f"`{command}` | {commit()} | {machine()} | {found} | {seconds:.0f} s"


def commit() -> str:
    """Return the commit of the code under test, with ``+`` if the code was changed since; ``-`` if
    it is not a checkout."""
    folder = Path(jrs.__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "-"


def machine() -> str:
    """Return a description of this machine."""
    kernel = platform.release().partition("-")[0]
    return f"{os.cpu_count()} cores {platform.machine()}, Linux {kernel}, {sys.version.split()[0]}"


def scratch() -> Path | None:
    """Return a folder in memory for temporary files, if the machine has one."""
    folder = Path("/dev/shm")
    return folder if os.access(folder, os.W_OK | os.X_OK) else None
