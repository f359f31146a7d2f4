"""ZooKeeperBackend: the implementation of the contract on a ZooKeeper ensemble."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future

from jrs.contract.backend import Backend, Capabilities, Diagnostic
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord, WrongProcess
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Fence, Op, Record
from jrs.contract.watch import Watch
from jrs.host.fork import forget_in_children

from . import leader
from .cluster import mark_format, open_cluster
from .created import created_since
from .diagnostics import diagnostics
from .pipeline import Pipeline
from .plan import Planner
from .protocol import codec
from .protocol.access import Access
from .protocol.connection import Connection
from .protocol.handshake import shortest_session
from .protocol.multi_read import read
from .scan import ReadContext, Scan, fitting
from .versions import VersionCache
from .watch import Hub

_PAGE = 1000
_FIRST = 64
_LONGEST = 24 * 3600.0
"""The requested timeout of a handle's session, in seconds: the server grants its longest."""


def open_zookeeper(url: str, cluster: str, create: bool = True) -> ZooKeeperBackend:
    """Open ``zookeeper://HOST[:PORT][,…][/PATH]``. The entry point of the scheme."""
    return ZooKeeperBackend(Access.parse(url), cluster, create=create)


class ZooKeeperBackend(Backend):
    """A handle on a cluster, with one session for the map and another one for each campaign."""

    def __init__(self, access: Access, cluster: str, *, create: bool = True) -> None:
        self.url = access.where
        self.cluster = cluster
        self.timeout = access.address.timeout
        self._access = access
        self._forked = False
        deadline = self._deadline()
        shortest = shortest_session(access, deadline)
        self._connection = Connection(access, timeout=_LONGEST, name=f"jrs-zookeeper-{cluster}")
        self._connection.start(deadline)
        try:
            layout, directories, self.marked_format = open_cluster(
                self._connection, access, cluster, deadline, create=create
            )
        except BaseException:
            self._connection.close()
            raise
        self.capabilities = Capabilities(
            max_value=512 * 1024,
            max_ops=128,
            max_key=512,
            min_ttl=shortest,
            max_ttl=self._connection.granted,
            durable=True,
            multi_process=True,
            multi_host=True,
        )
        self._layout = layout
        self._planner = Planner(layout, access.acl, VersionCache())
        self._place = ReadContext(self._connection, layout, self._planner.cache)
        self._hub = Hub(self._connection, layout, directories)
        self._pipeline = Pipeline(self._connection, self._planner, directories)
        self._connection.on_tick = self._pipeline.expire
        forget_in_children(self)

    def diagnostics(self, ttl: float) -> Iterator[Diagnostic]:
        return diagnostics(self._access, granted=self.capabilities.max_ttl, ttl=ttl)

    def mark_format(self, version: int) -> None:
        self._check_process()
        self.marked_format = mark_format(
            self._connection, self._layout, self._access, version, self._deadline()
        )

    def watch(self, prefix: str) -> Watch:
        self._check_process()
        return self._hub.watch(prefix)

    def _campaign(self, candidate: str, *, ttl: float, stop: threading.Event) -> Leadership | None:
        self._check_process()
        return leader.campaign(
            self._access, self._planner, candidate, ttl=ttl, timeout=self.timeout, stop=stop
        )

    def close(self) -> None:
        if self._forked:
            return
        self._hub.close()
        self._connection.close()
        self._pipeline.close()

    # -- what an adapter implements --------------------------------------------------------

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        (record,) = self._read_some([key], deadline)
        return record

    def _get_many(
        self, keys: Sequence[str], deadline: Deadline
    ) -> list[Record | CorruptRecord | None]:
        found: list[Record | CorruptRecord | None] = []
        size = _FIRST
        while len(found) < len(keys):
            some = keys[len(found) : len(found) + size]
            records = self._read_some(some, deadline)
            found += records
            size = fitting(len(some), sum(len(one.value) + 100 for one in records if one))
        return found

    def _scan(
        self, prefix: str, after: str | None, limit: int | None, deadline: Deadline | None
    ) -> Iterator[Record]:
        # Not the inherited paging, because one read of the names serves many pages.
        scan = Scan(self._place, prefix, after)
        left = limit
        while left is None or left > 0:
            self._check_process()
            size = _PAGE if left is None else min(_PAGE, left)
            page = scan.page(size, deadline or self._deadline())
            if not page:
                return
            yield from page
            if left is not None:
                left -= len(page)

    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        scan = Scan(self._place, prefix, after)
        found: list[Record] = []
        while len(found) < limit and (page := scan.page(limit - len(found), deadline)):
            found += page
        return found

    def _created_since(self, prefix: str, version: int, deadline: Deadline) -> list[Record]:
        self._check_process()
        return created_since(self._place, prefix, version, deadline)

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        self._check_process()
        self._pipeline.commit(ops, fence, deadline)

    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        self._check_process()
        return self._pipeline.commit_async(ops, fence, self._deadline())

    def _read_some(self, keys: Sequence[str], deadline: Deadline) -> list[Record | None]:
        self._check_process()
        answers = read(self._connection, self._planner.look(keys), deadline)
        records: list[Record | None] = []
        for key, shard, node in zip(keys, answers[::2], answers[1::2], strict=True):
            if isinstance(node, codec.Node):
                self._planner.seen(key, shard, node)
                records.append(Record(key, node.value, node.modified))
            else:
                records.append(None)
        return records

    def forget(self) -> Iterable[int]:
        self._forked = True
        return ()

    def _check_process(self) -> None:
        if self._forked:
            raise WrongProcess(f"{self.url} was opened before a fork: open it again in the child")
