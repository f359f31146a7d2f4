"""The jobs of the tests of the fork server: they tell what they see of their own process."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from jrs import Job
from jrs.recovery.attempt.job import context_of


def shown(pid: int, file: str) -> list[str]:
    return Path(f"/proc/{pid}/{file}").read_text().rstrip("\0").split("\0")


def seen(pid: int) -> dict[str, Any]:
    """Return what others see of a process in /proc."""
    environment = dict(entry.split("=", 1) for entry in shown(pid, "environ") if "=" in entry)
    return {
        "arguments": shown(pid, "cmdline"),
        "marks": {name: environment.get(name) for name in ("JRS_MARK", "JRS_JOB")},
        "folder": os.readlink(f"/proc/{pid}/cwd"),
        "session": os.getsid(pid),
    }


def look(job: Job) -> dict[str, Any]:
    """Return what an attempt sees of itself, in the same form for each way to start it."""
    descriptors = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # The one by which they are listed.
            descriptors.append(os.readlink(f"/proc/self/fd/{name}"))
    return {
        "pid": os.getpid(),
        "watchdog": os.getppid(),
        "of the watchdog": seen(os.getppid()),
        "seen": seen(os.getpid()),
        "environment": dict(os.environ),
        "arguments": sys.argv,
        "path": sys.path,
        "main": [
            sys.modules["__main__"].__file__,
            getattr(sys.modules["__main__"].__spec__, "name", ""),
        ],
        "descriptors": sorted(
            Path(name.partition(":")[0]).suffix or name[:4] for name in descriptors
        ),
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "blocked": [str(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "buffered": [sys.stdout.line_buffering, sys.stderr.line_buffering, sys.stdout.encoding],
    }


def spill(job: Job) -> list[str]:
    """Write a temporary file; return where its folders are."""
    folders = context_of(job).scratch()
    for folder in folders:
        (folder / "spilled").touch()
    return [str(folder.parent) for folder in folders]


def value(job: Job) -> Any:
    import fork_value  # type: ignore[import-not-found]  # The test writes it.

    return fork_value.VALUE


def hang(job: Job, pids: str) -> None:
    with open(pids, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(3600.0)
