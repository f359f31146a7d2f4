"""Reading what attempts report through their pipes: one thread for all attempts of a runner."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress

from jrs.contract.runtime import JrsThread

from ..reporter import OnReport, StageReport

_LONGEST = 64 * 1024
"""Bytes without a line end after which a pipe holds no reports."""
_ONCE = 64 * 1024
_END = 1.0
"""Seconds in which the thread has to end."""


class ReportPipe:
    """The pipe of one attempt.

    Attributes:
        writing: the writing end, which the caller passes on and then closes.
    """

    def __init__(self, on_report: OnReport) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.is_open = True
        self.lock = threading.Lock()
        self._on_report = on_report
        self._rest = b""

    def take(self) -> bool:
        """Pass on the reports that are there; return False at the end of the pipe."""
        with suppress(BlockingIOError):
            while self.is_open:
                data = os.read(self.reading, _ONCE)
                if not data:
                    return False
                *lines, rest = (self._rest + data).split(b"\n")
                self._rest = rest[:_LONGEST]
                for line in lines:
                    # An attempt may write anything; the thread reads those of all attempts.
                    with suppress(Exception):
                        self._pass_on(StageReport.from_line(line))
        return True

    def _pass_on(self, report: StageReport | None) -> None:
        if report is not None:
            self._on_report(report)


class Reports:
    """The pipes of running attempts. Safe for use by many threads.

    A thread reads them, from the first `open` until `end`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading: _Reading | None = None

    def open(self, on_report: OnReport) -> ReportPipe:
        """Return a new pipe, which is read until `close`.

        Raises:
            OSError, RuntimeError: the system gives this process no more descriptors, or no thread.
                Nothing is left open.
        """
        pipe = ReportPipe(on_report)
        try:
            with self._lock:
                if self._reading is None:
                    self._reading = _Reading(self.close)
                self._reading.add(pipe)
        except BaseException:
            os.close(pipe.reading)
            os.close(pipe.writing)
            raise
        return pipe

    def close(self, pipe: ReportPipe) -> None:
        """Pass on what a pipe still holds, and close it. Idempotent."""
        with pipe.lock:
            if not pipe.is_open:
                return
            pipe.take()
            with self._lock:
                if self._reading is not None:
                    self._reading.remove(pipe)
            pipe.is_open = False
            os.close(pipe.reading)

    def end(self) -> None:
        """End the thread. Pipes that are still open are read when they are closed. A pipe that is
        opened later has another thread."""
        with self._lock:
            reading, self._reading = self._reading, None
        if reading is not None:
            reading.end()


class _Reading:
    """A thread, and the pipes that it reads.

    Args:
        close: called with each pipe that has come to its end.

    Raises:
        OSError, RuntimeError: as `Reports.open`.
    """

    def __init__(self, close: Callable[[ReportPipe], None]) -> None:
        self._close = close
        self._own = ExitStack()
        try:
            self._selector = self._own.enter_context(selectors.EpollSelector())
            self._over = os.eventfd(0)
            self._own.callback(os.close, self._over)
            self._selector.register(self._over, selectors.EVENT_READ)
            self._thread = JrsThread(target=self._run, name="jrs-attempt-reports", daemon=True)
            self._thread.start()
        except BaseException:
            self._own.close()
            raise

    def add(self, pipe: ReportPipe) -> None:
        self._selector.register(pipe.reading, selectors.EVENT_READ, pipe)

    def remove(self, pipe: ReportPipe) -> None:
        """Read a pipe no more, if this thread reads it."""
        with suppress(KeyError):
            self._selector.unregister(pipe.reading)

    def end(self) -> None:
        """End the thread. One that hangs in what it calls with a report is abandoned, and keeps its
        descriptors."""
        os.eventfd_write(self._over, 1)
        self._thread.join(_END)
        if not self._thread.is_alive():
            self._own.close()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                pipe: ReportPipe | None = key.data
                if pipe is None:
                    return
                with pipe.lock:
                    open_still = pipe.is_open and pipe.take()
                if not open_still:
                    self._close(pipe)
