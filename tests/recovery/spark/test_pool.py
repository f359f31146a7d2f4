"""A pool of threads, also where the system gives no thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import attrs
import pytest

from jrs.contract.runtime import RUNTIME, Runtime, daemon
from jrs.recovery.spark.pool import RejectingPool


class Refused(threading.Thread):
    """A thread that the system does not give."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


@attrs.define
class System:
    """Gives so many threads."""

    left: int

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        self.left -= 1
        return daemon(target, name) if self.left >= 0 else Refused()

    @property
    def runtime(self) -> Runtime:
        return attrs.evolve(RUNTIME, thread=self.thread)


def test_calls_run_at_once_and_threads_are_kept() -> None:
    meet, names = threading.Barrier(3), set[str]()

    def call() -> None:
        meet.wait(30)
        names.add(threading.current_thread().name)

    with RejectingPool(3, "pool", RUNTIME) as pool:
        for _ in range(5):
            futures = [pool.submit(call) for _ in range(3)]
            for future in futures:
                assert future is not None
                future.result(30)
    assert names == {"pool-0", "pool-1", "pool-2"}


def test_an_error_of_a_call() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    with RejectingPool(1, "pool", RUNTIME) as pool:
        for _ in range(2):
            future = pool.submit(fails)
            assert future is not None
            with pytest.raises(ZeroDivisionError):
                future.result(30)


@pytest.mark.parametrize(("most", "threads"), [(1, 9), (9, 1)])
def test_no_thread_for_a_call(most: int, threads: int) -> None:
    """It is not taken, and never runs; a thread that is free takes the next one."""
    go, ran, system = threading.Event(), list[int](), System(threads)

    def wait() -> None:
        go.wait(30)

    with RejectingPool(most, "pool", system.runtime) as pool:
        first = pool.submit(wait)
        assert first is not None
        assert pool.submit(lambda: ran.append(1)) is None
        go.set()
        first.result(30)
        second = pool.submit(lambda: ran.append(2))
        assert second is not None
        second.result(30)
    assert ran == [2]


def test_no_thread_at_all() -> None:
    system = System(0)
    with RejectingPool(2, "pool", system.runtime) as pool:
        assert pool.submit(lambda: None) is None
        system.left = 1
        future = pool.submit(lambda: None)
        assert future is not None
        future.result(30)


def test_closing_waits_for_its_calls() -> None:
    begun, ran = threading.Event(), list[int]()
    pool = RejectingPool(1, "pool", RUNTIME)

    def call() -> None:
        begun.set()
        ran.append(1)

    assert pool.submit(call) is not None
    pool.close()
    pool.close()

    assert begun.is_set()
    assert ran == [1]
    assert pool.submit(call) is None
    assert not [one for one in threading.enumerate() if one.name.startswith("pool-")]
