"""Admission: how many attempts run at once on a master, and who is next.

A slot is one attempt in a process of its own. Attempts in the master's own process take none: the
application's main may wait for jobs that need one.
"""

from __future__ import annotations

import bisect
import os
from contextlib import suppress
from pathlib import Path

_PER_CORE = 8
_PER_SLOT = 1 << 30
"""Bytes of memory: what a small JVM and its driver take."""
_LEAST = 2

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def default_slots() -> int:
    """Return how many attempts this host should run at once: 8 for each core, 1 for each GiB of
    memory, whichever is less, and at least 2. A limit of the cgroup counts."""
    return slots_for(len(os.sched_getaffinity(0)), _memory())


def slots_for(cores: int, memory: int) -> int:
    """Return the default for a host with so many cores and bytes of memory."""
    return max(_LEAST, min(_PER_CORE * cores, memory // _PER_SLOT))


def _memory() -> int:
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number: there is no limit.
            found.append(int(Path(limit).read_text()))
    return min(found)


class Admission:
    """The slots of one leader, and the jobs that wait for one, by the time of their submission.

    Used by one thread. A slot is a job's until `release`, whatever it does with it.
    """

    def __init__(self, slots: int | None = None) -> None:
        self._slots = slots
        self._taken: set[str] = set()
        self._submitted: dict[str, float] = {}
        self._queue: list[tuple[float, str]] = []

    @property
    def taken(self) -> int:
        """How many slots are in use."""
        return len(self._taken)

    def has_slot(self, job_id: str) -> bool:
        """Return whether the job may run."""
        return job_id in self._taken

    def ask(self, job_id: str, submitted_at: float) -> None:
        """Have the job wait for a slot. Idempotent."""
        if job_id not in self._submitted and job_id not in self._taken:
            self._submitted[job_id] = submitted_at
            bisect.insort(self._queue, (submitted_at, job_id))

    def release(self, job_id: str) -> None:
        """Take the job's slot back, or its place in the queue, if it has one. Idempotent."""
        self._taken.discard(job_id)
        submitted_at = self._submitted.pop(job_id, None)
        if submitted_at is not None:
            del self._queue[bisect.bisect_left(self._queue, (submitted_at, job_id))]

    def grant(self, most: int | None = None) -> list[str]:
        """Give free slots, up to `most` of them, to those that wait longest; return their jobs."""
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
