"""The scheduler, the chances and the map of an exploration: where what comes next can be chosen.

A process runs until each of its threads waits, or asks for something that others can see: a call of
the backend, a change of files, the start or the end of another process. What it asks for is carried
out when the exploration chooses it. The requests of one process are carried out in the order in
which it makes them; time passes when nobody asks for anything.

What a thread does depends on nothing but what it has seen: the answers to its requests, the files,
what it was told, and when; and on what the threads had seen whose locks it took after them. So a
digest of that, for each thread, stands for the memory of a process, and two ways to the same map
and the same files, on which each thread has seen the same, lead to the same state. What threads
share without a lock is not in it. When all threads of a process wait, what they remember takes the
place of what they have seen (see `memory`).
"""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import blake2b

from jrs.backends.memory import Space
from jrs.contract.operations import Absent, Check, Create, Delete, Fence, Op, Update
from jrs.records import keys
from jrs.testing.simulation.chances import Chances
from jrs.testing.simulation.primitives import SimLock, SimRLock
from jrs.testing.simulation.scheduler import RECORDS, Actor, Process, Request, Scheduler

Use = tuple[str, str]
"""How a step uses something, and what. It reads ("r") or writes ("w") a key, a prefix of keys, a
path of files, or what else has a name; it belongs to a process ("step"); it reaches into another
one ("reach")."""


def is_read(asked: tuple[object, ...]) -> bool:
    """Return whether an actor asks for a read, which others cannot see."""
    return asked[0] in ("get", "scan")


def digest(*what: object) -> bytes:
    """Return 64 bits that stand for it."""
    return blake2b(repr(what).encode(), digest_size=8).digest()


class ExploredScheduler(Scheduler):
    """Runs processes until they ask."""

    def __init__(self) -> None:
        super().__init__(lambda able: 0)
        self._seen: dict[object, bytes] = {}
        """What each actor has seen, and the actor that last released a lock: a digest."""
        self._ended: dict[Process, int] = {}
        """What the actors of each process had seen that have ended: a sum of digests."""
        self._drawn: dict[str, int] = {}
        self._asked: dict[Actor, int] = {}
        self._turns: dict[Actor, int] = {}
        self._count = 0
        self._births: dict[Actor | None, str] = {None: "beginning"}
        self._made: Counter[Actor | None] = Counter()
        self._ran: set[Process] = set()
        self.owner: Process | None = None
        """The process whose step is carried out."""
        self.used: set[Use] = set()
        """What the step has used that was carried out last."""

    def uses(self, how: str, what: str) -> None:
        self.used.add((how, what))

    def new_name(self) -> str:
        """Return a name that depends on nothing but the actor, and on how many it has asked for."""
        self._made[self.current] += 1
        return f"{self._births[self.current]}.{self._made[self.current]}"

    def spawn(self, process: Process, run: Callable[[], None], name: str) -> Actor:
        actor = super().spawn(process, run, name)
        self._seen[actor] = digest(self._seen.get(self.current, b""), process.name, name)
        self._births[actor] = self._seen[actor].hex()
        return actor

    def kill(self, process: Process) -> list[Request]:
        self.uses("reach", process.name)
        return super().kill(process)

    def idle(self) -> list[Process]:
        """Return the processes that have run since this was called last, and whose threads all
        wait."""
        ran, self._ran = self._ran, set()
        asking = {actor.process for actor in self.actors if actor.asks is not None}
        return [one for one in ran - asking if one.alive and one.paused_since is None]

    def forget(self, process: Process, memory: bytes, locks: Sequence[SimLock]) -> None:
        """Let what a process remembers stand for all that its threads have seen."""
        known = digest(process.name, memory, self._drawn.get(process.name))
        self._ended.pop(process, None)
        for lock in locks:
            self._seen.pop(lock, None)
        for number, lock in enumerate(locks):
            lock.name = f"lock {number} of {known.hex()}"
        mine = (actor for actor in self.actors if actor.process is process)
        for number, actor in enumerate(mine):
            self._seen[actor] = digest(known, number)
            self._births[actor] = self._seen[actor].hex()
            self._made[actor] = self._turns[actor] = 0

    def resume(self, actor: Actor) -> None:
        self._ran.add(actor.process)
        super().resume(actor)
        if actor.is_over:
            process = actor.process
            ended = self._ended.get(process, 0) + int.from_bytes(self._seen[actor])
            self._ended[process] = ended % (1 << 64)

    def switch(self, what: tuple[object, ...] | None = None) -> None:
        actor = self.current
        if actor is not None:
            actor.asks = what
            if actor.process is not self.owner and what is not None:
                self.uses("reach", actor.process.name)
            self._asked[actor] = self._count = self._count + 1
            super().switch()

    def rest(self, turns: int, what: tuple[object, ...]) -> None:
        self.saw(what)
        self.switch(what)

    def saw(self, what: object) -> None:
        if (actor := self.current) is not None:
            self._seen[actor] = digest(self._seen[actor], self.now, what)

    def tell(self, process: Process, what: object) -> None:
        told = int.from_bytes(digest(self.now, what))
        self._ended[process] = (self._ended.get(process, 0) + told) % (1 << 64)

    def acquired(self, lock: object) -> None:
        if (actor := self.current) is not None and lock in self._seen:
            self._seen[actor] = digest(self._seen[actor], self._seen[lock])

    def released(self, lock: object) -> None:
        if (actor := self.current) is not None:
            self._seen[lock] = self._seen[actor]

    def pid(self) -> int:
        return 1000 + zlib.crc32(self._name().encode()) % 30_000

    def random_bits(self, bits: int) -> int:
        """Return bits that depend on the process and on how many it has drawn."""
        name = self._name()
        self._drawn[name] = drawn = self._drawn.get(name, 0) + 1
        made = blake2b(repr((name, drawn)).encode()).digest()
        return int.from_bytes(made) % (1 << bits)

    def _name(self) -> str:
        """Return the name of the process that runs."""
        return "" if self.current is None else self.current.process.name

    # -- what can come next ------------------------------------------------------------------

    def asking(self) -> list[Actor]:
        """Return, of each process that runs, the actor that has asked first."""
        first: dict[Process, Actor] = {}
        for actor in self.actors:
            if actor.asks is not None and actor.process.paused_since is None:
                before = first.setdefault(actor.process, actor)
                if self._asked[actor] < self._asked[before]:
                    first[actor.process] = actor
        return list(first.values())

    def sending(self, process: Process) -> list[Actor]:
        """Return the actors of a process that have sent something, in this order."""
        mine = (a for a in self.actors if a.process is process and a.request is not None)
        return sorted(mine, key=self._asked.__getitem__)

    def carry_out(self, actor: Actor) -> None:
        """Let what an actor has asked for happen; it hears of it when all settle."""
        assert actor.asks is not None
        self.owner = actor.process
        if is_read(actor.asks):
            self.uses("r", f"{RECORDS}{actor.asks[1]}")
        actor.asks = None
        self.resume(actor)

    def settle(self) -> None:
        """Let all processes run, one after another, until each of them asks or waits."""
        while (actor := self._next()) is not None:
            self.resume(actor)

    def _next(self) -> Actor | None:
        able = [actor for actor in self.able() if actor.asks is None]
        if not able:
            return None
        of_first = (actor for actor in able if actor.process is able[0].process)
        found = min(of_first, key=lambda actor: self._turns.get(actor, 0))
        self._turns[found] = self._count = self._count + 1
        return found

    def let_time_pass_until(self, latest: float) -> bool:
        """Let time pass until an actor asks for something; return whether one does by then."""
        while not self.asking():
            if not self.let_time_pass() or self.now > latest:
                return False
            self.settle()
        return True

    def processes(self, without: Process | None) -> Iterator[tuple[object, ...]]:
        """Yield what distinguishes the states of each process, but for one of them."""
        living: dict[Process, list[Actor]] = {}
        for actor in self.actors:
            if actor.process is without:
                continue
            living.setdefault(actor.process, []).append(actor)
        for process, actors in living.items():
            asking = sorted((a for a in actors if a.asks is not None), key=self._asked.__getitem__)
            yield (
                process.name,
                process.paused_since or -1.0,
                self._ended.get(process, 0),
                sorted(self._seen[actor] for actor in actors),
                [self._seen[actor] for actor in asking],
            )


