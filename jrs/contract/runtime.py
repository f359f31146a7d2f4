"""Runtime: clocks, randomness and threads as one value that a caller can replace.

Code whose logic depends on them takes a `Runtime`. So a test can move the clock, and a scheduler
can decide which thread runs next.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from jrs.contract.clock import Clock
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.texts import error_text

_LOOK = 0.1
"""Seconds between two looks whether a thread that has not come to its first line still lives."""


class _FirstLine(threading.Event):
    """Whether a thread has come to its first line: `threading.Thread.start` waits for it."""

    held: Callable[[], object] = object
    """Returns what the interpreter holds while the thread lives; None once it has ended."""

    def wait(self, timeout: float | None = None) -> bool:
        while not super().wait(_LOOK):
            if self.held() is None and not self.is_set():
                raise RuntimeError("can't start new thread: out of memory")
        return True


class JrsThread(threading.Thread):
    """A thread whose `start` raises where that of `threading.Thread` would wait without end.

    A thread for whose first line Python has no memory ends in silence, while the one that has
    started it waits for that line (CPython's gh-140746). The system does start such a thread: it
    gives it the stack of one that has ended.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._started = _FirstLine()

    @property
    def _bootstrap(self) -> Callable[[], None]:
        whole = partial(super()._bootstrap)  # type: ignore[misc]  # Not in the stubs.
        self._started.held = weakref.ref(whole)
        return whole

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: this host has no thread, or no memory, left for it.
        """
        try:
            super().start()
        except RuntimeError:
            threading._limbo.pop(self, None)  # type: ignore[attr-defined]  # It is no thread.
            raise


def daemon(target: Callable[[], None], name: str) -> threading.Thread:
    """Return a thread, not yet started, that does not keep the process alive."""
    return JrsThread(target=target, name=name, daemon=True)


MORE_THREADS = "raise the limit of memory (ulimit -v) or of processes (ulimit -u)"
"""What to do where no thread can be started."""


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        Unavailable: this host has no thread, or no memory, left for it.
    """
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        why = error or "out of memory"
        raise Unavailable(f"{thread.name}: {why}: {MORE_THREADS}") from error


def call_until(
    over: Callable[[], bool],
    call: Callable[[], None],
    *,
    pause: Callable[[], object],
    report: Callable[[str], None],
    failing: str,
) -> None:
    """Call again and again until it is over: what a thread does that must not end before.

    An exception ends nothing. It is reported, unless the last reported one was the same; that the
    backend does not answer is not, because the callers that need an answer say so.

    Args:
        over: whether to end; asked before each call.
        call: is called again at once if it returns.
        pause: called after an exception, before the next call.
        report: called with what fails, and why.
        failing: what fails, as the beginning of a sentence: "heartbeats fail".
    """
    reported = ""
    while not over():
        try:
            call()
        except (OutcomeUnknown, Unavailable):
            pause()
        except Exception as error:
            said = f"{failing}: {error_text(error)}; trying again"
            if said != reported:
                reported = said
                report(said)
            pause()


def random_token() -> str:
    """Return 128 random bits, as 32 hexadecimal digits."""
    return secrets.token_hex(16)


@attrs.frozen
class Runtime:
    """What code needs of the world besides its backend and its files."""

    clock: Clock = time.monotonic
    """For durations."""
    now: Clock = time.time
    """For timestamps that people read."""
    token: Callable[[], str] = random_token
    """Returns a name that no other process makes."""
    thread: Callable[[Callable[[], None], str], threading.Thread] = daemon
    """Makes a thread of a function and a name."""


RUNTIME = Runtime()
"""The real one."""
