"""The history of jobs: an event in each commit that changes a job, and its folding.

Each event is a record of its own, ``history/<job>/<writer>.<number>``. A writer is a chain of
events of one process about one job, under a random name, so two commits never conflict over the
history. Events are ordered by the versions of their records, which every backend gives in the order
of the commits.

Once a job has many events, its leader folds the oldest into one record, ``history/<job>/folded``,
and drops the very oldest. The commit that marks the result clean folds them all.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import groupby

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import Conflict, CorruptRecord, Refused, Unavailable
from jrs.contract.operations import Create, Delete, Fence, Op, Record, Update, create_or_update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.checks import size_of_json
from jrs.records.codec import decode, encode
from jrs.records.fields import Json
from jrs.records.history import HistoryEvent, HistoryFold, HistoryKind

MANY = 64
"""Events of a job that are not folded, from which its leader folds the oldest."""
_AT_ONCE = 24
"""Events that one commit folds: with their conditions, few enough for every backend."""
MOST_KEPT = 256
"""Events in the fold of a job."""
_MOST_BYTES = 96 * 1024
"""Bytes of a fold's events."""
_MOST_FACTS = 2048
"""Bytes of the facts of one event; larger ones are left out."""
_ONE_PAGE = 64
"""Records that every backend reads as they are at one moment."""
_REMEMBERED = 1024
"""Jobs whose chains a handle continues; of others it begins a new one."""


@attrs.frozen
class _Chain:
    """Where a writer's chain has come to."""

    writer: str
    written: int = 0
    digest: str = ""

    @classmethod
    def begun(cls) -> _Chain:
        return cls(secrets.token_hex(6))

    def after(self, event: HistoryEvent) -> _Chain:
        return _Chain(self.writer, self.written + 1, event.digest())


class _Chains:
    """The chains that one handle can continue: at most one of each job, while no commit uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: OrderedDict[str, _Chain] = OrderedDict()

    def take(self, job_id: str) -> _Chain:
        with self._lock:
            return self._free.pop(job_id, None) or _Chain.begun()

    def give_back(self, job_id: str, chain: _Chain) -> None:
        with self._lock:
            self._free[job_id] = chain
            if len(self._free) > _REMEMBERED:
                self._free.popitem(last=False)


_chains: weakref.WeakKeyDictionary[Backend, _Chains] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _chains_of(backend: Backend) -> _Chains:
    with _lock:
        found = _chains.get(backend)
        if found is None:
            found = _chains[backend] = _Chains()
        return found


def with_reason(text: str, reason: str) -> str:
    """Return what the history says of something that may have a reason."""
    return f"{text}: {reason}" if reason else text


def snapshot_taken(number: int, name: str | None) -> str:
    """Return what the history says of a snapshot."""
    return f"snapshot {number}{f' ({name})' if name else ''} was taken"


_caller: ContextVar[str] = ContextVar("jrs_caller", default="")


@contextmanager
def acting_for(caller: str) -> Iterator[None]:
    """Have what is done in the block recorded as done by a caller, for a program that acts for
    several; empty: by the user of this process."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)


def submitter() -> str:
    """Return who acts from this process: the caller that it acts for, or ``user@host``."""
    if caller := _caller.get():
        return caller
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = str(os.getuid())  # A container's user may have no name.
    return f"{user}@{socket.gethostname()}"


@attrs.frozen
class Historian:
    """Records what one user, leader or attempt does, in the commits that do it.

    Args:
        by: a master by its name; or a user, if it is not the one of this process.
        epoch: of the leader that acts, itself or by an attempt; 0 for a user.
        attempt: the attempt that acts; 0 for a leader or a user.
    """

    backend: Backend
    by: str = ""
    epoch: int = 0
    attempt: int = 0
    now: Clock = time.time

    @classmethod
    def of(cls, backend: Backend, fence: Fence | None, now: Clock = time.time) -> Historian:
        """Return that of the leader with a fence; None: of the user of this process."""
        return cls(backend, epoch=0 if fence is None else fence.epoch, now=now)

    @contextmanager
    def recorded(
        self,
        job_id: str,
        kind: HistoryKind,
        text: str = "",
        *,
        action: str = "",
        facts: Mapping[str, Json] | None = None,
        repeatable: bool = False,
    ) -> Iterator[tuple[Op, ...]]:
        """Yield the operations that record an event, for the commit in the block.

        The block is that commit and nothing else: if it returns, the event is stored.

        Args:
            repeatable: the block may also return because an earlier call of its has committed the
                same. The event is then one of a chain of its own.
        """
        chains = _chains_of(self.backend)
        chain = _Chain.begun() if repeatable else chains.take(job_id)
        event = self._event(chain, job_id, kind, text, action, facts)
        try:
            yield (Create(keys.history_event(job_id, event.id), encode(event)),)
        except (Refused, Unavailable):
            if not repeatable:
                chains.give_back(job_id, chain)
            raise
        # After any other error the event may be stored or not: the chain ends before it.
        if not repeatable:
            chains.give_back(job_id, chain.after(event))

    def folding(
        self,
        job_id: str,
        fence: Fence,
        kind: HistoryKind,
        text: str = "",
        *,
        action: str = "",
        facts: Mapping[str, Json] | None = None,
    ) -> tuple[Op, ...]:
        """Return the operations that record an event and fold all of the job's events with it.

        Only for the leader, which alone folds. Raises as `fold`.
        """
        last = self._event(_Chain.begun(), job_id, kind, text, action, facts)
        try:
            left = fold(self.backend, job_id, fence, leave=_AT_ONCE)
            own, others = _fold_ops(self.backend, job_id, left, last)
        except CorruptRecord:  # The fold stays as it is; fsck names it.
            return (Create(keys.history_event(job_id, last.id), encode(last)),)
        return (own, *others)

    def _event(
        self,
        chain: _Chain,
        job_id: str,
        kind: HistoryKind,
        text: str,
        action: str,
        facts: Mapping[str, Json] | None,
    ) -> HistoryEvent:
        plain = None if facts is None else dict(facts)
        if plain is not None and size_of_json(plain) > _MOST_FACTS:
            plain = None
        return HistoryEvent(
            job_id,
            f"{chain.writer}.{chain.written:06}",
            kind.value,
            self.now(),
            self.by or ("" if self.epoch else submitter()),
            text,
            self.epoch,
            self.attempt,
            action,
            plain,
            chain.digest,
        )


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
        some = events[: min(_AT_ONCE, len(events) - leave)]
        own, others = _fold_ops(backend, job_id, some)
        try:
            commit_and_read_back(backend, own, *others, fence=fence)
        except Conflict:
            _, events = _stored(backend, job_id)  # An earlier try was committed after all.
            continue
        events = events[len(some) :]
    return events


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


def _fold_ops(
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
