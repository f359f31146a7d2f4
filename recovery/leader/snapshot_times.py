"""SnapshotTimes: when the snapshots are taken that jobs ask for in their specs."""

from __future__ import annotations

import zlib

from jrs.contract.clock import Clock

from .agenda import Agenda
from .case import Case

_PART_OF_INTERVAL = 10
"""Overdue snapshots of several jobs are spread over this part of the interval. Small, so that
leaders that are replaced often take them."""
_LONGEST_SPREAD = 300.0
"""Seconds over which they are spread, at most."""
_FIRST_RETRY = 60.0
"""Seconds before a snapshot that could not be taken is tried again; twice as long each time, up to
its interval."""


class SnapshotTimes:
    """The times of one leadership; used by its dispatcher's thread."""

    def __init__(self, agenda: Agenda, clock: Clock) -> None:
        self._agenda = agenda
        self._clock = clock

    def are_unplanned(self, case: Case) -> bool:
        return case.spec.snapshots.every is not None and case.job.snapshot.at is None

    def plan(self, case: Case, wait: float) -> None:
        every, spread = case.spec.snapshots.every, 0.0
        if not wait and every is not None:
            # After an outage those of all jobs are overdue: not all at once, as the jobs start.
            share = zlib.crc32(case.job_id.encode()) / 2**32
            spread = share * min(every / _PART_OF_INTERVAL, _LONGEST_SPREAD)
        case.job.snapshot.due_at = self._clock() + wait
        self._try_at(case, wait + spread)

    def may_be_due(self, case: Case) -> bool:
        at = case.job.snapshot.at
        return case.spec.snapshots.every is not None and at is not None and self._clock() >= at

    def tried(self, case: Case, wait: float | None) -> None:
        """Plan the next snapshot; None: this one could not be taken, and is tried again."""
        snapshot, every = case.job.snapshot, case.spec.snapshots.every
        if wait is not None:
            snapshot.failures = 0
            snapshot.due_at = self._clock() + wait
        elif every is not None:
            wait = min(every, _FIRST_RETRY * 2 ** min(snapshot.failures, 32))
            snapshot.failures += 1
        self._try_at(case, wait or 0.0)

    def _try_at(self, case: Case, wait: float) -> None:
        case.job.snapshot.at = at = self._clock() + wait
        self._agenda.at(at, case.job_id, "snapshot")
