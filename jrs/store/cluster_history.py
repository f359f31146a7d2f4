"""The history of the cluster itself: which master was elected, how its leadership ended, and who
paused the cluster.

It is one record, ``cluster/history``. Leaders write it under their fence: a master that was
replaced records nothing, and its successor records that it lost its leadership. What an operator
does to the cluster is recorded in the commit that does it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import Conflict, CorruptRecord, OutcomeUnknown, Refused, Unavailable
from jrs.contract.operations import Fence, Op, create_or_update
from jrs.contract.texts import bounded, when, with_reason
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.field_types import Json
from jrs.records.history import ClusterHistory, HistoryEvent, HistoryKind
from jrs.store.historian import event_text, requested, submitter
from jrs.store.history import place, that_fit
from jrs.store.history_texts import elected, expired, lost_to

MOST_KEPT = 128
"""Events of the cluster that are kept, at most."""
MOST_BYTES = 128 * 1024
"""Bytes that they take, about; every backend takes a record of that size."""
MOST_REASON = 2048
"""Bytes of the reason in one event, so that a few long ones do not displace all others."""
_NAMED = 5
"""Expired results that one event names."""


def read(backend: Backend) -> tuple[HistoryEvent, ...]:
    """Return the events of the cluster in the order of their commits.

    Raises:
        CorruptRecord: their record cannot be read.
        Unavailable: the backend did not answer.
    """
    stored = _stored(backend, None)[0]
    return (*filter(None, [stored.led]), *stored.events)


def problems(backend: Backend) -> Iterator[str]:
    """Yield what is missing from the history of the cluster, or was changed; raises as `read`."""
    for before, event in pairwise(_stored(backend, None)[0].events):
        if event.previous != before.digest():
            yield f"{keys.CLUSTER_HISTORY}: the event before {event.id} is missing, or was changed"


@attrs.frozen
class LeadershipHistorian:
    """Records that a master was elected, and how its leadership ended, as far as that is possible:
    no leadership depends on it, and each call returns whatever happens."""

    backend: Backend
    fence: Fence
    by: str
    """The master that leads."""
    about: Mapping[str, Json]
    """Its host, its pid and its ttl."""
    now: Clock = time.time

    def elected(self) -> list[float]:
        """Record that the master was elected; and of the leader before it that it lost its
        leadership, if its end is not recorded. Return how many seconds ago each leader lost its
        leadership, as far as the history has it."""
        lost: list[float] = []

        def events(before: Sequence[HistoryEvent]) -> Iterator[HistoryEvent]:
            now = self.now()
            lost[:] = [now - one.at for one in before if one.known_kind is HistoryKind.LOST]
            last = next(filter(_is_of_leadership, reversed(before)), None)
            if last is not None and last.known_kind is HistoryKind.ELECTED:
                lost.append(0.0)
                said = lost_to(self.by)
                yield self._event(HistoryKind.LOST, last.by, last.epoch, said, last.facts)
            said = elected(self.about)
            yield self._event(HistoryKind.ELECTED, self.by, self.fence.epoch, said, self.about)

        _record(self.backend, self.fence, events, None)
        return lost

    def ended(self, *, lost: bool, why: str, deadline: Deadline) -> None:
        """Record that the leadership ended. Once a newer leader exists that is refused."""
        kind = HistoryKind.LOST if lost else HistoryKind.RESIGNED
        said = with_bounded_reason("lost its leadership" if lost else "resigned", why)

        def events(before: Sequence[HistoryEvent]) -> Iterator[HistoryEvent]:
            yield self._event(kind, self.by, self.fence.epoch, said, self.about)

        _record(self.backend, self.fence, events, deadline)

    def _event(
        self, kind: HistoryKind, by: str, epoch: int, text: str, about: Mapping[str, Json] | None
    ) -> HistoryEvent:
        facts = None if about is None else dict(about)
        return HistoryEvent("", "", kind.value, self.now(), by, bounded(text), epoch, facts=facts)


def with_bounded_reason(text: str, reason: str) -> str:
    """Return the text of an event of the cluster, with its reason as far as there is room."""
    return with_reason(text, bounded(reason, MOST_REASON))


def steered(backend: Backend, kind: HistoryKind, by: str, text: str, now: Clock) -> tuple[Op, ...]:
    """Return the operations that record what an operator does to the cluster, for the commit that
    does it. They conflict if another event is recorded meanwhile: ask for them again. Empty if the
    record cannot be read, which fsck names.

    Raises:
        Unavailable: the backend did not answer.
    """
    try:
        return _ops(backend, _one(kind, by, text, now, 0), None)
    except CorruptRecord:
        return ()


def record(
    backend: Backend,
    kind: HistoryKind,
    text: str,
    now: Clock = time.time,
    fence: Fence | None = None,
) -> None:
    """Record what was done to the cluster, as far as that is possible: for what is no commit, or
    takes many.

    Args:
        fence: of the leader that did it; None: a user did it.
    """
    epoch = 0 if fence is None else fence.epoch
    by = "" if epoch else submitter()
    _record(backend, fence, _one(kind, by, text, now, epoch), None)


def recording_expired(
    backend: Backend, gone: Iterable[str], now: Clock = time.time, fence: Fence | None = None
) -> Iterator[str]:
    """Yield the ids of results that are being expired; then record how many there were, as `record`
    does. The tombstone of each has who expired it."""
    number, some = 0, list[str]()
    try:
        for job_id in gone:
            number += 1
            if number <= _NAMED:
                some.append(job_id)
            yield job_id
    finally:
        if number and fence is not None:
            _record(backend, fence, _expired(number, some, now, fence), None)
        elif number:
            record(backend, HistoryKind.EXPIRED, expired(number, some), now)


def _is_of_leadership(event: HistoryEvent) -> bool:
    return event.known_kind in (HistoryKind.ELECTED, HistoryKind.RESIGNED, HistoryKind.LOST)


_Made = Callable[[Sequence[HistoryEvent]], Iterator[HistoryEvent]]


def _record(backend: Backend, fence: Fence | None, made: _Made, deadline: Deadline | None) -> None:
    """Record events, as far as that is possible."""
    try:
        while True:
            ops = _ops(backend, made, deadline)
            try:
                backend.commit(*ops, fence=fence, deadline=deadline)
            except Conflict:
                continue  # Another event was just recorded.
            return
    except (Refused, Unavailable, OutcomeUnknown):
        pass  # Whatever it is, those who lead notice it, too. fsck names an unreadable record.


def _one(kind: HistoryKind, by: str, text: str, now: Clock, epoch: int) -> _Made:
    """Return what makes one event, of a user or of the leader with an epoch."""

    def made(before: Sequence[HistoryEvent]) -> Iterator[HistoryEvent]:
        yield HistoryEvent(
            "", "", kind.value, now(), bounded(by), event_text(text, epoch, MOST_REASON), epoch,
            request=requested(epoch),
        )  # fmt: skip

    return made


def _expired(number: int, some: Sequence[str], now: Clock, fence: Fence) -> _Made:
    """Return what makes the event of results that a leader expired. If it is the newest one of its
    leadership, it has those of the passes before, too: a leader makes a pass each hour."""

    def made(before: Sequence[HistoryEvent]) -> Iterator[HistoryEvent]:
        (event,) = _one(HistoryKind.EXPIRED, "", expired(number, some), now, fence.epoch)(before)
        about: dict[str, Json] = {"results": number, "since": event.at}
        last = before[-1] if before else None
        if last is not None and (last.kind, last.epoch) == (event.kind, event.epoch) and last.about:
            total, since = last.about["results"], last.about["since"]
            if isinstance(total, int) and isinstance(since, int | float):
                about = {"results": total + number, "since": since}
                said = f"{expired(total + number, some)}, since {when(since)}"
                event = attrs.evolve(last, at=event.at, text=said)
        yield attrs.evolve(event, about=about)

    return made


def _stored(backend: Backend, deadline: Deadline | None) -> tuple[ClusterHistory, int | None]:
    """Return the record, and its version if there is one."""
    stored = backend.get(keys.CLUSTER_HISTORY, deadline=deadline)
    if stored is None:
        return ClusterHistory(()), None
    return decode(ClusterHistory, stored.value, stored.key), stored.version


def _ops(backend: Backend, made: _Made, deadline: Deadline | None) -> tuple[Op, ...]:
    """Return the operations that add events to the record, and give them their places."""
    history, version = _stored(backend, deadline)
    led = (history.led,) if history.led is not None else ()
    events = list(history.events)
    writer, new = secrets.token_hex(6), list[HistoryEvent]()
    for number, event in enumerate(made((*led, *events))):
        if event.id:
            events[-1] = event  # It takes the place of the newest one.
            continue
        previous = events[-1].digest() if events else ""
        # The feed has the events of one commit in the order of their ids.
        id = f"{writer}.{number:06}"
        new.append(attrs.evolve(event, id=id, previous=previous))
        events.append(new[-1])
    fit = that_fit(events[-MOST_KEPT:], MOST_BYTES)
    left_out = len(events) - max(len(new), fit)
    kept = attrs.evolve(
        history,
        events=tuple(events[left_out:]),
        dropped=history.dropped + left_out,
        led=next(filter(_is_of_leadership, reversed((*led, *events[:left_out]))), None),
    )
    own = create_or_update(keys.CLUSTER_HISTORY, encode(kept), version)
    return own, *map(place, new)
