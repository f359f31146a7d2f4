"""Threads for what touches the storage of the jobs, apart from all others.

A storage that hangs, such as a file server that is away, keeps a thread for as long as it hangs.
These threads are few, and are no one else's: what needs only the backend goes ahead.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from jrs.contract.errors import Unavailable
from jrs.contract.own_thread import in_own_thread

T = TypeVar("T")

MOST = 16
"""Calls at once, including those that hang."""
_PATIENCE = 5.0
"""Seconds for which a call waits while no other ends: a storage that is only slow ends some."""
_PREFIX = "jrs-storage"


class StorageThreads:
    """Runs calls that touch the storage. Its methods are for the event loop's thread."""

    def __init__(self, most: int = MOST) -> None:
        self._free = asyncio.Semaphore(most)
        self._waiting: set[asyncio.Timeout] = set()

    async def run(self, call: Callable[[], T], *, begun_before: bool = False) -> T:
        """Return what a call returns.

        Args:
            call: it touches the storage.
            begun_before: whether it continues an answer that has begun, which must not end early:
                it waits for as long as it takes.

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
                    loop.call_soon_threadsafe(self._release)

        if begun_before:
            await self._free.acquire()
        else:
            await self._acquire()
        try:
            return await in_own_thread(work, _PREFIX)
        except RuntimeError as error:
            if begun:
                raise
            self._release()
            raise Unavailable(f"this host has no thread left: {error}") from None

    async def _acquire(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE) as timeout:
                self._waiting.add(timeout)
                try:
                    await self._free.acquire()
                finally:
                    self._waiting.discard(timeout)
        except TimeoutError:
            raise Unavailable("the storage of the jobs does not answer earlier requests") from None

    def _release(self) -> None:
        self._free.release()
        until = asyncio.get_running_loop().time() + _PATIENCE
        for timeout in self._waiting:
            if not timeout.expired():
                timeout.reschedule(until)
