"""The facts that the stored records of a job tell. Leaders and readers gather them here.

A leader also knows which attempts run in it; a reader knows only what was recorded of them. Pure:
the records have been read.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.codec import decode, decode_once
from jrs.records.model import AttemptRecord, JobResult, JobSpec, JobStatus, StopRecord
from jrs.store import restores

from . import used_time
from .decision import Attempt, Result, Spec, Stop

Stored = Record | CorruptRecord | None
"""The record stored under a key, or why it cannot be read."""


@attrs.frozen
class Gathered:
    """What the records of a job tell."""

    spec_fact: Spec
    spec: JobSpec | None
    """Its spec, if it has one that can be read."""
    result: Result
    outcome: str
    """How the job has ended, if it did not finish and its result was read here: see `Facts`."""
    finished_at: float
    """When the job ended, in seconds since 1970; 0 if its result was not read here."""
    cancel: bool
    """Whether it is certain that the job shall be canceled."""
    stop: StopRecord | None
    """Its stop, if it has one that can be read."""
    stop_unreadable: bool
    """Its stop cannot be read, or the disk has perhaps lost a request to cancel it."""
    problems: tuple[str, ...]
    """The records that cannot be read, one line each."""

    def stop_fact(self, *, overdue: bool = False) -> Stop:
        """Return the meaning of the stop; `overdue` if its grace period is over."""
        return Stop.UNREADABLE if self.stop_unreadable else Stop.of(self.stop, overdue=overdue)


def gathered(job_id: str, stored: Mapping[str, Stored], result: Result | None = None) -> Gathered:
    """Return what the records of a job tell, by prefix.

    A `CorruptRecord` says that a record cannot be read, and perhaps never was there: damage in a
    file holds every key that it may have hit. So it counts neither as the record nor as none.

    Args:
        result: the fact about the result, if the caller knows it better.
    """
    problems: list[str] = []
    spec, spec_fact = _spec(stored, problems)
    stop, stop_unreadable = _stop(stored, problems)
    outcome, finished_at = "", 0.0
    if result is None:
        result, ended = _result(job_id, stored, problems)
        if ended is not None:
            outcome, finished_at = _outcome(ended), ended.finished_at
    cancel = stored[keys.CANCEL]
    if isinstance(cancel, CorruptRecord):
        problems.append(str(cancel))
        stop_unreadable = True
    return Gathered(
        spec_fact, spec, result, outcome, finished_at, isinstance(cancel, Record), stop,
        stop_unreadable, tuple(problems),
    )  # fmt: skip


def recorded_attempt(
    record: AttemptRecord | None, spec: JobSpec | None, epoch: int | None, now: float
) -> Attempt:
    """Return the state of a job's newest attempt, as far as it is recorded.

    Args:
        epoch: the epoch of the master that leads; None if no master does.
    """
    if record is None or spec is None:
        return Attempt.NONE
    here = record.epoch == epoch
    if here and not (record.retry_at or record.ended_at or record.could_not_start):
        return Attempt.RUNNING
    if used_time.is_final(record, spec):
        return Attempt.TIMED_OUT
    if record.deaths >= spec.restart.attempts:
        return Attempt.SPENT
    if record.could_not_start:
        return Attempt.UNSTARTABLE if here else Attempt.NONE
    return Attempt.BACKING_OFF if now < record.retry_at else Attempt.NONE


def _spec(stored: Mapping[str, Stored], problems: list[str]) -> tuple[JobSpec | None, Spec]:
    record, restore = stored[keys.JOBS], stored[keys.RESTORES]
    try:
        if isinstance(restore, CorruptRecord):
            raise restore
        if restore is not None:
            return None, Spec.RESTORING
        if record is None:
            application = stored[keys.APPLICATIONS]
            if isinstance(application, CorruptRecord):
                raise application
            return None, Spec.NONE if application is None else Spec.APPLICATION
        if isinstance(record, CorruptRecord):
            raise record
        if restores.took_place_of(record):
            return None, Spec.RESTORING
        return decode_once(JobSpec, record.value, record.key), Spec.READABLE
    except CorruptRecord as error:
        problems.append(str(error))
        return None, Spec.UNREADABLE


def _stop(stored: Mapping[str, Stored], problems: list[str]) -> tuple[StopRecord | None, bool]:
    record = stored[keys.STOPS]
    if record is None:
        return None, False
    try:
        if isinstance(record, CorruptRecord):
            raise record
        return decode(StopRecord, record.value, record.key), False
    except CorruptRecord as error:
        problems.append(str(error))
        return None, True


def _result(
    job_id: str, stored: Mapping[str, Stored], problems: list[str]
) -> tuple[Result, JobResult | None]:
    """Return the fact about the result, and the result if it can be read."""
    record, tombstone = stored[keys.RESULTS], stored[keys.TOMBSTONES]
    try:
        if record is None and isinstance(tombstone, CorruptRecord):
            raise tombstone
        if record is None:
            return Result.NONE if tombstone is None else Result.EXPIRED, None
        if isinstance(record, CorruptRecord):
            raise record
        result = decode_once(JobResult, record.value, record.key)
        if result.job_id != job_id:
            raise CorruptRecord(f"{record.key}: holds the result of another job")
    except CorruptRecord as error:
        problems.append(str(error))
        return Result.UNREADABLE, None
    return Result.CLEAN if stored[keys.DIRTY] is None else Result.DIRTY, result


def _outcome(result: JobResult) -> str:
    if result.status is JobStatus.FINISHED:
        return ""
    why = f": {result.failure.message}" if result.failure is not None else ""
    return f"{result.status.value}{why}"
