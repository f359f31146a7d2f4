"""The shield: what a thread does for the main thread is done once, also while it is closed."""

from __future__ import annotations

import threading

import pytest

from jrs.backends.remote import shield as module
from jrs.backends.remote.shield import Shield
from tests.support import until


def test_a_call_that_ends_while_it_is_closed_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread ends between the caller's look at the answer and its look at the threads."""
    assert threading.current_thread() is threading.main_thread()
    monkeypatch.setattr(module, "_LOOK", 0.01)
    shield = Shield("jrs-test-shield")
    begun, go = threading.Event(), threading.Event()
    calls: list[int] = []
    is_over = shield._is_over

    def look() -> bool:
        begun.wait()
        shield.close(0.0)
        go.set()
        until(lambda: not shield._threads, "its threads end")
        return is_over()

    monkeypatch.setattr(shield, "_is_over", look)

    def call() -> int:
        calls.append(1)
        begun.set()
        go.wait()
        return len(calls)

    assert shield.run(call) == 1
    assert calls == [1]


def test_a_call_that_no_thread_came_to_is_made_by_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was handed over while the threads were told to end."""
    monkeypatch.setattr(module, "_LOOK", 0.01)
    shield = Shield("jrs-test-shield")
    shield.close(60.0)
    shield._closed = False  # As it was when the call was handed over.
    is_over = shield._is_over

    def look() -> bool:
        shield._closed = True
        return is_over()

    monkeypatch.setattr(shield, "_is_over", look)

    assert shield.run(threading.current_thread) is threading.main_thread()
