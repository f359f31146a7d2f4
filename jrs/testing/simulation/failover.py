"""Failovers, simulated: masters that die, hang and return, attempts, clients and lost answers.

What runs is what ships: the dispatcher with all that it does, `run_attempt`, the cleanup, the
records. Only processes are simulated ones. The history goes to the recorder of chaos runs, and is
evaluated by the same checks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import attrs

from jrs.backends.memory import Space
from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    DuplicateJob,
    Fenced,
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
from jrs.testing.chaos.checking.verdict import Violation
from jrs.testing.simulation.attempts import SimAttempt, SimRunner
from jrs.testing.simulation.backend import SimStore
from jrs.testing.simulation.primitives import simulated
from jrs.testing.simulation.scheduler import Process
from jrs.testing.simulation.setting import Setting

TTL = 2.0


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
    crashes: int = 16
    pauses: int = 4
    unknowns: int = 4
    most_steps: int = 60_000


class Simulation:
    """One run: what is in it, and who acts.

    Args:
        folder: an empty folder for the files of jobs.
    """

    def __init__(self, setting: Setting, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.setting = setting
        self.scheduler = setting.scheduler
        self.say = self.setting.say
        self.storage = JobStorage(StoragePlace(folder, ""), "simulated")
        self.attempts: list[SimAttempt] = []
        self.masters: list[Process] = []
        self.payload = list(range(scenario.stages))
        self.wanted = {spec.job_id: statuses for spec, statuses in self._specs()}
        self.submitted = 0
        self._looked_at = 0
        self._is_done = False
        self.runtime: Runtime
        self._started = 0

    @contextlib.contextmanager
    def entered(
        self,
        random_bits: Callable[[int], int],
        make_space: Callable[[Callable[[], float]], Space] = Space,
    ) -> Iterator[None]:
        """Let everything that is made meanwhile be simulated, and no process be a real one."""
        with (
            simulated(self.scheduler, random_bits) as self.runtime,
            # What looks for processes finds none: simulated ones are on other hosts.
            mock.patch.object(marks, "end", return_value=[]),
            mock.patch.object(marks, "marked", return_value=[]),
        ):
            space = make_space(self.scheduler.clock)
            self.store = self.setting.store = SimStore(self.scheduler, self.setting.chances, space)
            try:
                yield
            finally:
                self.scheduler.close()

    # -- how it ends -------------------------------------------------------------------------

    def is_done(self) -> bool:
        """Return whether every job is clean."""
        if len(self.wanted) != self.submitted:
            return False
        if (version := self.store.space.version) != self._looked_at:
            self._looked_at, records = version, self.store.space.map
            self._is_done = all(
                records.get(keys.RESULTS + job_id) is not None
                and records.get(keys.DIRTY + job_id) is None
                for job_id in self.wanted
            )
        return self._is_done

    def wrong_at_the_end(self) -> Iterator[Violation]:
        """Yield what is wrong when every job is clean."""
        for key, _ in self.store.space.map.after("", inclusive=True):
            if key.startswith((keys.JOBS, keys.DIRTY, *keys.WHILE_IT_RUNS)):
                yield Violation("nothing_left", f"{key} is left")
        yield from (Violation("output_equals", said) for said in self._unexpected())

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

    def start_client(self) -> None:
        client = Process("client")
        self.scheduler.spawn(client, lambda: self._client(client), "client")

    def _client(self, process: Process) -> None:
        """Submit the jobs, and cancel some of them."""
        backend = self.setting.open(process)
        catalog = JobCatalog(backend, now=self.scheduler.wall_clock)
        for spec, _ in self._specs():
            self.before_submission()
            self._until_done(lambda spec=spec: catalog.submit(spec))  # type: ignore[misc]
            self.submitted += 1
            self.say(f"{spec.job_id} is submitted")
            if spec.job_id.startswith("canceled"):
                self._until_done(lambda spec=spec: catalog.cancel(spec.job_id))  # type: ignore[misc]
                self.say(f"{spec.job_id} is to be canceled")
        self.afterwards(backend)

    def before_submission(self) -> None:
        """What the client does before it submits a job: nothing."""

    def afterwards(self, backend: Backend) -> None:
        """What the client does when all jobs are submitted: nothing."""

    def _until_done(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except (DuplicateJob, WrongState):
                return
            except (Unavailable, OutcomeUnknown):
                continue
            return

    def living(self) -> list[Process]:
        """Return the masters and attempts that run."""
        running = [one for one in self.masters if one.alive and one.paused_since is None]
        return running + [one.process for one in self.attempts if one.process.alive]

    def crash(self, victim: Process) -> None:
        """Kill a process (-9)."""
        self.say(f"{victim.name} is killed")
        self.store.kill(victim)
        for attempt in self.attempts:
            if attempt.process is victim:
                attempt.has_ended()
                continue
            if attempt.master is victim:
                self.scheduler.uses("r", attempt.process.life)
            if attempt.master is victim and attempt.process.alive:
                watchdog = Process("watchdog")
                self.scheduler.spawn(watchdog, attempt.end_late, "watchdog")
        if victim in self.masters:
            self.masters.remove(victim)
            self.replace_master()

    def replace_master(self) -> None:
        """Start another master in the place of one that was killed."""
        self.start_master()

    def stop(self, victim: Process) -> None:
        """Stop a process (SIGSTOP)."""
        self.say(f"{victim.name} is stopped")
        victim.paused_since = self.scheduler.now

    def resume(self, victim: Process, heart: Process) -> None:
        """Let a process that was stopped continue; `heart` tells it whether it was replaced."""
        victim.paused_since = None
        if victim.alive:
            self.say(f"{victim.name} continues")
            self.scheduler.spawn(heart, lambda: self.learn(victim), "heartbeat")

    def learn(self, process: Process) -> None:
        """Let a process that was stopped learn, some time later, that another master leads."""
        self.setting.rest(200, "heartbeat", process.name)
        for leadership in self.store.leaderships:
            if leadership.process is process and leadership.is_replaced:
                leadership.lost.set()
