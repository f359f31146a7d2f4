"""A run whose next step can be chosen.

A choice is what one process asks for and is carried out next, or a fault: a process dies or is
stopped, or the answer of a commit is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.operations import EPOCH_KEY
from jrs.records import keys
from jrs.testing.chaos.checking import protocol
from jrs.testing.chaos.checking.verdict import Violation
from jrs.testing.simulation.attempts import SimAttempt
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

_WRITES = {
    "client": (keys.JOBS, keys.FEED, keys.HISTORY, keys.CANCEL),
    "attempt": (
        *(keys.ATTEMPTS, keys.DIRTY, keys.ENDED, keys.FEED, keys.FENCES, keys.HISTORY),
        *(keys.RESULTS, keys.STAGES),
    ),
    "master": (
        *(keys.ATTEMPTS, keys.CANCEL, keys.CLEANUP, keys.DIRTY, keys.ENDED, keys.FENCES),
        *(keys.FEED, keys.FOLDS, keys.HISTORY, keys.JOBS, EPOCH_KEY, keys.RESULTS, keys.SNAPSHOTS),
        keys.STAGES,
    ),
    "outside": (),
}
"""The prefixes of what each kind of process writes in these scenarios."""
_LONGEST = 300.0
"""Seconds of simulated time, after which a run counts as one that does not end."""


@attrs.frozen
class Choice:
    """One thing that can come next.

    Attributes:
        says: what it is, for the story.
        state: a digest of the state to which it leads, if that can be told before.
    """

    says: str
    take: Callable[[], None]
    state: Callable[[], int] | None = None

    @property
    def is_read(self) -> bool:
        return bool(re.match(r"[^ ]+: (get|scan) ", self.says))


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
        self._space = ExploredSpace(clock)
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
        found = [Violation("no_crash", said) for said in scheduler.failures]
        for commit in self.store.log:
            written = tuple(part[1] for part in commit.parts if part[0] not in ("check", "absent"))
            if not all(key.startswith(_WRITES[self._kind(commit.process)]) for key in written):
                raise RuntimeError(f"{commit.process} writes {written}: _WRITES has to name that")
            for why in protocol.evaluate(self.protocol, commit, protocol.RULES):
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
        """Yield all that can come next, but for orders that make no difference.

        Where a process reads what none of the others can change, no other choice comes first. A
        process that was stopped continues only when time has passed: before that, it might as well
        not have been stopped.
        """
        asking = self.scheduler.asking()
        for actor in asking:
            if self._only_it_can_change(actor):
                yield Choice(_said(actor), partial(self._carry_out, actor, None))
                return
        for actor in asking:
            yield Choice(_said(actor), partial(self._carry_out, actor, None))
        paused = self._paused()
        if paused and not asking:
            yield Choice("time passes", self._wait)
        if paused and self._time_has_passed:
            for process in paused:
                yield Choice(f"{process.name} continues", partial(self._continue, process))
        if self.unknowns:
            for actor in asking:
                if actor.request is not None:
                    for fate in FATES:
                        yield Choice(f"{_said(actor)}: its answer is lost, and it {fate}",
                                     partial(self._carry_out, actor, fate))  # fmt: skip
        for process in self.living():
            if self.crashes:
                lost = "is lost"
                yield Choice(f"{process.name} is killed", partial(self._crash, process, lost),
                             partial(self.state, process, process.name))  # fmt: skip
                sent = any(one.request for one in self.scheduler.actors if one.process is process)
                if sent and self.unknowns:
                    yield Choice(f"{process.name} is killed, and what it has sent is late",
                                 partial(self._crash, process, "is late"))  # fmt: skip
            if self.pauses:
                yield Choice(f"{process.name} is stopped", partial(self.pause, process))

    def _only_it_can_change(self, actor: Actor) -> bool:
        """Return whether an actor reads what no other process can write before that."""
        assert actor.asks is not None
        if actor.asks[0] not in ("get", "scan"):
            return False
        key = str(actor.asks[1])
        others = {one.process for one in self.scheduler.actors} - {actor.process}
        return not any(
            key.startswith(written) or written.startswith(key)
            for process in others
            for written in self._may_write(process, while_lives=actor.process)
        )

    def _may_write(self, process: Process, while_lives: Process) -> tuple[str, ...]:
        """Return the prefixes of all keys that a process can write while another one lives."""
        if process in self.masters:
            leader = self.store.leader
            has_led = any(one.process is process for one in self.store.leaderships)
            waits = leader is not None and leader.process is while_lives and not has_led
            return () if waits and not self.scenario.pauses else _WRITES["master"]
        if any(one.process is process and self._is_shut_out(one) for one in self.attempts):
            return ()
        if process.name == "network":  # A read of its sender may decide what becomes of it, too.
            return ("",)
        return _WRITES[self._kind(process.name)]

    def _is_shut_out(self, attempt: SimAttempt) -> bool:
        """Return whether no commit of an attempt can be accepted any more."""
        fence, records = attempt.fence, self.store.space.map
        checks = [fence.check(), *([fence.attempt] if fence.attempt else [])]
        found = [records.get(check.key) for check in checks]
        return any(
            record is None or record.version != check.version
            for check, record in zip(checks, found, strict=True)
        )

    def _kind(self, name: str) -> str:
        if any(attempt.process.name == name for attempt in self.attempts):
            return "attempt"
        if re.fullmatch("m[0-9]+", name):
            return "master"
        return "client" if name == "client" else "outside"

    def _carry_out(self, actor: Actor, fate: str | None) -> None:
        self.chances.fate = fate
        self.unknowns -= fate is not None
        self._time_has_passed = False
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

    def _files_change(self, event: str, path: str) -> None:
        self.scheduler.switch((event, path))

    def _files_are_seen(self) -> None:
        if self.scheduler.current is not None:
            self.scheduler.saw(self.files.digest())


def _said(actor: Actor) -> str:
    assert actor.asks is not None
    return f"{actor.process.name}: {' '.join(map(str, actor.asks))}"
