"""The tasks of a leader: how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader import leader_task
from jrs.recovery.leader.context import LeaderContext
from jrs.recovery.leader.leader_task import LeaderTask, running
from jrs.testing.contract import lead
from tests.recovery.support import FaultyMemory, leader_context
from tests.support import BOUND


class Task(LeaderTask):
    """Ends once `may_end` has returned."""

    ended = False

    def __init__(self, context: LeaderContext, may_end: Callable[[], object]) -> None:
        super().__init__(context, "jrs-task")
        self._may_end = may_end

    def _run(self) -> None:
        self._over.wait()
        self._may_end()
        self.ended = True


def test_tasks_end_together(
    memory: FaultyMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them waits until another one has ended, or was given up."""
    monkeypatch.setattr(leader_task, "_LEAVE", BOUND)
    with lead(memory) as leadership:
        context = leader_context(leadership, memory, JobStorage(tmp_path, memory.cluster))
        both = threading.Barrier(2, timeout=BOUND)
        tasks = [Task(context, both.wait), Task(context, both.wait)]
        with running(*tasks):
            pass

    assert [task.ended for task in tasks] == [True, True]


def test_tasks_that_hang_are_given_up_together(
    memory: FaultyMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for one of them is the time for all."""
    waited: list[float] = []
    monkeypatch.setattr(LeaderTask, "join", lambda task, deadline: waited.append(deadline.at))
    with lead(memory) as leadership:
        context = leader_context(leadership, memory, JobStorage(tmp_path, memory.cluster))
        with running(*(Task(context, lambda: None) for _ in range(3))):
            pass

    assert len(waited) == 3
    assert len(set(waited)) == 1
