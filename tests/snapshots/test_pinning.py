"""Which snapshots a leader takes of its own accord, and when it takes none."""

from __future__ import annotations

import json
import threading

import pytest

from jrs.policy import SnapshotPolicy
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.recovery.spark.ending import END_OF_TIME
from jrs.recovery.state import JobState
from jrs.recovery.storage import JobStorage
from tests.recovery.support import FaultyMemory
from tests.snapshots.fabricate import FakeJob, put


@pytest.fixture
def state(memory: FaultyMemory, storage: JobStorage, job: FakeJob) -> JobState:
    while True:
        leader = memory.campaign("m", ttl=10.0, stop=threading.Event())
        assert leader is not None
        if leader.fence.epoch == int(job.epoch.name[1:]):
            break
        leader.resign()
    return JobState(memory, storage, leader.fence, lambda *said: None)


def test_the_newest_are_kept(state: JobState, catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Each pin is one more snapshot, and as many stay as are to be kept."""
    for _ in range(3):
        job.run()
        state.pin("job", SnapshotPolicy(keep=2))

    assert [one.stages[0].batch for one in catalog.list("job")] == [6, 7]


def test_none_behind_the_end(state: JobState, catalog: SnapshotCatalog, job: FakeJob) -> None:
    """N1: at the end of a stream nothing is pinned: the last snapshot that is of use stays."""
    state.pin("job", SnapshotPolicy(keep=1))
    end = json.dumps({"batchWatermarkMs": END_OF_TIME})
    put(job.query.ck / "offsets" / "5", f"v1\n{end}\n" + '{"logOffset":5}')
    state.pin("job", SnapshotPolicy(keep=1))

    assert [(one.number, one.stages[0].batch) for one in catalog.list("job")] == [(1, 4)]
