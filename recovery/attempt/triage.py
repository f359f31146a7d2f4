"""What becomes of an attempt whose function raised, as one table. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable

import attrs

from jrs.contract.errors import (
    CannotStartHere,
    Fenced,
    InvalidInput,
    JobHeld,
    OutcomeUnknown,
    TooLarge,
    Unavailable,
)

from .engine import StateLost


class Verdict(enum.Enum):
    """How an attempt ends."""

    PASS_ON = "pass on"
    """The backend, the leader or the host ends it: nothing is recorded of the job."""
    HOLD = "hold"
    """The job cannot resume from its stored state: its stop says so."""
    CANNOT_START = "cannot start"
    """This host lacks what the job needs: another host may have it, or this one later."""
    JVM_DIED = "JVM died"
    """A death: the exception is only a consequence."""
    DIED = "died"
    """A death: the job is tried again, as often as its restart policy allows."""
    FAILED = "failed"
    """The job has a result: FAILED."""


@attrs.frozen
class Row:
    """Exceptions, and what becomes of an attempt that raised one of them."""

    kinds: tuple[type[BaseException], ...]
    verdict: Verdict
    jvm_died: bool = False
    """Only where the JVM of the job's SparkSession died."""
    retried: bool = False
    """Only where the job's restart policy retries exceptions."""


TRIAGE = (
    Row((Fenced, Unavailable, OutcomeUnknown, KeyboardInterrupt), Verdict.PASS_ON),
    Row((JobHeld,), Verdict.HOLD),
    Row((CannotStartHere,), Verdict.CANNOT_START),
    Row((BaseException,), Verdict.JVM_DIED, jvm_died=True),
    Row((StateLost,), Verdict.DIED),
    Row((InvalidInput, TooLarge), Verdict.FAILED),  # The next attempt would raise it as well.
    Row((BaseException,), Verdict.DIED, retried=True),
    Row((BaseException,), Verdict.FAILED),
)
"""The first row that applies decides. `SystemExit` and `CancelledError` are the job's own."""


def triage(error: BaseException, *, jvm_died: Callable[[], bool], retried: bool) -> Verdict:
    """Return what becomes of an attempt that raised `error`.

    Args:
        jvm_died: called at most once, as it may have to wait for the JVM's end.
    """
    return next(
        row.verdict
        for row in TRIAGE
        if isinstance(error, row.kinds)
        and (not row.jvm_died or jvm_died())
        and (not row.retried or retried)
    )
