"""The world of a chaos run: masters, drivers, jobs, faults, and the judgement at its end."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Self

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput, JrsError
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import EpochRecord, JobSpec
from jrs.records.policies import RestartPolicy
from jrs.recovery.rules.events import EventKind
from jrs.testing.chaos import faults
from jrs.testing.chaos.checking.jobs import counts, no_crash
from jrs.testing.chaos.checking.verdict import Check, Run, Violation
from jrs.testing.chaos.hosts import Hosts
from jrs.testing.chaos.marks import MARK
from jrs.testing.chaos.meddling import Meddler
from jrs.testing.chaos.outputs import contents
from jrs.testing.chaos.plan import Plan
from jrs.testing.chaos.recorded import events_of
from jrs.testing.chaos.recorder import HISTORY, NAME, recorded, recording_in
from jrs.testing.chaos.report import write_report
from jrs.testing.chaos.strikes import Striker, schedule
from jrs.testing.chaos.submissions import Submission, Submissions
from jrs.testing.masters import Masters
from jrs.testing.polling import Poll
from jrs.testing.servers import Proxies, Server, find_etcd, find_zookeeper

LASTING = RestartPolicy(attempts=10_000, delay=0.1, max_delay=1.0, on_exception=True)
"""For jobs that must finish however often they are killed."""

_SPREAD = 0.8
"""The part of the faults' time over which the copies of a job are submitted."""
_DISK = "200m"
"""The size of the filesystem that is filled."""

begun = EventKind.STAGE_BEGUN
finished = EventKind.STAGE_FINISHED


