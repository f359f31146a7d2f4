"""What becomes of an attempt whose function raised, as one table; and the calls of the
user's functions."""

from __future__ import annotations

import enum
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import ParamSpec, TypeVar

import attrs

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

from .engine import StateLost
from .launch import EXIT_DIED

INTERRUPTIONS = (Unavailable, OutcomeUnknown, CorruptRecord, JobHeld)
"""What `run_attempt` raises where a call of jrs's own has failed, or where the job is held: that is
no death, even if the job was resumed since. It turns the job's own exceptions into others."""

P = ParamSpec("P")
T = TypeVar("T")

_OWN = ("jrs.recovery.attempt.", "jrs.recovery.spark.")
"""The rooms of what serves a job's function while it runs."""
_OF_OTHERS = ("jrs.recovery.attempt.entry_point.", "jrs.recovery.attempt.entry_check.")
"""What a function may call about another job, such as `jrs.check_entry`: it serves no attempt."""


class Verdict(enum.Enum):
    """How an attempt ends."""

    PASS_ON = "pass on"
    """The leader or the host ends it: nothing is recorded of the job."""
    INTERRUPTED = "interrupted"
    """The backend, the storage or the host has failed it: no death, it is tried again later."""
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
    of_jrs: bool = False
    """Only where jrs's own calls have raised it, and not the job's function."""


TRIAGE = (
    Row((KeyboardInterrupt,), Verdict.PASS_ON),
    Row((Fenced,), Verdict.PASS_ON, of_jrs=True),
    Row((JobHeld, CorruptRecord), Verdict.HOLD, of_jrs=True),  # Of the job's own state.
    Row((Unavailable, OutcomeUnknown), Verdict.INTERRUPTED, of_jrs=True),
    Row((CannotStartHere,), Verdict.CANNOT_START, of_jrs=True),
    Row((BaseException,), Verdict.JVM_DIED, jvm_died=True),
    Row((StateLost, Unavailable, OutcomeUnknown), Verdict.DIED),
    Row((InvalidInput, TooLarge), Verdict.FAILED),  # The next attempt would raise it as well.
    Row((BaseException,), Verdict.DIED, retried=True),
    Row((BaseException,), Verdict.FAILED),
)
"""The first row that applies decides; to a group, the first that applies to one of its errors.
`SystemExit` and `CancelledError` are the job's own."""


def call_users(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of the user's: a job's, a stage's, one that builds a query, or main.

    A process that the function forks, and that leaves it as well, ends here: it would run what
    follows a second time.
    """
    here = os.getpid()
    status: object = EXIT_DIED
    try:
        return function(*args, **kwargs)
    except SystemExit as error:
        status = error.code or 0
        raise
    except BaseException:
        if os.getpid() != here:
            traceback.print_exc()
        raise
    finally:
        if os.getpid() != here:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(status if isinstance(status, int) else 1)


Inside = tuple[BaseException, ...]
"""The groups of exceptions that an error was raised in, the outermost first."""


def leaves(error: BaseException, inside: Inside = ()) -> Iterator[tuple[BaseException, Inside]]:
    """Yield an error, or those that a group of exceptions has: what ran side by side has raised
    them, as in an `asyncio.TaskGroup`."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one, (*inside, error))
    else:
        yield error, inside


def is_of_jrs(error: BaseException, inside: Inside = (), own: tuple[str, ...] = _OWN) -> bool:
    """Return whether a call of jrs's own has raised the error: not the innermost of the user's
    functions that it passed through, but something of the attempt which that function called.

    A client of its own, of another cluster, may raise the same errors.

    Args:
        inside: the groups that it was raised in, which have the outer part of its traceback.
        own: how the qualified names begin of what serves the user's function while it runs.
    """
    of_jrs = True
    for part in (*inside, error):
        for frame, _ in traceback.walk_tb(part.__traceback__):
            if frame.f_code is call_users.__code__:
                of_jrs = False
            else:
                name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
                of_jrs |= name.startswith(own) and not name.startswith(_OF_OTHERS)
    return of_jrs


def triage(
    error: BaseException,
    *,
    jvm_died: Callable[[], bool],
    retried: bool,
    of_jrs: Callable[[BaseException, Inside], bool] = is_of_jrs,
) -> tuple[Verdict, BaseException]:
    """Return what becomes of an attempt that raised `error`, and why: itself or, of a group, the
    error that decides.

    Args:
        jvm_died: called at most once, as it may have to wait for the JVM's end.
        of_jrs: returns whether jrs's own calls have raised an error.
    """
    return next(
        (row.verdict, one)
        for row in TRIAGE
        if (not row.jvm_died or jvm_died()) and (not row.retried or retried)
        for one, inside in leaves(error)
        if isinstance(one, row.kinds) and (not row.of_jrs or of_jrs(one, inside))
    )
