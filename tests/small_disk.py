"""A filesystem of its own, so small that a test can fill it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(mount: Path, size: int) -> Iterator[Path]:
    """Mount a disk of so many bytes; skip the test where this user may not, but for CI."""
    mount.mkdir()
    done = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "jrs-test", str(mount)],
            capture_output=True,
            check=False,
        )
        if os.geteuid() == 0
        else None
    )
    if done is None or done.returncode:
        why = "not root" if done is None else done.stderr.decode().strip()
        if os.environ.get("CI"):
            pytest.fail(f"CI has to be able to mount a tmpfs: {why}")
        pytest.skip(f"needs to mount a tmpfs: {why}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def free(disk: Path) -> int:
    stats = os.statvfs(disk)
    return stats.f_bavail * stats.f_frsize


def fill(disk: Path, leave: int) -> Path:
    """Fill the disk up to `leave` bytes; return the file to remove."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        file.write(b"x" * max(0, free(disk) - leave))
    return ballast
