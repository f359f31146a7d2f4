"""Attempts: the attempts of one leadership. None of them outlives it.

The rule of this file: from `end_all` on, no attempt begins. An attempt that is being started at
that time is ended as soon as its start returns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import attrs

from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import Unavailable

from ..attempt.runners import AttemptExit, OnEnd, RunningAttempt
from ..processes.pools import side_by_side

_LATE = 30.0
"""Seconds for ending an attempt whose start returned after `end_all`."""

_MORE = 0.5
"""Seconds that `end_all` waits beyond the deadline that it gives to each attempt."""


@attrs.define(eq=False)
class AttemptHandle:
    """One attempt, from before its start until it is forgotten."""

    running: RunningAttempt | None = None
    """None while it is being started."""
    began_at: float = 0.0
    """When it was started, on the monotonic clock."""
    on_purpose: bool = False
    """Its leader ends it, so its end does not count as a death."""
    ended_as: str = ""
    """Why its leader ends it, for metrics."""


class Attempts:
    """The attempts of one leadership, at most one for each job. Safe for use by many threads."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._begun: dict[str, AttemptHandle] = {}
        self._over = False

    @property
    def over(self) -> bool:
        """Whether `end_all` was called: every later end is a consequence of it."""
        return self._over

    def begin(
        self,
        job_id: str,
        start: Callable[[OnEnd], RunningAttempt],
        on_end: Callable[[AttemptHandle, AttemptExit], None],
    ) -> None:
        """Start an attempt. `on_end` may be called before this returns, from any thread.

        Raises:
            Unavailable: this leadership is over; nothing was started.
            Whatever `start` raises.
        """
        begun = AttemptHandle(began_at=self._clock())
        with self._changed:
            if self.over:
                raise Unavailable(f"this leadership is over: job {job_id!r} is not started")
            self._begun[job_id] = begun
        try:
            running = start(lambda ended: on_end(begun, ended))
        except BaseException:
            self.forget(job_id, begun)
            raise
        with self._changed:
            begun.running = running
            over = self._over
            self._changed.notify_all()
        if over:
            running.end(Deadline.after(_LATE))

    def is_running(self, job_id: str) -> bool:
        """Return whether the job has an attempt whose end was not reported yet."""
        return job_id in self._begun

    def ended_as(self, begun: AttemptHandle) -> str:
        """Return why its leader ends an attempt, for metrics; empty if it does not end it."""
        return begun.ended_as or ("stopped" if self._over else "")

    def ran(self, job_id: str) -> float:
        """Return the seconds since the job's attempt began; 0 if none runs."""
        began_at = self.began_at(job_id)
        return 0.0 if began_at is None else self._clock() - began_at

    def began_at(self, job_id: str) -> float | None:
        """Return when the job's attempt began, on the clock; None if none runs."""
        begun = self._begun.get(job_id)
        return None if begun is None else begun.began_at

    def jobs(self) -> list[str]:
        """Return the jobs that have an attempt whose end was not reported yet."""
        with self._changed:
            return list(self._begun)

    def forget(self, job_id: str, begun: AttemptHandle) -> bool:
        """Record an attempt's end; return whether it ended by itself and was its job's newest."""
        with self._changed:
            if self._begun.get(job_id) is not begun:
                return False
            del self._begun[job_id]
            self._changed.notify_all()
            return not begun.on_purpose

    def end(
        self, job_id: str, deadline: Deadline, ended_as: str = "stopped", *, allowed: float = 0.0
    ) -> None:
        """End the job's attempt, if it has one, and forget it. Idempotent.

        Args:
            ended_as: why, for metrics.
            allowed: seconds in which it may still end by itself, unless `end_all` is called.

        Raises:
            Unavailable: it does not end.
        """
        with self._changed:
            begun = self._begun.get(job_id)
        if begun is None:
            return
        begun.ended_as = begun.ended_as or ended_as
        begun.on_purpose = True  # Its end may be reported before this returns.
        with self._changed:
            self._changed.wait_for(
                lambda: self._over or self._begun.get(job_id) is not begun, allowed
            )
        if not self._end(begun, deadline):
            raise Unavailable(f"the attempt of {job_id!r} does not end")
        self.forget(job_id, begun)

    def end_all(self, deadline: Deadline) -> list[str]:
        """End every attempt, all at once; return the jobs whose attempt is not known to be dead."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            begun = dict(self._begun)
        calls = [partial(self._end, one, deadline) for one in begun.values()]
        # A little longer than each attempt has: one that hangs must not block the caller.
        ends = side_by_side("jrs-end", calls, Deadline.after(deadline.bounded() + _MORE))
        return [job_id for job_id, end in zip(begun, ends, strict=True) if not end.value]

    def _end(self, begun: AttemptHandle, deadline: Deadline) -> bool:
        with self._changed:
            self._changed.wait_for(
                lambda: begun.running is not None or begun not in self._begun.values(),
                deadline.bounded(),
            )
            running = begun.running
            if running is None:
                return begun not in self._begun.values()
        try:
            return running.end(deadline)
        except Exception:
            return False  # It is not known to be dead; nothing else counts.
