"""The setting of a simulated run: what all of its processes share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from jrs.contract.backend import Backend
from jrs.testing.chaos.recorded import Event, Kind, Verb
from jrs.testing.chaos.recorder import RecordedBackend, Recording
from jrs.testing.simulation.backend import SimBackend, SimStore
from jrs.testing.simulation.chances import Chances
from jrs.testing.simulation.scheduler import Actor, Process, Scheduler


class MemoryRecording(Recording):
    """A recording that is kept in memory, and goes by the scheduler's clock."""

    def __init__(self, process: str, events: list[Event], scheduler: Scheduler) -> None:
        self.process = process
        self._events = events
        self._scheduler = scheduler
        self._count = 0
        self.asked = {}

    def begin(self, f: Verb, key: str = "", value: Any = None, **more: Any) -> int:
        self._count += 1
        self.write(self._count, Kind.INVOKE, f, key, value, **more)
        return self._count

    def note(self, f: Verb, key: str = "", value: Any = None, **more: Any) -> None:
        self.begin(f, key, value, **more)

    def give_signs(self) -> None:
        """Do nothing: attempts are simulated processes, and calls of watches take no time."""

    def write(
        self, number: int, kind: Kind, f: Verb, key: str = "", value: Any = None, **more: Any
    ) -> None:
        tick = more.pop("t", None) or self._scheduler.tick()
        self._events.append(Event(self.process, number, kind, f, tick, key, value, **more))


def chooser_of(rng: Random) -> Callable[[Sequence[Actor]], int]:
    """Return who runs next: for half of the seeds at random; for the others by priorities, which
    change a few times (PCT: Burckhardt et al., ASPLOS 2010)."""
    if rng.random() < 0.5:
        return lambda able: rng.randrange(len(able))
    priorities: dict[int, float] = {}

    def choose(able: Sequence[Actor]) -> int:
        best, found = -1.0, 0
        for place, actor in enumerate(able):
            priority = priorities.setdefault(actor.number, rng.random())
            if priority > best:
                best, found = priority, place
        if rng.random() < 0.05:
            priorities[able[found].number] = rng.random() * 0.1
        return found

    return choose


class Setting:
    """What the processes of a run share.

    Attributes:
        events: the history, as the recorder of chaos runs writes it.
        story: what happened, a line each: faults, leaders, events of the masters.
    """

    def __init__(self, scheduler: Scheduler, chances: Chances) -> None:
        self.scheduler = scheduler
        self.chances = chances
        self.events: list[Event] = []
        self.story: list[str] = []
        self.store: SimStore

    def open(self, process: Process) -> Backend:
        """Return a handle of a process, recorded."""
        recording = MemoryRecording(process.name, self.events, self.scheduler)
        return RecordedBackend(SimBackend(self.store, process), recording)

    def say(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.scheduler.steps:6} {self.scheduler.now:7.2f} s  {text}")

    def rest(self, most: int, *what: str) -> None:
        """Let others run for a while, at most so many times, before something happens."""
        self.scheduler.rest(self.chances.turns(most), what)
