"""Checking histories: what is missing from them, was changed, or is there twice.

Three things tell. Each writer numbers its events, and each event has the digest of the one before
it. A fold has a digest of all events that were ever folded, in their order. And each event was
committed with its place in the feed (see `jrs.store.feed`), as long as that is kept.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice

import attrs

from jrs.contract.backend import Backend
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.history import HistoryEvent, HistoryFold
from jrs.store import feed
from jrs.store.history import State, sealed, state_of

_AT_ONCE = 64
"""Folds that are read together."""

Places = Mapping[str, Sequence[feed.FedPlace]]
"""The places of the events of each job in the feed."""


@attrs.frozen
class JobHistory:
    """The history of one job, as a scan of all histories finds it."""

    job_id: str
    events: tuple[HistoryEvent, ...]
    suspect: bool
    """Whether something may be wrong with it: `problems` tells."""


def job_ids(backend: Backend) -> Iterator[str]:
    """Yield the id of each job that has a history, in order."""
    # The keys of events are not in the order of the jobs' ids: a-b/x is before a/x.
    live = sorted({keys.job_of(record.key) for record in backend.scan(keys.HISTORY)})
    folded = (keys.job_of(record.key) for record in backend.scan(keys.FOLDS))
    return (job_id for job_id, _ in groupby(heapq.merge(live, folded)))


def histories(backend: Backend) -> Iterator[JobHistory]:
    """Yield the histories of all jobs: first of those that have events which are not folded.

    Raises:
        Unavailable: the backend did not answer.
    """
    # The places are read first: an event has its place from its commit on.
    places = _places(feed.places(backend))
    found = groupby(backend.scan(keys.HISTORY), key=lambda record: keys.job_of(record.key))
    live = ((job_id, list(records)) for job_id, records in found)
    known = set[str]()
    while some := list(islice(live, _AT_ONCE)):
        folds = backend.get_many([keys.history_fold(job_id) for job_id, _ in some])
        for (job_id, records), fold in zip(some, folds, strict=True):
            known.add(job_id)
            yield _history(job_id, State.of(fold, records), places)
    for record in backend.scan(keys.FOLDS):
        if (job_id := keys.job_of(record.key)) not in known:
            yield _history(job_id, State.of(record, ()), places)


def problems(backend: Backend, job_id: str) -> Iterator[str]:
    """Yield what is wrong with the history of a job, one line each: what cannot be read, and what
    is missing, changed or doubled.

    Raises:
        Unavailable: the backend did not answer.
    """
    places = list(feed.places(backend, job_id))
    return _problems(job_id, state_of(backend, job_id), places)


def _history(job_id: str, state: State, places: Places) -> JobHistory:
    suspect = any(True for _ in _problems(job_id, state, places.get(job_id, ())))
    return JobHistory(job_id, state.events, suspect)


def _places(found: Iterable[feed.FedPlace]) -> Places:
    by_job = defaultdict(list)
    for place in found:
        by_job[place.job_id].append(place)
    return by_job


def _problems(job_id: str, state: State, places: Sequence[feed.FedPlace]) -> Iterator[str]:
    yield from map(str, [*filter(None, [state.fold_problem]), *state.problems])
    found = [(record.key, event) for record, event in state.live]
    for key, event in found:
        if (key, event.job_id) != (keys.history_event(job_id, event.id), job_id):
            yield f"{key}: an event under the name of another one"
    if state.fold is not None:
        closing = [] if state.fold.closing is None else [state.fold.closing]
        key = keys.history_fold(job_id)
        found = [*((key, event) for event in (*state.fold.events, *closing)), *found]
        yield from _broken_seal(key, state.fold)
    by_id: dict[str, HistoryEvent] = {}
    for where, event in found:
        if event.id in by_id:
            yield f"{where}: the event {event.id} is there twice"
        if not event.is_sound:
            yield f"{where}: the event {event.id} was changed"
        by_id[event.id] = event
    # Of what was dropped, or cannot be read, nothing is known.
    whole = state.fold_problem is None and not (state.fold is not None and state.fold.dropped)
    yield from _gaps(job_id, by_id, whole=whole)
    if whole and not state.problems:
        yield from _without_event(job_id, state.live, by_id, places)


def _broken_seal(key: str, fold: HistoryFold) -> Iterator[str]:
    if sealed("", fold.kept) != fold.kept_seal or not all(one.is_sound for one in fold.kept):
        yield f"{key}: one of the events that were kept was changed"
    seal, has = fold.seal, fold.dropped + len(fold.events)
    if seal is None:
        return  # An older version has written it.
    if seal.events > has or seal.dropped > fold.dropped:
        yield f"{key}: events are missing"
    elif seal.dropped == fold.dropped:
        events = fold.events[: seal.events - fold.dropped]
        if sealed(seal.behind, events) != seal.all:
            yield f"{key}: an event was changed, or the order of the events"


def _gaps(job_id: str, by_id: Mapping[str, HistoryEvent], *, whole: bool) -> Iterator[str]:
    first: dict[str, int] = {}
    for id in by_id:
        writer, number = _numbered(id)
        first[writer] = min(number, first.get(writer, number))
    for event in by_id.values():
        writer, number = _numbered(event.id)
        if number == 0:
            continue
        before = by_id.get(f"{writer}.{number - 1:06}")
        if before is None:
            # The oldest events are dropped first, so those of one writer are gone in their order.
            if whole or first[writer] < number:
                yield f"{keys.history(job_id)}: the event before {event.id} is missing"
        elif before.digest() != event.previous:
            yield f"{keys.history(job_id)}: the event before {event.id} was changed"


def _numbered(id: str) -> tuple[str, int]:
    """Return the writer of an event, and as its how many-th it was written."""
    writer, _, number = id.partition(".")
    return writer, int(number) if number.isdigit() else 0


def _without_event(
    job_id: str,
    live: Sequence[tuple[Record, HistoryEvent]],
    by_id: Mapping[str, HistoryEvent],
    places: Sequence[feed.FedPlace],
) -> Iterator[str]:
    """Yield the places whose events are missing. An older one may be of a job that had the id
    before, whose history ended with its result."""
    oldest = min((record.version for record, _ in live), default=None)
    for place in places:
        writer, number = _numbered(place.event)
        if place.event in by_id or f"{writer}.{number + 1:06}" in by_id:
            continue  # The event behind a gap names it.
        if oldest is not None and place.version > oldest:
            yield f"{keys.history(job_id)}: the event {place.event} is missing"
