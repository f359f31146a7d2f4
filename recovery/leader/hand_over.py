"""Handing over: an idle leader that cannot start a job lets another master lead and try it.

Only the leader starts attempts. So if its host lacks what a job needs, the leadership has to move,
unless other jobs run here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.records import keys
from jrs.records.obstacles import Obstacle
from jrs.store.masters import Registry, newest_epoch

from ..rules.events import EventKind
from .attempts import Attempts
from .context import LeaderContext

ASK = 5.0
"""Seconds between two questions whether another master should lead."""
_NEXT_LEADER = 5.0
"""Seconds that a master which has handed the leadership over waits for another one to lead."""


def let_another_lead(backend: Backend, epoch: int, stop: threading.Event) -> None:
    """Wait until a newer epoch than `epoch` exists, or nobody wants to lead."""
    deadline = Deadline.after(_NEXT_LEADER)
    with backend.watch(keys.EPOCH) as watch:
        while not stop.is_set() and not deadline.expired:
            newest = newest_epoch(backend)
            if newest is None or newest.epoch > epoch:
                return
            watch.wait(min(0.5, deadline.remaining()))


class HandOver:
    """Decides whether another master should lead, for one leadership."""

    def __init__(self, context: LeaderContext, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self._clock = context.runtime.clock
        self._since = self._clock()

    def consider(self, job_id: str, obstacles: Sequence[Obstacle]) -> None:
        """Hand the leadership over, if that may help the job and harms no other one.

        A master that has not tried the job gets the lead at once. One that has tried it gets it
        when this leader had its turn: what it lacked may have arrived.

        Raises:
            Unavailable: the masters could not be listed.
        """
        if self._context.hand_over is None or self._attempts.jobs():
            return
        masters = Registry(self._context.backend, now=self._context.runtime.now).running()
        others = {one.name for one in masters if one.leading is None} - {self._context.master}
        untried = others - {one.master for one in obstacles}
        if untried or (others and self._clock() >= self._since + self._context.turn):
            named = ", ".join(sorted(untried or others))
            said = f"it cannot be started here; handing the leadership over: {named} may have"
            self._context.emit(EventKind.WAITING, job_id, f"{said} what it needs")
            self._context.hand_over(not untried)
