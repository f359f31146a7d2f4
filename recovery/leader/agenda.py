"""The agenda: which jobs a leader has to check, and when.

A job is on it because an event named it, because an action about it has returned, or because a
moment has come. A job that rests is not on it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from jrs.contract.clock import Clock

_MOST_OVER = 64
"""Moments that are over and still in memory, besides as many as there are others."""


class Agenda:
    """The jobs to check; used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now: dict[str, None] = {}
        self._moments: list[tuple[float, str, str]] = []
        self._due: dict[str, dict[str, float]] = {}
        """When each job is to be checked, by its causes; other moments in the heap are over."""
        self._known = 0
        """How many moments `_due` has."""
        self._all: set[str] = set()

    def add(self, job_id: str) -> None:
        """Check the job as soon as possible, once, however often it is named until then."""
        self._now[job_id] = None

    def add_all(self, job_ids: Iterable[str]) -> None:
        """Check the jobs as soon as possible, behind those that are named already."""
        for job_id in job_ids:
            self._all.add(job_id)
            self.add(job_id)

    @property
    def has_all(self) -> bool:
        """Whether some of those that came by `add_all` are not taken yet."""
        return bool(self._all)

    def at(self, moment: float, job_id: str, cause: str) -> None:
        """Check the job at a moment of the clock, and no more at an earlier one of this cause."""
        causes = self._due.setdefault(job_id, {})
        if causes.get(cause) == moment:
            return
        self._known += cause not in causes
        causes[cause] = moment
        heapq.heappush(self._moments, (moment, job_id, cause))
        self._drop_over()

    def forget(self, job_id: str) -> None:
        """Forget the moments of a job that is over. Idempotent."""
        self._known -= len(self._due.pop(job_id, ()))
        self._drop_over()

    def _drop_over(self) -> None:
        if len(self._moments) > _MOST_OVER + 2 * self._known:
            self._moments = [
                (moment, job_id, cause)
                for job_id, causes in self._due.items()
                for cause, moment in causes.items()
            ]
            heapq.heapify(self._moments)

    def take(self, most: int) -> list[str]:
        """Remove and return at most that many due jobs, first in, first out."""
        now = self._clock()
        while self._first() <= now:
            _, job_id, cause = heapq.heappop(self._moments)
            causes = self._due[job_id]
            del causes[cause]
            self._known -= 1
            if not causes:
                del self._due[job_id]
            self.add(job_id)
        taken = [job_id for job_id, _ in zip(self._now, range(most), strict=False)]
        for job_id in taken:
            del self._now[job_id]
        self._all.difference_update(taken)
        return taken

    def until_next(self) -> float:
        """Return the seconds until the next job is due; infinite if no moment is known."""
        return 0.0 if self._now else max(0.0, self._first() - self._clock())

    def _first(self) -> float:
        """Return the first moment, behind those that are over; infinite if there is none."""
        while self._moments:
            moment, job_id, cause = self._moments[0]
            if self._due.get(job_id, {}).get(cause) == moment:
                return moment
            heapq.heappop(self._moments)
        return float("inf")
