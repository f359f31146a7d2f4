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
from jrs.contract.runtime import RUNTIME, JrsThread, Runtime

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
    starts_with_files: Pool
    """Starts of jobs that name files of the host, which may hang."""
    ends: Pool
    completed: Pool
    """Ends of attempts that have recorded their job's result, and may take their time."""
    cleanups: Pool
    snapshots: Pool

    @classmethod
    def of(cls, runtime: Runtime) -> Pools:
        return cls(
            records=Pool("jrs-record", 4, runtime),
            starts=Pool("jrs-start", 4, runtime),
            starts_with_files=Pool("jrs-start-files", 16, runtime),
            ends=Pool("jrs-end", 32, runtime),
            completed=Pool("jrs-completed", 32, runtime),
            cleanups=Pool("jrs-clean-up", 16, runtime),
            snapshots=Pool("jrs-snapshot", 8, runtime),
        )

    def all(self) -> tuple[Pool, ...]:
        return tuple(getattr(self, field.name) for field in attrs.fields(Pools))


@attrs.frozen
class Outcome(Generic[T]):
    """How a call ended."""

    value: T | None = None
    error: BaseException | None = None
    hangs: bool = False
    """It had not ended by the deadline; its thread is abandoned."""


def side_by_side(
    name: str, calls: Sequence[Callable[[], T]], deadline: Deadline
) -> list[Outcome[T]]:
    """Run the calls at once, each in a thread of its own, and wait for their ends.

    A call for which the system has no thread is not made: its error is that of the thread.
    """
    ends: queue.SimpleQueue[tuple[int, Outcome[T]]] = queue.SimpleQueue()

    def run(number: int) -> None:
        try:
            end = Outcome(calls[number]())
        except BaseException as error:  # An unreported end would look like a hang.
            end = Outcome(error=error)
        ends.put((number, end))

    for number in range(len(calls)):
        thread = JrsThread(target=run, args=(number,), name=f"{name}-{number}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            ends.put((number, Outcome(error=error)))
    found = [Outcome[T](hangs=True)] * len(calls)
    for _ in calls:
        try:
            number, end = ends.get(timeout=deadline.bounded())
        except queue.Empty:
            break
        found[number] = end
    return found
