"""What every test may need: waiting for a condition, not for the clock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.clock import Deadline
from jrs.testing.chaos.surroundings import environment as environment
from jrs.testing.polling import Poll

BOUND = 60.0
"""Seconds after which a condition that should hold soon is taken to never hold."""


def in_long_form(long: int, short: int) -> int:
    """Return how many there are of something: fewer unless JRS_SOAK=1 asks for the long form."""
    return long if os.environ.get("JRS_SOAK") else short


def refuse_threads(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[str]:
    """Have the system refuse so many threads whose name begins like that; return those refused."""
    start, refused = threading.Thread.start, list[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(name) and len(refused) < times:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return refused


def rot(folder: Path, key: str) -> None:
    """Have the disk lose the record of a key: where a run below the folder has it, are zeros."""
    lost = 0
    for run in folder.rglob("*.run"):
        data = bytearray(run.read_bytes())
        at = data.find(b"\t%s\t" % key.encode())
        if at >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at) + 1
            data[begin:end] = bytes(end - begin)
            run.write_bytes(data)
            lost += 1
    assert lost, f"no run has {key}"


def until(
    condition: Callable[[], Any], what: str | Callable[[], str], timeout: float = BOUND
) -> Any:
    """Return what `condition` returns once that is true.

    Args:
        what: what holds then; or a function that also says how things are if that is in vain.
    """
    deadline, poll = Deadline.after(timeout), Poll()
    while not (found := condition()):
        assert not deadline.expired, f"waited in vain until {what() if callable(what) else what}"
        poll.sleep()
    return found
