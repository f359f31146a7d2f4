"""The contract of every backend: one linearizable, ordered map with atomic, guarded commits.

A backend is this contract and nothing else. The records of a cluster (results, specs, stages, …)
are implemented once, on top of the contract. The public methods of `Backend` implement the parts
that all backends share (validation, limits, paging); an adapter implements the underscored
primitives.

A write has one of three outcomes: it returned (*done*), it raised `Refused` or `Unavailable`
(*nothing was changed*), or it raised `OutcomeUnknown` (*read back before deciding*).
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import Conflict, CorruptRecord, Fenced, JrsError
from jrs.contract.formats import NEWEST_FORMAT
from jrs.contract.guards import Closing, guarded, meaning, with_conditions
from jrs.contract.leadership import Leadership
from jrs.contract.limits import Capabilities as Capabilities
from jrs.contract.limits import check_candidate, check_key, check_ops, check_range, check_ttl
from jrs.contract.operations import Fence, Op, Record, create_or_update
from jrs.contract.watch import Watch

_PAGE = 1000
_LOOK = 5.0
"""Most seconds for which a process reads from a cluster that was closed."""


@attrs.frozen
class Diagnostic:
    """The outcome of one check.

    Attributes:
        what: the subject of the check, in a word or two.
        detail: the finding.
        remedy: the action to take; None if the check passed.
    """

    what: str
    detail: str
    remedy: str | None = None


class Backend(abc.ABC):
    """The map of one cluster. Threads may share it; in a forked child each call raises
    `WrongProcess`.

    Attributes:
        url: the backend's address, without secrets.
        cluster: the namespace of everything stored.
        capabilities: the backend's guarantees and limits.
        timeout: seconds that a call without a deadline may take.
        default_storage: a folder next to the map where jobs may keep their files; None if the
            backend has none.
        marked_format: the format that the cluster's marker names. Older versions of jrs refuse to
            open the cluster. The format in force may be newer; see `jrs.store.cluster_format`.
        closing: what closes the cluster to this handle; None if nothing does.
        commit_ended: called with the error of each commit of this handle once it has ended, or with
            None if it is done; before the caller knows, from any thread; must not block. None:
            nothing is called.
        compaction_ended: called with whether a compaction in the background has failed, by backends
            that compact by themselves; as `commit_ended`.
    """

    url: str
    cluster: str
    capabilities: Capabilities
    marked_format: int = NEWEST_FORMAT
    timeout: float = 10.0
    default_storage: Path | None = None
    closing: Closing | None = None
    commit_ended: Callable[[BaseException | None], None] | None = None
    compaction_ended: Callable[[bool], None] | None = None
    _next_look: float = 0.0

    # -- the public contract ---------------------------------------------------------------

    def get(self, key: str, *, deadline: Deadline | None = None) -> Record | None:
        """Return the record, or None. Linearizable: sees every commit that returned before it.

        Raises:
            CorruptRecord: the stored bytes cannot be trusted.
            Unavailable: the backend did not answer within the deadline.
        """
        check_key(key, self.capabilities)
        deadline = deadline or self._deadline()
        self._look_for_closing(deadline)
        return self._get(key, deadline)

    def get_many(
        self, keys: Sequence[str], *, deadline: Deadline | None = None
    ) -> list[Record | CorruptRecord | None]:
        """Return the result of `get` for each key, with `CorruptRecord` returned, not raised.

        Linearizable key by key, not as a whole. Keys are read in the order of `keys`.

        Raises:
            Unavailable: the backend did not answer within the deadline.
        """
        for key in keys:
            check_key(key, self.capabilities)
        deadline = deadline or self._deadline()
        self._look_for_closing(deadline)
        return self._get_many(keys, deadline)

    def scan(
        self,
        prefix: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        deadline: Deadline | None = None,
    ) -> Iterator[Record]:
        """Yield the records whose key starts with `prefix`, in key order, in O(page) memory.

        The scan begins behind the key `after`. Each page is consistent; a record that is written
        while the scan runs may or may not be seen. The deadline applies to each page.

        Raises:
            InvalidInput: an argument cannot be used.
            Unavailable: the backend did not answer within the deadline.
        """
        check_range(prefix, after, limit)
        self._look_for_closing(deadline)
        yield from self._scan(prefix, after, limit, deadline)

    def created_since(
        self, prefix: str, version: int, *, deadline: Deadline | None = None
    ) -> list[Record]:
        """Return the records under `prefix` of `version` and of later ones, in the order of their
        versions and then of their keys. Only where records are few and small, and never updated.

        Linearizable, and each commit that it sees was made after all that it does not see. What is
        deleted meanwhile may be missing, and what is damaged is. Reads little more than it returns.

        Raises:
            Unavailable: the backend did not answer within the deadline.
        """
        deadline = deadline or self._deadline()
        self._look_for_closing(deadline)
        found = self._created_since(prefix, version, deadline)
        return sorted(found, key=lambda record: (record.version, record.key))

    def commit(
        self, *ops: Op, fence: Fence | None = None, deadline: Deadline | None = None
    ) -> None:
        """Apply all operations or none; durable when it returns.

        Raises:
            Conflict: an operation's condition did not hold; `.op` is the first such operation.
            Fenced: the fence is no longer current. An attempt's fence needs both its halves: the
                epoch and the attempt's own record.
            ClusterMoved, WrongState: the cluster is closed, and the commit has no fence.
            TooLarge, InvalidInput: refused before it was sent.
            Unavailable: nothing was changed.
            OutcomeUnknown: the commit may have been applied.
        """
        check_ops(ops, fence, self.capabilities)
        wanted = with_conditions(ops, fence, self.closing)
        try:
            self._commit(wanted, fence, deadline or self._deadline())
        except Conflict as conflict:
            error = meaning(conflict, fence, self.closing)
            self._note_end(error)
            if error is conflict:
                raise
            if fence is None:
                self.check_open()  # Its error names more.
            raise error from None
        except JrsError as error:
            self._note_end(error)
            raise
        self._note_end(None)

    def commit_async(self, *ops: Op, fence: Fence | None = None) -> Future[None]:
        """Commit without waiting, so that one caller can have many commits in flight.

        The future's exception is the one that `commit` would have raised. Commits of one caller
        are applied in the order of the calls. A callback of the future must not commit: it may run
        on the thread that writes commits.
        """
        check_ops(ops, fence, self.capabilities)
        wanted = with_conditions(ops, fence, self.closing)
        future = self._commit_async(wanted, fence)
        if wanted is ops and self.commit_ended is None:
            return future
        return guarded(future, fence, self.closing, self._note_end)

    @abc.abstractmethod
    def watch(self, prefix: str) -> Watch:
        """Watch the keys that start with `prefix`."""

    def campaign(self, candidate: str, *, ttl: float, stop: threading.Event) -> Leadership | None:
        """Block until `candidate` leads, or return None once `stop` is set.

        The commit that increments the epoch checks the previous one, so at most one leadership of
        an epoch exists. A leader that hangs is replaced after `ttl` seconds. A leader that dies is
        replaced sooner where the backend can detect its death.

        Raises:
            InvalidInput: `ttl` is outside the declared range, or an argument cannot be used.
            ClusterMoved, WrongState: the cluster is closed.
            Unavailable: the backend did not answer.
        """
        self.check_ttl(ttl)
        check_candidate(candidate, stop)
        self.check_open()
        leadership = self._campaign(candidate, ttl=ttl, stop=stop)
        if leadership is not None:
            try:
                # A migration leads until it has closed the cluster, so later leaders see it.
                self.check_open()
            except BaseException:
                leadership.resign()
                raise
        return leadership

    def check_open(self, deadline: Deadline | None = None) -> None:
        """Raise the error of the cluster's closing, if the cluster is closed. Linearizable.

        Raises:
            ClusterMoved, WrongState: it is closed.
            Unavailable: the backend did not answer.
        """
        if self.closing is None:
            return
        try:
            stored = self._get(self.closing.key, deadline or self._deadline())
        except CorruptRecord:
            return  # `jrs fsck` names it, and no commit without a fence passes it.
        if stored is not None:
            raise self.closing.error(stored.value)
        self._next_look = time.monotonic() + _LOOK

    @abc.abstractmethod
    def close(self) -> None:
        """Release everything. Idempotent. Each commit in flight completes or fails; later calls
        raise `HandleClosed`."""

    def is_current(self, fence: Fence) -> bool:
        """Return whether `fence` was current a moment ago. Only a fenced commit is proof."""
        conditions = [fence.check(), *([fence.attempt] if fence.attempt is not None else ())]
        found = self.get_many([condition.key for condition in conditions])
        for condition, record in zip(conditions, found, strict=True):
            if isinstance(record, CorruptRecord):
                raise record
            if record is None or record.version != condition.version:
                return False
        return True

    def check_current(self, fence: Fence | None, otherwise: str) -> None:
        """Raise `Fenced` unless `fence` was current a moment ago; None always is.

        Args:
            otherwise: what does not happen then, for the message.
        """
        if fence is not None and not self.is_current(fence):
            raise Fenced(f"epoch {fence.epoch} was replaced: {otherwise}")

    def check(self) -> Iterator[str]:
        """Yield a line for each damage in the backend's own files. Reads all, changes nothing."""
        yield from ()

    def diagnostics(self, ttl: float) -> Iterator[Diagnostic]:
        """Yield checks of the backend itself, for leaderships of that ttl: versions, encryption,
        members, sessions. Changes nothing.

        Raises:
            Unavailable: the backend did not answer.
        """
        yield from ()

    def mark_format(self, version: int) -> None:
        """Write a newer format to the cluster's marker, so that older versions of jrs refuse to
        open the cluster. Durable, idempotent. Call it through `jrs.store.cluster_format`.

        Raises:
            Unavailable: the backend did not answer; repeat it.
        """
        self.marked_format = max(self.marked_format, version)

    def damaged_under(self, prefix: str, *, deadline: Deadline | None = None) -> str:
        """Return the file whose damage may have hit a record under the prefix; "" if there is none.
        Servers refuse to work on damaged files, or repair them from each other."""
        return ""

    def accept_damage(self) -> list[str]:
        """Discard what is damaged, permanently; return the parts that can still be read.

        Raises:
            WrongState: a master leads, and may have read what is damaged now. Nothing was changed.
            Unavailable: the backend did not answer; repeat it.
        """
        return []

    def overwrite(self, key: str, value: bytes) -> None:
        """Write a record whatever its previous value, even over an unreadable record. For
        operators: no fence is checked. Durable, idempotent.

        Raises:
            Conflict: another process wrote the record at the same moment.
            Unavailable, OutcomeUnknown: as `commit`.
        """
        found = self.get(key)
        self.commit(create_or_update(key, value, found and found.version))

    def epochs(self) -> Iterator[int]:
        """Yield the epochs that left traces in the backend's own files."""
        yield from ()

    # -- what an adapter implements --------------------------------------------------------

    @abc.abstractmethod
    def _campaign(self, candidate: str, *, ttl: float, stop: threading.Event) -> Leadership | None:
        """Campaign with a ttl within the declared range."""

    @abc.abstractmethod
    def _get(self, key: str, deadline: Deadline) -> Record | None:
        """Read one record, linearizably."""

    def _get_many(
        self, keys: Sequence[str], deadline: Deadline
    ) -> list[Record | CorruptRecord | None]:
        """Read many records. Override it where a batch is cheaper than single reads."""
        found: list[Record | CorruptRecord | None] = []
        for key in keys:
            try:
                found.append(self._get(key, deadline))
            except CorruptRecord as error:
                found.append(error)
        return found

    def _scan(
        self, prefix: str, after: str | None, limit: int | None, deadline: Deadline | None
    ) -> Iterator[Record]:
        """Scan a valid range. Override it where pages have more in common than the range."""
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

    @abc.abstractmethod
    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        """Read `limit` records behind `after`, consistently; fewer only at the end of the range."""

    def _created_since(self, prefix: str, version: int, deadline: Deadline) -> list[Record]:
        """Return the records in any order. Override it where fewer can be read than all."""
        # Twice: the first scan may miss a record that is older than one that it sees.
        newest = max((one.version for one in self.scan(prefix, deadline=deadline)), default=0)
        found = self.scan(prefix, deadline=deadline)
        return [record for record in found if version <= record.version <= newest]

    @abc.abstractmethod
    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        """Commit validated operations within the deadline."""

    @abc.abstractmethod
    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        """Queue validated operations without blocking."""

    # -- shared ----------------------------------------------------------------------------

    def _note_end(self, error: BaseException | None) -> None:
        if self.commit_ended is not None:
            self.commit_ended(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _deadline(self) -> Deadline:
        return Deadline.after(self.timeout)

    def _look_for_closing(self, deadline: Deadline | None) -> None:
        """Check every few seconds that the cluster is open: so each process that reads is told."""
        if self.closing is not None and time.monotonic() >= self._next_look:
            self.check_open(deadline)

    def check_ttl(self, ttl: float) -> None:
        """Raise `InvalidInput` if `ttl` is outside the declared range."""
        check_ttl(ttl, self.capabilities)
