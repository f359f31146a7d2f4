"""SignalSafeCalls: what a thread does for the main thread is done once, also while it is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from jrs.backends.remote import signal_safe_calls as module
from jrs.backends.remote.signal_safe_calls import SignalSafeCalls
from tests.support import until


def test_a_call_that_ends_while_it_is_closed_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread ends between the caller's look at the answer and its look at the threads."""
    assert threading.current_thread() is threading.main_thread()
    monkeypatch.setattr(module, "_LOOK", 0.01)
    safe = SignalSafeCalls("jrs-test-calls")
    begun, go = threading.Event(), threading.Event()
    calls: list[int] = []
    is_over = safe._is_over

    def look() -> bool:
        begun.wait()
        safe.close(0.0)
        go.set()
        until(lambda: not safe._threads, "its threads end")
        return is_over()

    monkeypatch.setattr(safe, "_is_over", look)

    def call() -> int:
        calls.append(1)
        begun.set()
        go.wait()
        return len(calls)

    assert safe.run(call) == 1
    assert calls == [1]


def test_a_call_that_no_thread_came_to_is_made_by_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was handed over while the threads were told to end."""
    monkeypatch.setattr(module, "_LOOK", 0.01)
    safe = SignalSafeCalls("jrs-test-calls")
    safe.close(60.0)
    safe._closed = False  # As it was when the call was handed over.
    is_over = safe._is_over

    def look() -> bool:
        safe._closed = True
        return is_over()

    monkeypatch.setattr(safe, "_is_over", look)

    assert safe.run(threading.current_thread) is threading.main_thread()


@pytest.fixture
def no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have the process reach its limit of threads, when called."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    return lambda: monkeypatch.setattr(threading.Thread, "start", fail)


def test_calls_are_made_at_the_limit_of_threads(no_thread_starts: Callable[[], None]) -> None:
    """The thread that waits for work makes them, although none can take its place."""
    safe = SignalSafeCalls("jrs-test-calls")
    no_thread_starts()

    for _ in range(3):
        assert safe.run(threading.current_thread) is not threading.main_thread()
    safe.close(60.0)
    assert safe._threads == set()


def test_a_call_is_made_by_its_caller_where_all_threads_are_in_calls(
    monkeypatch: pytest.MonkeyPatch, no_thread_starts: Callable[[], None]
) -> None:
    """The caller of the call that hangs was interrupted, and no further thread can be started."""
    monkeypatch.setattr(module, "_LOOK", 0.01)
    safe = SignalSafeCalls("jrs-test-calls")
    begun, go = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go.wait()

    no_thread_starts()
    safe._calls.put(hang)
    assert begun.wait(60.0)

    assert safe.run(threading.current_thread) is threading.main_thread()
    go.set()
    safe.close(60.0)
    assert safe._threads == set()
