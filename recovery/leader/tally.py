"""Counting the jobs of a leader by what it does with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from ..health.facts import Tally
from ..rules.decision import Action
from .attempts import Attempts
from .job_memory import JobMemory
from .starts import Starts


def tally(jobs: Collection[JobMemory], attempts: Attempts, starts: Starts, now: float) -> Tally:
    """Return how many of the jobs are in which state, as the leader last saw them.

    Args:
        now: in seconds since 1970.
    """
    # The leader's loop changes them meanwhile: each is read once.
    decisions = [job.last_reported for job in jobs]
    actions = Counter(one.action for one in decisions if one is not None)
    oldest = min(filter(None, [job.cleanup.dirty_since for job in jobs]), default=now)
    return Tally(
        running=len(attempts.jobs()),
        queued=starts.queued,
        held=actions[Action.HOLD],
        cleanup=actions[Action.CLEAN_UP],
        oldest_cleanup=max(0.0, now - oldest),
    )
