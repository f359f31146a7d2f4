"""The agenda: which jobs a leader has to check, and when.

A job is on it because an event named it, because an action about it has returned, or because a
moment has come. A job that rests is not on it.
"""

from __future__ import annotations

import heapq

from jrs.contract.clock import Clock


class Agenda:
    """The jobs to check; used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now: dict[str, None] = {}
        self._moments: list[tuple[float, str]] = []
        self._known: set[tuple[float, str]] = set()

    def add(self, job_id: str) -> None:
        """Check the job as soon as possible, once, however often it is named until then."""
        self._now[job_id] = None

    def at(self, moment: float, job_id: str) -> None:
        """Check the job at a moment of the clock, in addition to all others."""
        if (moment, job_id) not in self._known:
            self._known.add((moment, job_id))
            heapq.heappush(self._moments, (moment, job_id))

    def take(self, most: int) -> list[str]:
        """Remove and return at most that many due jobs, first in, first out."""
        now = self._clock()
        while self._moments and self._moments[0][0] <= now:
            due = heapq.heappop(self._moments)
            self._known.discard(due)
            self.add(due[1])
        taken = [job_id for job_id, _ in zip(self._now, range(most), strict=False)]
        for job_id in taken:
            del self._now[job_id]
        return taken

    def until_next(self) -> float:
        """Return the seconds until the next job is due; infinite if no moment is known."""
        if self._now:
            return 0.0
        return max(0.0, self._moments[0][0] - self._clock()) if self._moments else float("inf")
