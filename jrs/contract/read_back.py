"""Settling a commit whose outcome is unknown, by reading back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, JrsError, OutcomeUnknown, Refused, Unavailable
from jrs.contract.operations import Create, Fence, Op, Update


def may_have_happened(error: BaseException) -> bool:
    """Return whether a commit that raised this may have happened, or may still happen: its outcome
    is unknown, or no error of jrs ended the wait for it, as Ctrl-C does."""
    return isinstance(error, OutcomeUnknown) or not isinstance(error, JrsError)


@contextmanager
def still_unknown(unknown: OutcomeUnknown) -> Iterator[None]:
    """Raise `unknown` again if the read-back is refused, or is `Unavailable`: either would mean
    "not written"."""
    try:
        yield
    except (Refused, Unavailable) as error:
        raise unknown from error


def commit_and_read_back(
    backend: Backend, own: Create | Update, *others: Op, fence: Fence | None = None
) -> None:
    """Commit, and resolve an unknown outcome by reading `own` back.

    No other process may ever write the same value as `own`.

    Raises:
        OutcomeUnknown: `own` could not be read back, or is absent. It may still be written.
        Conflict, Fenced, TooLarge, Unavailable: as `Backend.commit`.
    """
    try:
        backend.commit(own, *others, fence=fence)
    except OutcomeUnknown as unknown:
        with still_unknown(unknown):
            stored = backend.get(own.key)
        if stored is None or stored.value != own.value:
            raise


def commit_again(
    backend: Backend, own: Create | Update, *others: Op, fence: Fence | None = None
) -> None:
    """Commit what an earlier call may have committed already, whose outcome was unknown.

    Raises:
        As `commit_and_read_back`; `Conflict` only if `own` was not written by such a call.
    """
    try:
        commit_and_read_back(backend, own, *others, fence=fence)
    except Conflict:
        stored = backend.get(own.key)
        if stored is None or stored.value != own.value:
            raise
