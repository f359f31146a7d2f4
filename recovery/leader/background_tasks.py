"""Background tasks: slow actions that run in a pool and report back to the dispatcher's thread.

A task that failed is not repeated at once, but after a delay that grows with each failure of the
same kind for the same job, though not while the backend is away: everything continues once it is
back. Other kinds are not delayed: a job that cannot start is canceled at once. A failure that stays
the same is said ever more rarely.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced, OutcomeUnknown, Unavailable
from jrs.contract.pool import Pool
from jrs.contract.texts import error_text

from ..processes.pools import Pools
from ..rules.decision import Action
from .agenda import Agenda
from .context import LeaderContext
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
            error, and what to say of it, which may be nothing.
    """

    def __init__(
        self,
        context: LeaderContext,
        loop: Loop,
        agenda: Agenda,
        *,
        fenced: Callable[[Fenced], None],
        failed: Callable[[str, BaseException, str], None],
    ) -> None:
        self.pools = Pools.of(context.runtime)
        self._loop = loop
        self._agenda = agenda
        self._fenced = fenced
        self._failed = failed
        self._health = context.health
        self._clock = context.runtime.clock

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
        before, now, said = job.failing.get(action), self._clock(), error_text(error)
        tries = doublings = 0
        if before is not None and before.tries:
            tries, doublings = before.tries, before.doublings
            away = isinstance(error, (Unavailable, OutcomeUnknown))
            if not away or self._health.has_answered(before.at):
                doublings = min(doublings + 1, 10)
        tries += 1
        delay = min(LONGEST, TICK * 2**doublings)
        self._try_later(job_id, job, action, Failing(now, now + delay, tries, doublings, said))
        is_news = before is None or said != before.said or tries.bit_count() == 1
        self._failed(job_id, error, f"{said}; trying again in {delay:g} s" if is_news else "")

    def rest(self, job_id: str, job: JobMemory, action: Action) -> None:
        """Try an action that did not fail again a little later: another process works on it."""
        now = self._clock()
        self._try_later(job_id, job, action, Failing(now, now + TICK))

    def _try_later(
        self, job_id: str, job: JobMemory, action: Action | Step, failing: Failing
    ) -> None:
        job.failing[action] = failing
        self._agenda.at(failing.until, job_id, f"failing {action}")

    def close(self, deadline: Deadline) -> bool:
        """Begin no further task; return whether all tasks in progress have ended."""
        for pool in self.pools.all():
            pool.close()
        ended = [pool.join(deadline) for pool in self.pools.all()]
        return all(ended)
