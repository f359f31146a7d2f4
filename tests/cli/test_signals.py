"""A master ends by a signal, whatever its main thread is doing."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from jrs.host.signals import stopped_by_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_of_a_wait(number: signal.Signals) -> None:
    """The main thread has the event's lock while the handler runs, as in its own `wait`. A handler
    that set the event would wait for that lock forever, and the master would never end."""
    stop = threading.Event()
    with stopped_by_signals(stop):
        with stop._cond:  # type: ignore[attr-defined]
            os.kill(os.getpid(), number)
        assert stop.wait(60)


def test_no_signal_comes() -> None:
    """The thread ends with the block, and the handlers are those of before."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with stopped_by_signals(threading.Event()):
        assert "jrs-signals" in [thread.name for thread in threading.enumerate()]
    assert "jrs-signals" not in [thread.name for thread in threading.enumerate()]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
