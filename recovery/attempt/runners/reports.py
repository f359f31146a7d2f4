"""Reading what attempts report through their pipes: one thread for all attempts of a runner."""

from __future__ import annotations

import os
import selectors
import threading
from contextlib import suppress

from jrs.contract.runtime import JrsThread

from ..reporter import OnReport, StageReport

_LONGEST = 64 * 1024
"""Bytes without a line end after which a pipe holds no reports."""
_ONCE = 64 * 1024


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
    """The pipes of running attempts. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._selector = selectors.EpollSelector()
        self._thread: threading.Thread | None = None

    def open(self, on_report: OnReport) -> ReportPipe:
        """Return a new pipe, which is read until `close`.

        Raises:
            OSError, RuntimeError: the system gives this process no more descriptors, or no thread.
                Nothing is left open.
        """
        pipe = ReportPipe(on_report)
        try:
            with self._lock:
                if self._thread is None:
                    thread = JrsThread(target=self._read, name="jrs-attempt-reports", daemon=True)
                    thread.start()
                    self._thread = thread
                self._selector.register(pipe.reading, selectors.EVENT_READ, pipe)
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
                self._selector.unregister(pipe.reading)
            pipe.is_open = False
            os.close(pipe.reading)

    def _read(self) -> None:
        while True:
            for key, _ in self._selector.select():
                pipe: ReportPipe = key.data
                with pipe.lock:
                    open_still = pipe.is_open and pipe.take()
                if not open_still:
                    self.close(pipe)
