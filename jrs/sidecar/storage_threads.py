"""Threads for what touches the storage of the jobs, apart from all others.

A storage that hangs, such as a file server that is away, keeps a thread for as long as it hangs.
These threads are few, and are no one else's: what needs only the backend goes ahead.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TypeVar

from jrs.contract.errors import Unavailable
from jrs.contract.own_thread import in_own_thread

T = TypeVar("T")

MOST = 16
"""Calls at once, including those that hang."""
MOST_LONG = 4
"""Of these, calls that read every byte of snapshots."""
_PATIENCE = 5.0
"""Seconds for which a call waits while no other ends: a storage that is only slow ends some."""
_PREFIX = "jrs-storage"


class StorageThreads:
    """Runs calls that touch the storage. Its methods are for the event loop's thread."""

    def __init__(self, most: int = MOST, most_long: int = MOST_LONG) -> None:
        self._all = _Slots(most, "the storage of the jobs does not answer earlier requests")
        self._long = _Slots(most_long, f"{most_long} requests read whole snapshots now")

    async def run(
        self, call: Callable[[], T], *, begun_before: bool = False, is_long: bool = False
    ) -> T:
        """Return what a call returns.

        Args:
            call: it touches the storage.
            begun_before: whether it continues an answer that has begun, which must not end early:
                it waits for as long as it takes.
            is_long: whether it reads every byte of snapshots.

        Raises:
            Unavailable: as many calls as may run, and none of them has ended for a while.
            Whatever the call raises.
        """
        loop, begun = asyncio.get_running_loop(), False

        def work(canceled: threading.Event) -> T:
            nonlocal begun
            begun = True
            try:
                return call()
            finally:  # Not when the caller has gone: the thread may still hang.
                with suppress(RuntimeError):  # The loop has been closed.
                    loop.call_soon_threadsafe(taken.close)

        with ExitStack() as taking:
            for slots in (self._long, self._all) if is_long else (self._all,):
                await slots.take(patiently=begun_before)
                taking.callback(slots.leave)
            taken = taking.pop_all()
        try:
            return await in_own_thread(work, _PREFIX)
        except RuntimeError as error:
            if begun:
                raise
            taken.close()
            raise Unavailable(f"this host has no thread left: {error}") from None


class _Slots:
    """How many calls of one sort may run at once.

    Args:
        most: how many.
        why: what is said to a call that none has ended for.
    """

    def __init__(self, most: int, why: str) -> None:
        self._free = asyncio.Semaphore(most)
        self._why = why
        self._waiting: set[asyncio.Timeout] = set()

    async def take(self, *, patiently: bool) -> None:
        """Take a slot, until `leave`.

        Args:
            patiently: wait for as long as it takes.

        Raises:
            Unavailable: none became free for a while.
        """
        if patiently:
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(_PATIENCE) as timeout:
                self._waiting.add(timeout)
                try:
                    await self._free.acquire()
                finally:
                    self._waiting.discard(timeout)
        except TimeoutError:
            raise Unavailable(self._why) from None

    def leave(self) -> None:
        """Give a slot back."""
        self._free.release()
        until = asyncio.get_running_loop().time() + _PATIENCE
        for timeout in self._waiting:
            if not timeout.expired():
                timeout.reschedule(until)
