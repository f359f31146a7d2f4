"""The future of a commit: a signal handler that raises in its caller leaves no lock behind.

Python runs signal handlers behind calls and jumps. These tests raise there, at each such place of
`concurrent.futures` in turn, as a handler would. If one fails with a new Python: see how its
`Future` uses `_condition`, and follow it in jrs/contract/pending_commit.py.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from types import FrameType
from typing import Any

import pytest

from jrs.contract.errors import Unavailable
from jrs.contract.pending_commit import PendingCommit

CHECKED = ("CALL", "RESUME", "JUMP_BACKWARD")
"""The instructions behind which Python runs signal handlers."""
FILES = (futures._base.__file__, threading.__file__)
CALLS: dict[str, Callable[[Future[None]], object]] = {
    "callback": lambda future: future.add_done_callback(lambda _: None),
    "exception": lambda future: future.exception(timeout=0),
    "result": lambda future: future.result(timeout=0),
    "done": lambda future: future.done(),
    "cancel": lambda future: future.cancel(),
}


class Interrupted(BaseException):
    pass


class Interrupt:
    """Raises behind the instruction of this number, of those that Python checks for signals."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._last: dict[FrameType, int] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            before = self._last.get(frame)
            self._last[frame] = frame.f_lasti
            name = "" if before is None else dis.opname[frame.f_code.co_code[before]]
            if name.startswith(CHECKED):
                self._left -= 1
                if self._left == 0:
                    raise Interrupted
        return self


def is_interrupted(number: int, future: Future[None], call: Callable[[Any], object]) -> bool:
    """Interrupt the call at this place; return whether it came there."""
    sys.settrace(Interrupt(number))
    try:
        call(future)
    except (Interrupted, RuntimeError):
        return True  # The latter in the midst of a wait, as Python's own conditions do.
    except (futures.TimeoutError, futures.CancelledError):
        return False
    finally:
        sys.settrace(None)
    return False


def interrupted(new: Callable[[], Future[None]], call: Callable[[Any], object]) -> Iterator[bool]:
    """Interrupt the call at each place; yield whether another thread can complete the future."""
    # Python 3.12 reports the instructions of a function from its second traced call on.
    is_interrupted(0, new(), call)
    for number in range(1, 1000):
        future = new()
        if not is_interrupted(number, future, call):
            return
        completing = threading.Thread(target=complete, args=[future], daemon=True)
        completing.start()
        completing.join(0.5 if type(future) is Future else 30)
        yield not completing.is_alive()


def complete(future: Future[None]) -> None:
    if not future.cancelled():
        future.set_result(None)


@pytest.mark.parametrize("name", CALLS)
def test_a_caller_is_interrupted(name: str) -> None:
    """D6: whatever the caller was doing, the future can be completed."""
    found = list(interrupted(PendingCommit, CALLS[name]))
    assert found
    assert all(found)


def test_pythons_own_future_is_left_locked() -> None:
    """The places are the right ones: there, a future of Python's own stays locked."""
    assert not all(interrupted(Future, CALLS["callback"]))


def test_it_is_settled() -> None:
    """It has one outcome. A caller that canceled it is told nothing."""
    done, failed, canceled = PendingCommit(), PendingCommit(), PendingCommit()
    done.settle(None)
    failed.settle(Unavailable("it is away"))
    canceled.cancel()
    canceled.settle(None)
    assert done.result(0) is None
    assert isinstance(failed.exception(0), Unavailable)
    assert canceled.cancelled()
