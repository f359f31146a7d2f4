"""Interleavings: whatever another handle does between two system calls, answers fit one order."""

from __future__ import annotations

import pytest

from jrs.testing.chaos.interleave import NEVER, interleave
from jrs.testing.chaos.interleaved_answers import Call, Condition, is_linearizable


def test_another_handle_acts_between_system_calls() -> None:
    """D: commits, reads, compactions and leaderships of a second handle, between any two system
    calls of the first, leave no answer that no order explains."""
    tally = interleave(seed=1, cases=range(200))

    assert tally.counts["histories"] >= 150
    assert tally.of(NEVER) == dict.fromkeys(NEVER, 0), str(tally)


def write(begun: int, ended: int, expected: bytes | None, value: bytes) -> Call:
    return Call(begun, ended, "w", conditions=[Condition("k", expected, value)])


def read(begun: int, ended: int, value: bytes | None) -> Call:
    return Call(begun, ended, "r", reads={"k": value})


@pytest.mark.parametrize(
    ("calls", "fits"),
    [
        ([write(0, 1, None, b"1"), read(2, 3, b"1")], True),
        ([write(0, 1, None, b"1"), read(2, 3, None)], False),
        ([write(0, 3, None, b"1"), read(1, 2, None)], True),
        ([write(0, 5, None, b"1"), read(1, 2, b"1"), read(3, 4, None)], False),
        ([write(0, 3, None, b"1"), write(1, 2, None, b"2"), read(4, 5, b"2")], False),
        ([write(0, 1, None, b"1"), Call(2, 3, "r", reads={}, scan=True)], False),
        ([Call(0, 1, "w", conditions=[Condition("k", None, b"1")], refused=0)], False),
        ([Call(0, 1, "w", conditions=[Condition("k", None, b"1")], unknown=True),
          read(2, 3, None)], True),
    ],
)  # fmt: skip
def test_what_no_order_explains_is_found(calls: list[Call], fits: bool) -> None:
    """The kit itself: stale reads, lost updates and refusals without a reason are violations."""
    assert is_linearizable(calls, {}) is fits


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_another_handle_acts_for_long() -> None:
    """D: the same, 5,000 histories of it."""
    tally = interleave(seed=2, cases=range(5000))

    assert tally.of(NEVER) == dict.fromkeys(NEVER, 0), str(tally)
