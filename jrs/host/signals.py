"""Ending a program by a signal, whatever its main thread is doing at that moment."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from jrs.contract.runtime import RUNTIME

_ENDS = (signal.SIGTERM, signal.SIGHUP)
_NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at SIGTERM or SIGINT, while the block runs; and at its end.

    A thread does so. A handler interrupts the main thread, perhaps in a call of this very event,
    whose lock it then has: `stop.set()` in the handler would wait for that lock forever.
    """
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)

    def note(*_: object) -> None:
        with suppress(BlockingIOError):  # The pipe is full of them.
            os.write(wake, b"\0")

    def wait() -> None:
        os.read(wakes, 1)
        stop.set()

    thread = RUNTIME.thread(wait, "jrs-signals")
    before = {number: signal.signal(number, note) for number in _NUMBERS}
    thread.start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        note()
        thread.join()
        os.close(wakes)
        os.close(wake)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise `SystemExit` at SIGTERM or SIGHUP, while the block runs, so that it can tidy up.

    Later ones are ignored. Ctrl-C raises `KeyboardInterrupt` anyway.
    """

    def end(number: int, _: object) -> None:
        for each in _ENDS:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
