"""The history of jobs: reading, folding and removing the events of a job.

Each event is a record of its own, ``history/<job>/<writer>.<number>``; see `jrs.store.historian`.
Events are ordered by the versions of their records, which every backend gives in the order of the
commits.

Once a job has many events, its leader folds the oldest into one record, ``folds/<job>``. If that
becomes too large, long texts of the oldest are shortened, and then the very oldest are dropped, but
for some that are no routine, such as deaths: a snapshot each hour must not displace them. The
commit that marks the result clean folds them all. Folds are kept apart, so that to read the events
of one job never lists those of jobs that have ended. `jrs.store.history_checks` tells whether a
history is as it was written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby, takewhile

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, CorruptRecord
from jrs.contract.operations import Create, Delete, Fence, Op, Record, Update, create_or_update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.history import FoldSeal, HistoryEvent, HistoryFold

MANY = 64
"""Events of a job that are not folded, from which its leader folds the oldest."""
AT_ONCE = 24
"""Events that one commit folds together with what else it does."""
MOST_KEPT = 256
"""Events in the fold of a job, at most."""
MOST_BYTES = 96 * 1024
"""Bytes of a fold's events."""
MOST_OLDER, OLDER_BYTES = 96, 24 * 1024
"""Events that are kept of those dropped, as they are no routine, at most; and their bytes."""
_OTHERS = 8
"""Operations of a commit that folds besides the removal of the events, at most."""
_ENVELOPE = 64
"""Bytes that a record of an event has around it, and more."""
_ONE_PAGE = 64
"""Records that every backend reads as they are at one moment."""

Event = tuple[Record, HistoryEvent]
"""An event, and the record that it is stored in."""


@attrs.frozen
class State:
    """The history of a job as it was at one moment: its fold, and its live events, which are not
    folded."""

    stored: Record | None
    """The record of the fold; None if there is none, or if the backend cannot read it."""
    fold: HistoryFold | None
    """None if there is none, or if it cannot be read."""
    live: tuple[Event, ...]
    """The other events, as far as they can be read."""
    fold_problem: CorruptRecord | None
    """Why the fold cannot be read."""
    problems: tuple[CorruptRecord, ...]
    """Why other events cannot be read."""

    @classmethod
    def of(cls, stored: Record | CorruptRecord | None, live: Sequence[Record]) -> State:
        own, fold, fold_problem = None, None, None
        if isinstance(stored, CorruptRecord):
            fold_problem = stored
        elif stored is not None:
            own = stored
            try:
                fold = decode(HistoryFold, own.value, own.key)
            except CorruptRecord as error:
                fold_problem = error
        events, problems = [], []
        for record in live:
            try:
                events.append((record, decode(HistoryEvent, record.value, record.key)))
            except CorruptRecord as error:
                problems.append(error)
        return cls(own, fold, tuple(events), fold_problem, tuple(problems))

    @property
    def events(self) -> tuple[HistoryEvent, ...]:
        """All events, in order."""
        older = (*self.fold.kept, *self.fold.events) if self.fold is not None else ()
        return (*older, *(event for _, event in self.newer))

    def behind(self, event_id: str) -> tuple[HistoryEvent, ...] | None:
        """Return all events that were committed after one of them; None if it, or an event behind
        it, is not kept any more."""
        events = self.events
        if self.fold is not None and self.fold.dropped > len(self.fold.kept):
            events = events[len(self.fold.kept) :]  # Between those that were kept, others are gone.
        at = next((at for at, event in enumerate(events) if event.id == event_id), None)
        return None if at is None else events[at + 1 :]

    @property
    def newer(self) -> list[Event]:
        """The events behind those of the fold, in order. One may be in the fold's own record: the
        event that was committed with it."""
        found = list(self.live)
        if self.stored is not None and self.fold is not None:
            known = {event.id for event in self.fold.events}
            found = [(record, event) for record, event in found if event.id not in known]
            if self.fold.closing is not None:
                found.append((self.stored, self.fold.closing))
        return sorted(found, key=lambda one: (one[0].version, one[0].key))


def place(event: HistoryEvent) -> Create:
    """Return the operation that gives an event its place in the feed (see `jrs.store.feed`), for
    the commit that records it."""
    return Create(keys.fed(event.job_id, event.id), b"")


def read(backend: Backend, job_id: str) -> tuple[HistoryEvent, ...]:
    """Return the events of a job in the order of their commits, without those that cannot be read:
    what is committed later comes behind all of them.

    Raises:
        Unavailable: the backend did not answer.
    """
    return state_of(backend, job_id).events


