"""`decide` against the table of the design, over the whole product of its facts."""

from __future__ import annotations

from itertools import product

import pytest

from jrs.recovery.rules.decision import Action, Attempt, Facts, Result, Spec, Stop, decide

ANY = object()

# spec, result, attempt, cancel, stop, startable, turn, lost -> action; the first row that fits
# counts.
# The rows with a blank in the design's table ("–") have ANY there.
TABLE = [
    ((ANY, Result.UNREADABLE, ANY, ANY, ANY, ANY, ANY, ANY), Action.HOLD),
    ((Spec.UNREADABLE, Result.NONE, ANY, False, ANY, ANY, ANY, ANY), Action.HOLD),
    ((Spec.UNREADABLE, Result.NONE, ANY, True, ANY, ANY, ANY, ANY), Action.CANCEL),
    ((ANY, Result.CLEAN, ANY, ANY, ANY, ANY, ANY, ANY), Action.SKIP),
    ((ANY, Result.EXPIRED, ANY, ANY, ANY, ANY, ANY, ANY), Action.SKIP),
    ((ANY, Result.DIRTY, ANY, ANY, ANY, ANY, ANY, ANY), Action.CLEAN_UP),
    ((Spec.NONE, Result.NONE, ANY, ANY, ANY, ANY, ANY, ANY), Action.NOTHING),
    ((Spec.RESTORING, Result.NONE, ANY, False, ANY, ANY, ANY, ANY), Action.RESTORE),
    ((Spec.RESTORING, Result.NONE, ANY, True, ANY, ANY, ANY, ANY), Action.CANCEL),
    # From here on there is a spec and no result. Canceling overrides a stop, and a stop
    # comes before all else.
    ((Spec.READABLE, Result.NONE, ANY, True, ANY, ANY, ANY, ANY), Action.CANCEL),
    ((Spec.APPLICATION, Result.NONE, ANY, True, ANY, ANY, ANY, ANY), Action.CANCEL),
    ((Spec.APPLICATION, Result.NONE, ANY, False, ANY, ANY, ANY, ANY), Action.WAIT),
    ((Spec.READABLE, Result.NONE, ANY, False, ANY, ANY, ANY, True), Action.CANCEL),
    ((Spec.READABLE, Result.NONE, ANY, False, Stop.UNREADABLE, ANY, ANY, ANY), Action.HOLD),
    ((Spec.READABLE, Result.NONE, Attempt.RUNNING, False, Stop.ASKED, ANY, ANY, ANY), Action.LEAVE),
    ((Spec.READABLE, Result.NONE, ANY, False, Stop.ASKED, ANY, ANY, ANY), Action.SUSPEND),
    ((Spec.READABLE, Result.NONE, ANY, False, Stop.QUIESCED, ANY, ANY, ANY), Action.SUSPEND),
    (
        (Spec.READABLE, Result.NONE, Attempt.RUNNING, False, Stop.SUSPENDED, ANY, ANY, ANY),
        Action.SUSPEND,
    ),
    (
        (Spec.READABLE, Result.NONE, Attempt.RUNNING, False, Stop.HELD, ANY, ANY, ANY),
        Action.SUSPEND,
    ),
    ((Spec.READABLE, Result.NONE, ANY, False, Stop.HELD, ANY, ANY, ANY), Action.HOLD),
    ((Spec.READABLE, Result.NONE, ANY, False, Stop.SUSPENDED, ANY, ANY, ANY), Action.WAIT),
    ((Spec.READABLE, Result.NONE, Attempt.RUNNING, False, ANY, ANY, ANY, ANY), Action.LEAVE),
    ((Spec.READABLE, Result.NONE, Attempt.OVERTIME, False, ANY, ANY, ANY, ANY), Action.TIME_OUT),
    ((Spec.READABLE, Result.NONE, Attempt.TIMED_OUT, False, ANY, ANY, ANY, ANY), Action.FAIL),
    ((Spec.READABLE, Result.NONE, Attempt.SPENT, False, ANY, ANY, ANY, ANY), Action.FAIL),
    ((Spec.READABLE, Result.NONE, Attempt.BACKING_OFF, False, ANY, ANY, ANY, ANY), Action.WAIT),
    ((Spec.READABLE, Result.NONE, Attempt.UNHEARD, False, ANY, ANY, ANY, ANY), Action.WAIT),
    ((Spec.READABLE, Result.NONE, Attempt.UNSTARTABLE, False, ANY, ANY, ANY, ANY), Action.HOLD),
    ((Spec.READABLE, Result.NONE, Attempt.NONE, False, ANY, False, ANY, ANY), Action.WAIT),
    ((Spec.READABLE, Result.NONE, Attempt.NONE, False, ANY, True, False, ANY), Action.WAIT),
    ((Spec.READABLE, Result.NONE, Attempt.NONE, False, ANY, True, True, ANY), Action.RECOVER),
]
EITHER = (False, True)
PRODUCT = list(product(Spec, Result, Attempt, EITHER, Stop, EITHER, EITHER, EITHER))


