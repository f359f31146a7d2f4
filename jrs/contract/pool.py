"""Pools of threads that say so when the system gives this process no thread.

`ThreadPoolExecutor` waits without end for a thread that has no memory for its first line; see
`JrsThread`. Where it cannot start a thread, its caller does not know whether the call runs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from jrs.contract.clock import Deadline
from jrs.contract.runtime import RUNTIME, Runtime
from jrs.contract.texts import error_text

P = ParamSpec("P")
T = TypeVar("T")


class Pool:
    """Runs work in at most `size` threads, first in, first out. Safe for use by many threads.

    Its threads are daemons: their owner stops them with a deadline.

    Args:
        name: of its threads, followed by a number.
        size: how many pieces of work run at once, including those that hang.
    """

    def __init__(self, name: str, size: int, runtime: Runtime = RUNTIME) -> None:
        self._thread = runtime.thread
        self._name = name
        self._size = size
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def submit(self, work: Callable[[], None]) -> bool:
        """Have `work` run, which must not raise; return False after `close`: then it is dropped.

        Raises:
            RuntimeError: the system gives this process no thread, and the pool has none: `work`
                does not run.
        """
        with self._changed:
            if self._closed:
                return False
            self._waiting.append(work)
            if self._idle >= len(self._waiting) or len(self._threads) >= self._size:
                self._changed.notify()
                return True
            try:
                thread = self._thread(self._run, f"{self._name}-{len(self._threads)}")
                thread.start()
            except (RuntimeError, MemoryError) as error:
                if not self._threads:
                    self._waiting.pop()
                    raise RuntimeError(f"no thread can be started: {error_text(error)}") from error
                self._changed.notify()  # A thread that lives does it, if later.
            else:
                self._threads.append(thread)
            return True

    def close(self, *, drop: bool = True) -> None:
        """Take no further work. Idempotent.

        Args:
            drop: begin none of what waits.
        """
        with self._changed:
            self._closed = True
            if drop:
                self._waiting.clear()
            self._changed.notify_all()

    def join(self, deadline: Deadline) -> bool:
        """Wait for running work, after `close`; return whether all of it has ended."""
        for thread in self._threads:
            thread.join(deadline.bounded())
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._waiting or self._closed)
                self._idle -= 1
                if not self._waiting:
                    return
                work = self._waiting.popleft()
            work()
            del work  # What it holds is let go while this thread waits.


class ThreadPool(ThreadPoolExecutor):
    """An executor whose threads are those of a `Pool`.

    `submit` raises `RuntimeError` if the call will not be made. It derives from the executor that
    asyncio requires, and uses none of its threads.

    Args:
        size: how many calls are made at once.
        name: of its threads, followed by a number.
    """

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size, name)
        self._pool = Pool(name, size)
        self._cancels = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        if not self._pool.submit(partial(self._make, future, partial(fn, *args, **kwargs))):
            raise RuntimeError("the pool is closed")
        return future

    def _make(self, future: Future[T], call: Callable[[], T]) -> None:
        if self._cancels:
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        try:
            found = call()
        except BaseException as error:
            future.set_exception(error)
            del future  # The error has this frame: each would keep the other.
        else:
            future.set_result(found)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._cancels = self._cancels or cancel_futures
        self._pool.close(drop=False)
        if wait:
            self._pool.join(Deadline.of_wait(None))
