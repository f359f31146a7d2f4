"""The interleaver: a second handle acts between any two system calls of a first one.

    python -m jrs.testing.chaos.interleave --cases 2000 --seed 1 --resume interleave.jsonl

A case is a history of calls of one handle. Meanwhile a second handle on the same folder commits,
reads, compacts, takes the lead or raises the cluster's format, before or after system calls of the
first one. One order of all calls must explain all answers, and a third handle must find the state
after that order. Otherwise the exit status is 1.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.compaction import Compaction
from jrs.contract.errors import Conflict, Fenced, JrsError, OutcomeUnknown, WrongState
from jrs.contract.operations import EPOCH_KEY, Absent, Check, Create, Delete, Fence, Op, Update
from jrs.records import keys
from jrs.testing.chaos import runs
from jrs.testing.chaos.calls import LOCKING, READING, WRITING, Layer, Owners
from jrs.testing.chaos.figures import scratch
from jrs.testing.chaos.forms import begin_in_old_form, raise_form
from jrs.testing.chaos.interleaved_answers import Call, Condition, is_linearizable
from jrs.testing.chaos.late import late
from jrs.testing.chaos.runs import Run, Tally

_MODULE = "jrs.testing.chaos.interleave"
NEVER = ("violations", "refused", "raw", "damage")
"""The counts that must be 0: histories that no order explains; calls that were refused without a
reason; exceptions other than `JrsError`; stores that `Backend.check` finds damaged."""
COUNTED = ("cases", "histories", "unjudged", "system_calls", "actions", *NEVER)

_FIRST, _SECOND = "first", "second"
_KEYS = ("a", "b", "c/1", "c/2")
_STEPS = 5
"""Calls of the first handle."""
_ACTIONS = 6
"""Most calls of the second handle."""
_PATIENCE = 0.5
"""Seconds after which the first handle continues although the second one has not ended, because the
second one may be waiting for the first."""


class Actor:
    """One handle, whose calls are recorded. Not for use by two threads at a time."""

    def __init__(self, who: str, root: Path, history: History, rng: random.Random) -> None:
        self.who = who
        self._root = root
        self._history = history
        self._rng = rng
        self._handle = self._open()
        self._versions: dict[str, tuple[int, bytes]] = {}
        self._fence: tuple[Fence, bytes] | None = None

    def act(self) -> None:
        """Make one random call."""
        kinds: list[Callable[[], None]] = [
            *[self.commit] * 6, self.get, self.scan, *[self.compact] * 2, self.lead, self.reopen,
            self.upgrade,
        ]  # fmt: skip
        kind = self._rng.choice(kinds)
        try:
            kind()
        except JrsError as error:
            self._history.note("refused", f"{self.who}: {kind.__name__}: {error!r}")
        except Exception as error:
            self._history.note("raw", f"{self.who}: {kind.__name__}: {error!r}")

    def close(self) -> None:
        self._handle.close()

    def get(self) -> None:
        key = self._rng.choice(_KEYS)
        begun = self._history.now()
        record = self._handle.get(key)
        self._saw(key, record)
        value = None if record is None else record.value
        self._history.add(begun, self.who, reads={key: value})

    def scan(self) -> None:
        begun = self._history.now()
        # The first writer determines the format, which is not evaluated.
        records = [record for record in self._handle.scan("") if record.key != keys.FORMAT]
        found = {record.key: record.value for record in records}
        self._history.add(begun, self.who, reads=found, scan=True)
        for key in _KEYS:
            self._saw(key, next((record for record in records if record.key == key), None))

    def commit(self) -> None:
        """Commit one to three operations on the last seen records, with or without the fence."""
        keys = self._rng.sample(_KEYS, self._rng.choice((1, 1, 2, 3)))
        pairs = [self._op(key) for key in keys]
        ops: tuple[Op, ...] = tuple(op for op, _ in pairs)
        conditions = [condition for _, condition in pairs]
        fence = None
        if self._fence is not None and self._rng.random() < 0.5:
            fence, value = self._fence
            conditions.insert(0, Condition(EPOCH_KEY, value))
        refused, unknown = None, False
        begun = self._history.now()
        try:
            self._handle.commit(*ops, fence=fence)
        except Fenced:
            refused = 0
        except Conflict as conflict:
            refused = ops.index(conflict.op) + (fence is not None)
        except OutcomeUnknown:
            unknown = True
        self._history.add(begun, self.who, conditions=conditions, refused=refused, unknown=unknown)
        if refused is not None:
            self._versions.clear()
            self._fence = None if refused == 0 and fence else self._fence

    def compact(self) -> None:
        self._handle.compact()

    def lead(self) -> None:
        begun = self._history.now()
        leads = self._handle.campaign(self.who, ttl=3600.0, stop=threading.Event())
        assert leads is not None
        record = self._handle.get(EPOCH_KEY)
        # Another handle may lead by now; then the value of this record is unknown.
        if record is not None and record.version == leads.fence.version:
            # The previous leader is unknown: the record becomes this, whatever it was.
            become = Condition(EPOCH_KEY, becomes=record.value)
            self._history.add(begun, self.who, conditions=[become])
            self._fence = leads.fence, record.value
        else:
            self._history.incomplete = True
        leads.resign()

    def upgrade(self) -> None:
        try:
            raise_form(self._handle)
        except WrongState:
            pass  # The other handle has just raised it.

    def reopen(self) -> None:
        self._handle.close()
        self._handle = self._open()

    # -- inside ----------------------------------------------------------------------------

    def _open(self) -> FileBackend:
        compaction = late(self._rng) if self._history.late else Compaction
        handle = FileBackend(self._root, seal_at=self._history.seal_at, compaction=compaction)
        handle.timeout = 120.0
        return handle

    def _saw(self, key: str, record: Any) -> None:
        if record is None:
            self._versions.pop(key, None)
            return
        self._versions[key] = record.version, record.value
        self._history.saw(key, record.version, record.value)

    def _op(self, key: str) -> tuple[Op, Condition]:
        kind = self._rng.random()
        value = self._history.value()
        if key not in self._versions:
            if kind < 0.6:
                return Create(key, value), Condition(key, None, value)
            if kind < 0.8:
                return Delete(key), Condition(key, becomes=None)
            return Absent(key), Condition(key, None)
        version, found = self._versions[key]
        if kind < 0.6:
            return Update(key, value, version), Condition(key, found, value)
        if kind < 0.8:
            return Delete(key, version), Condition(key, found, None)
        return Check(key, version), Condition(key, found)


class History:
    """The calls on one store, to be evaluated."""

    def __init__(self, seal_at: int, late: bool) -> None:
        self.seal_at = seal_at
        self.late = late
        self.calls: list[Call] = []
        self.problems: list[tuple[str, str]] = []
        self.incomplete = False
        """Whether something took effect that is not known well enough to be evaluated."""
        self._clock = itertools.count()
        self._values = itertools.count()
        self._versions: dict[tuple[str, bytes], int] = {}
        self._lock = threading.Lock()

    def now(self) -> int:
        return next(self._clock)

    def value(self) -> bytes:
        """Return a value that was never written."""
        return b"value %d" % next(self._values)

    def add(self, begun: int, who: str, **what: Any) -> None:
        with self._lock:
            self.calls.append(Call(begun, self.now(), who, **what))

    def note(self, kind: str, what: str) -> None:
        self.problems.append((kind, what))

    def saw(self, key: str, version: int, value: bytes) -> None:
        """Record a value and its version: a later read of this value must have the same version."""
        known = self._versions.setdefault((key, value), version)
        if known != version:
            self.note("violations", f"{key} had version {known}, and with that value {version}")


class Intruder:
    """Lets another handle act before and after system calls of the first one, in any thread."""

    def __init__(self, actor: Actor, owners: Owners, rng: random.Random) -> None:
        self.calls = 0
        self.actions = 0
        self._actor = actor
        self._rng = rng
        self._owners = owners
        self._lock = threading.Lock()
        self._acting: threading.Thread | None = None
        # The chance to act at each system call: about once per call, down to once per long
        # compaction.
        self._chance = rng.choice((0.5, 0.1, 0.03))

    def observe(
        self, name: str, arguments: tuple[Any, ...], named: dict[str, Any],
        real: Callable[..., Any],
    ) -> Any:  # fmt: skip
        if self._owners.current() != _FIRST:
            return real(*arguments, **named)
        self.calls += 1
        self._perhaps()
        result = real(*arguments, **named)
        self._perhaps()
        return result

    def end(self) -> None:
        """Wait until the current call of the other handle has ended."""
        if self._acting is not None:
            self._acting.join()

    def _perhaps(self) -> None:
        with self._lock:
            busy = self._acting is not None and self._acting.is_alive()
            if busy or self.actions >= _ACTIONS or self._rng.random() > self._chance:
                return
            self.actions += 1
            # In a thread, because it may have to wait for a lock of the first handle.
            acting = self._acting = threading.Thread(target=self._act, name="jrs-intruder")
            acting.start()
        acting.join(_PATIENCE)

    def _act(self) -> None:
        with self._owners.acting(_SECOND):
            self._actor.act()


def run_case(seed: int, case: int, root: Path) -> Tally:
    """Run and evaluate one history in the empty folder `root`."""
    with Owners(_FIRST) as owners:
        return _run(random.Random(f"{seed}:{case}"), case, root, owners)


def _run(rng: random.Random, case: int, root: Path, owners: Owners) -> Tally:
    history = History(rng.choice((400, 2_000, 1 << 40)), late=rng.random() < 0.5)
    if rng.random() < 0.5:
        begin_in_old_form(root)
    first = Actor(_FIRST, root, history, rng)
    with owners.acting(_SECOND):
        second = Actor(_SECOND, root, history, random.Random(rng.random()))
        second.commit()
        second.scan()
    intruder = Intruder(second, owners, random.Random(rng.random()))
    with Layer((*WRITING, *READING, *LOCKING), intruder.observe):
        for _ in range(_STEPS):
            first.act()
        intruder.end()
    third = Actor("third", root, history, rng)
    first.scan()
    third.scan()
    with owners.acting(_SECOND):
        second.scan()
    tally = Tally()
    tally.counts.update(
        cases=1, histories=intruder.actions > 0, unjudged=history.incomplete,
        system_calls=intruder.calls, actions=intruder.actions,
    )  # fmt: skip
    with FileBackend(root) as backend:
        history.problems += [("damage", line) for line in backend.check()]
    for actor in (first, second, third):
        actor.close()
    subject = f"{intruder.actions} actions"
    for kind, what in history.problems:
        tally.note(case, kind, subject, what)
    if not history.incomplete and not is_linearizable(history.calls, {}):
        tally.note(case, "violations", subject, "\n  ".join(map(str, history.calls)))
    return tally


def interleave(
    seed: int,
    cases: range,
    *,
    workers: int = 2,
    resume: Path | None = None,
    report: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Evaluate many histories in separate processes; return the tally.

    Args:
        resume: a file with the chunks that were evaluated before; new ones are appended.
        report: called with the whole tally after each chunk.
    """
    run = Run(_MODULE, ["--seed", str(seed)], cases, chunk=100, workers=workers, resume=resume)
    return run.tally(report)


def main() -> int:
    given = runs.parser(_MODULE, 600).parse_args()
    cases = range(given.first, given.first + given.cases)
    if given.worker:

        def evaluated(case: int) -> Tally:
            with tempfile.TemporaryDirectory(prefix="jrs-interleave-", dir=scratch()) as folder:
                return run_case(given.seed, case, Path(folder))

        runs.work(cases, evaluated)
        return 0
    return runs.show(
        lambda report: interleave(
            given.seed, cases, workers=given.workers, resume=given.resume, report=report
        ),
        NEVER, COUNTED, given.show,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
