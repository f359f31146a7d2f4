"""What counts as a failure without any fault."""

from __future__ import annotations

import time

from jrs.testing.chaos.trials import Trials


def test_only_failures_without_any_fault_count() -> None:
    """One that was hurt, began before the fault was over, or was not seen to begin, says nothing
    of what failed."""
    trials, quiet_since = Trials(), float("inf")
    trials.watch(lambda: quiet_since)
    for _ in range(9):  # While a fault hurts something.
        trials.begins("job")
        trials.fails("job")
    trials.begins("job")
    quiet_since = time.monotonic()
    for _ in range(9):
        trials.fails("job")
    assert trials.failing() == {}

    for _ in range(9):
        trials.begins("job")
        trials.fails("job")
        trials.begins("other")
    assert trials.failing() == {"job": 9}
