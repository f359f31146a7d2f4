"""StorageCalls: what a master asks its storage before it leads, with an end to the waiting.

The lease of a leader is renewed by a thread of its own. If the leading thread hung in a storage, as
on a mount whose server is gone, no other master would ever lead.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from jrs.contract.errors import Unavailable
from jrs.contract.runtime import Runtime, start_thread

LEAST = 15.0
"""Seconds for which a call is waited for, at least: it asks the backend as well, which has ten for
an answer, and says itself that it has not answered."""


class Held(Unavailable):
    """This master must not lead before an operator has repaired something; it waits."""


class StorageCalls:
    """The calls of one master, one at a time. Safe for use by many threads.

    Args:
        ttl: of the master, in seconds.
    """

    def __init__(self, ttl: float, runtime: Runtime) -> None:
        self._within = max(ttl, LEAST)
        self._runtime = runtime
        self._turn = threading.Lock()
        self._answered = threading.Event()
        self._answered.set()

    def run(self, call: Callable[[], None]) -> None:
        """Make a call, in a thread of its own.

        Raises:
            Held: it has not returned in time, or an earlier one has not returned yet: then this one
                is not made.
            Unavailable: this host has no thread left for it.
            What the call raises.
        """
        if not self._turn.acquire(timeout=self._within):
            raise self._held()
        try:
            self._run(call)
        finally:
            self._turn.release()

    def _run(self, call: Callable[[], None]) -> None:
        if not self._answered.is_set():
            raise self._held()
        answered, ends = threading.Event(), queue.SimpleQueue[BaseException | None]()

        def make() -> None:
            end = None
            try:
                call()
            except BaseException as error:
                end = error
            answered.set()
            ends.put(end)

        start_thread(self._runtime.thread(make, "jrs-storage"))
        self._answered = answered
        try:
            error = ends.get(timeout=self._within)
        except queue.Empty:
            raise self._held() from None
        if error is not None:
            raise error

    def _held(self) -> Held:
        return Held(
            f"the storage has not answered for {self._within:g} s: this master stays out of the "
            "campaign until it does"
        )
