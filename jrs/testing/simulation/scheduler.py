"""The scheduler: decides which thread of which process runs next, and when time passes.

Each thread of the code under test is a greenlet, an `Actor`. It gives way only at a switch point: a
call of the backend, or a wait. Time passes when every actor waits, up to the first moment that one
of them waits for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import greenlet

Chooser = Callable[[Sequence["Actor"]], int]
"""Chooses which of the actors that can run runs next."""

RECORDS = "records/"
"""What the name of a record or of some of them begins with, where their use is noted."""
START = 1_700_000_000.0
"""The wall clock at the beginning, in seconds since 1970."""


class SimulationOver(BaseException):
    """Raised in what still runs when a simulation has ended."""


@attrs.define(eq=False)
class Process:
    """A simulated process: its actors live and die together.

    Attributes:
        paused_since: when it was stopped; None while it runs.
    """

    name: str
    alive: bool = True
    paused_since: float | None = None

    @property
    def life(self) -> str:
        """Whether it lives, as an exploration notes its use."""
        return f"life of {self.name}"


@attrs.frozen(eq=False)
class Request:
    """What a process has sent to the backend.

    Attributes:
        what: all that it asks for.
        carry_out: lets it happen.
    """

    what: tuple[object, ...]
    carry_out: Callable[[], None]


@attrs.define(eq=False)
class Actor:
    """A thread of a simulated process.

    Attributes:
        waits_for: can it run? None: it can.
        until: the moment at which it stops waiting; None: it waits without end.
        asks: what happens next when it runs, if it asks for something that others can see.
        request: what it has sent to the backend, as long as nothing has come of it.
    """

    name: str
    process: Process
    number: int
    run: Callable[[], None]
    greenlet: Any = None
    waits_for: Callable[[], bool] | None = None
    until: float | None = None
    is_over: bool = False
    asks: tuple[object, ...] | None = None
    request: Request | None = None
    thread: Any = None


class Scheduler:
    """Runs actors one at a time.

    Args:
        choose: decides who runs next.
        most_steps: after which a run counts as one that does not end.
    """

    def __init__(self, choose: Chooser, most_steps: int = 200_000) -> None:
        self.choose = choose
        self._most_steps = most_steps
        self._hub = greenlet.getcurrent()
        self.actors: list[Actor] = []
        self._all: list[Actor] = []
        self._ticks = 0
        self.now = 0.0
        self.steps = 0
        self.current: Actor | None = None
        self.over = False
        self._pids: dict[Process | None, int] = {}
        self.failures: list[str] = []
        """The actors that broke, and with what."""

    # -- clocks ------------------------------------------------------------------------------

    def clock(self) -> float:
        return self.now

    def wall_clock(self) -> float:
        return START + self.now

    def tick(self) -> int:
        """Return a number that is greater than every one before: nanoseconds, for a history."""
        self._ticks += 1
        return self._ticks

    # -- actors ------------------------------------------------------------------------------

    def spawn(self, process: Process, run: Callable[[], None], name: str) -> Actor:
        """Start an actor of a process."""
        actor = Actor(name, process, len(self._all), run)
        actor.greenlet = greenlet.greenlet(lambda: self._live(actor), self._hub)
        self.actors.append(actor)
        self._all.append(actor)
        return actor

    def _live(self, actor: Actor) -> None:
        try:
            actor.run()
        except (SimulationOver, greenlet.GreenletExit):
            pass
        except BaseException as error:  # As a thread that breaks: nobody hears of it.
            if not self.over:
                self.failures.append(f"{actor.name} broke: {type(error).__name__}: {error}")
        finally:
            actor.is_over = True

    def kill(self, process: Process) -> list[Request]:
        """End a process as kill -9 does; return the requests that it had sent."""
        process.alive = False
        mine = [actor for actor in self.actors if actor.process is process]
        self.actors = [actor for actor in self.actors if actor.process is not process]
        return [actor.request for actor in mine if actor.request is not None]

    def pid(self) -> int:
        """Return the number of the process that runs now."""
        process = None if self.current is None else self.current.process
        return 1000 + self._pids.setdefault(process, len(self._pids))

    def switch(self, what: tuple[object, ...] | None = None) -> None:
        """Let another actor run, perhaps; `what` says what happens behind it, if others can see
        that."""
        self.wait(None, None)

    def rest(self, turns: int, what: tuple[object, ...]) -> None:
        """Let others run for a while, before something happens that others can see."""
        for _ in range(turns):
            self.switch()

    def saw(self, what: object) -> None:
        """Note what the actor that runs learns of other processes; for an exploration."""

    def tell(self, process: Process, what: object) -> None:
        """Note what a process is told from outside; for an exploration."""

    def uses(self, how: str, what: str) -> None:
        """Note what the step that is carried out reads, writes or reaches; for an exploration."""

    def new_name(self) -> str:
        """Return a name for what the actor that runs makes; for an exploration."""
        return ""

    def acquired(self, lock: object) -> None:
        """Note that the actor that runs has acquired a lock; for an exploration."""

    def released(self, lock: object) -> None:
        """Note that the actor that runs has released a lock; for an exploration."""

    def wait(self, condition: Callable[[], bool] | None, seconds: float | None) -> bool:
        """Let others run until the condition holds or the time has passed; return whether it
        holds."""
        actor = self.current
        if self.over:
            raise SimulationOver
        if actor is None:
            return condition is None or condition()
        actor.waits_for = condition
        actor.until = None if seconds is None else self.now + seconds
        self._hub.switch()
        if self.over:
            raise SimulationOver
        return condition is None or condition()

    # -- the run -----------------------------------------------------------------------------

    def run(self, is_done: Callable[[], bool]) -> bool:
        """Run until it is done, or nothing can run any more; return whether it is done."""
        while not is_done():
            able = self.able()
            if not able:
                if not self.let_time_pass():
                    return False
                continue
            self.steps += 1
            if self.steps > self._most_steps:
                return False
            self.resume(able[self.choose(able) if len(able) > 1 else 0])
        return True

    def resume(self, actor: Actor) -> None:
        """Let an actor run until it gives way."""
        actor.waits_for, actor.until = None, None
        self.current = actor
        actor.greenlet.switch()
        self.current = None
        if actor.is_over:
            self.actors = [one for one in self.actors if one is not actor]

    def able(self) -> list[Actor]:
        """Return the actors that can run."""
        now = self.now
        return [
            actor
            for actor in self.actors
            if actor.process.paused_since is None
            and (
                (waits_for := actor.waits_for) is None
                or waits_for()
                or ((until := actor.until) is not None and now >= until)
            )
        ]

    def let_time_pass(self) -> bool:
        """Move the clock to the first moment that an actor waits for; return whether one does."""
        moments = [
            actor.until
            for actor in self.actors
            if actor.until is not None and actor.process.paused_since is None
        ]
        if not moments:
            return False
        self.now = max(self.now, min(moments))
        return True

    def close(self) -> None:
        """End all actors, dead ones too: nothing of them runs behind a simulation."""
        self.over = True
        for actor in self._all:
            if not actor.is_over and actor.greenlet:
                self.current = actor
                with contextlib.suppress(BaseException):
                    actor.greenlet.throw(SimulationOver)
        self.actors.clear()
        self._all.clear()
