"""The processes of this machine, as tests look at them: each of them may end meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def all_pids() -> list[int]:
    """Return the pids of all processes that this one can see."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_lines(pids: Iterable[int] | None = None) -> dict[int, str]:
    """Return what each process runs, its arguments separated by spaces.

    Args:
        pids: the processes to look at; None means all.

    Returns:
        The command lines by pid. A process that has ended is left out; that of a zombie is empty.
    """
    found = {}
    for pid in all_pids() if pids is None else pids:
        with suppress(OSError):  # It has ended.
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            found[pid] = line.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def children(pid: int) -> list[int]:
    """Return the children of a process, zombies included; none if it has ended."""
    found = []
    for child in all_pids():
        with suppress(OSError):
            stat = Path(f"/proc/{child}/stat").read_bytes().rpartition(b")")[2].split()
            if int(stat[1]) == pid:
                found.append(child)
    return found


def pss(pid: int) -> int:
    """Return the bytes of memory of a process, those that it shares by its share; 0 if it has
    ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def guardians(pid: int) -> list[int]:
    """Return the guardian processes that a process has started."""
    lines = command_lines(children(pid))
    return [child for child, line in lines.items() if "jrs.backends.remote.guardian" in line]
