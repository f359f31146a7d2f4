"""The history of a job: its recorded events, and what older records tell; of the cluster, too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, NotFound
from jrs.contract.operations import Record
from jrs.contract.texts import one_line, printable, shown, with_reason
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.codec import T, decode
from jrs.records.field_types import Json
from jrs.records.history import HistoryEvent, HistoryKind
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
from jrs.store import feed, restores
from jrs.store import history as recorded_history
from jrs.store.history_texts import restore_begun, snapshot_taken
from jrs.store.job_views import JobView

from ..rules.decision import RULES, Decision, Facts, decide


def _in_one_line(text: str) -> str:
    return printable(one_line(text))


@attrs.frozen
class HistoryEntry:
    """One thing that happened to a job, or to the cluster."""

    at: float
    """Seconds since 1970, by the clock of the process that recorded it."""
    kind: HistoryKind
    """What happened."""
    text: str = attrs.field(converter=_in_one_line)
    """One line for people."""
    by: str = attrs.field(default="", converter=printable)
    """Who did it: a user as ``user@host``, or a master by its name; empty if it is not known."""
    epoch: int = 0
    """Of the leader that did it, itself or by an attempt; 0 for a user, or if it is not known."""
    attempt: int = 0
    """The attempt that did it; 0 for a leader or a user."""
    action: str = ""
    """What the leader had decided about the job, if it acted by a decision."""
    facts: Mapping[str, Json] | None = None
    """The facts of that decision, without those that have their default; of a leadership its host,
    its pid and its ttl."""
    id: str = ""
    """Its name among the events of the job; empty for an entry that another record tells."""
    job_id: str = ""
    """The job; empty for an event of the cluster."""
    about: Mapping[str, Json] | None = None
    """What belongs to it, by its kind: of an attempt its host and how it is run, of a death the
    exit status, of a cleanup its tries and what was removed, of a stage its name. ``spark`` is the
    application of an attempt on Spark."""
    request: str = attrs.field(default="", converter=printable)
    """What asked for it: a command of `jrs`, or ``request ID`` for one of the API."""
    cursor: str = ""
    """Where `Client.follow_history` resumes behind it; empty for one that was read otherwise."""

    @property
    def begun_stage(self) -> str:
        """The batch stage that was begun; empty for another event."""
        stage = self.about.get("stage") if self.about is not None else None
        return stage if self.kind is HistoryKind.STAGE_BEGUN and isinstance(stage, str) else ""


@attrs.frozen
class HistoryPage:
    """Some of what happened to all jobs and to the cluster."""

    entries: tuple[HistoryEntry, ...]
    """In the order of their commits."""
    cursor: str
    """Where the next page begins; it may pass entries that are gone with their jobs' histories."""
    more: bool
    """Whether there is a next page at once."""


@attrs.frozen
class PastDecision:
    """What a leader had decided about a job, and what came of it."""

    entry: HistoryEntry
    """What it did then; `action` and `facts` are those of the decision."""
    reason: str
    """What was to happen to the job, in one line; empty if the facts are not known any more or were
    cut, or a newer version of jrs decided."""

    def __str__(self) -> str:
        """Return what was to happen to the job, with the action's name in brackets."""
        return f"{self.reason} [{self.entry.action}]".lstrip()


def history(backend: Backend, view: JobView, after: str = "") -> tuple[HistoryEntry, ...]:
    """Return what happened to a job: its recorded events in the order of their commits, and before
    them what its other records tell of the time before events were recorded.

    Args:
        after: only what was committed after the event of that id.

    Raises:
        NotFound: the history has no such event, or not all that followed it any more.
        Unavailable: the backend could not be asked.
    """
    recorded = recorded_entries(backend, view.job_id, after)
    if after:
        return recorded
    if recorded and recorded[0].kind is HistoryKind.SUBMITTED:
        return recorded
    entries = (attrs.evolve(one, job_id=view.job_id) for one in _entries(backend, view))
    told = sorted((one for one in entries if one.at), key=lambda one: one.at)
    if recorded:
        told = [entry for entry in told if entry.at < recorded[0].at]
        if told and told[-1].kind is recorded[0].kind:
            told.pop()  # The record that was written with the first event.
    return (*told, *recorded)


def recorded_entries(backend: Backend, job_id: str, after: str = "") -> tuple[HistoryEntry, ...]:
    """Return the recorded events of a job, or those behind one of them; raises as `history`."""
    state = recorded_history.state_of(backend, job_id)
    found = state.behind(after) if after else state.events
    if found is None:
        raise NotFound(
            f"the history of job {job_id!r} has no event {shown(after)}, or not all that followed "
            "it any more: read it from its beginning"
        )
    return tuple(map(entry_of, found))


def page(backend: Backend, after: str, limit: int) -> HistoryPage:
    """Return what happened to all jobs and to the cluster behind a cursor; see `feed.read`."""
    found = feed.read(backend, after, limit)
    entries = (attrs.evolve(entry_of(one.event), cursor=one.cursor) for one in found.events)
    return HistoryPage(tuple(entries), found.cursor, found.more)


