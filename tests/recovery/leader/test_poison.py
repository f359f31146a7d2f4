"""Poison jobs: what kills the process that it runs in must not end every master in turn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import jrs
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import AttemptRecord, JobResult, JobSpec, JobStatus, RunnerKind
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.launch import EXIT_DIED
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import lead
from jrs.testing.masters import Masters
from tests.recovery.support import CLUSTER, FaultyMemory, Leader, spec
from tests.support import FakeClock, until

POISON = Path(__file__).with_name("poison.py")
DIED_OF = {
    "segv": "Fatal Python error: Segmentation fault",
    "later": "Fatal Python error: Segmentation fault",
    "exits": "os._exit(3) was called",
    "hogs": "held the interpreter's lock",
    "eats": "memory ran out",
}


class Replicas:
    """The replicas of one application; see poison.py."""

    def __init__(self, folder: Path, poison: str, attempts: int, ttl: float) -> None:
        self.folder = folder
        self._arguments = [
            (folder / "store").as_uri(), str(folder), poison, str(attempts), str(ttl)
        ]  # fmt: skip
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, prefix: tuple[str, ...] = ()) -> None:
        # Into files: what a job has forked would hold pipes open.
        with self._output(len(self.all)).open("wb") as output:
            replica = subprocess.Popen(
                [*prefix, sys.executable, POISON, *self._arguments],
                stdout=output,
                stderr=output,
            )
        self.all.append(replica)

    def returned(self, timeout: float = 240.0) -> tuple[dict[str, Any], int]:
        """Return what the surviving replicas returned, and how many have died."""
        ends = [
            (replica.wait(timeout), self._last_reported(n)) for n, replica in enumerate(self.all)
        ]
        # One that came late also says that the application has ended before.
        alive = [said.splitlines()[-1] for status, said in ends if status == 0]
        assert alive, f"{ends}\n{self.events()}"
        assert len(set(alive)) == 1, ends
        found: dict[str, Any] = json.loads(alive[0])
        return found, len(self.all) - len(alive)

    def _output(self, number: int) -> Path:
        return self.folder / f"output-{number}"

    def _last_reported(self, number: int) -> str:
        return self._output(number).read_text()

    def started(self) -> list[tuple[int, int, str]]:
        """Return the pid, the epoch and the job of each start."""
        path = self.folder / "ran"
        lines = path.read_text().splitlines() if path.exists() else []
        words = [line.split() for line in lines]
        return [(int(pid), int(epoch), job_id) for pid, epoch, job_id in words]

    def events(self) -> str:
        """Return what the leaders have told, to be read where they did not do as they should."""
        return (self.folder / "events").read_text()

    def close(self) -> None:
        for replica in self.all:
            replica.kill()
            replica.wait()


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Callable[..., Replicas]]:
    with ExitStack() as stack:

        def make(poison: str, attempts: int = 1, ttl: float = 15.0) -> Replicas:
            made = Replicas(tmp_path, poison, attempts, ttl)
            stack.callback(made.close)
            return made

        yield make


class Cgroups:
    """Cgroups with a limit, five of them; called, it gives a command that runs others in one, with
    ``{number}`` for which."""

    def __init__(self) -> None:
        self._made: list[Path] = []

    def __call__(self, controller: str, limit: str, value: int) -> tuple[str, ...]:
        root = Path("/sys/fs/cgroup") / controller
        name = f"poison-{os.getpid()}"
        for number in range(5):
            group = root / f"{name}-{number}"
            try:
                group.mkdir()
            except OSError as error:
                pytest.skip(f"no cgroup can be made: {error}")
            self._made.append(group)
            (group / limit).write_text(str(value))
        procs = root / f"{name}-{{number}}" / "cgroup.procs"
        return "sh", "-c", f'echo $$ >{procs}; exec "$@"', "sh"

    def empty(self) -> None:
        """Kill all that runs in them."""
        for group in self._made:
            if (group / "pids.max").exists():
                (group / "pids.max").write_text("0")  # Else a bomb forks faster than it is killed.
            until(partial(self._is_empty, group), f"{group} is empty")

    def close(self) -> None:
        self.empty()
        for group in self._made:
            group.rmdir()

    def _is_empty(self, group: Path) -> bool:
        pids = (group / "cgroup.procs").read_text().split()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        return not pids


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    made = Cgroups()
    yield made
    made.close()


# -- in the driver's own process ------------------------------------------------------------------


def is_survived(app: Replicas, poison: str, attempts: int, prefix: tuple[str, ...] = ()) -> None:
    """Of five masters the poison ends no more than its policy allows attempts, and one in which it
    was not alone."""
    for number in range(5):
        app.start(tuple(word.format(number=number) for word in prefix))
    returned, died = app.returned()

    assert returned["good"] == ["a-good", "lasting", "z-good"]
    status, message = returned["poison"]
    assert status == "FAILED"
    assert DIED_OF[poison] in message
    assert died == attempts + 1, app.events()


@pytest.mark.parametrize("poison", ["segv", "exits"])
def test_a_poison_job_ends_as_its_policy_says(
    replicas: Callable[..., Replicas], poison: str
) -> None:
    """B2: a job that kills its master by SEGV, or by os._exit, is found out when it runs alone; it
    is FAILED with what its master died of, and the good jobs of the same driver finish."""
    is_survived(replicas(poison, attempts=1), poison, 1)


@pytest.mark.soak
def test_a_poison_job_that_takes_its_time_ends_as_its_policy_says(
    replicas: Callable[..., Replicas],
) -> None:
    """B2: one that kills its master after seconds, as one that takes much memory on a busy host, is
    alone for longer than it took the first time, and costs no more masters."""
    is_survived(replicas("later", attempts=2), "later", 2)


@pytest.mark.soak
def test_a_loop_in_c_ends_as_its_policy_says(replicas: Callable[..., Replicas]) -> None:
    """B2: a job that holds the interpreter's lock forever keeps its master from doing anything; the
    kernel's timer ends the process, with a traceback that is the job's last words."""
    is_survived(replicas("hogs", attempts=2, ttl=8.0), "hogs", 2)


@pytest.mark.soak
def test_a_job_that_eats_all_memory_ends_as_its_policy_says(
    replicas: Callable[..., Replicas], cgroups: Cgroups
) -> None:
    """B2: the kernel kills the master of a job that takes more memory than its cgroup has; that
    leaves no word, but the next leader on this host finds that the kernel has done so."""
    limits = cgroups("memory", "memory.limit_in_bytes", 300 << 20)
    is_survived(replicas("eats", attempts=2), "eats", 2, limits)


@pytest.mark.soak
def test_the_default_policy_leaves_one_of_five_masters(replicas: Callable[..., Replicas]) -> None:
    """B2: three attempts, and the master in which the poison was not alone: the fifth is left."""
    is_survived(replicas("segv", attempts=3), "segv", 3)


@pytest.mark.soak
def test_a_fork_bomb_fails(replicas: Callable[..., Replicas], cgroups: Cgroups) -> None:
    """B2: a job that forks until its cgroup has no more processes is FAILED by the error of its own
    process; jobs next to it fail of nothing that its master lacks, and finish once the cgroup is
    emptied, or on another master."""
    app = replicas("forks")
    limits = cgroups("pids", "pids.max", 200)
    for number in range(5):
        app.start(tuple(word.format(number=number) for word in limits))
    with open_backend((app.folder / "store").as_uri(), cluster=CLUSTER) as backend:
        failed = JobResultStore(backend).wait("poison", 120)
    cgroups.empty()
    app.start()
    returned, _ = app.returned()

    assert failed.status is JobStatus.FAILED
    assert failed.failure is not None
    assert "BlockingIOError" in failed.failure.message
    assert returned["good"] == ["a-good", "lasting", "z-good"]


def is_killed(app: Replicas, kills: int, before: Callable[[], None] = lambda: None) -> None:
    """Kill a leader in which a job runs so many times, and see that all jobs finish."""
    for _ in range(3):
        app.start()

    def started_after(epoch: int) -> list[Any]:
        return [run for run in app.started() if run[1] > epoch]

    epoch = 0
    for _ in range(kills):
        found = until(partial(started_after, epoch), f"a job runs in an epoch after {epoch}")
        pid, epoch, _ = found[-1]
        leader = next(each for each in app.all if each.pid == pid)
        before()
        leader.kill()
        leader.wait()
        app.start()
    (app.folder / "may.end").touch()
    _, died = app.returned()

    assert died == kills, app.events()


@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.soak)])
def test_kills_from_outside_fail_no_job(replicas: Callable[..., Replicas], kills: int) -> None:
    """B2: a leader that is killed while a job runs alone in it has left no last words, so that is
    no death of the job: under the default policy of three attempts all jobs finish."""
    is_killed(replicas("none"), kills)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_memory_that_others_lack_fails_no_job(
    replicas: Callable[..., Replicas], cgroups: Cgroups, kills: int
) -> None:
    """B2: a leader was killed from outside, and the kernel kills something else of its host for
    want of memory: that is no death of the job either."""
    limits = cgroups("memory", "memory.limit_in_bytes", 40 << 20)
    prefix = [word.format(number=0) for word in limits]
    eats = [*prefix, sys.executable, "-S", "-c", "bytearray(b'x' * (400 << 20))"]

    def starves() -> None:
        assert subprocess.run(eats).returncode == -signal.SIGKILL

    app = replicas("none")
    is_killed(app, kills, before=starves)

    assert "memory ran out" not in app.events()


def test_what_a_job_has_forked_is_no_attempt_of_it(tmp_path: Path) -> None:
    """B2: a forked child that returns from the job's function ends there: it records no result, and
    runs nothing of its master's."""

    def forks(job: jrs.Job) -> int:
        child = os.fork()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else -1

    url = (tmp_path / "store").as_uri()

    def main(driver: jrs.Driver) -> int:
        return driver.run("job", forks)

    assert jrs.run(main, url, name="main") == EXIT_DIED


