"""Processes with a mark in their environment: all that a chaos run has started."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from jrs.testing.processes import all_pids

MARK = "JRS_CHAOS_MARK"


def marked(mark: str, **more: str) -> list[int]:
    """Return the living processes, including stopped ones, whose environment has the mark, and
    these other variables."""
    entries = {f"{name}={value}".encode() for name, value in {MARK: mark, **more}.items()}
    found = []
    for pid in all_pids():
        if pid == os.getpid():
            continue
        try:
            held = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            continue  # It has ended.
        if entries.issubset(held) and state not in (b"Z", b"X"):
            found.append(pid)
    return found


def end(mark: str, seconds: float = 30.0) -> list[int]:
    """Kill (-9) all processes with the mark, and what they start meanwhile; return what is left
    after that time."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)  # No event reports the end of another process's child.
    return left
