"""An attempt's own record: where it runs, and how it ends in its job's result."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import attrs

from jrs.contract.errors import Conflict, CorruptRecord, OutcomeUnknown, Unavailable
from jrs.contract.operations import Update
from jrs.records import keys
from jrs.records.attempts import AttemptSummary
from jrs.records.codec import decode, encode
from jrs.records.model import AttemptRecord

from .context import AttemptContext


def announce(context: AttemptContext) -> AttemptRecord | None:
    """Record this process in the attempt's record, to be found later; return the
    record, or None if it was not handed over.

    Best effort, but under the fence.

    Raises:
        Fenced: a newer leader exists, or the attempt was shut out.
    """
    record = context.record
    if record is None or record.pid == os.getpid():
        return record
    here = attrs.evolve(record, host=socket.gethostname(), pid=os.getpid())
    # Without an answer, the record lacks the process, and the result still names it.
    with suppress(Conflict, CorruptRecord, Unavailable, OutcomeUnknown):
        stored = context.backend.get(keys.ATTEMPTS + context.job_id)
        if stored is not None:
            before = decode(AttemptRecord, stored.value, stored.key)
            if (before.attempt, before.mark) == (here.attempt, here.mark):
                now = attrs.evolve(before, host=here.host, pid=here.pid)
                op = Update(stored.key, encode(now), stored.version)
                context.backend.commit(op, fence=context.fence)
    return here


def ended(
    record: AttemptRecord | None, at: float, how: str
) -> tuple[tuple[AttemptSummary, ...], int]:
    """Return the attempts for the job's result, this one with its end, and the number of older ones
    left out."""
    if record is None:
        return (), 0
    return attrs.evolve(record, ended_at=at, ended=how).summaries()
