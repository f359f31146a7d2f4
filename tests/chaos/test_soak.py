"""The soak: jobs of all kinds end as they must, however often everything is killed and paused."""

from __future__ import annotations

import pytest

from jrs.testing.chaos.soak import Plan, soak


def test_jobs_survive_a_few_seconds_of_faults() -> None:
    """One result each, and nothing is left, after kills and pauses of masters and attempts."""
    wanted = Plan(seconds=8.0, jobs=8, seed=1, masters=2, ttl=2.0, longest=2.0, patience=150.0,
                  nemeses=("kill a master", "pause a master", "kill what a master started",
                           "pause what a master started"))  # fmt: skip
    outcome = soak(wanted)

    assert outcome.violations == []
    assert len(outcome.history.seen) == 8
    assert outcome.history.strikes


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", ["file", "etcd", "zookeeper"])
def test_jobs_survive_ten_minutes_of_faults(backend: str) -> None:
    """The same with four masters, 300 jobs, a full disk, missing descriptors, and servers."""
    outcome = soak(Plan(backend=backend), print)

    assert outcome.violations == []
    assert len(outcome.history.seen) == 300
