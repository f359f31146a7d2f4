"""The fence of one attempt: a small record that every commit of the attempt checks.

The epoch's fence shuts out the attempts of earlier leaders. An earlier attempt of the *same* leader
may still have a write under way, or be alive on an unreachable host. So each attempt is let in by
name: ``fence/<job>`` holds ``epoch.attempt.nonce``, or ``none`` while no attempt may write.

Leaders and restores write the record, under the epoch's fence. An attempt closes its own fence with
its result. The rule for all of them: **shut out, then read**. Data read of a job before its attempt
was shut out has to be read again, because the attempt may have changed it until then.
"""

from __future__ import annotations

import re

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, CorruptRecord
from jrs.contract.operations import Check, Fence, Op, Record, Update, create_or_update
from jrs.records import keys
from jrs.store import cluster_format

_NAME = re.compile(rb"none|[0-9]+\.[0-9]+\.[0-9a-f]+")

NOBODY = b"none"
"""The value while no attempt may write."""

SINCE_FORMAT = 3
"""The first cluster format in which each attempt has its own fence."""


def name_of(epoch: int, attempt: int, nonce: str) -> bytes:
    """Return the value that lets one attempt in; `nonce` makes it unique."""
    return f"{epoch}.{attempt}.{nonce}".encode()


def check(stored: Record) -> None:
    """Raise `CorruptRecord` unless the record is the fence of an attempt.

    A damaged fence lets no attempt in, and the next leader writes it again."""
    if not _NAME.fullmatch(stored.value):
        raise CorruptRecord(
            f"{stored.key}: not the fence of an attempt ({len(stored.value)} bytes)"
        )


def shut_out_ops(backend: Backend, job_id: str) -> list[Op]:
    """Return the operations that shut the job's attempt out; empty if no attempt is let in."""
    stored = backend.get(keys.FENCES + job_id)
    if stored is None or stored.value == NOBODY:
        return []
    return [Update(stored.key, NOBODY, stored.version)]


def shut_out(backend: Backend, job_id: str, fence: Fence) -> None:
    """Shut the job's attempt out: once this returns, the attempt cannot commit any more.

    Durable, idempotent.

    Raises:
        Fenced: a newer leader exists.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    while ops := shut_out_ops(backend, job_id):
        try:
            backend.commit(*ops, fence=fence)
        except Conflict:
            pass  # The attempt has just ended with a result.


def let_in_ops(backend: Backend, job_id: str, name: bytes) -> list[Op]:
    """Return the operations that let the attempt of that name in, for the commit that records it.

    Empty in a cluster whose format has no fences of attempts."""
    if not cluster_format.is_at_least(backend, SINCE_FORMAT):
        return []
    key = keys.FENCES + job_id
    stored = backend.get(key)
    return [create_or_update(key, name, stored and stored.version)]


def let_in(backend: Backend) -> list[str]:
    """Return the jobs of which an attempt is let in; in a cluster without fences of attempts, those
    that have an attempt at all. Does not depend on the record of the format, which may be damaged.

    Raises:
        CorruptRecord: the records cannot be listed.
        Unavailable: the backend did not answer.
    """
    stored = list(backend.scan(keys.FENCES)) or backend.scan(keys.ATTEMPTS)
    return [keys.job_of(one.key) for one in stored if one.value != NOBODY]


def of_attempt(backend: Backend, job_id: str, name: bytes, fence: Fence) -> Fence | None:
    """Return the fence of an attempt that was let in; None if it is already shut out.

    Args:
        fence: the leader's fence.
    """
    stored = backend.get(keys.FENCES + job_id)
    if stored is None or stored.value != name:
        return None
    return Fence(fence.epoch, fence.version, Check(stored.key, stored.version))


def close_ops(fence: Fence) -> tuple[Op, ...]:
    """Return the operations that end an attempt's right to write, for the commit of its result."""
    if fence.attempt is None:
        return ()
    return (Update(fence.attempt.key, NOBODY, fence.attempt.version),)
