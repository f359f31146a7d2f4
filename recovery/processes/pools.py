"""Pools: threads for work that may hang. No such thread keeps the process alive.

The interpreter joins the threads of `concurrent.futures` at its end, so a single hanging call would
keep a process alive. The threads here are daemons: their owner stops them with a deadline.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.runtime import RUNTIME, Runtime

T = TypeVar("T")


class Pool:
    """Runs work in at most `size` threads, first in, first out. Safe for use by many threads.

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

    def submit(self, work: Callable[[], None]) -> None:
        """Have `work` run, which must not raise; after `close` it is dropped.

        Raises:
            RuntimeError: the system gives this process no thread, and the pool has none: `work`
                does not run.
        """
        with self._changed:
            if self._closed:
                return
            self._waiting.append(work)
            if self._idle >= len(self._waiting) or len(self._threads) >= self._size:
                self._changed.notify()
                return
            thread = self._thread(self._run, f"{self._name}-{len(self._threads)}")
            try:
                thread.start()
            except RuntimeError:
                if not self._threads:
                    self._waiting.pop()
                    raise
                self._changed.notify()  # A thread that lives does it, if later.
            else:
                self._threads.append(thread)

    def close(self) -> None:
        """Begin no further work, and drop what waits. Idempotent."""
        with self._changed:
            self._closed = True
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
                if self._closed:
                    return
                work = self._waiting.popleft()
            work()


@attrs.frozen
class Pools:
    """The pools of actions: one for each kind, so that a kind that hangs delays no other."""

    records: Pool
    starts: Pool
    ends: Pool
    cleanups: Pool
    snapshots: Pool

    @classmethod
    def of(cls, runtime: Runtime) -> Pools:
        return cls(
            records=Pool("jrs-record", 4, runtime),
            starts=Pool("jrs-start", 4, runtime),
            ends=Pool("jrs-end", 32, runtime),
            cleanups=Pool("jrs-clean-up", 16, runtime),
            snapshots=Pool("jrs-snapshot", 8, runtime),
        )

    def all(self) -> tuple[Pool, ...]:
        return (self.records, self.starts, self.ends, self.cleanups, self.snapshots)


@attrs.frozen
class Outcome(Generic[T]):
    """How a call ended."""

    value: T | None = None
    error: BaseException | None = None
    hangs: bool = False
    """It had not ended by the deadline; its thread is abandoned."""


_QUICK = 0.01
"""Seconds within which a call that does not wait for anything has ended."""


def side_by_side(
    name: str, calls: Sequence[Callable[[], T]], deadline: Deadline
) -> list[Outcome[T]]:
    """Run the calls, and wait for their ends. A call that takes long holds up no other.

    Calls that end at once share a thread, for starting one costs more than such a call. As long as
    none ends, the threads are doubled every 10 ms, until each call has one. All calls begin, also
    after the deadline.

    A call for which the system has no thread is not made: its error is that of the thread.
    """
    waiting = deque(range(len(calls)))
    ends: queue.SimpleQueue[tuple[int, Outcome[T]]] = queue.SimpleQueue()

    def run() -> None:
        while True:
            try:
                number = waiting.popleft()
            except IndexError:
                return
            ends.put((number, _outcome(calls[number])))

    def start(threads: range) -> None:
        for number in threads:
            try:
                threading.Thread(target=run, name=f"{name}-{number}", daemon=True).start()
            except RuntimeError as error:
                while waiting:
                    ends.put((waiting.popleft(), Outcome(error=error)))

    found = [Outcome[T](hangs=True)] * len(calls)
    threads, left = min(1, len(calls)), len(calls)
    start(range(threads))
    while left:
        try:
            number, end = ends.get(timeout=_QUICK if waiting else deadline.bounded())
        except queue.Empty:
            if not waiting:
                break
            more = min(threads, len(waiting))
            start(range(threads, threads + more))
            threads += more
        else:
            found[number] = end
            left -= 1
    return found


def _outcome(call: Callable[[], T]) -> Outcome[T]:
    try:
        return Outcome(call())
    except BaseException as error:  # An unreported end would look like a hang.
        return Outcome(error=error)
