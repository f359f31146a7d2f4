"""What the history says of attempts as runs: each starts once and ends once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jrs.records.history import HistoryEvent, HistoryKind
from jrs.recovery.rules.lineage_runs import LEFT, RunEvent, RunState, advance, run_id
from jrs.store.history_texts import (
    attempt_died,
    attempt_interrupted,
    attempt_started,
    hold_text,
)

K = HistoryKind


def event(kind: HistoryKind, text: str = "", attempt: int = 0, at: float = 1.0) -> HistoryEvent:
    return HistoryEvent("j", "w.000000", kind.value, at, "m", text, 1, attempt)


def started(attempt: int) -> HistoryEvent:
    return event(K.ATTEMPT, attempt_started(attempt))


def died(attempt: int) -> HistoryEvent:
    return event(K.DIED, attempt_died(attempt, "exit 9"))


def told(*events: HistoryEvent) -> list[tuple[str, int, str]]:
    running: dict[str, int] = {}
    return [
        (one.state.value, one.attempt, one.why) for each in events for one in advance(running, each)
    ]


FINISHED = event(K.ENDED, "FINISHED", 1)
FAILED = event(K.ENDED, "FAILED: ValueError: no good", 1)
BY_LEADER = event(K.ENDED, "FAILED: no attempts are left")
CANCELED = event(K.ENDED, "CANCELED: canceled on request")
FINISHED_LATER = event(K.ENDED, "FINISHED", 2)
INTERRUPTED = event(K.INTERRUPTED, attempt_interrupted(1, "/e1/s.1: the disk is full"))
SUSPENDED = event(K.SUSPENDED, "suspended")
START = ("START", 1, "")
FAIL = ("FAIL", 1, "exit 9")


@pytest.mark.parametrize(
    ("events", "says"),
    [
        pytest.param([started(1), FINISHED], [START, ("COMPLETE", 1, "")], id="finished"),
        pytest.param([started(1), FAILED], [START, ("FAIL", 1, "ValueError: no good")], id="f"),
        pytest.param([started(1), died(1), BY_LEADER], [START, FAIL], id="died"),
        pytest.param(
            [started(1), CANCELED], [START, ("ABORT", 1, "canceled on request")], id="canceled"
        ),
        pytest.param(
            [started(1), INTERRUPTED, started(2), FINISHED_LATER],
            [
                START,
                ("ABORT", 1, "/e1/s.1: the disk is full"),
                ("START", 2, ""),
                ("COMPLETE", 2, ""),
            ],
            id="interrupted",
        ),
        pytest.param(
            [INTERRUPTED], [START, ("ABORT", 1, "/e1/s.1: the disk is full")], id="start swept"
        ),
        pytest.param([started(1), SUSPENDED], [START, ("ABORT", 1, "suspended")], id="suspended"),
        pytest.param(
            [started(1), SUSPENDED, CANCELED],
            [START, ("ABORT", 1, "suspended")],
            id="suspended, then canceled",
        ),
        pytest.param(
            [started(1), event(K.STOP, hold_text("no code"), 1), CANCELED],
            [START, ("FAIL", 1, "held: no code")],
            id="held",
        ),
        pytest.param(
            [started(1), event(K.STOP, "a suspend was requested: held up"), FINISHED],
            [START, ("COMPLETE", 1, "")],
            id="asked to stop",
        ),
        pytest.param(
            [started(1), started(2)], [START, ("ABORT", 1, LEFT), ("START", 2, "")], id="failover"
        ),
        pytest.param(
            [started(1), started(1), FINISHED], [START, ("COMPLETE", 1, "")], id="not here"
        ),
        pytest.param([CANCELED], [], id="no attempt"),
        pytest.param([SUSPENDED, BY_LEADER], [], id="suspended in the queue"),
        pytest.param(
            [event(K.ENDED, "FINISHED", 3)],
            [("START", 3, ""), ("COMPLETE", 3, "")],
            id="its start was swept",
        ),
        pytest.param([started(2), started(1), died(1)], [("START", 2, "")], id="read again"),
        pytest.param([started(1), event(K.OTHER, "attempt 7 died: x")], [START], id="unknown"),
        pytest.param([event(K.ATTEMPT, "garbled")], [], id="garbled"),
        pytest.param([started(1), event(K.STAGE, "stage a finished", 1)], [START], id="stage"),
    ],
)
def test_what_events_say(events: list[HistoryEvent], says: list[tuple[str, int, str]]) -> None:
    """Which steps of runs the events of a job stand for."""
    assert told(*events) == says


EVENTS = st.one_of(
    st.integers(1, 4).map(started),
    st.integers(1, 4).map(died),
    st.sampled_from([FINISHED, FAILED, BY_LEADER, CANCELED, SUSPENDED]),
)


@given(st.lists(EVENTS, max_size=12))
def test_starts_and_ends_alternate(events: list[HistoryEvent]) -> None:
    """Whatever the order of events: a run starts, then it ends, and then the next one starts."""
    found = told(*events)

    assert all((one[0] == "START") != (two[0] == "START") for one, two in pairwise(found))
    assert all(one[1] == two[1] for one, two in zip(found[::2], found[1::2], strict=False))


def test_the_id_of_a_run() -> None:
    """It is a function of cluster, job and attempt; it must never change."""
    assert run_id("c", "j", 1) == run_id("c", "j", 1)
    assert len({run_id(*one) for one in [("c", "j", 1), ("c", "j", 2), ("d", "j", 1)]}) == 3
    assert run_id("etl", "nightly", 1) == "61d09cad-b7a2-501c-b830-935d3a1dc14a"


def test_the_moment_is_that_of_the_history() -> None:
    """An event has no other clock."""
    (one,) = advance({}, event(K.ATTEMPT, attempt_started(1), at=5.0))

    assert one == RunEvent(RunState.START, "j", 1, 5.0)
