"""Power cuts: whatever the disk has lost of what was not synced, nothing acknowledged is gone."""

from __future__ import annotations

import random
from pathlib import Path

import attrs
import pytest

from jrs.testing.chaos.crashes import crashes
from jrs.testing.chaos.disk import Event, Sync
from jrs.testing.chaos.powercut import NEVER, evaluate, lay_out, simulate
from jrs.testing.chaos.workload import record


def test_a_power_cut_takes_nothing_that_was_acknowledged() -> None:
    """D3: every state in which a power cut may leave the disk opens, holds what was acknowledged,
    and is no damage."""
    tally = simulate(seed=1, cases=range(3), most=12)

    assert tally.counts["states"] >= 500
    assert tally.of(NEVER) == dict.fromkeys(NEVER, 0), str(tally)


def test_a_disk_that_never_synced_is_found_out(tmp_path: Path) -> None:
    """The kit itself: were no sync ever carried out, acknowledged commits would be lost."""
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    history = record(random.Random(5), recorded)
    events: list[Event] = [event for event in history.events if not isinstance(event, Sync)]
    unsynced = attrs.evolve(history, events=events)
    kinds: set[str] = set()
    for number, crash in enumerate(crashes(events[:90], random.Random(5), 4)):
        root = tmp_path / str(number)
        lay_out(crash.tree, root)
        kinds.update(kind for kind, _ in evaluate(root, crash, unsynced))

    assert "lost" in kinds


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_power_cut_takes_nothing_for_long() -> None:
    """D3: the same, 20,000 states of it and more."""
    tally = simulate(seed=2, cases=range(40))

    assert tally.counts["states"] >= 20_000
    assert tally.of(NEVER) == dict.fromkeys(NEVER, 0), str(tally)
