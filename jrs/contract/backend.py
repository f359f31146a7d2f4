"""The contract of every backend: one linearizable, ordered map with atomic, guarded commits.

A backend is this contract and nothing else. What a cluster stores (results, specs, stages, …) is
written once, on top of it. The public methods of `Backend` hold what is the same for all of them
(validation, limits, paging); an adapter implements the underscored primitives.

Three outcomes of a write are kept apart everywhere: it returned (*done*), it raised `Refused` or
`Unavailable` (*nothing was changed*), or it raised `OutcomeUnknown` (*read back before deciding*).
"""

from __future__ import annotations

import abc
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Self

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    Fenced,
    InvalidInput,
    TooLarge,
)
from jrs.contract.formats import NEWEST_FORMAT
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Create, Fence, Op, Record, Update
from jrs.contract.texts import shown
from jrs.contract.watch import Watch

_KEY = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_PAGE = 1000


@attrs.frozen
class Capabilities:
    """Limits and guarantees of a backend, as data. Limits are refused before anything is sent."""

    max_value: int
    """Largest value, in bytes."""
    max_ops: int
    """Most operations in one commit, the fence not counted."""
    max_key: int
    """Longest key, in characters."""
    min_ttl: float
    max_ttl: float
    """The range of a leadership's ttl, in seconds."""
    durable: bool
    """A commit that returned survives a power cut."""
    multi_process: bool
    """Several processes can open the same cluster."""
    multi_host: bool
    """Several hosts can."""


@attrs.frozen
class Diagnostic:
    """One thing that was looked at.

    Attributes:
        what: in a word or two.
        detail: what was found.
        remedy: what to do about it; None if it is as it should be.
    """

    what: str
    detail: str
    remedy: str | None = None


