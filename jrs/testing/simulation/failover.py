"""Failovers, simulated: masters that die, hang and return, attempts, clients and lost answers.

What runs is what ships: the dispatcher with all that it does, `run_attempt`, the cleanup, the
records. Only processes are simulated ones. The history goes to the recorder of chaos runs, and is
judged by the same checks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest import mock

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    DuplicateJob,
    Fenced,
    JrsError,
    OutcomeUnknown,
    Unavailable,
    WrongState,
)
from jrs.contract.runtime import Runtime
from jrs.contract.storage_place import StoragePlace
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import JobResult, JobSpec, JobStatus, RunnerKind
from jrs.records.policies import RestartPolicy
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader.context import LeaderContext
from jrs.recovery.leader.dispatcher import Dispatcher
from jrs.recovery.processes import marks
from jrs.recovery.rules.events import Event as JobEvent
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.chaos.checking.jobs import nothing_lost, once_per_job, once_per_stage
from jrs.testing.chaos.checking.protocol import violations
from jrs.testing.chaos.checking.store import fenced, linearizable, outcomes, serializable
from jrs.testing.chaos.checking.verdict import Run, Violation
from jrs.testing.chaos.recorded import Kind, Verb
from jrs.testing.simulation.attempts import SimAttempt, SimRunner
from jrs.testing.simulation.backend import SimStore
from jrs.testing.simulation.primitives import simulated
from jrs.testing.simulation.scheduler import Process
from jrs.testing.simulation.setting import Setting

CHECKS = (
    *(once_per_job, once_per_stage, nothing_lost),
    *(fenced, linearizable, serializable, outcomes),
)
TTL = 2.0
_BEHIND = 800
"""Steps for which a run continues behind its end."""
_LONG = 1500
"""Steps of a run without faults, about: faults come before that."""


@attrs.frozen
class Scenario:
    """What is simulated.

    Attributes:
        crashes, pauses: how often a process is killed or stopped at most.
        unknowns: how many commits lose their answers at most.
        most_steps: after which a run counts as one that does not end.
    """

    masters: int = 3
    jobs: int = 2
    """How many jobs finish, after so many stages."""
    stages: int = 2
    dying: int = 0
    """How many jobs die in every attempt."""
    canceled: int = 0
    """How many jobs are canceled."""
    crashes: int = 2
    pauses: int = 1
    unknowns: int = 2
    most_steps: int = 60_000


@attrs.frozen
class Ended:
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


class Simulation:
    """One run; see `simulate`."""

    def __init__(self, seed: int, scenario: Scenario, folder: Path) -> None:
        self.seed = seed
        self.scenario = scenario
        self.setting = Setting(seed, scenario.most_steps)
        self.scheduler, self.rng = self.setting.scheduler, self.setting.rng
        self.say = self.setting.say
        self.storage = JobStorage(StoragePlace(folder, ""), "simulated")
        self.attempts: list[SimAttempt] = []
        self.masters: list[Process] = []
        self.payload = list(range(scenario.stages))
        self.wanted = {spec.job_id: statuses for spec, statuses in self._specs()}
        self.submitted = 0
        self.lost_answers: dict[int, str] = {}
        """The commits, by number, whose answers are lost, besides those at random."""
        self.faults: list[tuple[int, int, Callable[[Process], None]]] = []
        """Steps, numbers of processes, and what is done to these, besides what is at random."""
        self._started = 0

    # -- the run -----------------------------------------------------------------------------

    def run(self) -> Ended:
        with ExitStack() as stack:
            self.runtime: Runtime = stack.enter_context(simulated(self.scheduler, self.rng))
            stack.enter_context(self._no_real_processes())
            stack.callback(self.scheduler.close)
            self.store = self.setting.store = SimStore(
                self.scheduler, self.rng, self.scenario.unknowns
            )
            self.store.lost_answers = self.lost_answers
            for _ in range(self.scenario.masters):
                self.start_master()
            client = Process("client")
            self.scheduler.spawn(client, lambda: self._client(client), "client")
            outside = Process("nemesis")
            self.scheduler.spawn(outside, self._nemesis, "nemesis")
            for step, number, harm in self.faults:
                strike = partial(self._strike, step, number, harm)
                self.scheduler.spawn(Process("outside"), strike, "fault")
            is_done = self.scheduler.run(self._is_done)
            steps = self.scheduler.steps
            # Those that were stopped continue, and what is late arrives: nothing may come of it.
            behind = self.scheduler.steps + _BEHIND
            self.scheduler.run(lambda: self.scheduler.steps >= behind)
        run = Run(self.setting.events, {} if is_done else {"unfinished": ["a job"]})
        found = [violation for check in CHECKS for violation in check.violations(run)]
        found += [
            Violation("protocol", f"commit {commit.number} of {commit.process}: {why}")
            for commit, why in violations(self.store.log)
        ]
        found += [Violation("nothing_left", f"{key} is left") for key in self._left()]
        found += [Violation("output_equals", said) for said in self._unexpected()]
        found += [Violation("no_crash", said) for said in self.scheduler.failures]
        if not is_done:
            found.append(Violation("liveness", "the run does not end"))
        epochs = sum(e.f is Verb.CAMPAIGN and e.type is Kind.OK for e in self.setting.events)
        return Ended(
            self.seed, is_done, steps, self.store.commits, epochs, self.scheduler.now, tuple(found),
            tuple(self.setting.story), run,
        )  # fmt: skip

    def _is_done(self) -> bool:
        """Return whether every job is clean."""
        records = self.store.space.map
        return len(self.wanted) == self.submitted and all(
            records.get(keys.RESULTS + job_id) is not None
            and records.get(keys.DIRTY + job_id) is None
            for job_id in self.wanted
        )

    def _left(self) -> Iterator[str]:
        """Yield the records that are left of jobs."""
        for key, _ in self.store.space.map.after("", inclusive=True):
            if key.startswith((keys.JOBS, keys.DIRTY, *keys.WHILE_IT_RUNS)):
                yield key

    def _unexpected(self) -> Iterator[str]:
        """Yield the jobs that have ended otherwise than they must."""
        for job_id, statuses in self.wanted.items():
            stored = self.store.space.map.get(keys.RESULTS + job_id)
            if stored is None:
                continue
            result = decode(JobResult, stored.value, stored.key)
            if result.status not in statuses:
                yield f"{job_id} ended {result.status.value}: {result.failure}"
            elif result.status is JobStatus.FINISHED and result.payload != self.payload:
                yield f"{job_id} returned {result.payload}"

    @contextlib.contextmanager
    def _no_real_processes(self) -> Iterator[None]:
        """Let what looks for processes find none: simulated ones are on other hosts."""
        with (
            mock.patch.object(marks, "end", return_value=[]),
            mock.patch.object(marks, "marked", return_value=[]),
        ):
            yield

    # -- who acts ----------------------------------------------------------------------------

    def start_master(self) -> None:
        self._started += 1
        process = Process(f"m{self._started}")
        self.masters.append(process)
        self.scheduler.spawn(process, lambda: self._master(process), process.name)

    def _master(self, process: Process) -> None:
        backend = self.setting.open(process)
        while True:
            leadership = backend.campaign(process.name, ttl=TTL, stop=threading.Event())
            assert leadership is not None
            self.say(f"{process.name} leads in epoch {leadership.epoch}")
            runner = SimRunner(self.setting, self.attempts, process)
            context = LeaderContext(
                backend=backend,
                leadership=leadership,
                storage=self.storage,
                runners={RunnerKind.PROCESS: runner, RunnerKind.THREAD: runner},
                cleanup=JobCleanup(backend, default_resources(backend, self.storage)),
                report=lambda event: self._told(process, event),
                master=process.name,
                max_attempts=8,
                runtime=self.runtime,
            )
            dispatcher = Dispatcher(context)
            try:
                dispatcher.recover()
                dispatcher.start()
                leadership.lost.wait()
            except (Fenced, Unavailable, OutcomeUnknown) as error:
                self.say(f"{process.name}: {type(error).__name__}")
            dispatcher.stop(Deadline.after(TTL))
            leadership.resign()
            self.say(f"{process.name} no longer leads")

    def _told(self, process: Process, event: JobEvent) -> None:
        self.say(f"{process.name} {event.kind} {event.job_id}: {event.message}")

    def _specs(self) -> Iterator[tuple[JobSpec, frozenset[JobStatus]]]:
        """Yield the jobs, and how each of them may end."""
        lasting = RestartPolicy(attempts=1000, delay=0.1, max_delay=1.0)
        twice = RestartPolicy(attempts=2, delay=0.1, on_exception=True)
        kinds = (("job", self.scenario.jobs, lasting, {JobStatus.FINISHED}),
                 ("dying", self.scenario.dying, twice, {JobStatus.FAILED}),
                 ("canceled", self.scenario.canceled, lasting,
                  {JobStatus.CANCELED}))  # fmt: skip
        for kind, count, policy, statuses in kinds:
            for number in range(count):
                function = {"dying": "dying", "canceled": "endless"}.get(kind, "job")
                spec = JobSpec(f"{kind}-{number}", f"jrs.testing.simulation.jobs:{function}",
                               {"stages": self.scenario.stages}, restart=policy)  # fmt: skip
                yield spec, frozenset(statuses)

    def _client(self, process: Process) -> None:
        """Submit the jobs, cancel some of them, and look for results."""
        backend = self.setting.open(process)
        catalog = JobCatalog(backend, now=self.scheduler.wall_clock)
        for spec, _ in self._specs():
            self._until_done(lambda spec=spec: catalog.submit(spec))  # type: ignore[misc]
            self.submitted += 1
            self.say(f"{spec.job_id} is submitted")
            if spec.job_id.startswith("canceled"):
                self._until_done(lambda spec=spec: catalog.cancel(spec.job_id))  # type: ignore[misc]
                self.say(f"{spec.job_id} is to be canceled")
        store = JobResultStore(backend, now=self.scheduler.wall_clock)
        while True:
            for job_id in self.wanted:
                with contextlib.suppress(JrsError):
                    store.get(job_id)
            self.scheduler.wait(lambda: False, 0.5)

    def _until_done(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except (DuplicateJob, WrongState):
                return
            except (Unavailable, OutcomeUnknown):
                continue
            return

    def _nemesis(self) -> None:
        """Kill and stop processes, and start masters in the place of dead ones."""
        crashes, pauses = self.scenario.crashes, self.scenario.pauses
        for at in sorted(self.rng.randrange(_LONG) for _ in range(crashes + pauses)):
            self.scheduler.wait(lambda at=at: self.scheduler.steps >= at, None)  # type: ignore[misc]
            if not (living := self._living()):
                continue
            victim = self.rng.choice(living)
            if self.rng.randrange(crashes + pauses) < crashes:
                crashes -= 1
                self.crash(victim)
            else:
                pauses -= 1
                self.pause(victim)

    def _living(self) -> list[Process]:
        """Return the masters and attempts that run."""
        running = [one for one in self.masters if one.alive and one.paused_since is None]
        return running + [one.process for one in self.attempts if one.process.alive]

    def _strike(self, step: int, number: int, harm: Callable[[Process], None]) -> None:
        """Do harm to one of the processes that run at a step, if there are so many."""
        self.scheduler.wait(lambda: self.scheduler.steps >= step, None)
        living = self._living()
        if number < len(living):
            harm(living[number])

    def crash(self, victim: Process) -> None:
        """Kill a process (-9)."""
        self.say(f"{victim.name} is killed")
        self.store.kill(victim)
        for attempt in self.attempts:
            if attempt.process is victim:
                attempt.has_ended()
            elif attempt.master is victim and attempt.process.alive:
                watchdog = Process("watchdog")
                self.scheduler.spawn(watchdog, attempt.end_late, "watchdog")
        if victim in self.masters:
            self.masters.remove(victim)
            self.start_master()

    def pause(self, victim: Process) -> None:
        """Stop a process, perhaps for longer than the ttl; it learns late that it was replaced."""
        self.say(f"{victim.name} is stopped")
        victim.paused_since = self.scheduler.now

        def thaw() -> None:
            self.scheduler.wait(lambda: False, TTL * self.rng.uniform(0.5, 3.0))
            victim.paused_since = None
            if victim.alive:
                self.say(f"{victim.name} continues")
                self.scheduler.spawn(victim, lambda: self._heartbeat(victim), "heartbeat")

        self.scheduler.spawn(Process("outside"), thaw, "thaw")

    def _heartbeat(self, process: Process) -> None:
        """Learn, some time after a stop, that another master leads."""
        self.setting.rest(200)
        for leadership in self.store.leaderships:
            if leadership.process is process and leadership.is_replaced:
                leadership.lost.set()


def simulate(seed: int, scenario: Scenario, folder: Path) -> Ended:
    """Simulate a run: a function of its seed, if Python's hashes are fixed (PYTHONHASHSEED).

    Args:
        folder: an empty folder for the files of jobs.
    """
    return Simulation(seed, scenario, folder).run()
