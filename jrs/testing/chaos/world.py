"""The world of a chaos run: masters, drivers, jobs, faults, and the judgement at its end."""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput, JrsError
from jrs.contract.texts import shown
from jrs.records.model import JobSpec
from jrs.recovery.rules.events import EventKind
from jrs.testing.chaos import faults
from jrs.testing.chaos.checking.jobs import counts, undisturbed_jobs
from jrs.testing.chaos.checking.run_itself import NOTES, OF_THE_RUN, idle
from jrs.testing.chaos.checking.verdict import Check, Run, evaluated_nothing
from jrs.testing.chaos.checking.watches import DUE, watched
from jrs.testing.chaos.cluster import ChaosCluster
from jrs.testing.chaos.failure import ChaosFailure
from jrs.testing.chaos.outputs import moved, with_texts
from jrs.testing.chaos.plan import Plan
from jrs.testing.chaos.progress import Progress
from jrs.testing.chaos.reading import asked_for
from jrs.testing.chaos.recorded import Event, events_of
from jrs.testing.chaos.report import check_installed, write_report
from jrs.testing.chaos.strikes import Striker, never_hit, schedule
from jrs.testing.chaos.submissions import LASTING, Submission, Submissions, copies_of
from jrs.testing.chaos.surroundings import check_entry, records_left
from jrs.testing.chaos.trials import Trials
from jrs.testing.chaos.unfinished import explained
from jrs.testing.polling import Poll
from jrs.testing.servers import Server

_MORE = 2.0
"""Seconds in which a watch that has nothing to report shows that it was asked."""
_SPREAD = 0.8
"""The part of the faults' time over which the copies of a job are submitted."""
begun = EventKind.STAGE_BEGUN
finished = EventKind.STAGE_FINISHED