def fold(backend: Backend, job_id: str, fence: Fence, *, leave: int = 0) -> None:
    """Fold the oldest events of a job until at most `leave` are left.

    Durable, idempotent. Only for the leader.

    Raises:
        Fenced: a newer leader exists.
        CorruptRecord: the fold cannot be read.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    if len(list(backend.scan(keys.history(job_id), limit=leave + 1))) > leave:
        _fold_down(backend, job_id, fence, leave)


def fold_if_many(backend: Backend, job_id: str, fence: Fence) -> None:
    """Fold the oldest events of a job once it has many: so many at once that the fold, which may be
    long, is seldom written. Only for the leader; raises as `fold`."""
    if len(list(backend.scan(keys.history(job_id), limit=MANY + 1))) > MANY:
        _fold_down(backend, job_id, fence, MANY + 1 - AT_ONCE)


def closing_ops(backend: Backend, job_id: str, fence: Fence, last: HistoryEvent) -> tuple[Op, ...]:
    """Return the operations that record an event and fold the others with it; raises as `fold`."""
    state = _leaders(backend, job_id)
    if len(state.live) > AT_ONCE:
        state = _folded(backend, job_id, fence, AT_ONCE)
    own, others = _fold_ops(state, job_id, AT_ONCE, last)
    return (own, *others)


def _folded(backend: Backend, job_id: str, fence: Fence, leave: int) -> State:
    """Fold the oldest events until at most `leave` are left; return what is stored then."""
    _fold_down(backend, job_id, fence, leave)
    return _leaders(backend, job_id)


def _fold_down(backend: Backend, job_id: str, fence: Fence, leave: int) -> None:
    """Fold the oldest events until at most `leave` are left, in as few commits as can be: each one
    reads and writes the whole fold."""
    most = backend.capabilities.max_ops - _OTHERS
    more = True
    while more and (surplus := len((state := _leaders(backend, job_id)).live) - leave) > 0:
        own, others = _fold_ops(state, job_id, min(most, surplus), None)
        if not others:
            break  # The others are in the fold, too: fsck names them.
        try:
            commit_and_read_back(backend, own, *others, fence=fence)
            more = len(others) < surplus
        except Conflict:
            pass  # An earlier try was committed after all, or an event is gone.


def fold_all(backend: Backend, fence: Fence) -> None:
    """Fold the histories of all jobs, but for those whose fold cannot be read; raises as `fold`."""
    for job_id, _ in groupby(keys.job_of(one.key) for one in backend.scan(keys.HISTORY)):
        with suppress(CorruptRecord):
            fold(backend, job_id, fence)


# -- removing ------------------------------------------------------------------------------


@attrs.frozen
class Dropped:
    """What became of the events of a job that happened before a moment."""

    count: int
    """How many were dropped."""
    since: float
    """Until this moment, in seconds since 1970, there is none to drop; 0 if that is not known."""


def drop_older(backend: Backend, job_id: str, fence: Fence, before: float) -> Dropped:
    """Drop the events of a job that happened before a moment, but for the newest ones if no newer
    one follows. Durable, idempotent. Only for the leader; raises as `fold`.

    Args:
        before: seconds since 1970.
    """
    state = state_of(backend, job_id)
    dropped = state.fold.dropped - len(state.fold.kept) if state.fold is not None else 0
    old = sum(1 for _ in takewhile(lambda one: one[1].at < before, state.newer))
    firsts = [state.events[0].at] if state.events[1:] else []
    if not old and not any(at < before for at in firsts):
        firsts += [event.at for _, event in state.newer[:1] if firsts]
        return Dropped(0, min(firsts, default=0.0))
    state = _folded(backend, job_id, fence, max(0, len(state.live) - old))
    own, others = _fold_ops(state, job_id, 0, None, before)
    with suppress(Conflict):  # An earlier try was committed after all.
        commit_and_read_back(backend, own, *others, fence=fence)
    left = decode(HistoryFold, own.value, own.key)
    return Dropped(left.dropped - len(left.kept) - dropped, 0.0)


# -- inside --------------------------------------------------------------------------------


def state_of(backend: Backend, job_id: str) -> State:
    stored, live = _stored_fold(backend, job_id), _live(backend, job_id)
    while True:
        # What was folded in between is in neither of the two.
        again = _stored_fold(backend, job_id)
        if isinstance(again, CorruptRecord) or again == stored:
            return State.of(again, live)
        stored, live = again, _live(backend, job_id)


def _leaders(backend: Backend, job_id: str) -> State:
    """Return what is stored, as the leader reads it: it alone folds, so nothing is folded between
    the two reads."""
    live = _live(backend, job_id)
    return State.of(_stored_fold(backend, job_id), live)


def _stored_fold(backend: Backend, job_id: str) -> Record | CorruptRecord | None:
    (found,) = backend.get_many([keys.history_fold(job_id)])
    return found


def _live(backend: Backend, job_id: str) -> list[Record]:
    found = list(backend.scan(keys.history(job_id)))
    while len(found) >= _ONE_PAGE:
        again = list(backend.scan(keys.history(job_id)))
        if again == found:
            break
        found = again
    return found


def _fold_ops(
    state: State, job_id: str, most: int, closing: HistoryEvent | None, before: float = 0.0
) -> tuple[Create | Update, list[Delete]]:
    """Return the operation that writes the fold with the oldest events, and those that remove them.

    Args:
        most: about how many events.
        closing: an event that is committed with the fold.
        before: what happened earlier is dropped.
    """
    if state.fold_problem is not None:
        raise state.fold_problem
    key, newer = keys.history_fold(job_id), state.newer
    # The event that was committed with the fold has its version, which changes now.
    least = next((at for at, (record, _) in enumerate(newer, 1) if record.key == key), 0)
    moved = newer[: max(most, least)]
    fold = state.fold or HistoryFold(job_id)
    is_last = closing is None and len(moved) == len(newer)
    size = sum(len(record.value) for record, _ in moved if record.key != key)
    size += 0 if state.stored is None else len(state.stored.value)
    events = [event for _, event in moved]
    folded = _bounded(fold, size, events, before, least=int(is_last))
    value = encode(attrs.evolve(folded, closing=closing))
    own = create_or_update(key, value, state.stored and state.stored.version)
    return own, [Delete(record.key, record.version) for record, _ in moved if record.key != key]


def _bounded(
    fold: HistoryFold, size: int, more: Sequence[HistoryEvent], before: float, *, least: int
) -> HistoryFold:
    """Return a fold with more events, without the oldest if there are too many, and without those
    before a moment, but for the `least` newest ones. If they take too much room, long texts of the
    oldest are shortened first.

    Args:
        size: bytes of the records of all of them, that of the fold included.
    """
    events = [*fold.events, *more]
    kept = min(len(events), MOST_KEPT)
    if size + len(fold.events) * _ENVELOPE > MOST_BYTES:
        events[-kept:] = _shortened(events[-kept:])
        kept = that_fit(events[-kept:], MOST_BYTES)
    while kept > least and events[-kept].at < before:
        kept -= 1
    dropped = len(events) - kept
    older = _no_routine((*fold.kept, *events[:dropped]), before)
    return attrs.evolve(
        fold,
        kept=older,
        kept_seal=sealed("", older),
        events=tuple(events[dropped:]),
        dropped=fold.dropped + dropped,
        seal=seal_with(fold, events, dropped),
    )


def _no_routine(dropped: Sequence[HistoryEvent], before: float) -> tuple[HistoryEvent, ...]:
    """Return what is kept of the events that were dropped."""
    older = [one.shortened() for one in dropped if not one.is_routine and one.at >= before]
    return tuple(older[len(older) - min(that_fit(older, OLDER_BYTES), MOST_OLDER) :])


def _shortened(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Return events of which as many of the oldest are shortened as it takes until all fit; the
    newest, which matter most, keep a part of the room as they are."""
    sizes = [len(encode(event)) for event in events]
    found, over = list(events), sum(sizes) - MOST_BYTES
    old = len(events) - that_fit(events, MOST_BYTES // 4)
    for at, (event, size) in enumerate(zip(events[:old], sizes, strict=False)):
        if over <= 0:
            break
        short = event.shortened()
        if (saved := size - len(encode(short))) > 0:  # Its digests take room, too.
            found[at] = short
            over -= saved
    return found


def seal_with(fold: HistoryFold, events: Sequence[HistoryEvent], dropped: int) -> FoldSeal:
    """Return the seal of a fold to which events were added, and whose oldest events were dropped.

    Args:
        events: all of them, those of `fold` included.
        dropped: how many of them the fold has no more.
    """
    seal = fold.seal
    if seal is None or seal.dropped != fold.dropped:
        # None has sealed it, or an older version has dropped some since.
        seal = FoldSeal(fold.dropped, "", fold.dropped, "")
    behind = sealed(seal.behind, events[:dropped])
    newer = events[max(0, seal.events - fold.dropped) :]
    return FoldSeal(
        fold.dropped + dropped, behind, fold.dropped + len(events), sealed(seal.all, newer)
    )


def sealed(before: str, events: Iterable[HistoryEvent]) -> str:
    """Return the digest of some events in their order, behind those whose digest is `before`."""
    for event in events:
        before = hashlib.sha256(f"{before}{event.full_digest()}".encode()).hexdigest()[:16]
    return before


def that_fit(events: Sequence[HistoryEvent], room: int) -> int:
    """Return how many of the newest events take at most so many bytes: one at least."""
    kept = 0
    for event in reversed(events):
        room -= len(encode(event))
        if room < 0 and kept:
            break
        kept += 1
    return kept
