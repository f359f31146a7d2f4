"""The soak: jobs of all kinds end as they must, however often everything is killed and paused."""

from __future__ import annotations

import pytest

from jrs.testing.chaos import Plan, kill, pause
from jrs.testing.chaos.clean import evaluate, plan_of
from jrs.testing.chaos.recorded import Verb
from jrs.testing.chaos.soak import everything, soak


def test_jobs_survive_a_few_seconds_of_faults() -> None:
    """One result each, and nothing is left, after kills and pauses of masters and attempts."""
    nemesis = (
        kill("master", every=4) | pause(3, "master", every=4) | kill("child", every=4)
        | pause(2, "child", every=4)
    )  # fmt: skip
    plan = Plan(seconds=8, seed=1, masters=2, ttl=2.0, timeout=150, nemesis=nemesis)
    outcome = soak(plan, jobs=8, longest=2.0)

    assert outcome.violations == []
    assert len(outcome.run.notes["ended"]) == 8
    assert any(event.f is Verb.STRIKE for event in outcome.run.events)


def test_clean_runs_are_those_of_a_seed() -> None:
    """Backends in turn, and three nemeses each that have a meaning there."""
    plans = [plan_of(1, case, 10.0) for case in range(100)]

    assert plans == [plan_of(1, case, 10.0) for case in range(100)]
    assert [plan.backend[0] for plan in plans[:3]] == ["file", "etcd", "zookeeper"]
    for plan in plans:
        assert len(plan.nemesis.faults) == 3
        assert all(plan.backend[0] in fault.backends for fault in plan.nemesis.faults)
    assert len({str(plan.nemesis) for plan in plans}) > 50


def test_a_clean_run_finds_nothing() -> None:
    tally = evaluate(seed=1, seconds=3.0, jobs=2)(0)

    assert tally.counts["cases"] == tally.counts["file"] == 1
    assert tally.found == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", ["file", "etcd", "zookeeper"])
def test_jobs_survive_ten_minutes_of_faults(backend: str) -> None:
    """The same with four masters, 300 jobs, a full disk, missing descriptors, and servers."""
    plan = Plan(backend=backend, seconds=600, seed=1, masters=4, ttl=5.0, timeout=600,
                nemesis=everything(5.0))  # fmt: skip
    outcome = soak(plan, jobs=300, say=print)

    assert outcome.violations == []
    assert len(outcome.run.notes["ended"]) == 300
