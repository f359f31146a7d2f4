"""The feed: the new events of all jobs and of the cluster in one order, that of their commits.

The commit that records an event also creates an empty record, ``feed/<job>/<event>``; for an event
of the cluster, ``feed/<event>``. The version of that record is the event's place. So a reader that
keeps a cursor, the place of the last event that it has handled, gets each event once, and reads no
more than what is new: the event itself is where the history of its job has it by then.

The leader sweeps the oldest places. A cursor is good as long as its own record exists: then nothing
behind it was swept, and it is a cursor of this store and of no other one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, CorruptRecord, InvalidInput, NotFound
from jrs.contract.operations import Delete, Fence, Record
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.history import HistoryEvent, HistoryFold
from jrs.store import cluster_history

KEPT = 10_000
"""Places of the newest events that are kept."""
SURE = 9_000
"""Places of the newest events that no sweep removes before 1,000 more events are committed."""
MOST = 1000
"""Events of one page, at most."""
LOOK = 5.0
"""Seconds after which a follower reads although it has noticed nothing."""
_SWEPT = 64
"""Places that one commit sweeps."""
_CURSOR = re.compile(r"([1-9][0-9]{0,18})~(?:([A-Za-z0-9._-]{1,128})~)?([A-Za-z0-9._-]{1,64})")


@attrs.frozen
class FedEvent:
    """An event, and the cursor behind it."""

    event: HistoryEvent
    cursor: str


@attrs.frozen
class FeedPage:
    """Some events, in order."""

    events: tuple[FedEvent, ...]
    cursor: str
    """Behind all events that were looked at, also behind those that are gone by now."""
    more: bool = False
    """Whether there is more at once."""


def read(backend: Backend, after: str = "", limit: int = MOST) -> FeedPage:
    """Return the events behind a cursor; of those that are kept, if it is empty.

    An event is left out if it is gone with its job's history: its job's result was expired, or its
    job has had very many events since.

    Raises:
        InvalidInput: `after` is not a cursor.
        NotFound: what is behind the cursor is not kept any more, or it is one of another store.
        Unavailable: the backend did not answer.
    """
    cursor = _parsed(after) if after else None
    while True:
        places = backend.created_since(keys.FEED, cursor[0] if cursor else 0)
        if cursor is not None and cursor not in map(_order, places[:MOST]):
            raise _gone(after)
        new = [one for one in places if cursor is None or _order(one) > cursor]
        if not new:
            return FeedPage((), after)
        page = new[:limit]
        events = _events(backend, [_named(one.key) for one in page], places[0])
        if events is None:
            continue  # The oldest place was swept meanwhile, and others behind it may be.
        found = [
            FedEvent(event, _cursor(one))
            for one, event in zip(page, events, strict=True)
            if event is not None
        ]
        return FeedPage(tuple(found), _cursor(page[-1]), len(new) > len(page))


@attrs.frozen
class FedPlace:
    """The place of an event of a job."""

    job_id: str
    event: str
    version: int


def places(backend: Backend, job_id: str = "") -> Iterator[FedPlace]:
    """Yield the places of the events of a job, or of all jobs."""
    for record in backend.scan(keys.fed(job_id, "") if job_id else keys.FEED):
        name, event = _named(record.key)
        if name:
            yield FedPlace(name, event, record.version)


def cursors(backend: Backend, job_id: str) -> Mapping[str, str]:
    """Return the cursor behind each event of a job, by its id, as far as its place is kept."""
    return {_named(one.key)[1]: _cursor(one) for one in backend.scan(keys.fed(job_id, ""))}


def newest(backend: Backend) -> str:
    """Return the cursor behind all events that are committed; empty if none is kept."""
    return ends(backend)[1]


def ends(backend: Backend) -> tuple[str, str]:
    """Return the cursors behind the oldest of the `SURE` newest events, and behind the newest; both
    empty if none is kept."""
    places = backend.created_since(keys.FEED, 0)[-SURE:]
    return (_cursor(places[0]), _cursor(places[-1])) if places else ("", "")


def is_behind(cursor: str, other: str) -> bool:
    """Return whether a cursor is further than another one; raises `InvalidInput` as `read`."""
    return not other or _parsed(cursor) > _parsed(other)


def sweep(backend: Backend, fence: Fence, keep: int = KEPT) -> int:
    """Remove the oldest places until `keep` are left; return how many were removed. One that is
    held because of damage stays, and keeps no other one. Only for the leader.

    Raises:
        Fenced: a newer leader exists.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    places = backend.created_since(keys.FEED, 0)
    old = places[: max(0, len(places) - keep)]
    batches = (old[first : first + _SWEPT] for first in range(0, len(old), _SWEPT))
    return sum(_swept(backend, fence, some) for some in batches)


