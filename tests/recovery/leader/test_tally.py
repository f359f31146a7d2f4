"""What a leader counts of its jobs, for the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
import tenacity

from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.model import JobSpec
from jrs.records.policies import SnapshotPolicy
from jrs.recovery.cleanup.policy import CleanupPolicy
from jrs.recovery.leader.actions import Actions
from jrs.store.jobs import JobCatalog
from tests.recovery.support import FaultyMemory, Leader, Thing, put, result, spec
from tests.support import FakeClock, until

NOW = 10_000.0


def test_how_long_the_oldest_result_has_been_dirty(memory: FaultyMemory, root: Path) -> None:
    """It counts from the end of the job, for every leader alike, and is over with the cleanup."""
    for name, finished_at in (("young", NOW - 60.0), ("old", NOW - 3600.0), ("clean", 1.0)):
        put(memory, keys.RESULTS + name, result(name, finished_at=finished_at))
    for name in ("young", "old"):
        memory.commit(Create(keys.DIRTY + name, b""))
    stuck = Thing("stuck")
    stuck.broken = OSError("no such bucket")
    policy = CleanupPolicy(tenacity.wait_fixed(0.01))
    for candidate in ("m1", "m2"):
        with Leader(
            memory, root, resources=[stuck], policy=policy, now=lambda: NOW, candidate=candidate
        ) as leader:
            tally = leader.dispatcher.tally
            until(lambda: tally().cleanup == 2, "both are being cleaned up")  # noqa: B023

            assert tally().oldest_cleanup == 3600.0

            if candidate == "m2":
                stuck.broken = None
                leader.until_clean("young", "old")
                until(lambda: tally().oldest_cleanup == 0.0, "nothing is dirty")  # noqa: B023


def test_how_long_a_snapshot_is_overdue(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts from when the first try was due, whatever has kept that and later ones."""
    clock, tries = FakeClock(), list[int]()

    def take_scheduled_snapshot(actions: Actions, of_job: JobSpec, failures: int) -> float | None:
        tries.append(failures)
        return None if len(tries) < 3 else 100.0

    monkeypatch.setattr(Actions, "take_scheduled_snapshot", take_scheduled_snapshot)
    with Leader(memory, root, clock=clock) as leader:
        tally = leader.dispatcher.tally
        JobCatalog(memory).submit(spec("job", snapshots=SnapshotPolicy(every=100.0)))
        leader.runner.of("job")
        snapshot = leader.dispatcher._jobs["job"].snapshot
        until(lambda: snapshot.at is not None, "the snapshot is planned")
        assert tally().snapshot_overdue == 0.0
        due_at = snapshot.due_at
        assert due_at is not None
        for waits in (100.0, 60.0, 100.0):
            before = len(tries)
            clock.now += waits
            leader.look()
            until(lambda: len(tries) > before, "it is tried")  # noqa: B023
            until(lambda: (snapshot.at or 0.0) > clock.now, "it is planned again")
            if len(tries) < 3:
                assert tally().snapshot_overdue == clock.now - due_at
        assert tries == [0, 1, 2]
        assert tally().snapshot_overdue == 0.0
