"""A run whose next step can be chosen.

A choice is what one process asks for and is carried out next, or a fault: a process dies or is
stopped, or the answer of a commit is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import combinations
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
    is_read,
)
from jrs.testing.simulation.failover import TTL, Scenario, Simulation
from jrs.testing.simulation.job_files import JobFiles
from jrs.testing.simulation.memory import Memory, Untold
from jrs.testing.simulation.scheduler import Actor, Process, Request
from jrs.testing.simulation.setting import Setting

_LONGEST = 300.0
"""Seconds of simulated time, after which a run counts as one that does not end."""


@attrs.frozen
class Choice:
    """One thing that can come next.

    Attributes:
        says: what it is, for the story.
        owner: the process to which it happens; None if it concerns all of them.
        is_request: it carries out what a master, an attempt or the client asks for, and the answer
            is not lost.
        is_hidden: nobody can see whether it comes before what its owner asks for, or behind that:
            its owner dies, and has asked for a read.
        is_read: it is a request that others cannot see.
        state: a digest of the state to which it leads, if that can be told before.
    """

    says: str
    owner: str | None
    take: Callable[[], None]
    is_request: bool = False
    is_hidden: bool = False
    is_read: bool = False
    state: Callable[[], int] | None = None


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
        self._time_has_passed = False
        """Whether the last step was that time passed."""

    def new_space(self, clock: Callable[[], float]) -> ExploredSpace:
        """Make the map, when its locks are simulated ones."""
        self._space = ExploredSpace(clock, self.scheduler)
        return self._space

    # -- the run -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Go to the first state: the first master leads. All masters are alike."""
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
        if not asked:
            self._time_has_passed = True
            asked = scheduler.let_time_pass_until(_LONGEST)
        for process in scheduler.idle():
            self._forget(process)
        found = [Violation("no_crash", said) for said in scheduler.failures]
        for commit in self.store.log:
            for why in protocol.evaluate(self.protocol, commit, protocol.RULES):
                found.append(Violation("protocol", f"a commit of {commit.process}: {why}"))
        self.store.log.clear()
        if not asked:
            found.append(Violation("liveness", "the run does not end"))
        if self.is_over():
            found += self.wrong_at_the_end()
        return found

    def _forget(self, process: Process) -> None:
        """Let what a process remembers stand for what it has seen, if that can be told."""
        mine = [actor for actor in self.scheduler.actors if actor.process is process]
        told = [one for one in self.attempts if one.master is process and one.process.alive]
        try:
            memory = Memory(mine, told)
        except Untold:
            return
        self.scheduler.forget(process, memory.digest, memory.locks)

    def is_over(self) -> bool:
        """Return whether every job is clean, and nothing is under way any more."""
        return self.is_done() and not self.scheduler.asking() and not self._paused()

    def state(self, without: Process | None = None, *more: object) -> int:
        """Return a digest of the state; of that behind the death of a process, `without` it."""
        leader = self.store.leader
        watches = [watch for watch in self.store.watches if watch.process is not without]
        state = digest(
            self.scheduler.now,
            self._space.state(),
            self.files.digest(),
            None if leader is None else (leader.process.name, leader.epoch),
            sorted(self.scheduler.processes(without)),
            sorted(watch.pending() for watch in watches),
            (self.crashes, self.pauses, self.unknowns, self.submitted, self._time_has_passed),
            more,
        )
        return int.from_bytes(state)

    # -- choices -----------------------------------------------------------------------------

    def choices(self) -> Iterator[Choice]:
        """Yield all that can come next.

        A process that was stopped continues only when time has passed: before that, it might as
        well not have been stopped.
        """
        asking = self.scheduler.asking()
        for actor in asking:
            assert actor.asks is not None
            yield Choice(
                _said(actor),
                actor.process.name,
                partial(self._carry_out, actor, None),
                is_request=not self._is_outside(actor.process),
                is_read=is_read(actor.asks),
            )
        paused = self._paused()
        if paused and not asking:
            yield Choice("time passes", None, self._wait)
        if paused and self._time_has_passed:
            for process in paused:
                yield Choice(f"{process.name} continues", None, partial(self._continue, process))
        if self.unknowns:
            for actor in asking:
                if actor.request is not None:
                    for fate in FATES:
                        yield Choice(f"{_said(actor)}: its answer is lost, and it {fate}",
                                     actor.process.name,
                                     partial(self._carry_out, actor, fate))  # fmt: skip
        reading = {one.process for one in asking if one.asks is not None and is_read(one.asks)}
        for process in self.living():
            yield from self._faults_of(process, is_reading=process in reading)

    def _is_outside(self, process: Process) -> bool:
        """Return whether it is neither a master nor an attempt nor the client."""
        attempts = (attempt.process for attempt in self.attempts)
        return process.name != "client" and process not in (*self.masters, *attempts)

    def _faults_of(self, process: Process, *, is_reading: bool) -> Iterator[Choice]:
        name = process.name
        if self.crashes:
            killed, state = f"{name} is killed", partial(self.state, process, name)
            yield Choice(killed, name, partial(self._crash, process, ()),
                         is_hidden=is_reading, state=state)  # fmt: skip
            sending = self.scheduler.sending(process)
            for count in range(1, min(self.unknowns, len(sending)) + 1):
                for some in combinations(sending, count):
                    late = [one.request for one in some if one.request is not None]
                    says = f"{killed}, and is late: {', '.join(map(_asked_by, some))}"
                    yield Choice(says, name, partial(self._crash, process, late),
                                 is_hidden=is_reading)  # fmt: skip
        if self.pauses:
            yield Choice(f"{name} is stopped", name, partial(self.pause, process))

    def _carry_out(self, actor: Actor, fate: str | None) -> None:
        self.chances.fate = fate
        self.unknowns -= fate is not None
        self._time_has_passed = False
        self.scheduler.carry_out(actor)

    def _crash(self, victim: Process, late: Collection[Request]) -> None:
        self.crashes -= 1
        self.unknowns -= len(late)
        self.chances.late = late
        self.crash(victim)

    def replace_master(self) -> None:
        """Leave the others alone: that there are fewer masters keeps the scenario small."""

    def pause(self, victim: Process) -> None:
        """Stop a process; it continues some time, at the latest when another leads for long."""
        self.pauses -= 1
        self.stop(victim)

        def thaw() -> None:
            self.scheduler.wait(lambda: victim.paused_since is None, 1.5 * TTL)
            if victim.paused_since is not None:
                self._continue(victim)

        self.scheduler.spawn(Process(f"clock of {victim.name}"), thaw, "thaw")

    def _continue(self, victim: Process) -> None:
        self.scheduler.tell(victim, "continues")
        self.resume(victim, Process(f"heartbeat of {victim.name}"))

    def _wait(self) -> None:
        self._time_has_passed = True
        self.scheduler.let_time_pass_until(_LONGEST)

    def _paused(self) -> list[Process]:
        found = {actor.process for actor in self.scheduler.actors}
        return sorted((one for one in found if one.paused_since is not None), key=lambda p: p.name)

    # -- files -------------------------------------------------------------------------------

    def _files_change(self, event: str, paths: list[str]) -> None:
        self.scheduler.switch((event, *paths))
        for path in paths:
            self.scheduler.uses("w", path)

    def _files_are_seen(self, path: str) -> None:
        self.scheduler.uses("r", path)
        if self.scheduler.current is not None:
            self.scheduler.saw(self.files.seen_at(path))


def _said(actor: Actor) -> str:
    return f"{actor.process.name}: {_asked_by(actor)}"


def _asked_by(actor: Actor) -> str:
    assert actor.asks is not None
    return " ".join(map(str, actor.asks))
