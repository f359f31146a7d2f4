"""The history of jobs: reading, checking and folding the events of a job.

Each event is a record of its own, ``history/<job>/<writer>.<number>``; see `jrs.store.historian`.
Events are ordered by the versions of their records, which every backend gives in the order of the
commits.

Once a job has many events, its leader folds the oldest into one record, ``folds/<job>``, and drops
the very oldest. The commit that marks the result clean folds them all. Folds are kept apart, so
that to read the events of one job never lists those of jobs that have ended.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, CorruptRecord
from jrs.contract.operations import Create, Delete, Fence, Op, Record, Update, create_or_update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryEvent, HistoryFold

MANY = 64
"""Events of a job that are not folded, from which its leader folds the oldest."""
AT_ONCE = 24
"""Events that one commit folds: with their conditions, few enough for every backend."""
MOST_KEPT = 256
"""Events in the fold of a job."""
_MOST_BYTES = 96 * 1024
"""Bytes of a fold's events."""
_ONE_PAGE = 64
"""Records that every backend reads as they are at one moment."""


@attrs.frozen
class _Entry:
    """An event that is behind those of the fold, and where it is in the order of commits."""

    version: int
    key: str
    event: HistoryEvent
    record: Record | None
    """None for the event that was committed with the fold."""


@attrs.frozen
class _State:
    """The history of a job as it was at one moment."""

    stored: Record | None
    """The record of the fold."""
    fold: HistoryFold | None
    """None if there is none, or if it cannot be read."""
    live: tuple[Record, ...]
    """The records of the other events."""

    @classmethod
    def of(cls, stored: Record | None, live: Sequence[Record]) -> _State:
        fold = None
        if stored is not None:
            with suppress(CorruptRecord):  # fsck names it.
                fold = decode(HistoryFold, stored.value, stored.key)
        return cls(stored, fold, tuple(live))

    @property
    def events(self) -> tuple[HistoryEvent, ...]:
        """All events, in order."""
        older = self.fold.events if self.fold is not None else ()
        return (*older, *(entry.event for entry in self.entries))

    @property
    def entries(self) -> list[_Entry]:
        """The events behind those of the fold, in order; what cannot be read is passed over."""
        found = []
        known: set[str] = set()
        if self.stored is not None and self.fold is not None:
            known = {event.id for event in self.fold.events}
            if (last := self.fold.closing) is not None:
                found.append(_Entry(self.stored.version, self.stored.key, last, None))
        for record in self.live:
            with suppress(CorruptRecord):  # fsck names it.
                event = decode(HistoryEvent, record.value, record.key)
                if event.id not in known:
                    found.append(_Entry(record.version, record.key, event, record))
        return sorted(found, key=lambda entry: (entry.version, entry.key))


def read(backend: Backend, job_id: str) -> tuple[HistoryEvent, ...]:
    """Return the events of a job in the order of their commits, without those that cannot be read:
    what is committed later comes behind all of them.

    Raises:
        Unavailable: the backend did not answer.
    """
    return _state(backend, job_id).events


