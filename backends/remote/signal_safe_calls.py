"""SignalSafeCalls: threads that make the calls of the main thread that must not be interrupted.

A signal handler runs in the main thread between any two instructions, and may raise there: a lock
would stay acquired, a request half made. No handler runs in any other thread.

They also make calls that their caller does not wait for any more once it is told to stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable
from jrs.contract.runtime import JrsThread, start_thread

R = TypeVar("R")

_IDLE = 2
"""Most threads that wait for work."""

_LOOK = 1.0
"""Seconds between two checks, during a long call, whether it was closed."""

_POLL = 0.1
"""Seconds between two checks whether the caller has to stop."""


class Stopped(Exception):
    """The caller was told to stop before the call ended."""


class SignalSafeCalls:
    """Runs each call in a thread of its own, so that a long call does not delay others.

    Args:
        name: the name of its threads.

    Raises:
        Unavailable: this host has no thread left for it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._idle = 0
        self._closed = False
        self._threads: set[threading.Thread] = set()
        with self._mutex:
            self._start()

    def run(self, call: Callable[[], R], stop: threading.Event | None = None) -> R:
        """Return the result of `call`; only calls of the main thread, and those with `stop`, move
        to another thread.

        If the caller is interrupted, the call still runs to its end. At the limit of threads, a
        call that finds every thread in a call runs in the caller's thread, after a second.

        Raises:
            Stopped: `stop` was set; a call that has begun still runs to its end.
        """
        here = stop is None and threading.current_thread() is not threading.main_thread()
        if here or self._closed:
            return call()
        turn, done = threading.Lock(), threading.Lock()
        done.acquire()
        results: list[R] = []
        errors: list[BaseException] = []

        def answer() -> None:
            if not turn.acquire(blocking=False):
                return  # Another thread has begun the call: never run it twice.
            try:
                results.append(call())
            except BaseException as error:
                errors.append(error)
            finally:
                done.release()

        self._calls.put(answer)
        look = Deadline.after(_LOOK)
        while not done.acquire(timeout=_LOOK if stop is None else _POLL):
            if stop is not None and stop.is_set():
                turn.acquire(blocking=False)  # If it has not begun, it never does.
                raise Stopped
            if look.expired and (self._is_over() or not self._idle):
                # It was closed before a thread took the call, or all threads are in calls
                # and no further one can be started.
                answer()
        if errors:
            raise errors[0]
        return results[0]

    def close(self, timeout: float) -> None:
        """End the threads; wait `timeout` seconds for each that is in a call. Idempotent."""
        with self._mutex:
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._calls.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout)

    def _is_over(self) -> bool:
        return self._closed and not self._threads

    def _start(self) -> None:
        """Start a thread, as `start_thread` does; the caller has the mutex."""
        thread = JrsThread(target=self._serve, name=self._name, daemon=True)
        start_thread(thread)
        self._threads.add(thread)
        self._idle += 1

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            with self._mutex:
                self._idle -= 1
                if not self._idle and not self._closed:
                    # Without another thread the next call may wait; the next one tries again.
                    with suppress(Unavailable):
                        self._start()
            call()
            with self._mutex:
                if self._idle >= _IDLE:
                    break
                self._idle += 1
        with self._mutex:
            self._threads.discard(threading.current_thread())
