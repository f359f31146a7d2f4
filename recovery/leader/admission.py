"""Admission: how many attempts run at once on a master, and which job is next.

A slot is one attempt in a process of its own. Attempts in the master's own process take no slot:
the application's main may wait for jobs that need one.
"""

from __future__ import annotations

import bisect
import os
from contextlib import suppress
from pathlib import Path

_PER_CORE = 8
_PER_SLOT = 1 << 30
"""Bytes of memory that a small JVM and its driver take."""
_LEAST = 2

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def default_slots() -> int:
    """Return how many attempts this host should run at once.

    That is 8 for each core or 1 for each GiB of memory, whichever is less, and at least 2. A memory
    limit of the cgroup counts.
    """
    return slots_for(len(os.sched_getaffinity(0)), _memory())


def slots_for(cores: int, memory: int) -> int:
    """Return the default for a host with that many cores and bytes of memory."""
    return max(_LEAST, min(_PER_CORE * cores, memory // _PER_SLOT))


def _memory() -> int:
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _LIMITS:
        with suppress(OSError, ValueError):  # "max" is not a number: there is no limit.
            found.append(int(Path(limit).read_text()))
    return min(found)


class Admission:
    """The slots of one leader, and the jobs that wait for a slot, ordered by submission.

    Used by one thread. A job keeps its slot until `release`, whatever it does with the slot.
    """

    def __init__(self, slots: int | None = None) -> None:
        self._slots = slots
        self._taken: set[str] = set()
        self._submitted: dict[str, float] = {}
        self._queue: list[tuple[float, str]] = []

    @property
    def taken(self) -> int:
        """The number of slots in use."""
        return len(self._taken)

    def has_slot(self, job_id: str) -> bool:
        """Return whether the job has a slot."""
        return job_id in self._taken

    def ask(self, job_id: str, submitted_at: float) -> None:
        """Have the job wait for a slot. Idempotent."""
        if job_id not in self._submitted and job_id not in self._taken:
            self._submitted[job_id] = submitted_at
            bisect.insort(self._queue, (submitted_at, job_id))

    def release(self, job_id: str) -> None:
        """Release the job's slot, or remove it from the queue. Idempotent."""
        self._taken.discard(job_id)
        submitted_at = self._submitted.pop(job_id, None)
        if submitted_at is not None:
            del self._queue[bisect.bisect_left(self._queue, (submitted_at, job_id))]

    def grant(self, most: int | None = None) -> list[str]:
        """Give up to `most` free slots to the jobs that have waited longest; return those jobs."""
        free = len(self._queue) if self._slots is None else self._slots - len(self._taken)
        count = max(0, free if most is None else min(free, most))
        granted = [job_id for _, job_id in self._queue[:count]]
        del self._queue[:count]
        for job_id in granted:
            del self._submitted[job_id]
        self._taken.update(granted)
        return granted

    def place(self, job_id: str) -> int:
        """Return the job's place in the queue, from 1; 0 if it does not wait."""
        submitted_at = self._submitted.get(job_id)
        if submitted_at is None:
            return 0
        return bisect.bisect_left(self._queue, (submitted_at, job_id)) + 1
