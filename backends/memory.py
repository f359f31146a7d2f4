"""The memory backend: the contract in one process, for unit tests and experiments.

``memory://`` is private to its handle; all handles of a process with the same ``memory://NAME``
share one map. Nothing outlives the process. A forked child has but a copy of the maps, so it uses
none of them: what it opens is new.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import Future
from itertools import takewhile
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from jrs.contract.backend import Backend, Capabilities
from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import Conflict, Fenced, HandleClosed, JrsError, Unavailable, WrongProcess
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Absent, Create, Delete, Fence, Op, Record, Update
from jrs.contract.pending_commit import PendingCommit
from jrs.contract.watch import Watch
from jrs.host.fork import forget_in_children
from jrs.records.codec import decode, encode
from jrs.records.model import EpochRecord

from .shared.changes import Changes
from .shared.ordered_map import OrderedMap


class Space:
    """The shared state behind the handles of one name. It is of no use in a forked child: nobody
    would see a commit there, and no thread releases a lock that was held at the fork."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.changed = threading.Condition()
        self.map: OrderedMap[Record] = OrderedMap()
        self.version = 0
        self.leader: MemoryLeadership | None = None
        self.leader_expires = 0.0
        self.watches: set[MemoryWatch] = set()
        self.forked = False
        forget_in_children(self)

    def forget(self) -> Iterable[int]:
        self.forked = True
        return ()

    def check_process(self) -> None:
        """Raise `WrongProcess` in a forked child."""
        if self.forked:
            raise WrongProcess(
                "a memory:// backend that was opened before a fork is in the parent process only"
            )

    def commit(self, ops: tuple[Op, ...], fence: Fence | None) -> None:
        with self.changed:
            if fence is not None and self._version_of(EPOCH_KEY) != fence.version:
                raise Fenced(f"epoch {fence.epoch} was replaced by a newer one")
            for op in ops:
                self._check(op)
            self.version += 1
            for op in ops:
                if isinstance(op, (Create, Update)):
                    self.map.set(op.key, Record(op.key, op.value, self.version))
                elif isinstance(op, Delete):
                    self.map.discard(op.key)
                else:
                    continue
                for watch in self.watches:
                    watch.notice(op.key)
            self.changed.notify_all()

    def _version_of(self, key: str) -> int | None:
        record = self.map.get(key)
        return None if record is None else record.version

    def _check(self, op: Op) -> None:
        found = self._version_of(op.key)
        if isinstance(op, (Create, Absent)):
            if found is not None:
                raise Conflict(op, "the key is present")
        elif found is None:
            raise Conflict(op, "the key is absent")
        elif op.version is not None and op.version != found:
            raise Conflict(op, f"the key is at version {found}, not {op.version}")

    def tick(self) -> None:
        """Make every waiting campaign read the clock again; for tests that inject a clock."""
        with self.changed:
            self.changed.notify_all()


class _Spaces:
    """The maps of this process."""

    def __init__(self) -> None:
        self.forget()
        forget_in_children(self)

    def forget(self) -> Iterable[int]:
        # Those with a name last as long as the process, and the others as long as their handles.
        self._named: dict[tuple[str, str], Space] = {}
        self._private: WeakValueDictionary[tuple[str, str], Space] = WeakValueDictionary()
        self._lock = threading.Lock()
        return ()

    def at(self, place: tuple[str, str], *, lasts: bool) -> Space:
        """Return the map with this name and cluster, which is made if there is none."""
        with self._lock:
            space = self._named.get(place) or self._private.get(place)
            if space is None:
                space = Space()
                (self._named if lasts else self._private)[place] = space
            return space


_spaces = _Spaces()


def open_memory(url: str, cluster: str, create: bool = True) -> MemoryBackend:
    """Open ``memory://[NAME]``. The entry point of the scheme."""
    given = urlsplit(url).netloc
    place = (given or uuid.uuid4().hex, cluster)
    space = _spaces.at(place, lasts=bool(given))
    return MemoryBackend(space, url=f"memory://{place[0]}", cluster=cluster)