# -- jobs that any process can load ---------------------------------------------------------------


def test_a_suspect_that_any_process_can_load_runs_in_one_of_its_own(tmp_path: Path) -> None:
    """B2: of five masters the poison ends one; then it runs in a process of its own, where each
    death is seen, and is FAILED as its policy says; a good one of the same leader finishes."""
    folder = tmp_path / "store"
    with Masters(folder.as_uri(), cluster=CLUSTER, ttl=15.0) as masters:
        catalog, results = JobCatalog(masters.backend), JobResultStore(masters.backend)
        for name, function in (("bad", "segv"), ("good", "good")):
            catalog.submit(
                JobSpec(
                    name,
                    f"{POISON}:{function}",
                    runner=RunnerKind.THREAD,
                    restart=RestartPolicy(attempts=2, delay=0.05),
                )
            )
        for number in range(5):
            masters.start(f"m{number}")
        failed = results.wait("bad", 120)

        assert results.wait("good", 60).status is JobStatus.FINISHED
        assert failed.status is JobStatus.FAILED
        assert failed.failure is not None
        assert failed.failure.exit_status == -signal.SIGSEGV
        assert failed.attempt == 3
        assert [master.alive for master in masters.all].count(False) == 1


def test_a_job_that_has_ended_is_no_suspect(memory: FaultyMemory, root: Path) -> None:
    """B2: a leader that dies behind the result of a job has not died of that job: the next one
    cleans it up, and neither suspects it nor counts a death."""
    job = spec("job", runner=RunnerKind.THREAD)
    JobCatalog(memory).submit(job)
    with lead(memory, "old") as old:
        record = AttemptRecord("job", epoch=old.epoch)
        memory.commit(Create(keys.ATTEMPTS + "job", encode(record)), fence=old.fence)
        JobResultStore(memory).create_dirty(
            JobResult("job", JobStatus.FINISHED, epoch=old.epoch), old.fence
        )
    with Leader(memory, root) as new:
        new.until_clean("job")

        assert new.said("suspect") == []


# -- delays ---------------------------------------------------------------------------------------


def test_the_delay_of_the_restart_policy_outlives_the_leader(
    memory: FaultyMemory, root: Path
) -> None:
    """B2: what is left of the delay when the leader is replaced is waited for by the next one,
    which would otherwise restart at each failover what dies at once."""
    policy = RestartPolicy(attempts=3, delay=1000.0, max_delay=1000.0)
    JobCatalog(memory).submit(spec("job", restart=policy))
    with Leader(memory, root) as old:
        old.runner.of("job").die()
        old.until_said("died", "job", "next in 1000 s")
    clock = FakeClock()
    with Leader(memory, root, clock=clock) as new:
        new.until_said("decision", "job", "the next one is not due")

        assert new.runner.started == []

        clock.now += 1000.0
        new.look()
        new.runner.of("job").finish()
        new.until_clean("job")
