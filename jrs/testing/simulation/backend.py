"""The simulated backend: one map, whose handles are those of processes that may be cut off.

Each call is a switch point before and behind the moment in which it takes effect. A commit may lose
its answer: it has happened, it has not, or it happens later, but not behind the next read of its
handle that returns: so the contract of every backend says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from random import Random

import attrs

from jrs.backends.memory import MemoryBackend, MemoryWatch, Space
from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError, OutcomeUnknown, Refused
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Create, Fence, Op, Record, Update
from jrs.contract.pending_commit import PendingCommit
from jrs.contract.watch import Watch
from jrs.records.codec import decode, encode
from jrs.records.model import EpochRecord
from jrs.testing.chaos.checking.protocol import Commit
from jrs.testing.chaos.recorder import parts_of
from jrs.testing.simulation.scheduler import Process, Scheduler

FATES = ("happens", "is lost", "is late")
"""What may become of a commit whose answer is lost."""
_LOSS = 0.03
"""How likely an answer is lost, while answers may be lost."""
_LATEST = 300
"""How often others run at most, before a late request arrives."""
_POLL = 0.1
"""Seconds between two looks of a candidate."""


class SimStore:
    """The map that all handles share.

    Attributes:
        unknowns: how many more commits may lose their answers, at random.
        lost_answers: the commits, by number, whose answers are lost, and what becomes of them.
        commits: how many were asked for.
    """

    def __init__(self, scheduler: Scheduler, rng: Random, unknowns: int) -> None:
        self.scheduler = scheduler
        self.rng = rng
        self.unknowns = unknowns
        self.lost_answers: dict[int, str] = {}
        self.commits = 0
        self.space = Space(scheduler.clock)
        self.leader: SimLeadership | None = None
        self.log: list[Commit] = []
        """Every commit that was accepted, in order."""
        self.leaderships: list[SimLeadership] = []

    def apply(self, process: Process, ops: tuple[Op, ...], fence: Fence | None) -> None:
        """Carry a commit out, and note it.

        Raises:
            Refused: a condition does not hold; nothing was changed.
        """
        self.space.commit(ops, fence)
        epoch = None if fence is None else fence.epoch
        self.log.append(Commit(self.space.version, process.name, epoch, parts_of(ops, fence)))

    def fate_of_answer(self) -> str | None:
        """Return what becomes of a commit whose answer is lost; None: it is answered."""
        self.commits += 1
        if self.commits in self.lost_answers:
            return self.lost_answers[self.commits]
        if self.unknowns and self.rng.random() < _LOSS:
            self.unknowns -= 1
            return self.rng.choice(FATES)
        return None

    def send_late(self, carry_out: Callable[[], None]) -> LateRequest:
        """Leave a request to the network: it arrives some time, if it is not decided before."""
        request = LateRequest(carry_out)

        def arrive() -> None:
            for _ in range(self.rng.randrange(1, _LATEST)):
                self.scheduler.switch()
            request.decide(True)

        self.scheduler.spawn(Process("network"), arrive, "late")
        return request

    def kill(self, process: Process) -> None:
        """End a process as kill -9 does: what it had sent arrives, arrives late, or is lost."""
        for request in self.scheduler.kill(process):
            fate = self.rng.choice(("is lost", "arrives", "is late"))
            if fate == "arrives":
                request()
            elif fate == "is late":
                self.send_late(request)

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

    _carry_out: Callable[[], None]
    is_decided: bool = False

    def decide(self, happens: bool) -> None:
        """Let it happen now, or never. Idempotent."""
        if not self.is_decided:
            self.is_decided = True
            if happens:
                self._carry_out()


class SimBackend(Backend):
    """A handle of a process."""

    capabilities = MemoryBackend.capabilities

    def __init__(self, store: SimStore, process: Process) -> None:
        self.url = "memory://simulated"
        self.cluster = "simulated"
        self._store = store
        self._process = process
        self._late: list[LateRequest] = []

    def _switch(self) -> None:
        self._store.scheduler.switch()

    def _settle(self) -> None:
        """Let what may still be under way happen now or never: a read is about to return."""
        late, self._late = self._late, []
        for request in late:
            request.decide(self._store.rng.random() < 0.5)

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        self._switch()
        self._settle()
        found = self._store.space.map.get(key)
        self._switch()
        return found

    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        self._switch()
        self._settle()
        page: list[Record] = []
        inclusive = after is None or after < prefix
        start = prefix if after is None else max(after, prefix)
        for key, record in self._store.space.map.after(start, inclusive=inclusive):
            if not key.startswith(prefix) or len(page) == limit:
                break
            page.append(record)
        self._switch()
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
        actor.request = carry_out
        self._switch()
        actor.request = None
        fate = store.fate_of_answer()
        if fate is not None:
            if fate == "happens":
                carry_out()
            elif fate == "is late":
                self._late.append(store.send_late(carry_out))
            self._switch()
            raise OutcomeUnknown("the answer was lost")
        carry_out()
        self._switch()
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
        return MemoryWatch(self._store.space, prefix)

    def _campaign(self, candidate: str, *, ttl: float, stop: threading.Event) -> Leadership | None:
        store = self._store
        while not stop.is_set():
            store.scheduler.wait(lambda: stop.is_set() or not store.is_led(), _POLL)
            if stop.is_set() or store.is_led():
                continue
            record = store.space.map.get(EPOCH_KEY)
            self._switch()
            epoch = 1 if record is None else decode(EpochRecord, record.value, EPOCH_KEY).epoch + 1
            value = encode(EpochRecord(epoch, candidate))
            bump: Op = Create(EPOCH_KEY, value)
            if record is not None:
                bump = Update(EPOCH_KEY, value, record.version)
            try:
                store.apply(self._process, (bump,), None)
            except Refused:
                continue  # Another candidate was faster.
            fence = Fence(epoch, store.space.version)
            leadership = SimLeadership(store, self._process, fence, ttl)
            store.leader = leadership
            store.leaderships.append(leadership)
            return leadership
        return None

    def close(self) -> None:
        pass


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
        self.lost.set()
