"""Which start of the host this is."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """Return the kernel's id of this start of the host; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
