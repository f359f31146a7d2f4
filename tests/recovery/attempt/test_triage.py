"""The table of what becomes of an attempt whose function raised."""

from __future__ import annotations

import asyncio
import itertools
import operator

import pytest

from jrs.contract.errors import (
    CannotStartHere,
    CorruptRecord,
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
    Unavailable("x"): Verdict.INTERRUPTED,
    OutcomeUnknown("x"): Verdict.INTERRUPTED,
    KeyboardInterrupt(): Verdict.PASS_ON,
    JobHeld("x"): Verdict.HOLD,
    CorruptRecord("x"): Verdict.HOLD,
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

    assert triage(error, jvm_died=unasked, retried=retried) == (ALWAYS[error], error)


@pytest.mark.parametrize("error", OTHERS, ids=name_of)
@pytest.mark.parametrize("retried", [False, True])
def test_what_the_function_raises(error: BaseException, retried: bool) -> None:
    """The policy decides, but for what the next attempt would raise as well."""
    expected = OTHERS[error][retried]

    assert triage(error, jvm_died=lambda: False, retried=retried) == (expected, error)
    assert triage(error, jvm_died=lambda: True, retried=retried) == (Verdict.JVM_DIED, error)


@pytest.mark.parametrize("error", [Unavailable("x"), OutcomeUnknown("x")], ids=name_of)
@pytest.mark.parametrize("retried", [False, True])
def test_what_the_functions_own_clients_raise(error: BaseException, retried: bool) -> None:
    """A job whose function asks a server that never answers does not run forever."""

    def verdict(*, jvm_died: bool) -> Verdict:
        found, _ = triage(
            error, jvm_died=lambda: jvm_died, retried=retried, of_jrs=lambda *_: False
        )
        return found

    assert verdict(jvm_died=False) is Verdict.DIED
    assert verdict(jvm_died=True) is Verdict.JVM_DIED


@pytest.mark.parametrize("retried", [False, True])
def test_a_record_that_the_functions_own_client_cannot_read(retried: bool) -> None:
    """It is of another cluster: nothing of this one is unreadable."""
    found, _ = triage(
        CorruptRecord("x"), jvm_died=lambda: False, retried=retried, of_jrs=lambda *_: False
    )

    assert found is (Verdict.DIED if retried else Verdict.FAILED)


def test_the_strongest_error_of_a_group_decides() -> None:
    """Of whatever depth: the errors of what ran side by side count like one alone."""
    away, held, own = Unavailable("x"), JobHeld("x"), ValueError("x")

    def verdict_of(*errors: Exception) -> tuple[Verdict, BaseException]:
        nested = ExceptionGroup("outer", [own, ExceptionGroup("inner", errors)])
        return triage(nested, jvm_died=lambda: False, retried=False)

    assert verdict_of(away) == (Verdict.INTERRUPTED, away)
    assert verdict_of(away, held) == (Verdict.HOLD, held)
    assert verdict_of(own) == (Verdict.FAILED, own)


def test_every_row_decides_something() -> None:
    """No row is hidden by an earlier one, and the last one applies to everything."""
    both = (False, True)
    cases = itertools.product((*ALWAYS, *OTHERS), both, both, both)
    seen = set()
    for error, died, retried, of_jrs in cases:
        for number, row in enumerate(TRIAGE):
            asked = (row.jvm_died, row.retried, row.of_jrs)
            found = (died, retried, of_jrs)
            if isinstance(error, row.kinds) and all(map(operator.ge, found, asked)):
                seen.add(number)
                break

    assert seen == set(range(len(TRIAGE)))
