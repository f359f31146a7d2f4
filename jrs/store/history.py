"""The history of jobs: reading, checking and folding the events of a job.

Each event is a record of its own, ``history/<job>/<writer>.<number>``; see `jrs.store.historian`.
Events are ordered by the versions of their records, which every backend gives in the order of the
commits.

Once a job has many events, its leader folds the oldest into one record, ``history/<job>/folded``,
and drops the very oldest. The commit that marks the result clean folds them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def read(backend: Backend, job_id: str) -> tuple[HistoryEvent, ...]:
    """Return the events of a job in the order of their commits, without those that cannot be read.

    Raises:
        Unavailable: the backend did not answer.
    """
    fold, events = _stored(backend, job_id)
    return (*(fold.events if fold is not None else ()), *(event for _, event in events))


def fold(
    backend: Backend, job_id: str, fence: Fence, *, leave: int = 0
) -> Sequence[tuple[Record, HistoryEvent]]:
    """Fold the oldest events of a job until at most `leave` are left; return those.

    Durable. Only for the leader.

    Raises:
        Fenced: a newer leader exists.
        CorruptRecord: the fold cannot be read.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    _, events = _stored(backend, job_id)
    while len(events) > leave:
        some = events[: min(AT_ONCE, len(events) - leave)]
        own, others = fold_ops(backend, job_id, some)
        try:
            commit_and_read_back(backend, own, *others, fence=fence)
        except Conflict:
            _, events = _stored(backend, job_id)  # An earlier try was committed after all.
            continue
        events = events[len(some) :]
    return events


def fold_ops(
    backend: Backend,
    job_id: str,
    events: Sequence[tuple[Record, HistoryEvent]],
    *more: HistoryEvent,
) -> tuple[Create | Update, list[Delete]]:
    """Return the operation that writes the fold with more events, and those that remove them."""
    key = keys.history_fold(job_id)
    stored = backend.get(key)
    before = HistoryFold(job_id) if stored is None else decode(HistoryFold, stored.value, key)
    folded = _bounded(before, (*(event for _, event in events), *more))
    own = create_or_update(key, encode(folded), stored and stored.version)
    return own, [Delete(record.key, record.version) for record, _ in events]


def fold_all(backend: Backend, fence: Fence) -> None:
    """Fold the histories of all jobs, but for those whose fold cannot be read; raises as `fold`."""
    job_ids = (keys.job_of(record.key) for record in backend.scan(keys.HISTORY))
    for job_id, _ in groupby(job_ids):
        with suppress(CorruptRecord):
            fold(backend, job_id, fence)


def is_recorded(backend: Backend) -> bool:
    """Return whether the cluster has the history of any job."""
    return next(backend.scan(keys.HISTORY, limit=1), None) is not None


def removal(backend: Backend, job_id: str) -> tuple[Op, ...]:
    """Return the operations that remove the history of a job that has ended, as much as one commit
    takes: the fold, and what was recorded since."""
    found = list(backend.scan(keys.history(job_id), limit=MANY))
    return tuple(Delete(record.key, record.version) for record in found)


def problems(backend: Backend, job_id: str) -> Iterator[str]:
    """Yield what is wrong with the history of a job, one line each: what cannot be read, and what
    is missing, changed or doubled.

    Raises:
        Unavailable: the backend did not answer.
    """
    folded: HistoryFold | None = None
    found: list[tuple[str, HistoryEvent]] = []
    for record in backend.scan(keys.history(job_id)):
        try:
            if record.key == keys.history_fold(job_id):
                folded = decode(HistoryFold, record.value, record.key)
                found += [(record.key, event) for event in folded.events]
            else:
                event = decode(HistoryEvent, record.value, record.key)
                found.append((record.key, event))
                if (record.key, event.job_id) != (keys.history_event(job_id, event.id), job_id):
                    yield f"{record.key}: an event under the name of another one"
        except CorruptRecord as error:
            yield str(error)
    by_id: dict[str, HistoryEvent] = {}
    for where, event in found:
        if event.id in by_id:
            yield f"{where}: the event {event.id} is there twice"
        by_id[event.id] = event
    dropped = folded is not None and folded.dropped > 0
    for event in by_id.values():
        writer, _, number = event.id.partition(".")
        if not number.isdigit() or int(number) == 0:
            continue
        before = by_id.get(f"{writer}.{int(number) - 1:06}")
        if before is None:
            if not dropped:
                yield f"{keys.history(job_id)}: the event before {event.id} is missing"
        elif before.digest() != event.previous:
            yield f"{keys.history(job_id)}: the event before {event.id} was changed"


# -- inside --------------------------------------------------------------------------------


def _stored(
    backend: Backend, job_id: str
) -> tuple[HistoryFold | None, list[tuple[Record, HistoryEvent]]]:
    """Return the fold and the other events, in order; what cannot be read is passed over."""
    folded: HistoryFold | None = None
    events = []
    for record in _at_one_moment(backend, job_id):
        with suppress(CorruptRecord):  # fsck names it.
            if record.key == keys.history_fold(job_id):
                folded = decode(HistoryFold, record.value, record.key)
            else:
                events.append((record, decode(HistoryEvent, record.value, record.key)))
    known = {event.id for event in folded.events} if folded is not None else set()
    events = [(record, event) for record, event in events if event.id not in known]
    events.sort(key=lambda found: (found[0].version, found[0].key))
    return folded, events


def _at_one_moment(backend: Backend, job_id: str) -> list[Record]:
    """Return the records of a job's history, as they were at one moment: what is committed later
    comes behind all of them."""
    found = list(backend.scan(keys.history(job_id)))
    while len(found) >= _ONE_PAGE:
        again = list(backend.scan(keys.history(job_id)))
        if again == found:
            break
        found = again
    return found


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
