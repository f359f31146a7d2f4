"""Historian: records an event in the commit that changes a job.

A writer is a chain of events of one process about one job, under a random name: so two commits
never conflict over the history, and an event that is missing from the middle is noticed. One commit
at a time uses a chain. A chain whose commit has an unknown outcome ends.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import CorruptRecord, Refused, Unavailable
from jrs.contract.operations import Create, Fence, Op
from jrs.contract.texts import LIMIT, bounded, with_reason
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.field_types import Json
from jrs.records.history import HistoryEvent, HistoryKind, kept_facts
from jrs.store.history import closing_ops, place

_REMEMBERED = 1024
"""Jobs whose chains a handle continues; of others it begins a new one."""


@attrs.frozen
class _Chain:
    """Where a writer's chain has come to."""

    writer: str
    written: int = 0
    last: HistoryEvent | None = None

    @classmethod
    def begun(cls) -> _Chain:
        return cls(secrets.token_hex(6))

    def after(self, event: HistoryEvent) -> _Chain:
        return _Chain(self.writer, self.written + 1, event)


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


def _chains_of(backend: Backend) -> _Chains:
    # Without a lock, which a fork could leave locked: of two threads that come first, one begins
    # chains that nobody continues.
    return _chains.get(backend) or _chains.setdefault(backend, _Chains())


_caller: ContextVar[str] = ContextVar("jrs_caller", default="")
_reason: ContextVar[str] = ContextVar("jrs_reason", default="")
_request: ContextVar[str] = ContextVar("jrs_request", default="")


@contextmanager
def _set(variable: ContextVar[str], value: str) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def acting_for(caller: str) -> AbstractContextManager[None]:
    """Have what is done in the block recorded as done by a caller, for a program that acts for
    several; empty: by the user of this process."""
    return _set(_caller, caller)


def because(reason: str = "", request: str = "") -> AbstractContextManager[None]:
    """Have what this thread asks for in the block recorded with a reason.

    The history of the job, or of the cluster, has the reason behind what was done. What a leader or
    an attempt does has none. A block within another one has the reason and the request of that one,
    unless it has its own.

    Args:
        reason: why, in one line.
        request: what asks for it: a command, or the id of a request. `jrs` records its command, and
            the API the id of the request.

    Example::

        with jrs.because("the input of Monday was wrong"):
            client.job("nightly").cancel()
    """
    return _asking(reason, request)


@contextmanager
def _asking(reason: str, request: str) -> Iterator[None]:
    with _set(_reason, reason or _reason.get()), _set(_request, request or _request.get()):
        yield


def event_text(text: str, epoch: int, most: int = LIMIT) -> str:
    """Return the text of an event: what a user did, with the reason that was given for it, which
    takes at most so many bytes."""
    return bounded(text if epoch else with_reason(text, bounded(_reason.get(), most)))


def reason() -> str:
    """Return why what this thread asks for is asked for; empty if nothing says so."""
    return bounded(_reason.get())


def requested(epoch: int) -> str:
    """Return what asks for what this thread does; empty for a leader and its attempts."""
    return "" if epoch else bounded(_request.get())


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
class Why:
    """The decision by which a leader acts."""

    action: str = ""
    rules: int = 0
    """The version of the rules that decided."""
    facts: Mapping[str, Json] | None = None


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
    also: Callable[[], Mapping[str, Json]] = dict
    """What belongs to each of its events from now on, besides their own `HistoryEvent.about`."""

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
        why: Why | None = None,
        about: Mapping[str, Json] | None = None,
        repeatable: bool = False,
    ) -> Iterator[tuple[Op, ...]]:
        """Yield the operations that record an event, for the commit in the block.

        The block is that commit and nothing else: if it returns, the event is stored.

        Args:
            why: the decision that led to it.
            about: what belongs to it, as `HistoryEvent.about`.
            repeatable: the block may also return because an earlier call of its has committed the
                same. The event is then one of a chain of its own.
        """
        chains = _chains_of(self.backend)
        chain = _Chain.begun() if repeatable else chains.take(job_id)
        event = self._event(chain, job_id, kind, text, why, about)
        try:
            yield Create(keys.history_event(job_id, event.id), encode(event)), place(event)
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
        why: Why | None = None,
        about: Mapping[str, Json] | None = None,
    ) -> tuple[Op, ...]:
        """Return the operations that record an event and fold all of the job's events with it.

        Only for the leader, which alone folds. Raises as `fold`.
        """
        last = self._event(_Chain.begun(), job_id, kind, text, why, about)
        try:
            return (*closing_ops(self.backend, job_id, fence, last), place(last))
        except CorruptRecord:  # The fold stays as it is; fsck names it.
            return Create(keys.history_event(job_id, last.id), encode(last)), place(last)

    def _event(
        self,
        chain: _Chain,
        job_id: str,
        kind: HistoryKind,
        text: str,
        why: Why | None,
        about: Mapping[str, Json] | None,
    ) -> HistoryEvent:
        why = why or Why()
        about = {**self.also(), **(about or {})}
        return HistoryEvent(
            job_id,
            f"{chain.writer}.{chain.written:06}",
            kind.value,
            self.now(),
            bounded(self.by or ("" if self.epoch else submitter())),
            event_text(text, self.epoch),
            self.epoch,
            self.attempt,
            why.action,
            why.rules,
            None if why.facts is None else kept_facts(why.facts),
            "" if chain.last is None else chain.last.digest(),
            about or None,
            requested(self.epoch),
        )
