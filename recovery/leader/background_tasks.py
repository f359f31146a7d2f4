"""Background tasks: slow actions that run in a pool and report back to the dispatcher's thread.

A task that failed is not repeated at once, but after a delay that grows with each failure of the
same kind for the same job. Other kinds are not delayed: a job that cannot start is canceled at
once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced, OutcomeUnknown, Unavailable
from jrs.contract.pool import Pool
from jrs.contract.runtime import Runtime

from ..processes.pools import Pools
from ..rules.decision import Action
from .agenda import Agenda
from .job_memory import Failing, JobMemory, Step
from .loop import TICK, Loop

LONGEST = 30.0
"""Seconds before a failed task is tried again, at most."""

T = TypeVar("T")


class BackgroundTasks:
    """The tasks of one leadership; used by its dispatcher's thread.

    Args:
        fenced: called at once, from any thread, when a newer leader exists.
        failed: called on the dispatcher's thread when a task has failed, with its job, the
            error, and the seconds until it is repeated.
    """

    def __init__(
        self,
        runtime: Runtime,
        loop: Loop,
        agenda: Agenda,
        *,
        fenced: Callable[[Fenced], None],
        failed: Callable[[str, BaseException, float], None],
    ) -> None:
        self.pools = Pools.of(runtime)
        self._loop = loop
        self._agenda = agenda
        self._fenced = fenced
        self._failed = failed
        self._clock = runtime.clock

    def run(
        self,
        pool: Pool,
        job_id: str,
        job: JobMemory,
        action: Action | Step,
        work: Callable[[], T],
        then: Callable[[T], None] = lambda found: None,
        *,
        pins: bool = False,
    ) -> None:
        """Run `work` in a pool, then `then` with its return value on the dispatcher's thread.

        The job is not checked meanwhile, unless the work only `pins` it; it is checked afterwards.

        Args:
            action: what the work carries out.
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
            self.has_worked(job, action)
            then(found)

        def run() -> None:
            try:
                found = work()
            except BaseException as error:  # Includes `sys.exit` in users' code.
                if isinstance(error, Fenced):
                    self._fenced(error)
                failed = error
                come_back(lambda: self.put_off(job_id, job, action, failed))
            else:
                come_back(lambda: succeeded(found))

        under_way(True)
        try:
            pool.submit(run)
        except RuntimeError as error:  # No thread for it: as if the work had raised that.
            under_way(False)
            self.put_off(job_id, job, action, error)

    def has_worked(self, job: JobMemory, action: Action | Step) -> None:
        """Forget that it has failed."""
        job.failing.pop(action, None)

    def may_try(self, job: JobMemory, action: Action | Step) -> bool:
        """Return whether an action may be tried: it has not failed, or its delay has passed."""
        failing = job.failing.get(action)
        return failing is None or self._clock() >= failing.until

    def put_off(
        self, job_id: str, job: JobMemory, action: Action | Step, error: BaseException
    ) -> None:
        """Try a failed action again later; the delay grows with the number of its failures."""
        before = job.failing.get(action)
        times = 1 if before is None else before.times + 1
        passes = isinstance(error, (Unavailable, OutcomeUnknown))
        delay = TICK if passes else min(LONGEST, TICK * 2 ** min(times - 1, 10))
        self._try_later(job_id, job, action, times, delay)
        self._failed(job_id, error, delay)

    def rest(self, job_id: str, job: JobMemory, action: Action) -> None:
        """Try an action that did not fail again a little later: another process works on it."""
        self._try_later(job_id, job, action, 0, TICK)

    def _try_later(
        self, job_id: str, job: JobMemory, action: Action | Step, times: int, delay: float
    ) -> None:
        job.failing[action] = failing = Failing(times, self._clock() + delay)
        self._agenda.at(failing.until, job_id, f"failing {action}")

    def close(self, deadline: Deadline) -> bool:
        """Begin no further task; return whether all tasks in progress have ended."""
        for pool in self.pools.all():
            pool.close()
        ended = [pool.join(deadline) for pool in self.pools.all()]
        return all(ended)