# -- inside --------------------------------------------------------------------------------


def _swept(backend: Backend, fence: Fence, places: Sequence[Record]) -> int:
    """Remove some places; return how many of them are gone."""
    try:
        backend.commit(*(Delete(one.key, one.version) for one in places), fence=fence)
    except Conflict:
        pass  # An earlier try was committed after all.
    except CorruptRecord:
        if len(places) == 1:
            return 0  # fsck names it.
        return sum(_swept(backend, fence, [one]) for one in places)
    return len(places)


def _order(record: Record) -> tuple[int, str]:
    return record.version, record.key


def _named(key: str) -> tuple[str, str]:
    """Return the job and the event that a place is of."""
    job_id, _, event = key.removeprefix(keys.FEED).rpartition("/")
    return job_id, event


def _cursor(record: Record) -> str:
    return f"{record.version}~{record.key.removeprefix(keys.FEED).replace('/', '~')}"


def _parsed(cursor: str) -> tuple[int, str]:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidInput(f"{shown(cursor)} is no cursor of the history")
    version, job_id, event = found.groups(default="")
    return int(version), keys.fed(job_id, event)


def _gone(cursor: str) -> NotFound:
    return NotFound(
        f"what is behind the cursor {shown(cursor)} is not kept any more, or it is a cursor of "
        "another store: begin without a cursor, and expect that events are missing"
    )


def _events(
    backend: Backend, named: Sequence[tuple[str, str]], oldest: Record
) -> list[HistoryEvent | None] | None:
    """Return the events with those names, in their order, and None for each that is gone; None
    altogether if `oldest` is swept by now."""
    wanted = [keys.history_event(job_id, id) for job_id, id in named if job_id]
    first, *live = backend.get_many([oldest.key, *wanted])
    if not isinstance(first, Record) or first.version != oldest.version:
        return None
    found: dict[tuple[str, str], HistoryEvent] = {}
    for name, record in zip((one for one in named if one[0]), live, strict=True):
        with suppress(CorruptRecord):  # fsck names it.
            if isinstance(record, Record):
                found[name] = decode(HistoryEvent, record.value, record.key)
    # What is gone from there may be folded: the folds are read later, so they have it.
    found |= _folded(backend, sorted({job_id for job_id, id in named if (job_id, id) not in found}))
    return [found.get(name) for name in named]


def _folded(backend: Backend, job_ids: Sequence[str]) -> Mapping[tuple[str, str], HistoryEvent]:
    """Return the events in the folds of jobs; the empty id is the cluster."""
    events: list[HistoryEvent] = []
    if "" in job_ids:
        with suppress(CorruptRecord):
            events += cluster_history.read(backend)
    for record in backend.get_many([keys.history_fold(job_id) for job_id in job_ids if job_id]):
        with suppress(CorruptRecord):
            if isinstance(record, Record):
                fold = decode(HistoryFold, record.value, record.key)
                events += (*fold.kept, *fold.events, *filter(None, [fold.closing]))
    return {(event.job_id, event.id): event for event in events}
