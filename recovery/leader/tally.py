"""Counting the jobs of a leader by what it does with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..health.facts import Tally
from ..rules.decision import Action
from .attempts import Attempts
from .facts import JobMemory
from .starts import Starts


def tally(jobs: Iterable[JobMemory], attempts: Attempts, starts: Starts) -> Tally:
    """Return how many of the jobs are in which state, as the leader last saw them."""
    decisions = [job.last_reported for job in jobs]
    actions = Counter(one.action for one in decisions if one is not None)
    return Tally(
        running=len(attempts.jobs()),
        queued=starts.queued,
        held=actions[Action.HOLD],
        cleanup=actions[Action.CLEAN_UP],
    )
