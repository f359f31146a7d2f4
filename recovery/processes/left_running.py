"""Processes that earlier attempts of a job have left on this host, found by recorded marks."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord

from . import marks
from .marks import Marks

KEPT = 16
"""How many marks of earlier attempts are kept. An older attempt, whose host was away, is fenced."""


def marks_after(before: AttemptRecord | None) -> tuple[str, ...]:
    """Return the earlier marks of the attempt that follows `before`."""
    return () if before is None else (*before.earlier_marks, *_mark_of(before))[-KEPT:]


def _mark_of(attempt: AttemptRecord) -> tuple[str, ...]:
    return (attempt.mark,) if attempt.mark and not attempt.in_thread else ()


def find(backend: Backend, job_id: str) -> list[int]:
    """Return the pids of the job's attempts on this host, and of all processes that they started.

    Raises:
        Unavailable: the backend could not be asked, or /proc could not be read.
    """
    return marks.marked(_marks(backend, job_id, None))


def end(
    backend: Backend, job_id: str, deadline: Deadline, *, up_to_epoch: int | None = None
) -> list[int]:
    """Kill the job's attempts on this host with all processes that they started; return their pids.

    Idempotent. Reads no process unless an attempt was recorded that has had processes.

    Args:
        up_to_epoch: the caller's own. A leader that was replaced while it slept must not kill the
            attempts of the present leader; its next commit shows it that it was replaced.

    Raises:
        Unavailable: some processes do not die, or it is unknown whether any is left.
    """
    return marks.end(_marks(backend, job_id, up_to_epoch), deadline)


def _marks(backend: Backend, job_id: str, up_to_epoch: int | None) -> Marks:
    stored = backend.get(keys.ATTEMPTS + job_id)
    if stored is None:
        return Marks()
    try:
        record = decode(AttemptRecord, stored.value, stored.key)
    except CorruptRecord:
        record = None
    if record is not None and up_to_epoch is not None and record.epoch > up_to_epoch:
        return Marks()
    if record is None or not record.mark:
        return marks.mark_of_job(backend.url, backend.cluster, job_id, up_to_epoch=up_to_epoch)
    return marks.marks_of(*_mark_of(record), *record.earlier_marks)