class MemoryBackend(Backend):
    """A handle on a `Space`."""

    capabilities = Capabilities(
        max_value=512 * 1024,
        max_ops=128,
        max_key=512,
        min_ttl=0.1,
        max_ttl=3600.0,
        durable=False,
        multi_process=False,
        multi_host=False,
    )

    def __init__(self, space: Space, *, url: str = "memory://", cluster: str = "default") -> None:
        self.space = space
        self.url = url
        self.cluster = cluster
        self._closed = False

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        self._check_open()
        with self.space.changed:
            return self.space.map.get(key)

    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        self._check_open()
        page: list[Record] = []
        with self.space.changed:
            inclusive = after is None or after < prefix
            for key, record in self.space.map.after(
                prefix if after is None else max(after, prefix), inclusive=inclusive
            ):
                if not key.startswith(prefix) or len(page) == limit:
                    break
                page.append(record)
        return page

    def _created_since(self, prefix: str, version: int, deadline: Deadline) -> list[Record]:
        self._check_open()
        with self.space.changed:
            start = self.space.map.after(prefix, inclusive=True)
            under = takewhile(lambda item: item[0].startswith(prefix), start)
            return [record for _, record in under if record.version >= version]

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        self._check_open()
        self.space.commit(ops, fence)

    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        future = PendingCommit()
        try:
            self._check_open()
            self.space.commit(ops, fence)
        except JrsError as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def watch(self, prefix: str) -> Watch:
        self._check_open()
        return MemoryWatch(self.space, prefix)

    def _campaign(self, candidate: str, *, ttl: float, stop: threading.Event) -> Leadership | None:
        self._check_open()
        space = self.space
        with space.changed:
            while not stop.is_set():
                self._check_open()
                leader = space.leader
                if leader is None or (leader.hung and space.clock() >= leader.hung_at + leader.ttl):
                    return self._lead(candidate, ttl)
                # Bounded, because setting `stop` does not wake this condition.
                space.changed.wait(0.02)
        return None

    def _lead(self, candidate: str, ttl: float) -> MemoryLeadership:
        space = self.space
        if space.leader is not None:
            space.leader.lost.set()
        record = space.map.get(EPOCH_KEY)
        if record is None:
            epoch = 1
            bump: Op = Create(EPOCH_KEY, encode(EpochRecord(epoch, candidate)))
        else:
            epoch = decode(EpochRecord, record.value, EPOCH_KEY).epoch + 1
            bump = Update(EPOCH_KEY, encode(EpochRecord(epoch, candidate)), record.version)
        try:
            space.commit((bump,), None)
        except Conflict as conflict:
            raise Unavailable(f"lost the race for epoch {epoch}: {conflict}") from conflict
        space.leader = MemoryLeadership(space, epoch, Fence(epoch, space.version), ttl)
        return space.leader

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        self.space.check_process()
        if self._closed:
            raise HandleClosed


class MemoryLeadership(Leadership):
    """A leadership that lasts until it resigns, or has hung for its ttl by the space's clock."""

    def __init__(self, space: Space, epoch: int, fence: Fence, ttl: float) -> None:
        self.epoch = epoch
        self.fence = fence
        self.ttl = ttl
        self.lost = threading.Event()
        self.hung = False
        self.hung_at = 0.0
        self._space = space

    def hang(self) -> None:
        """Stop renewing, like a stopped process; for tests."""
        self.hung_at = self._space.clock()
        self.hung = True

    def resign(self) -> None:
        if self._space.forked:
            return  # The parent leads on.
        with self._space.changed:
            if self._space.leader is self:
                self._space.leader = None
                self._space.changed.notify_all()
        self.lost.set()


class MemoryWatch(Watch):
    """A watch that the commits of its space wake."""

    def __init__(self, space: Space, prefix: str) -> None:
        self._space = space
        self._prefix = prefix
        self._hint = True
        self._changes = Changes()
        with space.changed:
            space.watches.add(self)

    def notice(self, key: str) -> None:
        if key.startswith(self._prefix):
            self._changes.add(key)
            self._hint = True

    def wait(self, timeout: float) -> bool:
        self._space.check_process()
        with self._space.changed:
            self._space.changed.wait_for(lambda: self._hint, min(timeout, threading.TIMEOUT_MAX))
            hint, self._hint = self._hint, False
            return hint

    def changes(self, timeout: float) -> frozenset[str] | None:
        return self._changes.take() if self.wait(timeout) else frozenset()

    def close(self) -> None:
        if self._space.forked:
            return
        with self._space.changed:
            self._space.watches.discard(self)
