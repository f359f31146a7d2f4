"""How the watchdog keeps a process that has no attempt yet.

The process prepares itself, says so, and is stopped: while it waits, it takes no processor. Now and
then it runs for a moment, since Spark gives up an executor from which it has heard nothing for two
minutes. If memory runs short, the kernel ends it before anything else.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..processes import marks
from .launch_socket import Kind, LaunchSocket, Message

_STOPPED = 30.0
"""Seconds for which the process is stopped at a time."""
_RUNS = 0.5
"""Seconds for which it runs in between: Spark's heartbeats are overdue, and sent at once."""
_EXPENDABLE = 900
"""Of at most 1000: how readily the kernel ends the process if memory runs short."""


def wait_for_launch(
    master: LaunchSocket, attempt: LaunchSocket, ended: int, lives: Callable[[], bool]
) -> Message | None:
    """Return the launch once the master sends it, with the process running; None if the master or
    the process has died.

    Args:
        attempt: leads to the process.
        ended: can be read when a child has ended.
        lives: reaps children that have ended, and returns whether the process lives.
    """
    usual = Path("/proc/self/oom_score_adj").read_text()
    hears, is_ready, is_stopped = True, False, False
    while True:
        waits: list[LaunchSocket | int] = [master, ended]
        if hears:
            waits.append(attempt)
        pause = None if not is_ready else _STOPPED if is_stopped else _RUNS
        found, _, _ = select.select(waits, [], [], pause)
        if ended in found:
            os.read(ended, 512)
            if not lives():
                return None
        if master in found:
            _signal(signal.SIGCONT)
            _expend(usual)
            return master.receive()
        if attempt in found:
            hears, is_ready = False, attempt.receive() is not None
            if is_ready:  # Else it is about to end.
                _expend(str(_EXPENDABLE))
                master.send(Kind.READY)
        elif is_ready and not found:
            is_stopped = not is_stopped
            _signal(signal.SIGSTOP if is_stopped else signal.SIGCONT)


def _signal(number: int) -> None:
    for pid in marks.descendants():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _expend(score: str) -> None:
    for pid in marks.descendants():
        with suppress(OSError):
            Path(f"/proc/{pid}/oom_score_adj").write_text(score)