def by_table(facts: tuple[object, ...]) -> Action:
    for row, action in TABLE:
        if all(wanted is ANY or wanted is fact for wanted, fact in zip(row, facts, strict=True)):
            return action
    raise AssertionError(f"the table has no row for {facts}")


def test_every_combination_of_facts_is_decided_as_the_table_says() -> None:
    """The decision is total, and the table's, for each of the 19,200 combinations of facts."""
    assert len(PRODUCT) == 5 * 5 * 8 * 2 * 6 * 2 * 2 * 2

    wrong = {
        facts: decision.action
        for facts in PRODUCT
        if (decision := decide(Facts(*facts))).action is not by_table(facts)
    }

    assert wrong == {}


@pytest.mark.parametrize(("row", "action"), TABLE)
def test_every_row_of_the_table_is_reached(row: tuple[object, ...], action: Action) -> None:
    """No row is hidden by those before it, so each is proved by the product above."""
    fits = [
        facts
        for facts in PRODUCT
        if all(wanted is ANY or wanted is fact for wanted, fact in zip(row, facts, strict=True))
    ]

    assert any(by_table(facts) is action for facts in fits)


def test_nothing_with_a_result_is_ever_started() -> None:
    """J6: whatever else is known, a result of any kind, also one that cannot be read, rules out a
    start."""
    started = {decide(Facts(*facts)).action for facts in PRODUCT if facts[1] is not Result.NONE}

    assert started == {Action.HOLD, Action.SKIP, Action.CLEAN_UP}


def test_a_cancel_overrides_every_stop() -> None:
    """S5, B14: whatever stop a job without a result is asked for, however far that has come, and
    whether its spec can be read or not, a cancel is decided."""
    asked = [
        facts
        for facts in (Facts(*each) for each in PRODUCT)
        if facts.cancel and facts.result is Result.NONE and facts.spec is not Spec.NONE
    ]

    assert {facts.stop for facts in asked} == set(Stop)
    assert {decide(facts).action for facts in asked} == {Action.CANCEL}


def test_every_decision_has_a_reason_that_names_no_internals() -> None:
    """Each reason is a sentence for people: it is there, and speaks of no enum."""
    reasons = {decide(Facts(*facts)).reason for facts in PRODUCT}

    assert all(reason and "." not in reason for reason in reasons)


def test_a_swept_spec_is_named_in_the_reason() -> None:
    """Skipping over a left-over spec says that the spec is swept; without one it does not."""
    with_spec = decide(Facts(spec=Spec.READABLE, result=Result.CLEAN))
    without = decide(Facts(spec=Spec.NONE, result=Result.CLEAN))

    assert "swept" in with_spec.reason
    assert "swept" not in without.reason


def test_a_pause_keeps_jobs_from_starting_and_nothing_else() -> None:
    """While the cluster is paused, a start becomes a wait, and every other decision is the same."""
    changed = {
        (before, after)
        for each in PRODUCT
        if (before := decide(Facts(*each)).action)
        is not (after := decide(Facts(*each, paused=True)).action)
    }

    assert changed == {(Action.RECOVER, Action.WAIT)}
