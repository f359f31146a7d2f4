"""What an attempt reports to its master while it runs: the steps of its stages, through one pipe.

The pipe never blocks the attempt. If the master reads too slowly, or is dead, reports are dropped;
the next one that fits says how many.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import attrs

from jrs.contract.clock import Clock
from jrs.contract.texts import bounded
from jrs.records.stages import TAKEN_OVER

from ..rules.events import EventKind

_LONGEST = 2048
"""Bytes of a message. With its frame, a report is below PIPE_BUF: it is written as a whole."""

KINDS = (
    EventKind.STAGE_BEGUN,
    EventKind.STAGE_FINISHED,
    EventKind.STAGE_SKIPPED,
    EventKind.BATCH,
    EventKind.PUBLISHED,
    EventKind.WAITING,
)
"""The kinds of events that attempts report."""


@attrs.frozen
class StageReport:
    """One step of a stage."""

    kind: EventKind = attrs.field(converter=EventKind)
    stage: str
    message: str
    at: float
    dropped: int = 0
    """The number of reports before this one that were dropped."""

    def to_line(self) -> bytes:
        """Return it as one line, short enough to be written to a pipe as a whole."""
        cut = attrs.evolve(self, message=bounded(self.message, _LONGEST))
        return json.dumps(attrs.asdict(cut)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> StageReport | None:
        """Return the report in a line; None if it holds none."""
        try:
            found: Any = json.loads(line)
            report = cls(
                found["kind"],
                str(found["stage"]),
                str(found["message"]),
                float(found["at"]),
                int(found["dropped"]),
            )
            return report if report.kind in KINDS else None
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            return None


OnReport = Callable[[StageReport], None]
"""Takes a report; never blocks and never raises."""


def ignore(report: StageReport) -> None:
    """Take a report, and do nothing with it."""


class PipeReporter:
    """Writes reports to a pipe. Safe for use by many threads.

    Args:
        pipe: the descriptor of its writing end, which this process alone uses from now on.
    """

    def __init__(self, pipe: int) -> None:
        os.set_inheritable(pipe, False)
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._lock = threading.Lock()
        self._dropped = 0

    def __call__(self, report: StageReport) -> None:
        with self._lock:
            try:
                os.write(self._pipe, attrs.evolve(report, dropped=self._dropped).to_line())
                self._dropped = 0
            except OSError:  # It is full, or nobody reads it.
                self._dropped += 1


class Reporter:
    """Reports the steps of an attempt's stages, in words.

    Args:
        send: takes each report.
    """

    def __init__(self, send: OnReport = ignore, *, now: Clock = time.time) -> None:
        self._send = send
        self._now = now

    def begun(self, stage: str) -> None:
        """Report that a stage begins."""
        self._report(EventKind.STAGE_BEGUN, stage, f"stage {stage} begins")

    def finished(self, stage: str, seconds: float) -> None:
        """Report that a stage has finished, durably."""
        self._report(EventKind.STAGE_FINISHED, stage, f"stage {stage} finished in {seconds:.1f} s")

    def skipped(self, stage: str, attempt: int) -> None:
        """Report that a stage is skipped, because an earlier attempt finished it."""
        which = f"finished in attempt {attempt}" if attempt != TAKEN_OVER else "taken over"
        said = f"stage {stage} was {which}: skipped"
        self._report(EventKind.STAGE_SKIPPED, stage, said)

    def committed(self, stage: str, first: int, last: int) -> None:
        """Report that a stream has committed batches."""
        which = f"batch {last}" if first == last else f"batches {first} to {last}"
        self._report(EventKind.BATCH, stage, f"stage {stage} committed {which}")

    def published(self, stage: str, place: object) -> None:
        """Report that the output of a stage is in place."""
        self._report(EventKind.PUBLISHED, stage, f"stage {stage} is published at {place}")

    def waiting(self, why: str) -> None:
        """Report that the attempt waits for something that passes or has to be mended."""
        self._report(EventKind.WAITING, "", f"its attempt waits: {why}")

    def _report(self, kind: EventKind, stage: str, message: str) -> None:
        self._send(StageReport(kind, stage, message, self._now()))