class Backend(abc.ABC):
    """The map of one cluster. Safe for use by many threads; not to be used across a fork.

    Attributes:
        url: where it is, without secrets.
        cluster: the namespace of everything stored.
        capabilities: what it guarantees and where its limits are.
        timeout: seconds a call may take where it is given no deadline.
        default_storage: a folder next to the map where jobs may keep their files, if there is one.
        marked_format: the format that the cluster's marker names: no older version of jrs opens
            the cluster. The format in force may be newer; see `jrs.store.cluster_format`.
    """

    url: str
    cluster: str
    capabilities: Capabilities
    marked_format: int = NEWEST_FORMAT
    timeout: float = 10.0
    default_storage: Path | None = None

    # -- the public contract ---------------------------------------------------------------

    def get(self, key: str, *, deadline: Deadline | None = None) -> Record | None:
        """Return the record, or None. Linearizable: sees every commit that returned before it.

        Raises:
            CorruptRecord: the stored bytes cannot be trusted.
            Unavailable: the backend did not answer within the deadline.
        """
        self._check_key(key)
        return self._get(key, deadline or self._deadline())

    def get_many(
        self, keys: Sequence[str], *, deadline: Deadline | None = None
    ) -> list[Record | CorruptRecord | None]:
        """Return what `get` would return for each key; what it would raise as `CorruptRecord` is
        returned in its place. Linearizable key by key, not as a whole; no key is read earlier than
        the one before it in `keys`.

        Raises:
            Unavailable: the backend did not answer within the deadline.
        """
        for key in keys:
            self._check_key(key)
        return self._get_many(keys, deadline or self._deadline())

    def scan(
        self,
        prefix: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        deadline: Deadline | None = None,
    ) -> Iterator[Record]:
        """Yield the records whose key starts with `prefix`, in key order, in O(page) memory.

        `after` is a key to continue behind. Each page is consistent; a record that is written
        while the scan runs may or may not be seen. The deadline holds for each page.
        """
        left = limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            page = self._page(prefix, after, size, deadline or self._deadline())
            yield from page
            if len(page) < size:
                return
            after = page[-1].key
            if left is not None:
                left -= len(page)

    def commit(
        self, *ops: Op, fence: Fence | None = None, deadline: Deadline | None = None
    ) -> None:
        """Apply all operations or none; durable when it returns.

        Raises:
            Conflict: an operation's condition did not hold; `.op` is the first such operation.
            Fenced: the fence did not hold; of an attempt's, neither half of it may be missing.
            TooLarge, InvalidInput: refused before it was sent.
            Unavailable: nothing was changed.
            OutcomeUnknown: it may have been applied.
        """
        self._check_ops(ops, fence)
        guarded = _guarded(ops, fence)
        try:
            self._commit(guarded, fence, deadline or self._deadline())
        except Conflict as conflict:
            if _shuts_out(conflict, fence):
                raise _shut_out() from None
            raise

    def commit_async(self, *ops: Op, fence: Fence | None = None) -> Future[None]:
        """Like `commit`, pipelined: many in flight from one caller.

        The future's exception is what `commit` would have raised. Commits of one caller are
        applied in the order of the calls. A callback of the future must not commit: it may run
        where commits are written.
        """
        self._check_ops(ops, fence)
        future = self._commit_async(_guarded(ops, fence), fence)
        return future if fence is None or fence.attempt is None else _as_fenced(future, fence)

    @abc.abstractmethod
    def watch(self, prefix: str) -> Watch:
        """Watch the keys that start with `prefix`."""

    @abc.abstractmethod
    def campaign(self, candidate: str, *, ttl: float, stop: threading.Event) -> Leadership | None:
        """Block until `candidate` leads, or return None once `stop` is set.

        The epoch is bumped in the commit that checks the previous one, so at most one leadership
        of an epoch exists. A leader that hangs is replaced after `ttl` seconds, one that dies
        sooner where the backend can tell.

        Raises:
            InvalidInput: `ttl` is outside of the declared range.
            Unavailable: the backend could not be asked.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release everything. Idempotent. Commits in flight end with an error or are done."""

    def is_current(self, fence: Fence) -> bool:
        """Return whether `fence` held a moment ago. Advisory: only a fenced commit is proof."""
        conditions = [fence.check(), *([fence.attempt] if fence.attempt is not None else ())]
        found = self.get_many([condition.key for condition in conditions])
        for condition, record in zip(conditions, found, strict=True):
            if isinstance(record, CorruptRecord):
                raise record
            if record is None or record.version != condition.version:
                return False
        return True

    def check(self) -> Iterator[str]:
        """Yield a line for each damaged place below the map; reads everything, changes nothing."""
        yield from ()

    def diagnostics(self, ttl: float) -> Iterator[Diagnostic]:
        """Yield what only the backend can tell of how fit it is for leaderships of that ttl:
        versions, encryption, its members, its sessions. Changes nothing.

        Raises:
            Unavailable: it did not answer.
        """
        yield from ()

    def mark_format(self, version: int) -> None:
        """Have the cluster's marker name a newer format, durably, so that older versions of jrs
        refuse to open the cluster. Idempotent; to be called through `jrs.store.cluster_format`.

        Raises:
            Unavailable: the backend did not answer; repeat it.
        """
        self.marked_format = max(self.marked_format, version)

    def accept_damage(self) -> list[str]:
        """Go on, for good, without what is damaged; return what can still be read of it."""
        return []

    def overwrite(self, key: str, value: bytes) -> None:
        """Write a record whatever it was, also over one that cannot be read. For operators: it
        checks no fence and loses to no other write. Durable, idempotent.

        Raises:
            Conflict: it was written by somebody else at the same moment.
            Unavailable, OutcomeUnknown: as `commit`.
        """
        found = self.get(key)
        self.commit(Create(key, value) if found is None else Update(key, value, found.version))

    def epochs(self) -> Iterator[int]:
        """Yield the epochs of which there are traces below the map."""
        yield from ()

    # -- what an adapter implements --------------------------------------------------------

    @abc.abstractmethod
    def _get(self, key: str, deadline: Deadline) -> Record | None:
        """Read one record, linearizably."""

    def _get_many(
        self, keys: Sequence[str], deadline: Deadline
    ) -> list[Record | CorruptRecord | None]:
        """Read many records; to override where that is cheaper than one by one."""
        found: list[Record | CorruptRecord | None] = []
        for key in keys:
            try:
                found.append(self._get(key, deadline))
            except CorruptRecord as error:
                found.append(error)
        return found

    @abc.abstractmethod
    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        """Read at most `limit` records behind `after`, consistently; fewer only at the end."""

    @abc.abstractmethod
    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        """Commit validated operations within the deadline."""

    @abc.abstractmethod
    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        """Queue validated operations without blocking."""

    # -- shared ----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _deadline(self) -> Deadline:
        return Deadline.after(self.timeout)

    def _check_key(self, key: str) -> None:
        if not isinstance(key, str):
            raise InvalidInput(f"not a key: {shown(key)}")
        if len(key) > self.capabilities.max_key:
            raise TooLarge(f"key of {len(key)} characters; limit {self.capabilities.max_key}")
        if not _KEY.fullmatch(key):
            raise InvalidInput(f"not a key: {key!r} (names of A-Z a-z 0-9 . _ - joined by /)")

    def _check_ops(self, ops: tuple[Op, ...], fence: Fence | None) -> None:
        if fence is not None and not isinstance(fence, Fence):
            raise InvalidInput(f"not a Fence: {shown(fence)}")
        limits = self.capabilities
        if len(ops) > limits.max_ops:
            raise TooLarge(f"{len(ops)} operations in one commit; limit {limits.max_ops}")
        seen = set()
        for op in ops:
            key = op.key
            if len(key) > limits.max_key or not _KEY.fullmatch(key):
                self._check_key(key)
            if key in seen:
                raise InvalidInput(f"two operations on {key!r} in one commit")
            seen.add(key)
            if isinstance(op, (Create, Update)) and len(op.value) > limits.max_value:
                raise TooLarge(
                    f"value of {key!r} has {len(op.value):,} bytes; limit {limits.max_value:,}"
                )

    def check_ttl(self, ttl: float) -> None:
        """Raise `InvalidInput` if `ttl` is outside of the declared range."""
        limits = self.capabilities
        if not isinstance(ttl, (int, float)):
            raise InvalidInput(f"a ttl is a number of seconds, not {shown(ttl)}")
        if not limits.min_ttl <= ttl <= limits.max_ttl:
            raise InvalidInput(
                f"ttl of {shown(ttl)} s is outside of {limits.min_ttl:g} to {limits.max_ttl:g} s"
            )


