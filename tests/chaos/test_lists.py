"""Clients that append to lists of real backends while they are killed and cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.testing.chaos import (
    Plan,
    World,
    kill,
    linearizable,
    list_append,
    outcomes,
    partition,
    pause,
    serializable,
)
from jrs.testing.chaos.checking.lists import items_of
from jrs.testing.chaos.recorded import Kind, Verb
from tests.chaos.page import run_example, save_examples

CHECKS = (list_append, linearizable, serializable, outcomes)


@pytest.mark.parametrize("backend", ["file", "etcd", "zookeeper"])
def test_appends_under_faults(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """What is asked for is counted, and not the seconds: a busy machine gets another turn."""
    server = None if backend == "file" else request.getfixturevalue(f"{backend}_server")
    nemesis = kill("driver", every=1.5) | pause(0.3, "driver", every=2) | partition("one", 0.5)
    for turn in range(6):
        plan = Plan(masters=0, backend=backend, seconds=5, seed=3 + turn, nemesis=nemesis)
        with World(plan, backend, tmp_path / f"run-{turn}", server=server) as world:
            world.append(programs=4)
            run = world.check(*CHECKS)
        commits = [call for call in run.calls if call.f is Verb.COMMIT and call.type is Kind.OK]
        lists = items_of(run.calls)
        strikes = sum(event.f is Verb.STRIKE for event in run.events)
        large = sum(len(call.value) > 1 for call in commits)
        if len(lists) >= 10 and strikes >= 3 and large >= 50:
            break

    assert len(lists) >= 10
    assert strikes >= 3
    assert large >= 50
    print(f"{backend}: {len(run.calls)} operations, {len(commits)} commits, {len(lists)} lists")


def test_the_example(tmp_path: Path) -> None:
    """The page's clients of lists, for a shorter time."""
    save_examples(tmp_path)
    status, printed = run_example(
        tmp_path, "test_lists.py::test_lists[file]", "--chaos-seconds", "4"
    )

    assert status == 0, printed
