"""Runtime: clocks, randomness and threads as one value that a caller can replace.

Code whose logic depends on them takes a `Runtime`. So a test can move the clock, and a scheduler
can decide which thread runs next.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

import attrs

from jrs.contract.clock import Clock
from jrs.contract.errors import Unavailable


def daemon(target: Callable[[], None], name: str) -> threading.Thread:
    """Return a thread, not yet started, that does not keep the process alive."""
    return threading.Thread(target=target, name=name, daemon=True)


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
