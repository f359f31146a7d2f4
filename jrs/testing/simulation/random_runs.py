"""Runs with faults at random, and with given ones, evaluated by the checks of chaos runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import JrsError
from jrs.records import keys
from jrs.store.result_store import JobResultStore
from jrs.testing.chaos.checking.jobs import nothing_lost, once_per_job, once_per_stage
from jrs.testing.chaos.checking.protocol import violations
from jrs.testing.chaos.checking.store import fenced, linearizable, outcomes, serializable
from jrs.testing.chaos.checking.verdict import Run, Violation
from jrs.testing.chaos.recorded import Kind, Verb
from jrs.testing.simulation.chances import Chances
from jrs.testing.simulation.failover import TTL, Scenario, Simulation
from jrs.testing.simulation.scheduler import Process, Scheduler
from jrs.testing.simulation.setting import Setting, chooser_of

CHECKS = (
    *(once_per_job, once_per_stage, nothing_lost),
    *(fenced, linearizable, serializable, outcomes),
)
_BEHIND = 800
"""Steps for which a run continues behind its end, at most."""
_QUIET = 100
"""Steps for which it continues when nothing is under way any more."""
_STEPS_OF_A_JOB = 350
"""Steps that a job takes in a run without faults, about: faults come while the jobs run."""


@attrs.frozen
class SimulatedRun:
    """A simulated run.

    Attributes:
        steps, commits: until every job was clean.
        story: what happened, a line each: faults, leaders, events of the masters.
    """

    seed: int
    is_done: bool
    steps: int
    commits: int
    epochs: int
    seconds: float
    violations: tuple[Violation, ...]
    story: tuple[str, ...]
    run: Run


class RandomSimulation(Simulation):
    """One run; see `simulate`."""

    def __init__(self, seed: int, scenario: Scenario, folder: Path) -> None:
        self.seed = seed
        self.rng = Random(seed)
        scheduler = Scheduler(chooser_of(self.rng), scenario.most_steps)
        super().__init__(Setting(scheduler, Chances(self.rng, scenario.unknowns)), scenario, folder)
        self.faults: list[tuple[int, int, Callable[[Process], None]]] = []
        """Steps, numbers of processes, and what is done to these, besides what is at random."""

    def run(self) -> SimulatedRun:
        with self.entered(self.rng.getrandbits):
            for _ in range(self.scenario.masters):
                self.start_master()
            self.start_client()
            self.scheduler.spawn(Process("nemesis"), self._nemesis, "nemesis")
            for step, number, harm in self.faults:
                strike = partial(self._strike, step, number, harm)
                self.scheduler.spawn(Process("outside"), strike, "fault")
            is_done = self.scheduler.run(self.is_done)
            steps = self.scheduler.steps
            # Those that were stopped continue, and what is late arrives: nothing may come of it.
            latest = steps + _BEHIND
            self.scheduler.run(lambda: self.scheduler.steps >= latest or self._is_quiet())
            latest = min(latest, self.scheduler.steps + _QUIET)
            self.scheduler.run(lambda: self.scheduler.steps >= latest)
        run = Run(self.setting.events)
        found = [violation for check in CHECKS for violation in check.violations(run)]
        found += [
            Violation("protocol", f"commit {commit.number} of {commit.process}: {why}")
            for commit, why in violations(self.store.log)
        ]
        found += self.wrong_at_the_end()
        found += [Violation("no_crash", said) for said in self.scheduler.failures]
        if not is_done:
            found.append(Violation("liveness", "the run does not end"))
        epochs = sum(e.f is Verb.CAMPAIGN and e.type is Kind.OK for e in self.setting.events)
        return SimulatedRun(
            self.seed, is_done, steps, self.setting.chances.commits, epochs, self.scheduler.now,
            tuple(found), tuple(self.setting.story), run,
        )  # fmt: skip

    def _is_quiet(self) -> bool:
        """Return whether nothing can come any more of what was stopped, replaced or sent."""
        outside = {"network", "outside", "watchdog"}
        return not any(attempt.process.alive for attempt in self.attempts) and not any(
            actor.process.name in outside or actor.process.paused_since is not None
            for actor in self.scheduler.actors
        )

    def before_submission(self) -> None:
        """Sometimes wait for a result, so that the job comes to a leader that knows all others."""
        if self.submitted and self.rng.random() < 0.5:
            records, results = self.store.space.map, [keys.RESULTS + name for name in self.wanted]
            self.scheduler.wait(lambda: any(map(records.get, results)), None)

    def afterwards(self, backend: Backend) -> None:
        """Look for results."""
        store = JobResultStore(backend, now=self.scheduler.wall_clock)
        while True:
            for job_id in self.wanted:
                with contextlib.suppress(JrsError):
                    store.get(job_id)
            self.scheduler.wait(lambda: False, 0.5)

    def _nemesis(self) -> None:
        """Kill and stop processes, and start masters in the place of dead ones."""
        # Few faults or many: what a leader forgets, the next one may find again.
        crashes = self.rng.randint(0, self.scenario.crashes)
        pauses = self.rng.randint(0, self.scenario.pauses)
        latest = max(1, _STEPS_OF_A_JOB * len(self.wanted))
        for at in sorted(self.rng.randrange(latest) for _ in range(crashes + pauses)):
            self.scheduler.wait(lambda at=at: self.scheduler.steps >= at, None)  # type: ignore[misc]
            if not (living := self.living()):
                continue
            victim = self._victim(living)
            if self.rng.randrange(crashes + pauses) < crashes:
                crashes -= 1
                self.crash(victim)
            else:
                pauses -= 1
                self.pause(victim)

    def _victim(self, living: list[Process]) -> Process:
        """Choose one: the leader in half of the cases, since the death of a standby shows
        little."""
        leader = self.store.leader
        if leader is not None and leader.process in living and self.rng.random() < 0.5:
            return leader.process
        return self.rng.choice(living)

    def _strike(self, step: int, number: int, harm: Callable[[Process], None]) -> None:
        """Do harm to one of the processes that run at a step, if there are so many."""
        self.scheduler.wait(lambda: self.scheduler.steps >= step, None)
        living = self.living()
        if number < len(living):
            harm(living[number])

    def pause(self, victim: Process) -> None:
        """Stop a process, perhaps for longer than the ttl; it learns late that it was replaced."""
        self.stop(victim)

        def thaw() -> None:
            self.scheduler.wait(lambda: False, TTL * self.rng.uniform(0.5, 3.0))
            self.resume(victim, victim)

        self.scheduler.spawn(Process("outside"), thaw, "thaw")


def simulate(seed: int, scenario: Scenario, folder: Path) -> SimulatedRun:
    """Simulate a run: a function of its seed, if Python's hashes are fixed (PYTHONHASHSEED).

    Args:
        folder: an empty folder for the files of jobs.
    """
    return RandomSimulation(seed, scenario, folder).run()
