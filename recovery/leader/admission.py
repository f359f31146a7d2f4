"""Admission: how many attempts run at once on a master, and which job is next.

An attempt in a process of its own takes a slot, or as many as its job asks for. Attempts in the
master's own process take no slot: the application's main may wait for jobs that need one.
"""

from __future__ import annotations

import os
import time

from sortedcontainers import SortedList

from jrs.contract.clock import Clock

from ..processes import memory
from ..rules.queue import Turn

_PER_CORE = 8
_PER_SLOT = 1 << 30
"""Bytes of memory that a small JVM and its driver take."""
_LEAST = 2


def default_slots() -> int:
    """Return how many attempts this host should run at once.

    That is 8 for each core or 1 for each GiB of memory, whichever is less, and at least 2. A memory
    limit of the cgroup counts.
    """
    return slots_for(len(os.sched_getaffinity(0)), memory.usable())


def slots_for(cores: int, usable: int) -> int:
    """Return the default for a host with that many cores and bytes of memory."""
    return max(_LEAST, min(_PER_CORE * cores, usable // _PER_SLOT))


class Admission:
    """The slots of one leader, and the jobs that wait for slots.

    They are ordered by priority, the highest first, and then by submission. The first job waits
    until it gets all slots that it needs, and no other job overtakes it: a job that needs many
    slots would never start otherwise. A job that needs more slots than there are takes all of them.
    A job keeps its slots until `release`, whatever it does with them.

    Used by one thread. Each call takes time in proportion to the logarithm of the queue's length.
    """

    def __init__(self, slots: int | None = None, clock: Clock = time.monotonic) -> None:
        self._slots = slots
        self._clock = clock
        self._taken: dict[str, int] = {}
        self._used = 0
        self._waiting: dict[str, Turn] = {}
        self._asked_at: dict[str, float] = {}
        self._queue: SortedList[Turn] = SortedList()

    @property
    def taken(self) -> int:
        """The number of slots in use."""
        return self._used

    @property
    def waiting(self) -> int:
        """The number of jobs that wait. From any thread."""
        return len(self._waiting)

    @property
    def oldest(self) -> float:
        """For how many seconds the job has waited here that waits the longest. From any thread."""
        now = self._clock()
        return max(0.0, now - min(list(self._asked_at.values()), default=now))

    def has_slot(self, job_id: str) -> bool:
        """Return whether the job has its slots."""
        return job_id in self._taken

    def ask(self, turn: Turn) -> None:
        """Have a job wait for its slots. Idempotent; a changed job gets its new turn."""
        if turn.job_id in self._taken or self._waiting.get(turn.job_id) == turn:
            return
        asked_at = self._asked_at.get(turn.job_id, self._clock())
        self.release(turn.job_id)
        self._asked_at[turn.job_id] = asked_at
        self._waiting[turn.job_id] = turn
        self._queue.add(turn)

    def release(self, job_id: str) -> None:
        """Release the job's slots, or remove it from the queue. Idempotent."""
        self._used -= self._taken.pop(job_id, 0)
        self._asked_at.pop(job_id, None)
        turn = self._waiting.pop(job_id, None)
        if turn is not None:
            self._queue.remove(turn)

    def grant(self, most: int | None = None) -> list[str]:
        """Give free slots to at most `most` jobs, in the order of the queue; return those jobs."""
        granted: list[str] = []
        while self._queue and (most is None or len(granted) < most):
            first = self._queue[0]
            needed = first.needed(self._slots)
            if self._slots is not None and self._used + needed > self._slots:
                break
            del self._queue[0]
            del self._waiting[first.job_id], self._asked_at[first.job_id]
            self._taken[first.job_id] = needed
            self._used += needed
            granted.append(first.job_id)
        return granted

    def place(self, job_id: str) -> int:
        """Return the job's place in the queue, from 1; 0 if it does not wait."""
        turn = self._waiting.get(job_id)
        return 0 if turn is None else self._queue.index(turn) + 1
