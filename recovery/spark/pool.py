"""A pool that accepts a call only if a thread is free for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType

from jrs.contract.runtime import Runtime

Call = tuple["Future[None]", Callable[[], None]]


class RejectingPool:
    """Runs calls in threads, which it starts as needed and keeps. It accepts a call only if a
    thread is free for it.

    `ThreadPoolExecutor` queues the call before it fails to start a thread, so its caller cannot
    know whether the call runs.

    Args:
        most: threads at once.
        name: of the threads, before their number.
    """

    def __init__(self, most: int, name: str, runtime: Runtime) -> None:
        self._most = most
        self._name = name
        self._runtime = runtime
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        """Threads that no call in the queue is for."""
        self._closed = False

    def __enter__(self) -> RejectingPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def submit(self, call: Callable[[], None]) -> Future[None] | None:
        """Have a thread make a call; None if there is no thread for it now, or the pool is closed:
        then nothing will be called. Submit it again later."""
        with self._lock:
            if self._closed or not (self._idle or self._start()):
                return None
            self._idle -= 1
            future: Future[None] = Future()
            self._calls.put((future, call))
            return future

    def close(self) -> None:
        """End the threads, once their calls have returned. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._calls.put(None)
        for thread in self._threads:
            thread.join()

    # -- inside ----------------------------------------------------------------------------

    def _start(self) -> bool:
        """Start one more thread, under the lock; return whether there is one."""
        if len(self._threads) >= self._most:
            return False
        thread = self._runtime.thread(self._work, f"{self._name}-{len(self._threads)}")
        try:
            thread.start()
        except RuntimeError:
            return False  # The system gives this process no more.
        self._threads.append(thread)
        self._idle += 1
        return True

    def _work(self) -> None:
        for future, call in iter(self._calls.get, None):
            try:
                call()
            except BaseException as error:
                done = partial(future.set_exception, error)
            else:
                done = partial(future.set_result, None)
            with self._lock:
                self._idle += 1
            done()
