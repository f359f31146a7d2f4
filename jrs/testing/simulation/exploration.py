"""A run whose next step can be chosen.

A choice is what one process asks for and is carried out next, or a fault: a process dies or is
stopped, or the answer of a commit is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.testing.chaos.checking import protocol
from jrs.testing.chaos.checking.verdict import Violation
from jrs.testing.simulation.backend import SimBackend
from jrs.testing.simulation.chances import FATES
from jrs.testing.simulation.explored import (
    ExploredChances,
    ExploredScheduler,
    ExploredSpace,
    digest,
)
from jrs.testing.simulation.failover import TTL, Scenario, Simulation
from jrs.testing.simulation.job_files import JobFiles
from jrs.testing.simulation.scheduler import Actor, Process
from jrs.testing.simulation.setting import Setting

_LONGEST = 300.0
"""Seconds of simulated time, after which a run counts as one that does not end."""


@attrs.frozen
class Choice:
    """One thing that can come next.

    Attributes:
        says: what it is, for the story.
    """

    says: str
    take: Callable[[], None]


class ExploredSetting(Setting):
    """What the processes share; nothing is recorded."""

    def open(self, process: Process) -> Backend:
        return SimBackend(self.store, process)


class Exploration(Simulation):
    """A run whose next step can be chosen."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        scheduler, chances = ExploredScheduler(), ExploredChances()
        super().__init__(ExploredSetting(scheduler, chances), scenario, root)
        self.scheduler: ExploredScheduler = scheduler
        self.chances = chances
        self.crashes, self.pauses = scenario.crashes, scenario.pauses
        self.unknowns = scenario.unknowns
        self.files = JobFiles(root, self._files_change, self._files_are_seen)
        self.protocol = protocol.State()
        self.depth = 0

    def new_space(self, clock: Callable[[], float]) -> ExploredSpace:
        """Make the map, when its locks are simulated ones."""
        self._space = ExploredSpace(clock)
        return self._space

    # -- the run -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Go to the first state: the first master leads. Masters are alike, so any may be it."""
        self.start_master()
        self.scheduler.settle()
        for actor in self.scheduler.asking():
            self.scheduler.carry_out(actor)
        for _ in range(self.scenario.masters - 1):
            self.start_master()
        self.start_client()

    def settle(self) -> list[Violation]:
        """Let all processes run until they ask; return what is wrong then."""
        scheduler = self.scheduler
        scheduler.settle()
        asked = self.is_over() or bool(scheduler.asking()) or bool(self._paused())
        asked = asked or scheduler.let_time_pass_until(_LONGEST)
        found = [Violation("no_crash", said) for said in scheduler.failures]
        for commit in self.store.log:
            for why in protocol.judge(self.protocol, commit, protocol.RULES):
                found.append(Violation("protocol", f"a commit of {commit.process}: {why}"))
        self.store.log.clear()
        if not asked:
            found.append(Violation("liveness", "the run does not end"))
        if self.is_over():
            found += self.wrong_at_the_end()
        return found

    def is_over(self) -> bool:
        """Return whether every job is clean, and nothing is under way any more."""
        return self.is_done() and not self.scheduler.asking() and not self._paused()

    def state(self) -> int:
        """Return a digest of the state."""
        leader = self.store.leader
        state = digest(
            self.scheduler.now,
            self._space.state(),
            self.files.digest(),
            None if leader is None else (leader.process.name, leader.epoch),
            sorted(self.scheduler.processes()),
            sorted(watch.pending() for watch in self.store.watches),
            (self.crashes, self.pauses, self.unknowns, self.submitted),
        )
        return int.from_bytes(state, "big")

    # -- choices -----------------------------------------------------------------------------

    def choices(self) -> Iterator[Choice]:
        """Yield all that can come next."""
        asking = self.scheduler.asking()
        for actor in asking:
            yield Choice(_said(actor), partial(self._carry_out, actor, None))
        paused = self._paused()
        for process in paused:
            yield Choice(f"{process.name} continues", partial(self.resume, process))
        if paused and not asking:
            yield Choice("time passes", self._wait)
        if self.unknowns:
            for actor in asking:
                if actor.request is not None:
                    for fate in FATES:
                        yield Choice(f"{_said(actor)}: its answer is lost, and it {fate}",
                                     partial(self._carry_out, actor, fate))  # fmt: skip
        for process in self.living():
            if self.crashes:
                yield Choice(f"{process.name} is killed", partial(self._crash, process, "is lost"))
                sent = any(one.request for one in self.scheduler.actors if one.process is process)
                if sent and self.unknowns:
                    yield Choice(f"{process.name} is killed, and what it has sent is late",
                                 partial(self._crash, process, "is late"))  # fmt: skip
            if self.pauses:
                yield Choice(f"{process.name} is stopped", partial(self.pause, process))

    def _carry_out(self, actor: Actor, fate: str | None) -> None:
        self.chances.fate = fate
        self.unknowns -= fate is not None
        self.scheduler.carry_out(actor)

    def _crash(self, victim: Process, fate: str) -> None:
        self.crashes -= 1
        self.unknowns -= fate == "is late"
        self.chances.last_fate = fate
        self.crash(victim)

    def replace_master(self) -> None:
        """Leave the others alone: that there are fewer masters keeps the scenario small."""

    def pause(self, victim: Process) -> None:
        """Stop a process; it continues some time, at the latest when another leads for long."""
        self.pauses -= 1
        self.say(f"{victim.name} is stopped")
        victim.paused_since = self.scheduler.now

        def thaw() -> None:
            self.scheduler.wait(lambda: victim.paused_since is None, 1.5 * TTL)
            if victim.paused_since is not None:
                self.resume(victim)

        self.scheduler.spawn(Process(f"clock of {victim.name}"), thaw, "thaw")

    def resume(self, victim: Process) -> None:
        """Let a process that was stopped continue."""
        victim.paused_since = None
        if victim.alive:
            self.say(f"{victim.name} continues")
            self.scheduler.tell(victim, "continues")
            learn = partial(self.learn, victim)
            self.scheduler.spawn(Process(f"heartbeat of {victim.name}"), learn, "heartbeat")

    def _wait(self) -> None:
        self.scheduler.let_time_pass_until(_LONGEST)

    def _paused(self) -> list[Process]:
        found = {actor.process for actor in self.scheduler.actors}
        return sorted((one for one in found if one.paused_since is not None), key=lambda p: p.name)

    # -- files -------------------------------------------------------------------------------

    def _files_change(self, event: str, path: str) -> None:
        self.scheduler.switch((event, path))

    def _files_are_seen(self) -> None:
        if self.scheduler.current is not None:
            self.scheduler.saw(self.files.digest())


def _said(actor: Actor) -> str:
    assert actor.asks is not None
    return f"{actor.process.name}: {' '.join(map(str, actor.asks))}"
