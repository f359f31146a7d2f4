"""The simulated backend: one map, whose handles are those of processes that may be cut off.

Each call is a switch point before and behind the moment in which it takes effect. A commit may lose
its answer (see `chances`).
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

import attrs

from jrs.backends.memory import MemoryBackend, Space
from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError, OutcomeUnknown, Refused
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Create, Delete, Fence, Op, Record, Update
from jrs.contract.pending_commit import PendingCommit
from jrs.contract.watch import Watch
from jrs.records.codec import decode, encode
from jrs.records.model import EpochRecord
from jrs.testing.chaos.checking.protocol import Commit
from jrs.testing.chaos.recorder import parts_of
from jrs.testing.simulation.chances import Chances
from jrs.testing.simulation.scheduler import RECORDS, Process, Request, Scheduler

_LATEST = 300
"""How often others run at most, before a late request arrives."""
_LEADER = "leadership"
"""Who leads, as an exploration notes its use."""
_POLL = 0.1
"""Seconds between two looks of a candidate."""


class SimStore:
    """The map that all handles share."""

    def __init__(self, scheduler: Scheduler, chances: Chances, space: Space) -> None:
        self.scheduler = scheduler
        self.chances = chances
        self.space = space
        self.leader: SimLeadership | None = None
        self.log: list[Commit] = []
        """Every commit that was accepted, in order."""
        self.leaderships: list[SimLeadership] = []
        self.watches: list[SimWatch] = []

    def apply(self, process: Process, ops: tuple[Op, ...], fence: Fence | None) -> None:
        """Carry a commit out, and note it.

        Raises:
            Refused: a condition does not hold; nothing was changed.
        """
        self.space.commit(ops, fence)
        for watch in self.watches:
            watch.notice(ops)
        epoch = None if fence is None else fence.epoch
        self.log.append(Commit(self.space.version, process.name, epoch, parts_of(ops, fence)))

    def send_late(self, process: Process, request: Request) -> LateRequest:
        """Leave a request to the network: it arrives some time, if it is not decided before."""
        late = LateRequest(self.scheduler, request)

        def arrive() -> None:
            self.scheduler.saw(request.what)
            self.scheduler.rest(self.chances.turns(_LATEST), ("arrives late", process.name))
            self.scheduler.uses("reach", process.name)
            late.decide(True)

        self.scheduler.spawn(late.network, arrive, "late")
        return late

    def kill(self, process: Process) -> None:
        """End a process as kill -9 does: what it had sent arrives, arrives late, or is lost."""
        if self.leader is not None and self.leader.process is process:
            self.scheduler.uses("w", _LEADER)
        self.watches = [watch for watch in self.watches if watch.process is not process]
        for request in self.scheduler.kill(process):
            fate = self.chances.fate_of_last(request)
            if fate == "happens":
                request.carry_out()
            elif fate == "is late":
                self.send_late(process, request)

    def is_led(self) -> bool:
        """Return whether a leader exists that is neither dead nor stopped for longer than its
        ttl."""
        leader = self.leader
        if leader is None or not leader.process.alive:
            return False
        since = leader.process.paused_since
        return since is None or self.scheduler.now < since + leader.ttl


@attrs.define
class LateRequest:
    """A request that is under way, and nobody waits for: it happens some time, or never."""

    _scheduler: Scheduler
    _request: Request
    network: Process = attrs.field(factory=lambda: Process("network"))
    """What carries it."""
    is_decided: bool = False

    def decide(self, happens: bool) -> None:
        """Let it happen now, or never. Idempotent."""
        if not self.is_decided:
            self.is_decided = True
            self._scheduler.tell(self.network, "decided")
            if happens:
                self._request.carry_out()


class SimBackend(Backend):
    """A handle of a process."""

    capabilities = MemoryBackend.capabilities

    def __init__(self, store: SimStore, process: Process) -> None:
        self.url = "memory://simulated"
        self.cluster = "simulated"
        self._store = store
        self._process = process
        self._late: list[LateRequest] = []

    def _ask(self, *what: object) -> None:
        """Let others run before it happens; `what` says what is asked for."""
        self._store.scheduler.switch(what)

    def _answer(self, answer: object) -> None:
        """Let others run before the caller hears of it."""
        self._store.scheduler.saw(answer)
        self._store.scheduler.switch()

    def _settle(self) -> None:
        """Let what may still be under way happen now or never: a read is about to return."""
        late, self._late = self._late, []
        for request in late:
            request.decide(self._store.chances.has_arrived())

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        self._ask("get", key)
        self._settle()
        found = self._store.space.map.get(key)
        self._answer(found)
        return found

    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        self._ask("scan", prefix, after, limit)
        self._settle()
        page: list[Record] = []
        inclusive = after is None or after < prefix
        start = prefix if after is None else max(after, prefix)
        for key, record in self._store.space.map.after(start, inclusive=inclusive):
            if not key.startswith(prefix) or len(page) == limit:
                break
            page.append(record)
        self._answer(page)
        return page

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        store = self._store
        outcome: list[JrsError | None] = []

        def carry_out() -> None:
            try:
                store.apply(self._process, ops, fence)
                outcome.append(None)
            except JrsError as error:
                outcome.append(error)

        actor = store.scheduler.current
        assert actor is not None
        actor.request = request = Request((ops, fence), carry_out)
        self._ask("commit", *((type(op).__name__.lower(), op.key) for op in ops))
        actor.request = None
        fate = store.chances.fate_of_answer()
        if fate is not None:
            if fate == "happens":
                carry_out()
            elif fate == "is late":
                self._late.append(store.send_late(self._process, request))
            self._answer("unknown")
            raise OutcomeUnknown("the answer was lost")
        carry_out()
        self._answer(str(outcome[0]))
        if (error := outcome[0]) is not None:
            raise error

    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        future = PendingCommit()
        try:
            self._commit(ops, fence, self._deadline())
        except JrsError as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def watch(self, prefix: str) -> Watch:
        return SimWatch(self._store, self._process, prefix)

    def _campaign(self, candidate: str, *, ttl: float, stop: threading.Event) -> Leadership | None:
        store = self._store
        while not stop.is_set():
            store.scheduler.wait(lambda: stop.is_set() or not store.is_led(), _POLL)
            if stop.is_set() or store.is_led():
                continue
            record = store.space.map.get(EPOCH_KEY)
            store.scheduler.uses("r", RECORDS + EPOCH_KEY)
            store.scheduler.uses("r", _LEADER)
            store.scheduler.saw(record)
            self._ask("campaign", candidate)
            epoch = 1 if record is None else decode(EpochRecord, record.value, EPOCH_KEY).epoch + 1
            value = encode(EpochRecord(epoch, candidate))
            bump: Op = Create(EPOCH_KEY, value)
            if record is not None:
                bump = Update(EPOCH_KEY, value, record.version)
            try:
                store.apply(self._process, (bump,), None)
            except Refused:
                self._answer("another candidate was faster")
                continue
            fence = Fence(epoch, store.space.version)
            leadership = SimLeadership(store, self._process, fence, ttl)
            store.leader = leadership
            store.scheduler.uses("w", _LEADER)
            store.leaderships.append(leadership)
            self._answer(epoch)
            return leadership
        return None

    def close(self) -> None:
        pass


class SimWatch(Watch):
    """A watch of a process, without locks: what others commit is nothing that it waits for."""

    def __init__(self, store: SimStore, process: Process, prefix: str) -> None:
        self.process = process
        self._store = store
        self._prefix = prefix
        self._hint = True
        self._names: set[str] | None = None
        store.watches.append(self)
        store.scheduler.uses("r", RECORDS + prefix)

    def notice(self, ops: tuple[Op, ...]) -> None:
        """Note what was committed."""
        written = {op.key for op in ops if isinstance(op, (Create, Update, Delete))}
        if found := {key for key in written if key.startswith(self._prefix)}:
            self._hint = True
            self._note()
            if self._names is not None:
                self._names |= found

    def wait(self, timeout: float) -> bool:
        self._store.scheduler.wait(lambda: self._hint, timeout)
        hint, self._hint = self._hint, False
        self._note()
        return hint

    def changes(self, timeout: float) -> frozenset[str] | None:
        if not self.wait(timeout):
            return frozenset()
        names, self._names = self._names, set()
        self._store.scheduler.saw(None if names is None else sorted(names))
        return None if names is None else frozenset(names)

    def _note(self) -> None:
        self._store.scheduler.uses("w", f"news of {self.process.name} below {self._prefix}")

    def pending(self) -> tuple[str, bool, list[str]]:
        """Return whose it is, and what was noticed and not taken yet."""
        return self.process.name, self._hint, ["*"] if self._names is None else sorted(self._names)

    def close(self) -> None:
        if self in self._store.watches:
            self._store.watches.remove(self)
            self._store.scheduler.uses("r", RECORDS + self._prefix)


class SimLeadership(Leadership):
    """A leadership; its process learns late that it was replaced, when it is told."""

    def __init__(self, store: SimStore, process: Process, fence: Fence, ttl: float) -> None:
        self.epoch = fence.epoch
        self.fence = fence
        self.ttl = ttl
        self.process = process
        self.lost = threading.Event()
        self._store = store

    @property
    def is_replaced(self) -> bool:
        return self._store.leader is not self

    def resign(self) -> None:
        if self._store.leader is self:
            self._store.leader = None
            self._store.scheduler.uses("w", _LEADER)
        self.lost.set()