class ChaosFailure(AssertionError):
    """A chaos run that broke a promise.

    Attributes:
        violations: what its checks have found.
        report: the file that shows it.
    """

    def __init__(self, message: str, violations: Sequence[Violation], report: Path) -> None:
        self.violations = tuple(violations)
        self.report = report
        super().__init__(message)


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
        self.plan = plan
        self.scheme = scheme
        self.folder = folder
        self.seed = plan.seed if seed is None else seed
        self.output = folder / "output"
        self.disk: Path | None = None
        self.server = server
        self._again = again
        self._say = say
        self._mark = uuid.uuid4().hex
        self.cluster = f"chaos-{self._mark[:12]}"
        self._stack = ExitStack()
        self._submissions: Submissions | None = None
        self._striker: Striker | None = None
        self._run: Run | None = None

    # -- its life ----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _open(self) -> None:
        stack = self._stack
        self.folder.mkdir(parents=True, exist_ok=True)
        self.output.mkdir()
        history = self.folder / "history"
        stack.enter_context(_environment({HISTORY: str(history), NAME: "world"}))
        place = self.folder
        if self.scheme == "file":
            if any(fault.small_disk for fault in self.plan.nemesis.faults):
                self.disk = stack.enter_context(_small_disk(self.folder / "disk", self._say))
                place = self.disk or place
            self._inner = (place / "store").as_uri()
        elif self.server is None:
            find = {"etcd": find_etcd, "zookeeper": find_zookeeper}[self.scheme]
            self.server = stack.enter_context(find(self.plan.members))
        self.storage = place / "files"
        self._recording = recording_in(history)
        environment = {**self.plan.environment, MARK: self._mark}
        self.masters = stack.enter_context(
            Masters(self.url, cluster=self.cluster, storage=self.storage, ttl=self.plan.ttl,
                    options=self.plan.options, environment=environment)
        )  # fmt: skip
        self._hosts = Hosts(self._url, self.server, self.folder, self._mark)
        stack.callback(self._hosts.close)

    def _url(self, network: Proxies | None) -> str:
        if self.server is None:
            return recorded(self._inner)
        return recorded(self.server.url(endpoints=None if network is None else network.endpoints))

    @property
    def url(self) -> str:
        """The backend's URL, as all processes of the run have it but for their proxies."""
        return self._url(None)

    @property
    def backend(self) -> Backend:
        """A handle on the cluster, which is recorded, too."""
        return self.masters.backend

    def __exit__(self, *_: object) -> None:
        try:
            if self._striker is not None:
                self._striker.stop()
        finally:
            if self._submissions is not None:
                self._submissions.stop()
            if self.server is not None:
                self.server.heal()
            self._stack.close()

    def begin(self) -> None:
        """Start the masters and the faults, if they are not started yet. Idempotent."""
        if self._striker is not None:
            return
        for number in range(self.plan.masters):
            self._hosts.add_master(f"m{number + 1}", self.masters)
        if self.plan.masters:
            self.masters.leader()
        self._submissions = Submissions(self.backend)
        self._submissions.start()
        strikes = schedule(self.plan.nemesis, self.plan.seconds, self.seed)
        meant = [
            strike for strike in strikes
            if self.scheme in (fault := self.plan.nemesis.faults[strike.fault]).backends
            and (self.disk is not None or not fault.small_disk)
        ]  # fmt: skip
        self._striker = Striker(
            self, self.plan.nemesis, meant, self._recording, self._hosts.supervise
        )
        self._began = time.monotonic()
        self._striker.start()

    # -- what nemeses reach ------------------------------------------------------------------

    def hosts(self) -> list[str]:
        return sorted(self._hosts.all)

    def leading(self) -> str | None:
        try:
            record = self.backend.get(keys.EPOCH, deadline=Deadline.after(1.0))
            return record and decode(EpochRecord, record.value, record.key).candidate
        except JrsError:
            return None

    def pids(self, who: str) -> list[int]:
        if who == "leader":
            return self._hosts.pid_of(self.leading())
        return self._hosts.pids(who)

    def network(self, host: str) -> Proxies | None:
        return self._hosts.all[host].network

    def meddler(self, host: str) -> Meddler:
        return self._hosts.all[host].meddler

    # -- what a test does --------------------------------------------------------------------

    def submit(
        self, id: str, entry: str | Callable[..., Any], /, *, copies: int = 1, **arguments: Any
    ) -> None:
        """Submit a job; the copies of one over the time of the faults, as ``ID-1``, ``ID-2``, ….

        Args:
            entry: ``module:function``, ``/path/file.py:function``, or a function of a test.
            arguments: of the function, JSON or paths. ``{id}`` in a text stands for the job's id.

        Example::

            world.submit("orders", "etl.jobs:orders", copies=50, target=world.output / "{id}")
        """
        given = {name: str(value) if isinstance(value, Path) else value
                 for name, value in arguments.items()}  # fmt: skip
        self.submit_spec(JobSpec(id, _entry(entry), given, restart=LASTING), copies=copies)

    def submit_spec(self, spec: JobSpec, *, copies: int = 1) -> None:
        """Submit a job that is described whole; see `submit`."""
        self.begin()
        assert self._submissions is not None
        pace = self.plan.seconds * _SPREAD / copies
        for number in range(copies):
            job_id = spec.job_id if copies == 1 else f"{spec.job_id}-{number + 1}"
            arguments = {name: value.replace("{id}", job_id) if isinstance(value, str) else value
                         for name, value in spec.arguments.items()}  # fmt: skip
            copy = attrs.evolve(spec, job_id=job_id, arguments=arguments)
            self._submissions.add(Submission(copy, time.monotonic() + number * pace, spec.job_id))

    def driver(self, command: Sequence[str], *, replicas: int = 1) -> None:
        """Run a program of one's own, such as one that calls `jrs.run`, on hosts of its own.

        Each replica is started again until it ends with status 0. It finds ``JRS_BACKEND``,
        ``JRS_CLUSTER`` and ``JRS_STORAGE`` in its environment.

        Example::

            world.driver([sys.executable, "driver.py"], replicas=3)
        """
        self.begin()
        first = sum(host.is_driver for host in self._hosts.all.values())
        for number in range(first, first + replicas):
            self._hosts.add_driver(f"d{number + 1}", command, self.cluster, self.storage)

    def until(self, condition: Callable[[], object], what: str, timeout: float = 60.0) -> None:
        """Wait until a condition holds.

        Raises:
            TimeoutError: it does not hold within `timeout` seconds.
        """
        deadline, pause = Deadline.after(timeout), Poll()
        while not condition():
            if deadline.expired:
                raise TimeoutError(f"waited until {what}: not within {timeout:g} s")
            pause.sleep()

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
            TimeoutError: not within `timeout` seconds.
        """
        wanted = state if batch is None else EventKind.BATCH

        def reached() -> bool:
            return any(
                event.job_id == job_id and event.stage == stage and event.kind == wanted.value
                and (batch is None or _last_number(event.message) >= batch)
                for event in list(self.masters.events)
            )  # fmt: skip

        what = f"batch {batch}" if batch is not None else wanted.value
        self.until(reached, f"{stage} of {job_id}: {what}", timeout)

    def strike(self, nemesis: faults.Nemesis) -> list[str]:
        """Let a nemesis strike now; return whom it hit. What it does is undone at once."""
        hit = []
        for fault in nemesis.faults:
            harm = fault.strike(self, Random(self.seed))
            whom = next(harm, None)
            if whom is not None:
                hit.append(whom)
                next(harm, None)
        return hit

    # -- the judgement -----------------------------------------------------------------------

    def check(self, *checks: Check) -> Run:
        """End the run, and check what happened.

        Waits until the faults are over and every job has ended. Returns the run.

        Raises:
            ChaosFailure: a check has found something; the message says what, where the report is,
                and how the run is repeated.
        """
        run = self._end(any(check.name == "output_equals" for check in checks))
        used = list(dict.fromkeys([*checks, no_crash]))
        found = [violation for check in used for violation in check.violations(run)]
        report = self.folder / "report.html"
        write_report(report, run, used, found, self._again)
        if found:
            raise ChaosFailure(self._failure(found, report), found, report)
        return run

    def _failure(self, found: list[Violation], report: Path) -> str:
        shown = [f"  {violation}" for violation in found[:10]]
        if len(found) > len(shown):
            shown.append(f"  and {len(found) - len(shown)} more")
        names = sorted({violation.check for violation in found})
        lines = [
            f"{', '.join(names)}: broken on {self.scheme} under {self.plan.nemesis}", *shown,
            f"report: {report}", f"history: jrs chaos check {self.folder}",
        ]  # fmt: skip
        return "\n".join([*lines, *([f"again: {self._again}"] if self._again else [])])

    def _end(self, compare: bool) -> Run:
        if self._run is not None:
            return self._run
        self.begin()
        assert self._striker is not None
        assert self._submissions is not None
        end = self._began + self.plan.seconds
        while time.monotonic() < end and not self._idle() and not self._striker.is_over:
            time.sleep(0.1)  # Both threads look at what they wait for by themselves.
        self._striker.stop()
        self._hosts.heal()
        if self.server is not None:
            self.server.heal()
        self._submissions.hurry()
        left = self._settle()
        self._submissions.stop()
        if self._submissions.failure is not None:
            raise self._submissions.failure
        for _ in self.backend.scan("", deadline=Deadline.after(60.0)):
            pass  # What is there at the end belongs into the history.
        left += self._hosts.stop()
        left += self._fsck()
        notes = self._notes(left)
        if compare:
            notes["undisturbed"] = self._undisturbed()
        (self.folder / "run.json").write_text(json.dumps(notes, indent=1))
        self._run = Run(events_of(self.folder / "history"), notes)
        return self._run

    def _idle(self) -> bool:
        assert self._submissions is not None
        jobs = self._submissions.all()
        drivers = [host for host in self._hosts.all.values() if host.is_driver]
        busy = bool(self._submissions.unfinished()) or not self._hosts.drivers_done
        return bool(jobs or drivers) and not busy

    def _settle(self) -> list[str]:
        """Wait until all has ended and is cleaned up; return a line for each record that is left."""
        deadline, pause = Deadline.after(self.plan.patience), Poll()
        while True:
            self._hosts.supervise()
            try:
                left = [f"{key} is left" for key in self._records_left()] if self._idle() else []
                if not left and (self._idle() or not self._submissions_exist()):
                    return []
            except JrsError as error:
                left = [f"it is unknown what is left: {error}"]
            if deadline.expired:
                return left
            pause.sleep()

    def _submissions_exist(self) -> bool:
        assert self._submissions is not None
        has_drivers = any(host.is_driver for host in self._hosts.all.values())
        return has_drivers or bool(self._submissions.all())

    def _records_left(self) -> Iterator[str]:
        for prefix in (keys.JOBS, keys.DIRTY, *keys.WHILE_IT_RUNS):
            for record in self.backend.scan(prefix):
                yield record.key

    def _fsck(self) -> list[str]:
        inner = self.url.removeprefix("recorded:")
        command = [sys.executable, "-m", "jrs", "--backend", inner, "--cluster", self.cluster,
                   "fsck", "--storage", str(self.storage)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        return [f"fsck: {done.stdout}{done.stderr}".strip()] if done.returncode else []

    def _notes(self, left: list[str]) -> dict[str, Any]:
        assert self._submissions is not None
        jobs = self._submissions.all()
        return {
            "backend": self.scheme,
            "seed": self.seed,
            "nemesis": str(self.plan.nemesis),
            "masters": self.plan.masters,
            "seconds": round(time.monotonic() - self._began, 1),
            "left": left,
            "broken": self._hosts.broken + self._hosts.last_words(),
            "unfinished": self._submissions.unfinished(),
            "copy_of": {each.spec.job_id: each.copy_of for each in jobs},
            "ended": {
                each.spec.job_id: {
                    "status": each.result.status.value,
                    "payload": each.result.payload,
                    "files": self._files(each.spec),
                }
                for each in jobs
                if each.result is not None
            },
        }

    def _files(self, spec: JobSpec) -> list[Any]:
        """Return what the job has written below `output`, as far as its arguments name it."""
        places = [Path(value) for value in spec.arguments.values() if isinstance(value, str)]
        return [contents(place) for place in places if place.is_relative_to(self.output)]

    def _undisturbed(self) -> dict[str, Any]:
        """Run each job once, without faults, in a world of its own; return how they ended."""
        assert self._submissions is not None
        originals = {each.copy_of: each.spec for each in self._submissions.all()}
        plan = Plan(masters=1, seconds=0, patience=self.plan.patience, options=self.plan.options,
                    environment=self.plan.environment)  # fmt: skip
        with World(plan, "file", self.folder / "undisturbed") as calm:
            for name, spec in originals.items():
                here, there = str(self.output), str(calm.output)
                given = {
                    key: value.replace(here, there) if isinstance(value, str) else value
                    for key, value in spec.arguments.items()
                }
                calm.submit_spec(attrs.evolve(spec, job_id=name, arguments=given))
            ended: dict[str, Any] = calm._end(compare=False).notes["ended"]
            return ended

    def figures(self) -> dict[str, int]:
        """Return figures of the run, once it was checked."""
        if self._run is None:
            raise InvalidInput("the run has not ended: call check() first")
        return counts(self._run)


def _entry(entry: str | Callable[..., Any]) -> str:
    if isinstance(entry, str):
        return entry
    return f"{inspect.getsourcefile(entry)}:{entry.__name__}"


def _last_number(text: str) -> int:
    numbers = re.findall(r"\d+", text)
    return int(numbers[-1]) if numbers else -1


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _small_disk(path: Path, say: Callable[[str], None]) -> Iterator[Path | None]:
    """Mount a small filesystem in memory, or say that it is impossible."""
    path.mkdir()
    why = "only root may mount"
    if os.geteuid() == 0:
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "jrs-chaos", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        why = done.stderr.strip() if done.returncode else ""
    if why:
        say(f"the disk is never full in this run: no small filesystem could be mounted: {why}")
        yield None
        return
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False, timeout=30)


__all__ = ["ChaosFailure", "World", "begun", "finished"]
