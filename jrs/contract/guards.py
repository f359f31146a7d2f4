"""Guards: the conditions that a backend adds to a commit, and the errors that they mean.

A commit of an attempt checks the attempt's own record. A commit without a fence checks that the
cluster is not closed: nobody but a leader has a right to write that ends with an epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import attrs

from jrs.contract.errors import Conflict, Fenced, JrsError, Refused
from jrs.contract.operations import Absent, Fence, Op
from jrs.contract.pending_commit import PendingCommit


@attrs.frozen
class Closing:
    """What closes a cluster: a record. While it exists, nobody campaigns and nobody writes without
    a fence.

    Attributes:
        key: of the record.
        error: makes the error that a process gets from the record's value; from None where the
            value is not known.
    """

    key: str
    error: Callable[[bytes | None], Refused]


def with_conditions(
    ops: tuple[Op, ...], fence: Fence | None, closing: Closing | None
) -> tuple[Op, ...]:
    """Return the operations, preceded by the condition of the attempt's fence or of the closing.

    An operation on the same record carries the condition itself: the one that ends the attempt's
    right to write."""
    if fence is None:
        guard: Op | None = None if closing is None else Absent(closing.key)
    else:
        guard = fence.attempt
    if guard is None or any(op.key == guard.key for op in ops):
        return ops
    return (guard, *ops)


def meaning(conflict: Conflict, fence: Fence | None, closing: Closing | None) -> JrsError:
    """Return what a conflict of a commit means: itself, unless a guard caused it."""
    if fence is not None:
        if fence.attempt is not None and conflict.op.key == fence.attempt.key:
            return Fenced(
                "this attempt was shut out: another attempt may be running, or its job has ended"
            )
    elif closing is not None and conflict.op == Absent(closing.key):
        return closing.error(None)
    return conflict


def guarded(
    future: Future[None],
    fence: Fence | None,
    closing: Closing | None,
    ended: Callable[[BaseException | None], None],
) -> Future[None]:
    """Return a future whose error says what a guard's conflict means.

    Args:
        ended: called with that error, or None, before the caller can see it.
    """
    outer = PendingCommit()

    def resolve(inner: Future[None]) -> None:
        error = inner.exception()
        if isinstance(error, Conflict):
            error = meaning(error, fence, closing)
        ended(error)
        outer.settle(error)

    future.add_done_callback(resolve)
    return outer
