"""Counting the jobs of a leader by what it does with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from jrs.contract.runtime import Runtime

from ..health.facts import Tally
from ..rules.decision import Action
from .attempts import Attempts
from .job_memory import JobMemory
from .starts import Starts


def tally(
    jobs: Mapping[str, JobMemory], attempts: Attempts, starts: Starts, runtime: Runtime
) -> Tally:
    """Return how many of the jobs are in which state, as the leader last saw them."""
    # The leader's loop changes them meanwhile: each is read once.
    now, clock = runtime.now(), runtime.clock()
    decisions = [job.last_reported for job in jobs.values()]
    actions = Counter(one.action for one in decisions if one is not None)
    oldest = min(filter(None, [job.cleanup.dirty_since for job in jobs.values()]), default=now)
    running = attempts.jobs()
    due = [job.snapshot.due_at for job_id, job in jobs.items() if job_id in running]
    return Tally(
        running=len(running),
        queued=starts.queued,
        oldest_queued=starts.oldest,
        held=actions[Action.HOLD],
        cleanup=actions[Action.CLEAN_UP],
        oldest_cleanup=max(0.0, now - oldest),
        snapshot_overdue=max(
            (clock - at for at in due if at is not None and at < clock), default=0.0
        ),
    )
