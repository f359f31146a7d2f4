"""The history of a job, as far as its present records tell."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record
from jrs.contract.texts import printable
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.codec import T, decode
from jrs.records.model import (
    AttemptRecord,
    JobResult,
    StopMode,
    StopRecord,
    StopState,
    StreamRecord,
    Tombstone,
)
from jrs.records.snapshots import SnapshotRecord
from jrs.records.stages import TAKEN_OVER
from jrs.store import restores
from jrs.store.jobs import JobView


class HistoryKind(enum.StrEnum):
    """What happened to a job."""

    SUBMITTED = "submitted"
    ATTEMPT = "attempt"
    """An attempt was started: the first one, and the newest."""
    STREAM = "stream"
    """A streaming stage was first started."""
    STAGE = "stage"
    """A stage has finished."""
    SNAPSHOT = "snapshot"
    """A snapshot was taken, which is still listed."""
    STOP = "stop"
    """A suspend or a drain was requested, or the job was held."""
    CANCEL = "cancel"
    """A cancel was requested."""
    RESTORE = "restore"
    """A restore was begun, and has not ended."""
    ENDED = "ended"
    """The job ended, with a result."""
    EXPIRED = "expired"
    """The result was expired."""


@attrs.frozen
class HistoryEntry:
    """One thing that happened to a job."""

    at: float
    """Seconds since 1970, by the clock of the process that recorded it."""
    kind: HistoryKind
    text: str = attrs.field(converter=printable)
    """One line for people."""


def history(backend: Backend, view: JobView) -> tuple[HistoryEntry, ...]:
    """Return what the records of a job tell of its past, in the order of time.

    Raises:
        Unavailable: the backend could not be asked.
    """
    found = [entry for entry in _entries(backend, view) if entry.at]
    return tuple(sorted(found, key=lambda entry: entry.at))


def _entries(backend: Backend, view: JobView) -> Iterator[HistoryEntry]:
    """Yield the entries; where two have the same time, the one that has to come first."""
    job_id = view.job_id
    result = view.entry.result if view.entry else None
    if view.spec is not None:
        yield HistoryEntry(view.spec.submitted_at, HistoryKind.SUBMITTED, "submitted")
    if view.application is not None:
        yield from _main(view.application)
    else:
        yield from _attempts(view.attempt, result)
    for stream in _readable(backend.scan(keys.streams(job_id)), StreamRecord):
        text = f"stage {stream.name} was started"
        yield HistoryEntry(stream.started_at, HistoryKind.STREAM, text)
    for stage in view.stages:
        where = "the former job" if stage.attempt == TAKEN_OVER else f"attempt {stage.attempt}"
        text = f"stage {stage.name} finished in {where}"
        yield HistoryEntry(stage.finished_at, HistoryKind.STAGE, text)
    for snapshot in _readable(backend.scan(keys.snapshots(job_id)), SnapshotRecord):
        named = f" ({snapshot.name})" if snapshot.name else ""
        text = f"snapshot {snapshot.number}{named} was taken"
        yield HistoryEntry(snapshot.created_at, HistoryKind.SNAPSHOT, text)
    if view.stop is not None:
        yield from _stops(view.stop)
    if view.cancel is not None:
        text = _with_reason("a cancel was requested", view.cancel.reason)
        yield HistoryEntry(view.cancel.requested_at, HistoryKind.CANCEL, text)
    yield from _restore(backend, job_id)
    if result is not None:
        why = result.failure.message if result.failure else ""
        text = _with_reason(f"{result.status.value} in attempt {result.attempt}", why)
        yield HistoryEntry(result.finished_at, HistoryKind.ENDED, text)
    stored = backend.get(keys.TOMBSTONES + job_id)
    for grave in () if stored is None else _readable([stored], Tombstone):
        yield HistoryEntry(grave.finished_at, HistoryKind.ENDED, grave.status.value)
        yield HistoryEntry(grave.expired_at, HistoryKind.EXPIRED, "the result was expired")


def _main(record: ApplicationRecord) -> Iterator[HistoryEntry]:
    first = f"main began, started by {record.started_by}"
    yield HistoryEntry(record.started_at, HistoryKind.ATTEMPT, first)
    if record.attempts > 1:
        yield HistoryEntry(record.begun_at, HistoryKind.ATTEMPT, str(record))
    if record.error:
        text = f"main raised on {record.error_host}: {record.error}"
        yield HistoryEntry(record.error_at, HistoryKind.ATTEMPT, text)


def _attempts(newest: AttemptRecord | None, result: JobResult | None) -> Iterator[HistoryEntry]:
    if newest is None:
        if result is not None:
            yield HistoryEntry(result.started_at, HistoryKind.ATTEMPT, "attempt 1 was started")
        return
    if newest.attempt > 1:
        yield HistoryEntry(newest.first_started_at, HistoryKind.ATTEMPT, "attempt 1 was started")
    text = f"attempt {newest.attempt} was started by {newest.master} in epoch {newest.epoch}"
    yield HistoryEntry(newest.started_at, HistoryKind.ATTEMPT, text)


def _stops(stop: StopRecord) -> Iterator[HistoryEntry]:
    if stop.drain is not None:
        yield from _stops(stop.drain)
    if stop.mode is StopMode.HOLD:
        what = "held"
    elif stop.state is StopState.REFUSED:
        what = f"a {stop.mode.value} was requested, and refused"
    else:
        what = f"a {stop.mode.value} was requested"
    yield HistoryEntry(stop.requested_at, HistoryKind.STOP, _with_reason(what, stop.reason))


def _restore(backend: Backend, job_id: str) -> Iterator[HistoryEntry]:
    try:
        restore = restores.of_job(backend, job_id)
    except CorruptRecord:
        return
    if restore is not None:
        source = f"snapshot {restore.source}" if restore.source.isdigit() else restore.source
        text = f"a restore from {source} of job {restore.from_job!r} was begun"
        yield HistoryEntry(restore.started_at, HistoryKind.RESTORE, text)


def _readable(records: Iterable[Record], kind: type[T]) -> Iterator[T]:
    for record in records:
        try:
            yield decode(kind, record.value, record.key)
        except CorruptRecord:
            continue  # `JobHandle.view` and fsck name it.


def _with_reason(text: str, reason: str) -> str:
    return f"{text}: {reason}" if reason else text
