"""Attempts: the ones that run under one leadership, so that none survives it.

The rule of this file: from `end_all` on, no attempt begins; one that was just being started then is
ended as soon as its start returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable

from ..attempt.runners import AttemptExit, OnEnd, RunningAttempt
from ..processes.pools import side_by_side

_LATE = 30.0
"""Seconds given to the end of an attempt whose start returned when all were to end."""

_MORE = 0.5
"""Seconds that `end_all` waits beyond its deadline for ends that were given the same one."""


@attrs.define(eq=False)
class AttemptHandle:
    """One attempt, from before its start until it was forgotten."""

    running: RunningAttempt | None = None
    """None while it is being started."""
    on_purpose: bool = False
    """Its leader wants it to end, so that its end is no death."""


class Attempts:
    """The attempts of one leadership, at most one for each job. Safe for use by many threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._begun: dict[str, AttemptHandle] = {}
        self._over = False

    @property
    def over(self) -> bool:
        """Whether `end_all` was called: whatever ends from then on ends because of it."""
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
        begun = AttemptHandle()
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
        """Return whether the job has an attempt whose end was not seen yet."""
        return job_id in self._begun

    def jobs(self) -> list[str]:
        """Return the jobs that have an attempt whose end was not seen yet."""
        with self._changed:
            return list(self._begun)

    def forget(self, job_id: str, begun: AttemptHandle) -> bool:
        """Take note that an attempt has ended; return whether it has by itself, and was its job's
        newest."""
        with self._changed:
            if self._begun.get(job_id) is not begun:
                return False
            del self._begun[job_id]
            self._changed.notify_all()
            return not begun.on_purpose

    def end(self, job_id: str, deadline: Deadline) -> None:
        """End the job's attempt, if it has one, and forget it. Idempotent.

        Raises:
            Unavailable: it does not end.
        """
        with self._changed:
            begun = self._begun.get(job_id)
        if begun is None:
            return
        begun.on_purpose = True  # Its end may be told before this returns.
        if not self._end(begun, deadline):
            raise Unavailable(f"the attempt of {job_id!r} does not end")
        self.forget(job_id, begun)

    def end_all(self, deadline: Deadline) -> list[str]:
        """End every attempt, at once; return the jobs of those that are not known to be dead."""
        with self._changed:
            self._over = True
            begun = dict(self._begun)
        calls = [partial(self._end, one, deadline) for one in begun.values()]
        # A little more than they have themselves: what hangs must not keep who stops from ending.
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
            return False  # Not known to be dead, which is all that counts.