def _guarded(ops: tuple[Op, ...], fence: Fence | None) -> tuple[Op, ...]:
    """Return the operations with the condition of an attempt's fence before them, unless one of
    them has it itself: that which ends the attempt's right to write."""
    if fence is None or fence.attempt is None:
        return ops
    if any(op.key == fence.attempt.key for op in ops):
        return ops
    return (fence.attempt, *ops)


def _shuts_out(conflict: Conflict, fence: Fence | None) -> bool:
    return fence is not None and fence.attempt is not None and conflict.op.key == fence.attempt.key


def _shut_out() -> Fenced:
    return Fenced("this attempt was shut out: another one may run, or its job was ended")


def _as_fenced(future: Future[None], fence: Fence) -> Future[None]:
    """Return a future of a commit that fails as `Fenced` if it was the attempt's fence that did not
    hold."""
    outer: Future[None] = Future()

    def settle(inner: Future[None]) -> None:
        error = inner.exception()
        with suppress(InvalidStateError):  # Its caller canceled it; the commit is done anyway.
            if error is None:
                outer.set_result(None)
            elif isinstance(error, Conflict) and _shuts_out(error, fence):
                outer.set_exception(_shut_out())
            else:
                outer.set_exception(error)

    future.add_done_callback(settle)
    return outer