def between(backend: Backend, start: str, end: str, first: str = "") -> Iterator[HistoryEntry]:
    """Yield what happened to all jobs and to the cluster behind one cursor and up to another one.

    Args:
        start: empty for all that is kept.
        end: where it ends; that event is the last.
        first: of all that is kept, the cursor of an event that has to be kept still; empty: `end`.

    Raises:
        NotFound: some of it is not kept any more.
        InvalidInput, Unavailable: as `feed.read`.
    """
    more = start != end
    while more:
        found = page(backend, start, feed.MOST)
        if not start:
            # Read later: if its place is kept now, the page had it, and all behind it.
            feed.read(backend, first or end, limit=1)
        for entry in found.entries:
            if feed.is_behind(entry.cursor, end):
                return
            yield entry
        more = found.more and not feed.is_behind(found.cursor, end)
        start = found.cursor


def row_of(entry: HistoryEntry) -> tuple[Any, ...]:
    """Return an entry as a row of the table of histories; see `jrs.recovery.inspect.tables`."""
    return (
        entry.job_id or None, entry.at, entry.kind.value, entry.text, entry.by or None,
        entry.epoch or None, entry.attempt or None, entry.action or None, entry.id or None,
        None if entry.facts is None else json.dumps(entry.facts),
        None if entry.about is None else json.dumps(entry.about), entry.cursor or None,
    )  # fmt: skip


def decision_of_then(
    backend: Backend, view: JobView, at: float | None, epoch: int | None
) -> PastDecision:
    """Return the newest recorded decision about a job; see `JobHandle.explain_past`.

    Raises:
        NotFound: none is recorded.
        Unavailable: the backend could not be asked.
    """
    for entry in reversed(history(backend, view)):
        early = at is None or entry.at <= at
        if entry.action and early and epoch in (None, entry.epoch):
            decision = _recomputed(entry.facts)
            return PastDecision(entry, "" if decision is None else decision.reason)
    raise NotFound(
        f"the history of job {view.job_id!r} has no such decision: see jrs history {view.job_id}"
    )


def _recomputed(facts: Mapping[str, Json] | None) -> Decision | None:
    """Return the decision about recorded facts; None if they are not known, were cut, or are of a
    newer version that has facts of its own."""
    if facts is None:
        return None
    try:
        return decide(Facts.from_plain(facts))
    except (ValueError, TypeError):
        return None


def wrong_decisions(job_id: str, events: Iterable[HistoryEvent]) -> Iterator[str]:
    """Yield the recorded decisions of a job that do not follow from their recorded facts."""
    for event in events:
        if not event.action or event.rules != RULES:
            continue
        decision = _recomputed(event.facts)
        if decision is not None and decision.action.value != event.action:
            yield (
                f"{keys.history(job_id)}: event {event.id} says {event.action!r}, and its facts "
                f"give {decision.action.value!r}"
            )


def entry_of(event: HistoryEvent) -> HistoryEntry:
    """Return an event as an entry of a history."""
    return HistoryEntry(
        event.at,
        event.known_kind,
        event.text,
        event.by,
        event.epoch,
        event.attempt,
        event.action,
        event.facts,
        event.id,
        event.job_id,
        event.about,
        event.request,
    )


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
        text = snapshot_taken(snapshot.number, snapshot.name)
        yield HistoryEntry(snapshot.created_at, HistoryKind.SNAPSHOT, text)
    if view.stop is not None:
        yield from _stops(view.stop)
    if view.cancel is not None:
        text = with_reason("a cancel was requested", view.cancel.reason)
        yield HistoryEntry(view.cancel.requested_at, HistoryKind.CANCEL, text)
    yield from _restore(backend, job_id)
    if result is not None:
        why = result.failure.message if result.failure else ""
        text = with_reason(f"{result.status.value} in attempt {result.attempt}", why)
        yield HistoryEntry(result.finished_at, HistoryKind.ENDED, text)
    stored = backend.get(keys.TOMBSTONES + job_id)
    for tombstone in () if stored is None else _readable([stored], Tombstone):
        yield HistoryEntry(tombstone.finished_at, HistoryKind.ENDED, tombstone.status.value)
        said = with_reason("the result was expired", tombstone.reason)
        yield HistoryEntry(tombstone.expired_at, HistoryKind.EXPIRED, said, tombstone.by)


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
    yield HistoryEntry(stop.requested_at, HistoryKind.STOP, with_reason(what, stop.reason))


def _restore(backend: Backend, job_id: str) -> Iterator[HistoryEntry]:
    try:
        restore = restores.of_job(backend, job_id)
    except CorruptRecord:
        return
    if restore is not None:
        text = restore_begun(restore.source, restore.from_job)
        yield HistoryEntry(restore.started_at, HistoryKind.RESTORE, text)


def _readable(records: Iterable[Record], kind: type[T]) -> Iterator[T]:
    for record in records:
        try:
            yield decode(kind, record.value, record.key)
        except CorruptRecord:
            continue  # `JobHandle.view` and fsck name it.
