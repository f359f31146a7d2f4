"""LossGuard: the end of attempts at a loss of the leadership, whatever the leading thread does."""

from __future__ import annotations

import threading
from collections.abc import Callable

from jrs.contract.clock import Deadline
from jrs.contract.leadership import Leadership
from jrs.contract.runtime import start_thread

from .context import LeaderContext
from .dispatcher import Dispatcher
from .process_end import end_process

_GRACE = 0.5
"""The share of the ttl in which attempts have to end when the leader resigns."""

_GRACE_LOST = 0.15
"""The same share after a loss. A loss is noticed when at most 3/4 of the ttl have passed."""

_LEAST_GRACE = 0.5
"""Seconds it takes to end a process on a busy host: more than the rest of a very short ttl."""


def grace(leadership: Leadership, ttl: float) -> float:
    """Return the seconds in which attempts have to end."""
    share = _GRACE_LOST if leadership.lost.is_set() else _GRACE
    return max(ttl * share, _LEAST_GRACE)


class LossGuard:
    """Ends the attempts as soon as the leadership is lost, and the process if user code in it does
    not end in time: an attempt in a thread, or a driver's main.

    The master's own threads may take longer. They may wait for a backend that hangs, and the fence
    of a newer leader refuses what they write.

    Args:
        ttl: of the leader's lease, in seconds.
    """

    def __init__(self, context: LeaderContext, dispatcher: Dispatcher, ttl: float) -> None:
        self._leadership = leadership = context.leadership
        self._dispatcher = dispatcher
        self._ttl = ttl
        self._over = threading.Event()
        self._context = context
        self._main_runs = context.main_runs
        self._thread = context.runtime.thread(self._run, f"jrs-guard-e{leadership.epoch}")

    def start(self) -> None:
        """Begin to watch the leadership, in a thread of its own; raises as `start_thread`."""
        start_thread(self._thread)

    def close(self) -> None:
        """End the watching: the leader and its attempts have ended."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def call_main(self, main: Callable[[], bool]) -> bool:
        """Return what `main` returns; False, without a call, if the leadership is lost. It counts
        as user code until it returns, or until it clears `LeaderContext.main_runs` itself."""
        self._main_runs.set()
        try:
            # In this order: either it does not begin, or the guard knows that it runs.
            return not self._leadership.lost.is_set() and main()
        finally:
            self._main_runs.clear()

    def _run(self) -> None:
        while not self._leadership.lost.wait(0.05):
            if self._over.is_set():
                return
        time_left = grace(self._leadership, self._ttl)
        deadline = Deadline.after(time_left * 1.5)
        # Not left to the leading thread: the driver's main may be in a long computation there.
        alive, dead = list[str](), False
        try:
            alive = self._dispatcher.end_attempts(Deadline.after(time_left))
            dead = not alive
        except BaseException:  # Nothing may keep this thread from ending the process.
            pass
        if not self._over.wait(deadline.bounded()) and (self._main_runs.is_set() or not dead):
            end_process(self._context, alive)
