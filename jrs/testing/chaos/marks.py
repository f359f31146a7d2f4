"""Processes with a mark in their environment: all descendants of a soak's masters."""

from __future__ import annotations

import os
import signal
from pathlib import Path

MARK = "JRS_CHAOS_MARK"


def marked(mark: str) -> list[int]:
    """Return the living processes, including stopped ones, whose environment has the mark."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            held = Path("/proc", name, "environ").read_bytes().split(b"\0")
            state = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            continue  # It has ended.
        if entry in held and state not in (b"Z", b"X"):
            found.append(int(name))
    return found


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return False if the process no longer exists."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def command_of(pid: int) -> str:
    """Return a process's command line, for messages."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return "?"
    return text.decode(errors="replace").strip()
