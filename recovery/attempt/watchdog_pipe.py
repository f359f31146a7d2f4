"""The pipe by which an attempt tells its watchdog the time limits of its stages, that it was
interrupted, and that it does not understand its launch.

The watchdog kills the attempt when a limit has passed: code that hangs in C, in the JVM, or that
was stopped, cannot keep it from that. Its exit status alone does not show the last two: the
job's own code may end the process with any status.
"""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from jrs.contract.clock import Clock

_INTERRUPTED = b"interrupted"
_REFUSED = b"refused"


@attrs.frozen
class _Limit:
    stage: str
    seconds: float
    until: float
    """On the monotonic clock, which the processes of a host share; 0 withdraws the limit."""


class WatchdogPipe:
    """The attempt's end: begins and ends the limits of its stages, and says why it ends if that is
    no fault of the job. Safe for many threads."""

    def __init__(self, descriptor: int, clock: Clock) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._clock = clock
        self._running: set[str] = set()
        self._lock = threading.Lock()

    def begin(self, stage: str, seconds: float) -> None:
        """Have the attempt killed if the stage has not ended after so many seconds."""
        with self._lock:
            self._running.add(stage)
            self._tell(_Limit(stage, seconds, self._clock() + seconds))

    def end(self, stage: str) -> None:
        """Withdraw a stage's limit. Idempotent."""
        with self._lock:
            if stage in self._running:
                self._running.discard(stage)
                self._tell(_Limit(stage, 0.0, 0.0))

    def end_all(self) -> None:
        """Withdraw every limit: the attempt stops its stages."""
        for stage in list(self._running):
            self.end(stage)

    def report_interrupted(self) -> None:
        """Say that a call of jrs's own has failed the attempt, which ends now."""
        os.write(self._descriptor, _INTERRUPTED + b"\n")

    def report_refused(self) -> None:
        """Say that the attempt does not understand its launch, and ends now."""
        os.write(self._descriptor, _REFUSED + b"\n")

    @contextmanager
    def limited(self, stage: str, seconds: float) -> Iterator[None]:
        """Limit the stage while the block runs."""
        self.begin(stage, seconds)
        try:
            yield
        finally:
            self.end(stage)

    def _tell(self, limit: _Limit) -> None:
        line = json.dumps(attrs.asdict(limit)).encode() + b"\n"
        os.write(self._descriptor, line)  # Shorter than PIPE_BUF: never split.


class AttemptPipe:
    """The watchdog's end: which limits hold, and whether the attempt says that it was interrupted,
    or does not understand its launch."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.is_open = True
        self.interrupted = False
        self.refused = False
        self._limits: dict[str, _Limit] = {}
        self._rest = b""

    def read(self) -> None:
        """Take in what the attempt has told."""
        while self.is_open and select.select([self.descriptor], [], [], 0)[0]:
            data = os.read(self.descriptor, 1 << 16)
            self.is_open = bool(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        if line == _INTERRUPTED:
            self.interrupted = True
        elif line == _REFUSED:
            self.refused = True
        else:
            limit = _Limit(**json.loads(line))
            self._limits.pop(limit.stage, None)
            if limit.until:
                self._limits[limit.stage] = limit

    def first(self) -> tuple[float, str] | None:
        """Return the next moment at which a limit passes, and the words for that; None if no stage
        has a limit."""
        if not self._limits:
            return None
        limit = min(self._limits.values(), key=lambda one: one.until)
        return limit.until, f"stage {limit.stage!r} has run for longer than {limit.seconds:g} s"
