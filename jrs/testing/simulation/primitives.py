"""Locks, threads and clocks of the code under test, under the scheduler.

Python's conditions, events, semaphores and queues are written in Python, on top of locks. So it is
enough to replace the locks and the threads, and the clocks.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jrs.contract.clock import Deadline
from jrs.contract.runtime import Runtime
from jrs.testing.simulation.scheduler import Scheduler


class SimLock:
    """A lock that an actor waits for by giving way."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._locked = False
        self.name = scheduler.new_name()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._scheduler.uses("w", self.name)
        if self._locked and blocking:
            free = lambda: not self._locked  # noqa: E731 - used once
            if not self._scheduler.wait(free, None if timeout < 0 else timeout):
                return False
        if self._locked:
            return False
        self._locked = True
        self._scheduler.acquired(self)
        return True

    def release(self) -> None:
        if not self._locked:
            raise RuntimeError("release unlocked lock")
        self._locked = False
        self._scheduler.uses("w", self.name)
        self._scheduler.released(self)

    def locked(self) -> bool:
        return self._locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._locked = False


class SimRLock:
    """A lock that the actor which holds it may acquire again."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = SimLock(scheduler)
        self._owner: object = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._count and self._owner is self._scheduler.current:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = self._scheduler.current, 1
        return True

    def release(self) -> None:
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _release_save(self) -> tuple[int, object]:
        saved = self._count, self._owner
        self._count, self._owner = 0, None
        self._lock.release()
        return saved

    def _acquire_restore(self, saved: tuple[int, object]) -> None:
        self._lock.acquire()
        self._count, self._owner = saved

    def _is_owned(self) -> bool:
        return self._count > 0 and self._owner is self._scheduler.current

    def _at_fork_reinit(self) -> None:
        self._count, self._owner = 0, None


@contextmanager
def simulated(scheduler: Scheduler, random_bits: Callable[[int], int]) -> Iterator[Runtime]:
    """Let everything that is made meanwhile be simulated; yield the runtime for it.

    Not for a process that does anything else at that time.

    Args:
        random_bits: returns so many random bits.
    """

    def token(size: int | None = None) -> str:
        return f"{random_bits(8 * (size or 32)):0{2 * (size or 32)}x}"

    def thread(target: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=target, name=name, daemon=True)

    replaced: list[_Replaced] = [
        *_threads(scheduler),
        *_clocks(scheduler),
        (secrets, "token_hex", token),
        (os, "getpid", scheduler.pid),
        (os, "urandom", lambda size: random_bits(8 * size).to_bytes(size)),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield Runtime(
            clock=scheduler.clock, now=scheduler.wall_clock, token=lambda: token(16), thread=thread
        )
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


_Replaced = tuple[Any, str, Any]
"""A module or a class, the name of an attribute of it, and what takes its place."""


def _threads(scheduler: Scheduler) -> Iterator[_Replaced]:
    """Yield what makes threads actors of the scheduler, and their locks its own."""

    def start(thread: threading.Thread) -> None:
        actor = scheduler.current
        assert actor is not None, "threads are started by actors"
        process = actor.process
        made = scheduler.spawn(process, thread.run, thread.name)
        made.thread = thread
        thread._sim_actor = made  # type: ignore[attr-defined]

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        actor = getattr(thread, "_sim_actor", None)
        if actor is not None and scheduler.wait(lambda: bool(actor.is_over), timeout):
            scheduler.acquired(actor)

    def is_alive(thread: threading.Thread) -> bool:
        actor = getattr(thread, "_sim_actor", None)
        return actor is not None and not actor.is_over

    def current_thread() -> Any:
        actor = scheduler.current
        return real_current() if actor is None or actor.thread is None else actor.thread

    def get_ident() -> int:
        return 1 if scheduler.current is None else 2 + scheduler.current.number

    real_current = threading.current_thread
    yield threading, "Lock", lambda: SimLock(scheduler)
    yield threading, "_allocate_lock", lambda: SimLock(scheduler)
    yield threading, "RLock", lambda: SimRLock(scheduler)
    yield threading, "get_ident", get_ident
    yield threading, "current_thread", current_thread
    yield threading.Thread, "start", start
    yield threading.Thread, "join", join
    yield threading.Thread, "is_alive", is_alive
    yield queue, "SimpleQueue", queue._PySimpleQueue  # type: ignore[attr-defined]


def _clocks(scheduler: Scheduler) -> Iterator[_Replaced]:
    """Yield what makes time pass as the scheduler says."""
    yield threading, "_time", scheduler.clock
    yield time, "monotonic", scheduler.clock
    yield time, "monotonic_ns", scheduler.tick
    yield time, "time", scheduler.wall_clock
    yield time, "sleep", lambda seconds: scheduler.wait(lambda: False, seconds)
    after = Deadline.after.__func__  # type: ignore[attr-defined]
    yield after, "__defaults__", (scheduler.clock,)
