"""Histories without any fault, made of a seed: for tests and measurements of the checks.

A map of versions is simulated. Processes take turns; each operation takes effect at one moment,
between its beginning and its end, and many are open at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from random import Random
from typing import Any

import attrs

from jrs.contract.operations import EPOCH_KEY
from jrs.records import keys
from jrs.store.attempt_fence import NOBODY
from jrs.testing.chaos.recorded import Event, Kind, Verb, digest

Row = tuple[Any, ...]
"""An event, in the order of `recorded.COLUMNS`."""

KEYS = keys.MASTERS
"""The prefix of the keys that are read and written; writes of them need no fence."""
STEP = 10
"""How much versions grow from commit to commit; what is planted uses the numbers between."""


@attrs.frozen
class Shape:
    """What a history is like.

    Attributes:
        operations: how many operations it has, about.
        processes: how many are at work at a time.
        keys: how many keys they share.
        jobs: how many jobs are submitted, attempted, ended and cleaned up, of six commits each.
        overlap: how long an operation takes, as a share of the time until its process's next turn.
    """

    operations: int = 100
    processes: int = 5
    keys: int = 8
    jobs: int = 2
    overlap: float = 1.5

    @classmethod
    def small(cls, seed: int, operations: int) -> Shape:
        """Return a small one, of many kinds: of 20 operations, and up to so many more."""
        return cls(
            operations=20 + seed % operations,
            processes=1 + seed % 9,
            keys=1 + seed % 13,
            jobs=seed % 3,
            overlap=0.2 + seed % 5,
        )


def rows(seed: int, shape: Shape) -> Iterator[Row]:
    """Yield the events of a history; the two of an operation stand together."""
    yield from SimulatedMap(Random(seed), shape).rows()


def events(some: Iterable[Row]) -> list[Event]:
    """Return rows as the events of a history, in the order of time."""
    found = [
        Event(process, seq, Kind(kind), Verb(f), t, key, value, version, epoch, error)
        for process, seq, kind, f, key, value, version, epoch, t, error in some
    ]
    found.sort(key=lambda event: event.t)
    return found


def generated(seed: int, shape: Shape | None = None) -> list[Event]:
    """Return the events of a history without any fault."""
    return events(rows(seed, shape or Shape()))


_GAP = 1_000
"""Nanoseconds from one operation to the next one, on average."""
_PAGE = 5
"""How many records a page has."""
_UNKNOWN = 0.02
"""The share of the commits whose outcome is unknown. Half of them take effect."""

_ODD = 0x9E3779B97F4A7C15
"""Times an odd number, different numbers stay different when only 64 bits are kept."""


@attrs.define
class SimulatedProcess:
    """A process of a history that is made."""

    name: str
    seq: int = 0
    free: int = 0
    """When it may begin its next operation."""
    fence: tuple[int, int] | None = None
    """The epoch and the version under which it writes."""


class SimulatedMap:
    """The map, and the processes that use it."""

    def __init__(self, random: Random, shape: Shape) -> None:
        self.random = random
        self.shape = shape
        self.keys = [f"{KEYS}{number:06}" for number in range(shape.keys)]
        self.now = 1_000_000
        self.version = 0
        self.epoch = 0
        self.fence = 0, 0
        """The epoch of the leader, and the version of its record."""
        self.records: dict[str, tuple[int, str]] = {}
        self.before: dict[str, int] = {}
        """A version that a key had once."""
        self.values = 0
        self.started = 0
        self.longest = shape.overlap * _GAP * shape.processes / 2
        self.processes = [self._start() for _ in range(shape.processes)]

    def rows(self) -> Iterator[Row]:
        random, shape = self.random, self.shape
        yield from self._campaign(self.processes[0])
        turns: list[int] = []
        every = max(1, shape.operations // (shape.jobs + 1))
        lead = 0.1 / shape.processes
        jobs = 0
        for number in range(shape.operations):
            turns = turns or random.sample(range(shape.processes), shape.processes)
            place = turns.pop()
            process = self.processes[place]
            chance = random.random()
            if number % every == every - 1 and jobs < shape.jobs:
                yield from self._job(process, f"job-{jobs}")
                jobs += 1
            elif chance < 0.45:
                yield from self._get(process, random.choice(self.keys))
            elif chance < 0.49:
                yield from self._get_many(process)
            elif chance < 0.5:
                yield from self._scan(process)
            elif chance < 0.5 + lead:
                yield from self._campaign(process)
            elif not (yield from self._change(process)):
                self.processes[place] = self._start()

    def _start(self) -> SimulatedProcess:
        self.started += 1
        return SimulatedProcess(f"p{self.started}.{self.started}")

    # -- reads -------------------------------------------------------------------------------

    def _times(self, process: SimulatedProcess) -> tuple[int, int]:
        """Let a moment come at which an operation takes effect; return its begin and end."""
        random = self.random.random
        self.now = max(self.now + 2 + int(random() * 2 * _GAP), process.free + 2)
        begun = max(process.free + 1, self.now - 1 - int(random() * self.longest))
        process.free = self.now + 1 + int(random() * self.longest)
        process.seq += 1
        return begun, process.free

    def _get(self, process: SimulatedProcess, key: str) -> Iterator[Row]:
        begun, ended = self._times(process)
        version, value = self.records.get(key, ABSENT)
        name, seq = process.name, process.seq
        yield name, seq, "invoke", "get", key, None, None, None, begun, ""
        yield name, seq, "ok", "get", key, value, version, None, ended, ""

    def _get_many(self, process: SimulatedProcess) -> Iterator[Row]:
        begun, ended = self._times(process)
        some = self.random.sample(self.keys, min(4, len(self.keys)))
        read = [[key, *self.records.get(key, ABSENT)] for key in some]
        name, seq = process.name, process.seq
        yield name, seq, "invoke", "get_many", "", None, None, None, begun, ""
        yield name, seq, "ok", "get_many", "", read, None, None, ended, ""

    def _scan(self, process: SimulatedProcess) -> Iterator[Row]:
        """Read a page of a few keys that lie behind another one."""
        begun, ended = self._times(process)
        first = self.random.randrange(len(self.keys))
        after = self.keys[first - 1] if first else None
        page: list[str] = []
        until = None
        for number in range(first, len(self.keys)):
            key = self.keys[number]
            if key in self.records:
                page.append(key)
            if len(page) == _PAGE:
                until = key
                break
        read = [[key, *self.records[key]] for key in page]
        name, seq = process.name, process.seq
        yield name, seq, "invoke", "scan", KEYS, None, None, None, begun, ""
        yield name, seq, "ok", "scan", KEYS, [after, until, read], None, None, ended, ""

    # -- writes ------------------------------------------------------------------------------

    def _campaign(self, process: SimulatedProcess) -> Iterator[Row]:
        begun, ended = self._times(process)
        self.epoch += 1
        self.version += STEP
        version = self.version
        self.records[EPOCH_KEY] = version, self._value()
        process.fence = self.fence = self.epoch, version
        name, seq = process.name, process.seq
        yield name, seq, "invoke", "campaign", name, None, None, None, begun, ""
        yield name, seq, "ok", "campaign", name, None, version, self.epoch, ended, ""

    def _change(self, process: SimulatedProcess) -> Generator[Row, None, bool]:
        """Commit one to three parts; return whether the process has survived that."""
        random = self.random
        some = [random.choice(self.keys) for _ in range(random.choice((1, 1, 2, 3)))]
        parts = [self._part(key) for key in dict.fromkeys(some)]
        return (yield from self._commit(process, parts, process.fence))

    def _part(self, key: str) -> list[Any]:
        """Return a part of a commit; its condition holds, most of the time."""
        chance = self.random.random()
        version, _ = self.records.get(key, ABSENT)
        if chance < 0.04 and key in self.before:
            version = self.before[key]
        elif chance < 0.06 and version is not None:
            version = None
        if version is None:
            return ["absent", key] if chance > 0.95 else ["create", key, self._value()]
        if chance < 0.8:
            return ["update", key, self._value(), version]
        if chance < 0.9:
            return ["check", key, version]
        return ["delete", key, None if chance > 0.98 else version]

    def _commit(
        self,
        process: SimulatedProcess,
        parts: list[list[Any]],
        fence: tuple[int, int] | None,
        certain: bool = False,
    ) -> Generator[Row, None, bool]:
        begun, ended = self._times(process)
        name, seq = process.name, process.seq
        epoch, version = fence or (None, None)
        if fence is not None:
            parts = [*parts, ["check", EPOCH_KEY, version]]
        yield name, seq, "invoke", "commit", "", parts, version, epoch, begun, ""
        chance = 1.0 if certain else self.random.random()
        unknown, arrives = chance < _UNKNOWN, not chance < _UNKNOWN / 2
        wrong = next((part[1] for part in parts if not self._holds(part)), None)
        if wrong is None and arrives:
            self.version += STEP
            for part in parts:
                self._apply(part)
        if unknown:
            if 0.2 < chance / _UNKNOWN < 0.8:
                return False
            yield name, seq, "info", "commit", "", None, None, None, ended, "OutcomeUnknown"
        elif wrong is not None:
            if wrong == EPOCH_KEY:
                process.fence = None
            yield name, seq, "fail", "commit", "", None, None, None, ended, f"Conflict {wrong}"
        else:
            yield name, seq, "ok", "commit", "", None, None, None, ended, ""
        return True

    def _holds(self, part: list[Any]) -> bool:
        version, _ = self.records.get(part[1], ABSENT)
        if part[0] in ("create", "absent"):
            return version is None
        return version is not None and part[-1] in (None, version)

    def _apply(self, part: list[Any]) -> None:
        kind, key = part[0], part[1]
        if kind == "check" or kind == "absent":
            return
        if key in self.records:
            self.before[key] = self.records[key][0]
        if kind == "delete":
            del self.records[key]
        else:
            self.records[key] = self.version, part[2]

    def _value(self) -> str:
        """Return a digest that there was not before; digests are spread over all numbers."""
        self.values += 1
        return f"{self.values * _ODD % (1 << 64):016x}"

    def _job(self, process: SimulatedProcess, job_id: str) -> Iterator[Row]:
        """Submit a job, attempt it in a process of its own, record its result, and clean it up."""
        spec, fence, attempt = keys.JOBS + job_id, keys.FENCES + job_id, keys.ATTEMPTS + job_id
        stage, dirty = f"{keys.STAGES}{job_id}/first", keys.DIRTY + job_id
        yield from self._sure(process, None, ["create", spec, self._value()])
        yield from self._sure(
            process,
            self.fence,
            ["create", fence, self._value()],
            ["create", attempt, self._value()],
            self._if_unchanged("check", spec),
        )
        own = self._start()
        own.name, own.free = f"attempt-{own.name}", process.free
        yield own.name, 1, "info", "alive", "", None, None, None, own.free, ""
        own.seq += 1
        let_in = self._if_unchanged("check", fence)
        yield from self._sure(own, self.fence, ["create", stage, self._value()], let_in)
        yield from self._sure(
            own,
            self.fence,
            ["create", keys.RESULTS + job_id, self._value()],
            ["create", dirty, self._value()],
            ["update", fence, digest(NOBODY), self.records[fence][0]],
            self._if_unchanged("delete", attempt),
        )
        yield own.name, own.seq + 1, "info", "alive", "", None, None, None, own.free + 1, ""
        yield from self._get(process, keys.RESULTS + job_id)
        left = [self._if_unchanged("delete", key) for key in (stage, fence, spec)]
        yield from self._sure(process, self.fence, *left)
        yield from self._sure(process, self.fence, self._if_unchanged("delete", dirty))

    def _if_unchanged(self, kind: str, key: str) -> list[Any]:
        return [kind, key, self.records[key][0]]

    def _sure(
        self, process: SimulatedProcess, fence: tuple[int, int] | None, *parts: list[Any]
    ) -> Iterator[Row]:
        yield from self._commit(process, list(parts), fence, certain=True)


ABSENT = None, None
