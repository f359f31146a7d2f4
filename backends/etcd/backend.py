"""EtcdBackend: the contract on an etcd.

::

    /<prefix>/<cluster>/format          the marker: the format of the cluster; see `cluster`
    /<prefix>/<cluster>/map/<key>       the records
    /<prefix>/<cluster>/latch           the current leader's latch, in its lease; see `leader`
    /<prefix>/<cluster>/gate/<handle>   after an unknown outcome, for an hour; see `write_barrier`

A record's version is the revision of the whole store at its last write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any

from jrs.contract.backend import Backend, Capabilities, Diagnostic
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    CorruptRecord,
    InvalidInput,
    JrsError,
    OutcomeUnknown,
    Refused,
    TooLarge,
    Unavailable,
)
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Fence, Op, Record
from jrs.contract.watch import Watch

from ..remote.address import Address
from ..shared.group_commit import GroupCommit
from . import diagnostics, leader, page_sizes, transaction
from ._etcd3 import rpc
from .cluster import Marker, check_members, check_version, reach
from .connection import ATTEMPT, BULK, WRITE, Connection, behind
from .error_mapping import Compacted, OutOfSpace
from .many_gets import ManyGets
from .revoke_lease import revoke
from .transaction import Commit
from .watch import EtcdWatch
from .write_barrier import WriteBarrier

DEFAULT_PORT = 2379
DEFAULT_PREFIX = "jrs"

_HEARD = 0.9
"""The share of a caller's time within which its commit is answered, so that it still waits."""


def open_etcd(url: str, cluster: str, create: bool = True) -> EtcdBackend:
    """Open ``etcd://[USER@]HOST[:PORT],…[/PREFIX][?OPTIONS]``. The entry point of the scheme.

    Raises:
        InvalidInput: the URL cannot be used, the server is older than 3.4, the prefix has keys of
            another program, or (without `create`) the cluster does not exist.
        AccessDenied: a wrong user or password, or no permission on the prefix.
        UnsupportedVersion: a newer jrs made the cluster.
        Unavailable: no member answers, or members belong to different etcds; the message gives the
            reasons.
        WrongAddress: the address or the certificates are wrong; waiting does not help.
    """
    address = Address.parse(url, default_port=DEFAULT_PORT)
    connection = Connection(address)
    backend = EtcdBackend(connection, cluster)
    try:
        deadline = Deadline.after(address.timeout)
        check_version(reach(connection, deadline), address)
        check_members(connection)
        backend.enter(create, deadline)
    except BaseException:
        backend.close()
        raise
    return backend


