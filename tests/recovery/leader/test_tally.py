"""What a leader counts of its jobs, for the metrics."""

from __future__ import annotations

from pathlib import Path

import tenacity

from jrs.contract.operations import Create
from jrs.records import keys
from jrs.recovery.cleanup.policy import CleanupPolicy
from tests.recovery.support import FaultyMemory, Leader, Thing, put, result
from tests.support import until

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