def fold(backend: Backend, job_id: str, fence: Fence, *, leave: int = 0) -> None:
    """Fold the oldest events of a job until at most `leave` are left.

    Durable, idempotent. Only for the leader.

    Raises:
        Fenced: a newer leader exists.
        CorruptRecord: the fold cannot be read.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    while True:
        state = _state(backend, job_id)
        most = min(AT_ONCE, len(state.live) - leave)
        if most <= 0:
            return
        own, others = _fold_ops(state, job_id, most, None)
        if not others:
            return  # The others cannot be read.
        with suppress(Conflict):  # An earlier try was committed after all.
            commit_and_read_back(backend, own, *others, fence=fence)


def closing_ops(backend: Backend, job_id: str, fence: Fence, last: HistoryEvent) -> tuple[Op, ...]:
    """Return the operations that record an event and fold the others with it; raises as `fold`."""
    fold(backend, job_id, fence, leave=AT_ONCE)
    own, others = _fold_ops(_state(backend, job_id), job_id, AT_ONCE, last)
    return (own, *others)


def fold_all(backend: Backend, fence: Fence) -> None:
    """Fold the histories of all jobs, but for those whose fold cannot be read; raises as `fold`."""
    for job_id, _ in groupby(keys.job_of(record.key) for record in backend.scan(keys.HISTORY)):
        with suppress(CorruptRecord):
            fold(backend, job_id, fence)


# -- removing ------------------------------------------------------------------------------


def live_events(backend: Backend) -> Mapping[str, list[Record]]:
    """Return the records of all events that are not folded, by job."""
    found: defaultdict[str, list[Record]] = defaultdict(list)
    for record in backend.scan(keys.HISTORY):
        found[keys.job_of(record.key)].append(record)
    return found


def removals(
    backend: Backend, job_ids: Sequence[str], live: Mapping[str, list[Record]]
) -> list[tuple[Op, ...]]:
    """Return for each of some ended jobs the operations that remove its history: as much as one
    commit takes."""
    folds = backend.get_many([keys.history_fold(job_id) for job_id in job_ids])
    return [
        tuple(
            Delete(record.key, record.version)
            for record in ([one] if isinstance(one, Record) else [])
            + list(live.get(job_id, ()))[:MANY]
        )
        for job_id, one in zip(job_ids, folds, strict=True)
    ]


def removal(backend: Backend, job_id: str) -> tuple[Op, ...]:
    """Return the operations that remove what is left of the history of an ended job, after removing
    all that is more than one commit takes."""
    while True:
        live = list(backend.scan(keys.history(job_id), limit=2 * MANY))
        if len(live) <= MANY:
            return removals(backend, [job_id], {job_id: live})[0]
        with suppress(Conflict):  # Another process removes it, too.
            backend.commit(*(Delete(record.key, record.version) for record in live[:MANY]))


# -- checking ------------------------------------------------------------------------------


def job_ids(backend: Backend) -> Iterator[str]:
    """Yield the id of each job that has a history, in order."""
    found = (map(_job_of, backend.scan(prefix)) for prefix in keys.TOLD)
    return (job_id for job_id, _ in groupby(heapq.merge(*found)))


@attrs.frozen
class JobHistory:
    """The history of one job, as a scan of all histories finds it."""

    job_id: str
    events: tuple[HistoryEvent, ...]
    suspect: bool
    """Whether something may be wrong with it: `problems` tells."""


def histories(backend: Backend) -> Iterator[JobHistory]:
    """Yield the histories of all jobs in the order of their ids, by two scans.

    Raises:
        Unavailable: the backend did not answer.
    """
    scans = (backend.scan(prefix) for prefix in keys.TOLD)
    records = heapq.merge(*scans, key=_job_of)
    for job_id, of_job in groupby(records, key=_job_of):
        fold, live = None, []
        for record in of_job:
            if record.key == keys.history_fold(job_id):
                fold = record
            else:
                live.append(record)
        state = _State.of(fold, live)
        suspect = any(True for _ in _problems(job_id, state))
        yield JobHistory(job_id, state.events, suspect)


def problems(backend: Backend, job_id: str) -> Iterator[str]:
    """Yield what is wrong with the history of a job, one line each: what cannot be read, and what
    is missing, changed or doubled.

    Raises:
        Unavailable: the backend did not answer.
    """
    return _problems(job_id, _state(backend, job_id))


def _problems(job_id: str, state: _State) -> Iterator[str]:
    found: list[tuple[str, HistoryEvent]] = []
    if state.stored is not None and state.fold is not None:
        closing = [] if state.fold.closing is None else [state.fold.closing]
        found += [(state.stored.key, event) for event in (*state.fold.events, *closing)]
    elif state.stored is not None:
        try:
            decode(HistoryFold, state.stored.value, state.stored.key)
        except CorruptRecord as error:
            yield str(error)
    for record in state.live:
        try:
            event = decode(HistoryEvent, record.value, record.key)
        except CorruptRecord as error:
            yield str(error)
            continue
        found.append((record.key, event))
        if (record.key, event.job_id) != (keys.history_event(job_id, event.id), job_id):
            yield f"{record.key}: an event under the name of another one"
    by_id: dict[str, HistoryEvent] = {}
    for where, event in found:
        if event.id in by_id:
            yield f"{where}: the event {event.id} is there twice"
        by_id[event.id] = event
    # Of what was dropped, or cannot be read, nothing is known.
    whole = state.stored is None or (state.fold is not None and not state.fold.dropped)
    yield from _gaps(job_id, by_id, whole=whole)


def _gaps(job_id: str, by_id: Mapping[str, HistoryEvent], *, whole: bool) -> Iterator[str]:
    for event in by_id.values():
        writer, _, number = event.id.partition(".")
        if not number.isdigit() or int(number) == 0:
            continue
        before = by_id.get(f"{writer}.{int(number) - 1:06}")
        if before is None:
            if whole:
                yield f"{keys.history(job_id)}: the event before {event.id} is missing"
        elif before.digest() != event.previous:
            yield f"{keys.history(job_id)}: the event before {event.id} was changed"


# -- inside --------------------------------------------------------------------------------


def _state(backend: Backend, job_id: str) -> _State:
    key = keys.history_fold(job_id)
    stored, live = _get(backend, key), _live(backend, job_id)
    while True:
        # What was folded in between is in neither of the two.
        again = _get(backend, key)
        if again == stored:
            break
        stored, live = again, _live(backend, job_id)
    return _State.of(stored, live)


def _job_of(record: Record) -> str:
    return keys.job_of(record.key)


def _get(backend: Backend, key: str) -> Record | None:
    (found,) = backend.get_many([key])
    return found if isinstance(found, Record) else None


def _live(backend: Backend, job_id: str) -> list[Record]:
    found = list(backend.scan(keys.history(job_id)))
    while len(found) >= _ONE_PAGE:
        again = list(backend.scan(keys.history(job_id)))
        if again == found:
            break
        found = again
    return found


def _fold_ops(
    state: _State, job_id: str, most: int, closing: HistoryEvent | None
) -> tuple[Create | Update, list[Delete]]:
    """Return the operation that writes the fold with the oldest events, and those that remove them.

    Args:
        most: about how many events.
        closing: an event that is committed with the fold.
    """
    key = keys.history_fold(job_id)
    before = HistoryFold(job_id)
    if state.stored is not None:
        before = decode(HistoryFold, state.stored.value, key)
    entries = state.entries
    # The event that was committed with the fold has its version, which changes now.
    least = next((at for at, one in enumerate(entries, 1) if one.record is None), 0)
    moved = entries[: max(most, least)]
    folded = _bounded(before, [entry.event for entry in moved])
    own = create_or_update(
        key,
        encode(attrs.evolve(folded, closing=closing)),
        state.stored and state.stored.version,
    )
    records = [entry.record for entry in moved if entry.record is not None]
    return own, [Delete(record.key, record.version) for record in records]


def _bounded(before: HistoryFold, more: Sequence[HistoryEvent]) -> HistoryFold:
    """Return a fold with more events, without the oldest if there are too many."""
    events = [*before.events, *more]
    room, kept = _MOST_BYTES, 0
    for event in reversed(events[-MOST_KEPT:]):
        room -= len(encode(event))
        if room < 0 and kept:
            break
        kept += 1
    return attrs.evolve(
        before,
        events=tuple(events[len(events) - kept :]),
        dropped=before.dropped + len(events) - kept,
    )