class EtcdBackend(Backend):
    """A handle on a cluster in an etcd."""

    capabilities = Capabilities(
        max_value=1 << 20,
        max_ops=transaction.MAX_OPS,
        max_key=512,
        # A lease is granted for at least one and a half elections, in whole seconds.
        min_ttl=2.0,
        max_ttl=3600.0,
        durable=True,
        multi_process=True,
        multi_host=True,
    )

    def __init__(self, connection: Connection, cluster: str) -> None:
        address = connection.address
        self.connection = connection
        self.url = address.url
        self.cluster = cluster
        self.timeout = address.timeout
        self.root = f"/{address.prefix or DEFAULT_PREFIX}/{cluster}/".encode()
        self._map = self.root + b"map/"
        self._barrier = WriteBarrier(connection, self.root)
        self._gets = ManyGets(connection)
        self._marker = Marker(connection, cluster, self.root, self._range, self._gets)
        self._page_sizes = page_sizes.PageSizes()
        self._sending = threading.Lock()
        self._answered = time.monotonic()
        """When a request with commits was answered last."""
        self._group: GroupCommit[Commit] = GroupCommit(
            self._append,
            threading.Lock(),
            name=f"jrs-commits-{cluster}",
            joins=lambda commit, first: commit.joins(first, WRITE),
            on_leaving=self._leave,
        )

    def enter(self, create: bool, deadline: Deadline) -> None:
        """Find the cluster, or create it."""
        self.marked_format = self._marker.find(deadline, create=create)

    def mark_format(self, version: int) -> None:
        if self.marked_format < version:
            self.marked_format = self._marker.raise_to(version, self._deadline())

    # -- reading ---------------------------------------------------------------------------

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        found = self._range(self.name(key), deadline)
        return self._record(found.kvs[0]) if found.kvs else None

    def _get_many(
        self, keys: Sequence[str], deadline: Deadline
    ) -> list[Record | CorruptRecord | None]:
        self._barrier.close_behind(deadline)
        found = self._gets.each([self.name(key) for key in keys], deadline)
        return [None if one is None else self._record(one) for one in found]

    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        return self._page_at(prefix, after, limit, 0, deadline)[0]

    def _created_since(self, prefix: str, version: int, deadline: Deadline) -> list[Record]:
        while True:
            try:
                pages = self._pages(prefix, None, None, deadline, since=version)
                return list(chain.from_iterable(pages))
            except Compacted:
                continue  # All of them from one revision, as the contract wants it.

    def _scan(
        self, prefix: str, after: str | None, limit: int | None, deadline: Deadline | None
    ) -> Iterator[Record]:
        """Scan as the contract requires. All pages have the same revision, unless it is compacted
        during the scan, which then continues at the newest revision."""
        return chain.from_iterable(self._pages(prefix, after, limit, deadline))

    def _pages(
        self,
        prefix: str,
        after: str | None,
        left: int | None,
        deadline: Deadline | None,
        *,
        since: int | None = None,
    ) -> Iterator[list[Record]]:
        """Yield pages of up to `left` records in all.

        Args:
            deadline: of all pages; without one, each has the handle's timeout.
            since: the first revision whose records are wanted.

        Raises:
            Compacted: with `since`, the revision of the first page is gone.
        """
        sizes, revision, first = self._page_sizes, 0, True
        size = sizes.first(prefix)
        while left is None or left > 0:
            until = deadline or self._deadline()
            wanted = size if left is None else min(size, left)
            # With `since`, etcd reads the whole range for each page, so a small one is not faster.
            whole = wanted <= page_sizes.SMALL or (since is not None and first)
            share = until if whole else Deadline.after(until.remaining() / 2)
            try:
                page, revision, more = self._page_at(prefix, after, wanted, revision, share, since)
            except Compacted:
                if since is not None:
                    raise
                revision = 0
                continue
            except Unavailable:
                if wanted > page_sizes.SMALL:  # The page may be too large to be sent in time.
                    size = sizes.failed(prefix)
                if whole or self.connection.closed:
                    raise
                continue
            if page:
                yield page
                size, first = sizes.after(prefix, size, page, first=first), False
                after = page[-1].key
                left = None if left is None else left - len(page)
            if not more:
                return

    def _page_at(
        self,
        prefix: str,
        after: str | None,
        limit: int,
        revision: int,
        deadline: Deadline,
        since: int | None = None,
    ) -> tuple[list[Record], int, bool]:
        """Return a page, its revision, and whether more records follow."""
        start = self.name(prefix)
        if after is not None and after >= prefix:
            start = self.name(after) + b"\0"
        end = behind(self.name(prefix))
        if start >= end:
            return [], revision, False
        found = self._range(
            start,
            deadline,
            range_end=end,
            limit=limit,
            revision=revision,
            min_create_revision=max(since or 0, 0),
        )
        page = [self._record(one) for one in found.kvs]
        return page, revision or found.header.revision, found.more

    def _range(self, key: bytes, deadline: Deadline, **fields: Any) -> Any:
        self._barrier.close_behind(deadline)
        request = rpc.RangeRequest(key=key, **fields)
        attempt = BULK if fields else ATTEMPT
        return self.connection.read(
            lambda stubs: stubs.kv.Range, request, deadline, attempt=attempt
        )

    def _record(self, found: Any) -> Record:
        return Record(found.key[len(self._map) :].decode(), found.value, found.mod_revision)

    def name(self, key: str) -> bytes:
        """Return etcd's key for a key of the map."""
        return self._map + key.encode()

    # -- committing ------------------------------------------------------------------------

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        self._group.commit(self._prepared(ops, fence, deadline), ops, deadline)

    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        commit = self._prepared(ops, fence, self._deadline(), self.timeout)
        return self._group.commit_async(commit, ops)

    def _prepared(
        self,
        ops: tuple[Op, ...],
        fence: Fence | None,
        deadline: Deadline,
        allowed: float | None = None,
    ) -> Commit:
        self.connection.check_process()
        commit = transaction.prepare(self.name, ops, fence, deadline, allowed=allowed)
        if commit.size > transaction.MAX_BYTES:
            raise TooLarge(f"a commit of {commit.size:,} bytes; limit {transaction.MAX_BYTES:,}")
        return commit

    def _append(self, batch: list[Commit]) -> list[int | Exception]:
        try:
            self._barrier.close_behind(self._deadline_of(batch[0]))
        except JrsError as error:
            return [error] * len(batch)

        def write(request: Any, first: Commit) -> Any:
            deadline = self._deadline_of(first)
            try:
                answer = self.connection.write(lambda stubs: stubs.kv.Txn, request, deadline)
            except (Refused, InvalidInput, Unavailable, OutOfSpace):
                raise
            except BaseException:  # Even an interrupted request may have been sent.
                self._barrier.note_late()
                raise
            self._answered = time.monotonic()
            return answer

        # Read the barrier first: a caller that leaves from here on closes it. A caller that has
        # already left may have closed an earlier one and read that its commit is absent, so its
        # commit must not be sent.
        barrier = self._barrier.check()
        gone: JrsError = OutcomeUnknown("not sent, because its caller stopped waiting")
        with self._sending:
            sent = [commit for commit in batch if not commit.left]
            for commit in sent:
                commit.sent = True
        answers = transaction.send(sent, barrier, write)
        verdicts = iter(answers)
        return [gone if commit not in sent else next(verdicts) for commit in batch]

    def _deadline_of(self, first: Commit) -> Deadline:
        """Return the deadline of a request by its first commit, which has waited longest; it is
        shortened, so that the caller still waits for the verdict."""
        return first.until(self._answered).sooner(_HEARD)

    def _leave(self, commit: Commit) -> bool:
        with self._sending:
            commit.left = True
            if commit.sent:
                self._barrier.note_late()
            return not commit.sent

    # -- the rest --------------------------------------------------------------------------

    def watch(self, prefix: str) -> Watch:
        self.connection.check_process()
        return EtcdWatch(self.connection, self.name(prefix), len(self._map))

    def _campaign(self, candidate: str, *, ttl: float, stop: threading.Event) -> Leadership | None:
        self.connection.check_process()
        return leader.campaign(self, candidate, ttl, stop)

    def diagnostics(self, ttl: float) -> Iterator[Diagnostic]:
        yield from diagnostics.members(self.connection, self.timeout)
        yield diagnostics.encryption(self.connection.address)
        began = time.monotonic()
        lease, granted = leader.grant(self, ttl, self._deadline())
        revoke(self.connection, lease, self._deadline())
        yield diagnostics.session(ttl, granted, time.monotonic() - began)

    def close(self) -> None:
        if self.connection.forked:
            return
        self._group.close(self.timeout)
        self.connection.close()
        self._group.close(self.timeout)  # Calls that hung have been ended by the closed channels.
