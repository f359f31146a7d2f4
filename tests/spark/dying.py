"""How a process of these tests dies at a call, killed -9. Imported by what lies next to it."""

from __future__ import annotations

import os
import signal
from typing import Any

Call = tuple[Any, str, str]
"""Whose call it is, its name, and whether the process dies ``before`` it or ``after`` it."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(call: Call) -> None:
    """Have this process killed when it reaches a call."""
    owner, name, when = call
    made = getattr(owner, name)

    def last(*args: Any, **options: Any) -> Any:
        if when == "after":
            made(*args, **options)
        die()

    setattr(owner, name, last)
