"""The table of what becomes of an attempt whose function raised."""

from __future__ import annotations

import asyncio

import pytest

from jrs.contract.errors import (
    CannotStartHere,
    Fenced,
    InvalidInput,
    JobHeld,
    OutcomeUnknown,
    TooLarge,
    Unavailable,
)
from jrs.recovery.attempt.engine import StateLost
from jrs.recovery.attempt.triage import TRIAGE, Verdict, triage

ALWAYS = {
    Fenced("x"): Verdict.PASS_ON,
    Unavailable("x"): Verdict.PASS_ON,
    OutcomeUnknown("x"): Verdict.PASS_ON,
    KeyboardInterrupt(): Verdict.PASS_ON,
    JobHeld("x"): Verdict.HOLD,
    CannotStartHere("x"): Verdict.CANNOT_START,
}
OTHERS = {
    StateLost("x"): (Verdict.DIED, Verdict.DIED),
    InvalidInput("x"): (Verdict.FAILED, Verdict.FAILED),
    TooLarge("x"): (Verdict.FAILED, Verdict.FAILED),
    ValueError("x"): (Verdict.FAILED, Verdict.DIED),
    SystemExit(3): (Verdict.FAILED, Verdict.DIED),
    asyncio.CancelledError(): (Verdict.FAILED, Verdict.DIED),
}


def name_of(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize("error", ALWAYS, ids=name_of)
@pytest.mark.parametrize("retried", [False, True])
def test_what_is_not_the_jobs_own(error: BaseException, retried: bool) -> None:
    """Nobody asks whether the JVM died: that may take seconds."""

    def unasked() -> bool:
        raise AssertionError

    assert triage(error, jvm_died=unasked, retried=retried) is ALWAYS[error]


@pytest.mark.parametrize("error", OTHERS, ids=name_of)
@pytest.mark.parametrize("retried", [False, True])
def test_what_the_function_raises(error: BaseException, retried: bool) -> None:
    """The policy decides, but for what the next attempt would raise as well."""
    expected = OTHERS[error][retried]

    assert triage(error, jvm_died=lambda: False, retried=retried) is expected
    assert triage(error, jvm_died=lambda: True, retried=retried) is Verdict.JVM_DIED


def test_every_row_decides_something() -> None:
    """No row is hidden by an earlier one, and the last one applies to everything."""
    cases = [(error, died, retried) for error in (*ALWAYS, *OTHERS)
             for died in (False, True) for retried in (False, True)]  # fmt: skip
    seen = set()
    for error, died, retried in cases:
        for number, row in enumerate(TRIAGE):
            if isinstance(error, row.kinds) and died >= row.jvm_died and retried >= row.retried:
                seen.add(number)
                break

    assert seen == set(range(len(TRIAGE)))
