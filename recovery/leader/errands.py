"""Errands: what takes time, done in a pool, and back on the dispatcher's thread when it has ended.

An errand that failed is not repeated at once, but after a delay that grows with each failure of the
same kind for the same job. Another kind waits for nothing: a job that cannot start is canceled
without delay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import Fenced, OutcomeUnknown, Unavailable

from ..processes.pools import Pool, Pools
from ..rules.decision import Action
from .agenda import Agenda
from .facts import Failing, JobMemory
from .loop import TICK, Loop

LONGEST = 30.0
"""Seconds before what failed is tried again, at most."""

T = TypeVar("T")


class Errands:
    """The errands of one leadership; used by its dispatcher's thread.

    Args:
        fenced: told at once, from any thread, that a newer leader exists.
        failed: told, on the dispatcher's thread, which job's errand has failed, with what, and in
            how many seconds it is repeated.
    """

    def __init__(
        self,
        loop: Loop,
        agenda: Agenda,
        *,
        fenced: Callable[[Fenced], None],
        failed: Callable[[str, BaseException, float], None],
        clock: Clock,
    ) -> None:
        self.pools = Pools()
        self._loop = loop
        self._agenda = agenda
        self._fenced = fenced
        self._failed = failed
        self._clock = clock

    def run(
        self,
        pool: Pool,
        job_id: str,
        job: JobMemory,
        action: Action | None,
        work: Callable[[], T],
        then: Callable[[T], None] = lambda found: None,
        *,
        pins: bool = False,
    ) -> None:
        """Run `work` in a pool, then `then` with what it returned on the dispatcher's thread.

        The job is not looked at meanwhile, unless the work only `pins` it; but afterwards.

        Args:
            action: what the work is about; None: counting a death.
        """

        def under_way(yes: bool) -> None:
            if pins:
                job.pinning = yes
            else:
                job.busy = yes

        def come_back(event: Callable[[], None]) -> None:
            def back() -> None:
                under_way(False)
                self._agenda.add(job_id)
                event()

            self._loop.post(back)

        def succeeded(found: T) -> None:
            if job.failing is not None and job.failing.action is action:
                job.failing = None
            then(found)

        def run() -> None:
            try:
                found = work()
            except BaseException as error:  # Also `sys.exit` of what users give us.
                if isinstance(error, Fenced):
                    self._fenced(error)
                failed = error
                come_back(lambda: self.put_off(job_id, job, action, failed))
            else:
                come_back(lambda: succeeded(found))

        under_way(True)
        pool.submit(run)

    def may_try(self, job: JobMemory, action: Action | None) -> bool:
        """Return whether an action may be tried: it has not failed, or long enough ago."""
        failing = job.failing
        return failing is None or failing.action is not action or self._clock() >= failing.until

    def put_off(
        self, job_id: str, job: JobMemory, action: Action | None, error: BaseException
    ) -> None:
        """Have an action that failed tried again, the later the more often it has failed."""
        before = job.failing
        times = before.times + 1 if before is not None and before.action is action else 1
        passes = isinstance(error, (Unavailable, OutcomeUnknown))
        delay = TICK if passes else min(LONGEST, TICK * 2 ** min(times - 1, 10))
        job.failing = Failing(action, times, self._clock() + delay)
        self._agenda.at(job.failing.until, job_id)
        self._failed(job_id, error, delay)

    def rest(self, job: JobMemory, action: Action) -> None:
        """Have an action that did not fail tried again a little later: somebody else is at it."""
        job.failing = Failing(action, 0, self._clock() + TICK)

    def close(self, deadline: Deadline) -> bool:
        """Begin nothing more; return whether all that was under way has ended."""
        for pool in self.pools.all():
            pool.close()
        ended = [pool.join(deadline) for pool in self.pools.all()]
        return all(ended)