class ExploredChances(Chances):
    """What becomes of the next commit, and of what a process had sent, as chosen."""

    def __init__(self) -> None:
        self.fate: str | None = None
        self.late: Collection[Request] = ()
        """What is late of that which a dead process had sent."""

    def fate_of_answer(self) -> str | None:
        fate, self.fate = self.fate, None
        return fate

    def fate_of_last(self, request: Request) -> str:
        return "is late" if request in self.late else "is lost"

    def has_arrived(self) -> bool:
        return False  # That it has arrived is another choice.

    def turns(self, most: int) -> int:
        return 1


class ExploredSpace(Space):
    """A map whose versions depend on the writes to their keys alone, not on others between them."""

    def __init__(self, clock: Callable[[], float], scheduler: Scheduler) -> None:
        super().__init__(clock)
        self._scheduler = scheduler
        # Its lock is nothing that threads wait for, or hear of each other by.
        self.changed = threading.Condition(SimRLock(Scheduler(lambda able: 0)))  # type: ignore[arg-type]
        self._writes: dict[str, int] = {}
        self._state = b""

    def commit(self, ops: tuple[Op, ...], fence: Fence | None) -> None:
        written = [op for op in ops if isinstance(op, (Create, Update, Delete))]
        self._note(ops, fence)
        made = digest([(op, self._writes.get(op.key, 0)) for op in written], fence)
        before, self.version = self.version, int.from_bytes(made[:6], "big")
        try:
            super().commit(ops, fence)
        except BaseException:
            self.version = before
            raise
        for op in written:
            self._writes[op.key] = self._writes.get(op.key, 0) + 1
        self._state = digest(list(self.map.after("", inclusive=True)), sorted(self._writes.items()))

    def _note(self, ops: tuple[Op, ...], fence: Fence | None) -> None:
        uses = self._scheduler.uses
        if fence is not None:
            uses("r", RECORDS + fence.check().key)
        for op in ops:
            how = "r" if isinstance(op, (Check, Absent)) else "w"
            uses(how, RECORDS + "/".join(op.key.split("/")[:2]))
            # The rules for commits look at all commits of a job.
            uses("w", f"commits of {keys.job_of(op.key)}")

    def state(self) -> bytes:
        """Return a digest of all records."""
        return self._state
