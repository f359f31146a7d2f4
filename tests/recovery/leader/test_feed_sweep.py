"""The leader's thread that keeps the feed of the history bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.contract.operations import Fence
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader import feed_sweep
from jrs.recovery.leader.feed_sweep import FeedSweep
from jrs.recovery.leader.leader_task import running
from jrs.store import feed
from jrs.testing.contract import lead
from tests.recovery.support import FaultyMemory, leader_context
from tests.support import until


def test_what_keeps_it_from_sweeping_is_said_once(
    memory: FaultyMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries again each time; that the backend does not answer is said by others."""
    passes = list[bool]()

    def sweep(backend: Backend, fence: Fence) -> int:
        passes.append(True)
        if len(passes) % 2:
            raise Unavailable("no answer")
        raise CorruptRecord("feed/x: held")

    monkeypatch.setattr(feed, "sweep", sweep)
    monkeypatch.setattr(feed_sweep, "_PAUSE", 0.001)
    said = list[str]()
    with lead(memory) as leadership:
        storage, report = (
            JobStorage(tmp_path, memory.cluster),
            lambda event: said.append(event.message),
        )
        context = leader_context(leadership, memory, storage, report=report)
        with running(FeedSweep(context)):
            until(lambda: len(passes) > 5, "it has tried often")

    assert said == [
        "the feed of the history cannot be swept: CorruptRecord: feed/x: held; trying again"
    ]
