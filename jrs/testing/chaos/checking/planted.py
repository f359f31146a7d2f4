"""Planting faults in histories: the operations that are added, and who has to find them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import attrs

from jrs.records import keys
from jrs.testing.chaos.checking.generate import STEP
from jrs.testing.chaos.recorded import Event, Kind, Verb


@attrs.frozen
class Anomaly:
    """A fault.

    Attributes:
        name: what it is called.
        check: the name of the check that finds it.
    """

    name: str
    check: str
    _plant: Callable[[Amid], None] = attrs.field(repr=False)

    def planted(self, history: list[Event], seed: int) -> list[Event]:
        """Return a history with the fault, and with the clean-up of what it has made: a run that
        ends well deletes that, and the fault must be found nevertheless."""
        amid = Amid(history, Random(f"{self.name} {seed}"))
        self._plant(amid)
        amid.clean_up()
        return sorted([*history, *amid.events], key=lambda event: event.t)


def found_by(
    check: str, among: dict[str, Anomaly]
) -> Callable[[Callable[[Amid], None]], Callable[[Amid], None]]:
    """Make an anomaly of a function that plants a fault, one among others."""

    def add(plant: Callable[[Amid], None]) -> Callable[[Amid], None]:
        among[plant.__name__] = Anomaly(plant.__name__, check, plant)
        return plant

    return add


class Amid:
    """Operations that are added to a history, one behind the other but for those `at` a time."""

    def __init__(self, history: list[Event], random: Random) -> None:
        at = random.choice(history)
        self.events: list[Event] = []
        # Writes of such keys need no fence.
        self.key = f"{keys.DOCTOR}planted-{random.randrange(1 << 32):08x}"
        self.now = at.t
        known = [event for event in history if event.f is Verb.CAMPAIGN and event.version]
        self.leads = [(event.epoch or 0, event.version or 0, event.t) for event in known]
        self.version = 1 + max((v for _, v, t in self.leads if t <= at.t), default=0)
        self._names = 0
        self._gap = random.choice((1, 1_000, 1_000_000))

    def next(self) -> int:
        """Return a version that is newer than those before."""
        self.version += 1
        assert self.version % STEP
        return self.version

    def commit(self, *parts: list[Any], answer: Kind | None = Kind.OK, error: str = "",
               at: int | None = None, **more: Any) -> None:  # fmt: skip
        self._add(Verb.COMMIT, answer, at, "", list(parts), None, error, more)

    def read(self, version: int | None, value: str | None, key: str = "") -> None:
        asked: dict[str, Any] = {}
        self._add(Verb.GET, Kind.OK, None, key or self.key, None, value, "", asked, version=version)

    def page(self, *read: list[Any], at: int | None = None) -> None:
        read_keys = sorted(row[0] for row in read)
        prefix = self.key
        value = [None, read_keys[-1], sorted(read)]
        self._add(Verb.SCAN, Kind.OK, at, prefix, None, value, "", {})

    def _add(self, f: Verb, answer: Kind | None, at: int | None, key: str, asked: Any,
             answered: Any, error: str, more: dict[str, Any], **known: Any) -> None:  # fmt: skip
        begun = self.now + self._gap if at is None else at
        ended = begun + self._gap
        self._names += 1
        name = f"{self.key}.{self._names}"
        self.events.append(Event(name, 1, Kind.INVOKE, f, begun, key, asked, **more))
        if answer is not None:
            self.events.append(
                Event(name, 1, answer, f, ended, key, answered, error=error, **known)
            )
        self.now = max(self.now, ended)

    def clean_up(self) -> None:
        """Delete what has been created under the key, as far as a clean-up does. The outcome is
        unknown, so that the deletes themselves contradict nothing."""
        parts = [part for event in self.events for part in _parts(event)]
        gone = {part[1] for part in parts if part[0] == "delete"}
        made = {part[1] for part in parts if part[0] == "create"}
        own = (key for key in sorted(made - gone) if self.key in key)
        left = [key for key in own if key.startswith(_CLEANED_UP)]
        if left:
            self.commit(*(["delete", key, None] for key in left), answer=Kind.INFO)

    def watch(self, names: list[str] | None) -> None:
        """Watch the key while it is created; report something then, and nothing for a minute."""
        opened = Event(f"{self.key}.watch", 1, Kind.INVOKE, Verb.WATCH, self.now, self.key)
        self.now += 1
        self.commit(["create", self.key, "watched"])
        notice = attrs.evolve(opened, type=Kind.INFO, f=Verb.NOTICE, t=self.now, value=names)
        self.events += [opened, notice, attrs.evolve(notice, t=self.now + 60 * 10**9, value=[])]

    def sign(self, process: str, job_id: str) -> None:
        """Let an attempt of a job give a sign of life, commit something, and give another sign."""
        alive = Event(process, 1, Kind.INFO, Verb.ALIVE, self.now)
        parts = [["check", keys.FENCES + job_id, 1]]
        self.events += [
            alive,
            Event(process, 2, Kind.INVOKE, Verb.COMMIT, self.now + 1, "", parts),
            Event(process, 2, Kind.OK, Verb.COMMIT, self.now + 2),
            attrs.evolve(alive, seq=3, t=self.now + 5),
        ]
        self.now += 3


_CLEANED_UP = (keys.DOCTOR, *keys.WHILE_IT_RUNS)


def _parts(event: Event) -> list[list[Any]]:
    return event.value if event.type is Kind.INVOKE and event.f is Verb.COMMIT else []