class World:
    """A cluster under faults.

    Args:
        plan: its settings.
        scheme: which of the plan's backends it has.
        folder: an empty folder for all of its files.
        server: the servers of the backend, which the caller heals and closes; None starts some.
        seed: in the place of the plan's.
        again: the command that repeats the run, for its report.

    Example::

        with World(Plan(masters=3, seconds=20, nemesis=kill()), "file", folder) as world:
            world.submit("orders", "etl.jobs:orders", copies=10)
            world.check(once_per_job, nothing_lost)

    Attributes:
        output: a folder in which jobs may write what `output_equals` compares.
    """

    def __init__(
        self,
        plan: Plan,
        scheme: str,
        folder: Path,
        *,
        server: Server | None = None,
        seed: int | None = None,
        again: str = "",
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        check_installed()
        self.plan = plan
        self.scheme = scheme
        self.folder = folder = folder.absolute()
        self.seed = plan.seed if seed is None else seed
        self.output = folder / "output"
        self.output.mkdir(parents=True)
        self._trials = Trials()
        self.cluster = ChaosCluster(plan, scheme, folder, server, say, self._trials)
        self._hosts = self.cluster.fleet
        self._submissions = Submissions(self.cluster.backend)
        self._progress = Progress(
            self.cluster.backend, self._submissions, self._hosts, self._trials
        )
        self._again = again
        self._checked: set[str] = set()
        self._used: list[Check] = []
        self._commands: list[Sequence[str]] = []
        self._striker: Striker | None = None
        self._run: Run | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything. Idempotent."""
        try:
            if self._striker is not None:
                self._striker.stop()
        finally:
            self._submissions.stop()
            self.cluster.close()

    def begin(self) -> Striker:
        """Start the masters and the faults, if they are not started yet. Idempotent."""
        if self._striker is not None:
            return self._striker
        self.cluster.start()
        self._submissions.start()
        nemesis = self.plan.nemesis
        why = [fault.unsuited(self.scheme, self.cluster.disk) for fault in nemesis.faults]
        planned = schedule(nemesis, self.plan.seconds, self.seed)
        strikes = [strike for strike in planned if not why[strike.fault]]
        striker = self._striker = Striker(
            self.cluster, nemesis, strikes, self.cluster.recording, self._hosts.supervise, self.seed
        )
        for name, reason in zip(striker.names, why, strict=True):
            striker.tallies[name].why = reason
        self._trials.watch(lambda: striker.quiet_since)
        self._began = time.monotonic()
        striker.start()
        return striker

    # -- what a test does --------------------------------------------------------------------

    def submit(
        self, id: str, entry: str | Callable[..., Any], /, *, copies: int = 1, **arguments: Any
    ) -> None:
        """Submit a job; the copies of one over the time of the faults, as ``ID-1``, ``ID-2``, ….

        Args:
            entry: ``module:function``, ``/path/file.py:function``, or a function of a test.
            arguments: of the function, JSON or paths, also in lists and objects. ``{id}`` in a
                text stands for the job's id.

        Raises:
            InvalidInput: masters cannot import it, or it does not take the arguments.

        Example::

            world.submit("orders", "etl.jobs:orders", copies=50, target=world.output / "{id}")
        """
        given = with_texts(arguments, str)
        self.submit_spec(JobSpec(id, _entry(entry), given, restart=LASTING), copies=copies)

    def submit_spec(self, spec: JobSpec, *, copies: int = 1, after: float = 0.0) -> None:
        """Submit a job by its whole spec, after some seconds; see `submit`."""
        specs = copies_of(spec, copies)
        self._submissions.refuse_known([spec.job_id, *(each.job_id for each in specs)])
        if spec.entry_point not in self._checked:
            check_entry(spec.entry_point, spec.arguments, self.plan.environment)
            self._checked.add(spec.entry_point)
        self.begin()
        pace = self.plan.seconds * _SPREAD / copies
        due = time.monotonic() + after
        for number, each in enumerate(specs):
            self._submissions.add(Submission(each, due + number * pace, spec.job_id))

    def driver(self, command: Sequence[str], *, replicas: int = 1) -> None:
        """Run a program of one's own, such as one that calls `jrs.run`, on hosts of its own.

        Each replica is started again until it ends with status 0. It finds ``JRS_BACKEND``,
        ``JRS_CLUSTER`` and ``JRS_STORAGE`` in its environment.

        Example::

            world.driver([sys.executable, "driver.py"], replicas=3)
        """
        self.begin()
        self._commands.append(command)
        first = len(self._drivers())
        for number in range(first, first + replicas):
            self._hosts.add_driver(
                f"d{number + 1}", command, self.cluster.name, self.cluster.storage
            )

    def append(self, programs: int = 4) -> None:
        """Let programs of a few clients append to lists over the time of the faults, for the check
        `list_append`."""
        self.begin()
        until = time.monotonic() + self.plan.seconds
        command = [sys.executable, "-m", "jrs.testing.chaos.appending", str(until)]
        self.driver(command, replicas=programs)

    def until(self, condition: Callable[[], object], what: str, timeout: float = 60.0) -> None:
        """Wait until a condition holds.

        Raises:
            TimeoutError: it does not hold within `timeout` seconds, or a job or a driver fails
                without any fault: the message says why.
        """
        self._progress.until(condition, what, timeout)

    def until_stage(
        self,
        job_id: str,
        stage: str,
        state: EventKind = finished,
        *,
        batch: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Wait until a stage has begun or finished, or has committed a batch.

        Raises:
            TimeoutError: as `until`.
        """
        wanted = state if batch is None else EventKind.BATCH

        def reached() -> bool:
            return self.cluster.has_reached(job_id, stage, wanted, batch)

        what = f"batch {batch}" if batch is not None else wanted.value
        self.until(reached, f"{stage} of {job_id}: {what}", timeout)

    def pids(self, who: str) -> list[int]:
        """Return the living processes of a kind; for the names, see `faults.kill`."""
        return self.cluster.pids(who)

    def strike(self, nemesis: faults.Nemesis) -> list[str]:
        """Let a nemesis strike now; return whom it hit, if there was anyone to hit. The report
        counts these strikes apart from those of the plan.

        Harm that lasts is undone after its time, or at the end of the run.
        """
        striker = self.begin()
        return [whom for fault in nemesis.faults if (whom := striker.strike_now(fault))]

    # -- the judgement -----------------------------------------------------------------------

    def check(self, *checks: Check) -> Run:
        """End the run, and check what happened.

        Waits until the faults are over and every job has ended, or fails again and again without
        any fault. Returns the run.

        Raises:
            InvalidInput: an argument is no check. The run continues.
            ChaosFailure: a check has found something; the message says what, where the report is,
                and how the run is repeated.
        """
        for one in checks:
            if not isinstance(one, Check):
                raise InvalidInput(f"no check: {shown(one)}; output_equals needs an argument")
        run = self._end(watched in checks)
        if any(check.needs == "undisturbed" for check in checks) and "undisturbed" not in run.notes:
            run = self._keep({**run.notes, "undisturbed": self._undisturbed()}, run.events)
        used = self._used = list(dict.fromkeys([*checks, *OF_THE_RUN]))
        run = self._keep(asked_for(used, run.notes), run.events)
        found = [violation for check in used for violation in check.violations(run)]
        write_report(self.folder / "report.html", run, used, found, self._again)
        if found:
            raise ChaosFailure.of(run, self.folder, found, self._again)
        return run

    def _end(self, for_watches: bool = False) -> Run:
        """End the run. Changes at its end are evaluated only if watches have the time for them."""
        if self._run is not None:
            return self._run
        striker = self.begin()
        end = self._began + self.plan.seconds
        while time.monotonic() < end and not striker.is_over:
            self._submissions.check()
            if self._progress.has_work and not self._progress.awaited():
                break
            time.sleep(0.1)  # Both threads look at what they wait for by themselves.
        striker.stop()
        self.cluster.heal()
        self._submissions.hurry()
        peace = time.monotonic()
        left = self._settle()
        settled = time.monotonic() - peace
        if for_watches:
            self._watch_on(peace + DUE / 1e9 + _MORE)
        self._submissions.stop()
        self._submissions.check()
        for _ in self.cluster.backend.scan("", deadline=Deadline.after(60.0)):
            pass  # What exists at the end is part of the history.
        notes = {**self._notes(), "settled": round(settled, 1)}
        left += self._hosts.stop()
        notes["left"] = left + self.cluster.fsck()
        notes["broken"] = self._hosts.broken + self._hosts.last_words()
        events = events_of(self.folder / "history" / self.cluster.name)
        notes["idle"] = list(idle(self._drivers(), events))
        return self._keep(notes, events)

    def _keep(self, notes: dict[str, Any], events: list[Event]) -> Run:
        (self.folder / NOTES).write_text(json.dumps(notes, indent=1, default=repr))
        self._run = Run(events, notes)
        return self._run

    def _drivers(self) -> list[str]:
        return [host.name for host in self._hosts.all.values() if host.is_driver]

    def _settle(self) -> list[str]:
        """Wait until all has ended that can, and is clean; return a line for each record that is
        left."""
        deadline, pause = Deadline.after(self.plan.timeout), Poll()
        while True:
            self._hosts.supervise()
            self._submissions.check()
            try:
                left = [f"{key} is left" for key in records_left(self.cluster.backend)]
                if not self._progress.awaited() and (not left or self._progress.wrong()):
                    return left
            except JrsError as error:
                left = [f"it is unknown what is left: {error}"]
            if deadline.expired:
                return left
            pause.sleep()

    def _watch_on(self, until: float) -> None:
        """Keep the masters, if there are any, until a moment of the monotonic clock."""
        while self._hosts.pids("master") and time.monotonic() < until:
            self._hosts.supervise()
            time.sleep(0.1)  # Nothing has to happen until then.

    def _notes(self) -> dict[str, Any]:
        return {
            "backend": self.scheme,
            "seed": self.seed,
            "nemesis": str(self.plan.nemesis),
            "faults": {name: attrs.asdict(tally) for name, tally in self.begin().tallies.items()},
            "masters": self.plan.masters,
            "timeout": self.plan.timeout,
            "seconds": round(time.monotonic() - self._began, 1),
            "unfinished": self._progress.unfinished(),
            "wrong": self._progress.wrong(),
            "last_words": self._progress.last_words(),
            "explained": explained(self.cluster, self._submissions.unfinished()),
            "copy_of": {one.spec.job_id: one.copy_of for one in self._submissions.all()},
            "ended": self._submissions.ended(self.output),
        }

    def _undisturbed(self) -> dict[str, Any]:
        """Run one copy of each job and driver without faults, in a world of its own; return how the
        jobs ended and their ids, by the id that the user gave, or that of a driver's job. Places
        below `output` are named as in this world."""
        chosen = {each.copy_of: each.spec for each in self._submissions.all()}
        here, there = str(self.output), str(self.folder / "undisturbed" / "output")
        plan = attrs.evolve(
            self.plan, masters=min(1, len(chosen)), seconds=0, nemesis=faults.Nemesis()
        )
        with World(plan, "file", self.folder / "undisturbed") as calm:
            for spec in chosen.values():
                given = moved(spec.arguments, here, there)
                calm.submit_spec(attrs.evolve(spec, arguments=given))
            for command in self._commands:
                calm.driver(moved(command, here, there))
            ended = moved(calm._end().notes["ended"], there, here)
        names = {spec.job_id: name for name, spec in chosen.items()}
        return {names.get(job_id, job_id): {**one, "id": job_id}
                for job_id, one in ended.items()}  # fmt: skip

    @property
    def ended(self) -> Run:
        """The run, once it was checked."""
        if self._run is None:
            raise InvalidInput("the run has not ended: call check() first")
        return self._run

    def without_effect(self) -> list[str]:
        """Return a line for each fault, of the plan or at once, that has hit nobody, one if none
        lasted while a job ran, and one for each check with nothing to look at; none before the run
        was checked."""
        if self._run is None:
            return []
        run = self._run
        return [*never_hit(run.notes), *undisturbed_jobs(run), *evaluated_nothing(self._used, run)]

    def figures(self) -> dict[str, int]:
        """Return figures of the run, once it was checked."""
        return counts(self.ended)


def _entry(entry: str | Callable[..., Any]) -> str:
    if isinstance(entry, str):
        return entry
    return f"{inspect.getsourcefile(entry)}:{entry.__name__}"


__all__ = ["World", "begun", "finished"]
