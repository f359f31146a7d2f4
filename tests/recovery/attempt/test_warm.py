"""Warm standby: a process that was prepared for an attempt serves it, or does nothing at all."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.contract.runtime import Runtime, random_token
from jrs.records.model import AttemptRecord, JobSpec, RunnerKind
from jrs.records.policies import RestartPolicy
from jrs.records.settings import JobSettings
from jrs.recovery.attempt.attempt_process import AttemptProcess
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.launch_socket import Kind, Message, in_memory
from jrs.recovery.attempt.runners import AttemptExit, warm_pool
from jrs.recovery.attempt.runners.process import ProcessRunner
from jrs.recovery.attempt.runners.warm_pool import WarmPool, chosen
from jrs.recovery.attempt.runners.watchdog_process import WatchdogProcess
from jrs.recovery.attempt.warm_plan import WarmPlan, plan_of
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.processes import marks
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from tests.recovery.support import (
    CLUSTER,
    Leader,
    gone,
    job,
    many_descriptors,
    noted,
    spec,
    state_of,
)
from tests.support import BOUND, FakeClock, in_long_form, parent_of, until

from .warm_program import NOTES, PROGRAM, THEN

ROOT = Path(__file__).parents[3]


@attrs.define
class Pool:
    """A pool, and what it has said."""

    pool: WarmPool
    said: list[str]
    clock: FakeClock
    notes: Path
    plans: list[WarmPlan]
    close: Callable[[], None]

    def prepared(self, count: int = 1) -> list[int]:
        """Wait until so many processes were prepared; return all of them."""
        text = "a process is prepared"
        until(lambda: sum(text in one for one in self.said) >= count, f"{count} are prepared")
        return noted(self.notes, count)

    def lost(self) -> int:
        return sum("is lost" in one for one in self.said)

    def until_said(self, text: str) -> str:
        found: str = until(lambda: next((one for one in self.said if text in one), ""), text)
        return found


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Pool]]:
    """Make pools that keep processes with these plans; their clock stands still."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with ExitStack() as stack:

        def pool(*plans: WarmPlan, size: int = 1, path: Path | None = None) -> Pool:
            if path is not None:
                monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{path}")
            notes, said, clock = tmp_path / "prepared", list[str](), FakeClock()
            wanted = list(plans) or [WarmPlan({NOTES: str(notes)})]
            runtime = Runtime(clock=clock)
            made = WarmPool(size, PROGRAM, lambda: wanted, said.append, runtime)
            stack.enter_context(made)
            return Pool(made, said, clock, notes, wanted, stack.close)

        yield pool


@attrs.define
class Attempts:
    """Starts attempts of a job, one after the other, by the runner of a leadership."""

    runner: ProcessRunner
    context: AttemptContext
    exits: list[AttemptExit] = attrs.field(factory=list)

    def reserve(self, conf: dict[str, str]) -> str | None:
        before = AttemptRecord(self.context.job_id, session=conf)
        return self.runner.reserve(self.context.spec, before)

    def start(self, mark: str) -> AttemptExit:
        """Start an attempt, and wait for its end."""
        over = threading.Event()

        def ended(how: AttemptExit) -> None:
            self.exits.append(how)
            over.set()

        self.runner.start(attrs.evolve(self.context, mark=mark), None, ended)
        until(over.is_set, "the attempt has ended")
        return self.exits[-1]

    def payload(self) -> Any:
        return JobResultStore(self.context.backend).wait("job", 0).payload


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Callable[[Pool], Attempts]]:
    """Attempts of the job "job", which returns its process."""
    url = (tmp_path / "store").as_uri()
    with open_backend(url, cluster=CLUSTER) as backend:
        leadership = backend.campaign("m1", ttl=30.0, stop=threading.Event())
        assert leadership is not None
        with leadership:

            def make(pool: Pool) -> Attempts:
                context = AttemptContext(
                    spec=spec("job", job("where")),
                    attempt=1,
                    fence=leadership.fence,
                    backend=backend,
                    storage=JobStorage(tmp_path / "jobs", CLUSTER),
                    first_started_at=0.0,
                )
                return Attempts(ProcessRunner(url, PROGRAM, warm=pool.pool), context)

            yield make


def of_pool(pool: Pool) -> dict[str, str]:
    return pool.plans[0].conf


# -- a process is claimed -----------------------------------------------------------------------


def test_the_next_attempt_runs_in_the_prepared_process(
    make: Callable[..., Pool], tmp_path: Path
) -> None:
    """A job that has started a session dies; its next attempt is the process that waited."""
    url, pids = (tmp_path / "store").as_uri(), tmp_path / "pids"
    pool = make()
    (prepared,) = pool.prepared()
    with open_backend(url, cluster=CLUSTER) as backend:
        runner = ProcessRunner(url, PROGRAM, warm=pool.pool)
        with Leader(backend, tmp_path / "jobs", runner=runner) as leader:
            policy = RestartPolicy(attempts=3, delay=0.01)
            JobCatalog(backend).submit(
                spec(
                    "job",
                    job("session_then_death"),
                    arguments={"pids": str(pids)},
                    restart=policy,
                )
            )
            leader.until_clean("job")
            result = JobResultStore(backend).wait("job", 0)

    first, second = noted(pids, 2)
    assert result.payload == second == prepared != first
    assert result.attempt == 2


def test_it_is_stopped_while_it_waits(
    make: Callable[..., Pool], attempts: Callable[[Pool], Attempts]
) -> None:
    """While it waits it does not run, and the kernel ends it first. Its attempt runs."""
    pool = make()
    (pid,) = pool.prepared()
    until(lambda: state_of(pid) == "T", "it is stopped")
    assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "900"
    job = attempts(pool)
    mark = job.reserve(of_pool(pool))
    assert mark is not None

    ended = job.start(mark)

    assert (ended.exit_status, ended.begun) == (0, True)
    assert job.payload() == {"job": "job", "attempt": 1, "epoch": 1, "pid": pid}


def test_what_it_printed_is_in_the_log_of_the_attempt(
    make: Callable[..., Pool], attempts: Callable[[Pool], Attempts]
) -> None:
    pool = make()
    pool.prepared()
    job = attempts(pool)
    mark = job.reserve(of_pool(pool))
    assert mark is not None
    job.start(mark)

    log = job.context.storage.logs("job") / "attempt-1.err"
    assert "it prepares itself" in log.read_text()


def test_each_serves_one_attempt(
    make: Callable[..., Pool], attempts: Callable[[Pool], Attempts]
) -> None:
    pool = make()
    pool.prepared()
    job = attempts(pool)

    assert job.reserve(of_pool(pool)) is not None
    assert job.reserve(of_pool(pool)) is None
    pool.clock.now += 60.0
    pool.prepared(2)
    assert job.reserve(of_pool(pool)) is not None


def test_no_more_processes_wait_than_are_asked_for(
    make: Callable[..., Pool], tmp_path: Path
) -> None:
    """A plan that is wanted less often than before keeps as many processes as it is wanted for."""
    one, other = (WarmPlan({NOTES: str(tmp_path / "prepared"), "spark.n": n}) for n in "12")
    pool = make(one, one, size=2)
    older, newer = pool.prepared(2)
    pool.plans[:] = [one, other]
    pool.clock.now += 30.0
    *_, newest = pool.prepared(3)

    until(lambda: gone([newer]), "the newer one of the two is ended")

    assert not gone([older])
    assert not gone([newest])


def test_another_plan_needs_another_process(
    make: Callable[..., Pool], attempts: Callable[[Pool], Attempts]
) -> None:
    """What Spark changes in a session that runs may differ, and nothing else."""
    pool = make()
    pool.prepared()
    job, conf = attempts(pool), of_pool(pool)

    assert job.reserve({**conf, "spark.driver.memory": "4g"}) is None
    assert job.reserve({**conf, "spark.sql.shuffle.partitions": "3"}) is not None


MODULE = """
import os
LOADED_BY = os.getpid()

def work(job):
    return [VERSION, LOADED_BY, os.getpid()]
"""


def write_module(folder: Path, version: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "preloaded_etl.py").write_text(f"VERSION = {version}\n{MODULE}")


def launch_of(pool: Pool, attempts: Callable[[Pool], Attempts]) -> tuple[Attempts, str]:
    """Reserve a process for a job of the module."""
    job = attempts(pool)
    job.context = attrs.evolve(job.context, spec=spec("job", "preloaded_etl:work"))
    mark = job.reserve(of_pool(pool))
    assert mark is not None
    return job, mark


@pytest.mark.parametrize("change", [False, True], ids=["same", "changed"])
def test_a_module_is_imported_beforehand(
    make: Callable[..., Pool],
    attempts: Callable[[Pool], Attempts],
    tmp_path: Path,
    change: bool,
) -> None:
    """It is there when the attempt comes. If its file was replaced meanwhile, the attempt runs the
    new code, in the same process, and its log says so."""
    write_module(tmp_path / "etl", 1)
    notes = tmp_path / "prepared"
    plan = WarmPlan({NOTES: str(notes)}, preload=("preloaded_etl",))
    pool = make(plan, path=tmp_path / "etl")
    (pid,) = pool.prepared()
    if change:
        write_module(tmp_path / "etl", 22)
    job, mark = launch_of(pool, attempts)
    ended = job.start(mark)

    assert (ended.exit_status, ended.begun) == (0, True)
    assert job.payload() == [22 if change else 1, pid, pid]
    log = (job.context.storage.logs("job") / "attempt-1.err").read_text()
    assert ("preloaded_etl.py changed after it was preloaded" in log) is change


def test_a_module_that_cannot_be_imported(make: Callable[..., Pool], tmp_path: Path) -> None:
    pool = make(WarmPlan({NOTES: str(tmp_path / "prepared")}, preload=("no_such_etl",)))
    assert "the module no_such_etl cannot be preloaded: ModuleNotFoundError" in pool.until_said(
        "is lost"
    )


def test_one_of_a_master_with_very_many_descriptors(make: Callable[..., Pool]) -> None:
    """`select` takes none from 1024 on: the pool heard of nothing, and took all of a processor."""
    with many_descriptors():
        pool = make()
        pool.prepared()
        pool.close()


# -- nothing is claimed -------------------------------------------------------------------------


def test_one_that_cannot_prepare_itself(make: Callable[..., Pool], tmp_path: Path) -> None:
    """The reason is said, and the break after each failure is longer."""
    pool = make(WarmPlan({NOTES: str(tmp_path / "prepared"), THEN: "fail"}))
    first = pool.until_said("there is no Java")
    pool.clock.now += 30.0
    noted(tmp_path / "prepared", 2)
    second = until(lambda: pool.said[1:], "the second has failed")[0]

    assert first.endswith("there is no Java; the next one is prepared in 30 s")
    assert second.endswith("in 60 s")


@pytest.mark.parametrize("where", ["send", "look"])
def test_an_error_does_not_end_warm_standby(
    make: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A host may have no more descriptors for a moment. What was begun is ended."""
    begun: list[WatchdogProcess] = []
    send = WatchdogProcess.send

    def fail_once(watchdog: WatchdogProcess, kind: Kind, line: bytes, *more: int) -> None:
        begun.append(watchdog)
        if len(begun) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        send(watchdog, kind, line, *more)

    def fail(wanted: Sequence[WarmPlan], size: int) -> list[WarmPlan]:
        monkeypatch.setattr(warm_pool, "chosen", chosen)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    if where == "send":
        monkeypatch.setattr(WatchdogProcess, "send", fail_once)
    else:
        monkeypatch.setattr(warm_pool, "chosen", fail)
    pool = make()
    pool.until_said("Too many open files")
    if where == "send":
        begun[0].process.wait(BOUND)
    pool.clock.now += 60

    assert len(pool.prepared()) == 1


def test_one_that_never_is_ready(make: Callable[..., Pool], tmp_path: Path) -> None:
    pool = make(WarmPlan({NOTES: str(tmp_path / "prepared"), THEN: "hang"}))
    hanging = noted(tmp_path / "prepared", 1)
    pool.clock.now += 301.0
    pool.until_said("it has not prepared itself in 300 s")

    assert gone(hanging)


@pytest.mark.parametrize("which", ["the process", "its watchdog"])
def test_one_that_is_killed_while_it_waits(make: Callable[..., Pool], which: str) -> None:
    """Another one takes its place, after a break; nothing of the first is left."""
    pool = make()
    (pid,) = pool.prepared()
    watchdog = parent_of(pid)
    os.kill(pid if which == "the process" else watchdog, signal.SIGKILL)
    pool.until_said("it has ended")
    pool.clock.now += 30.0

    assert len(pool.prepared(2)) == 2
    assert gone([pid, watchdog])


def test_one_that_is_wanted_no_more(make: Callable[..., Pool], tmp_path: Path) -> None:
    pool = make()
    (old,) = pool.prepared()
    pool.plans[:] = [WarmPlan({NOTES: str(tmp_path / "prepared"), "spark.sql.y": "2"})]
    pool.clock.now += 30.0

    assert len(pool.prepared(2)) == 2
    assert gone([old])


@pytest.mark.parametrize("which", ["the process", "its watchdog"])
def test_one_that_dies_between_its_reservation_and_its_claim(
    make: Callable[..., Pool], attempts: Callable[[Pool], Attempts], which: str
) -> None:
    """It is no death of the job: the attempt begins in another process, or is tried again."""
    pool = make()
    (pid,) = pool.prepared()
    job, watchdog = attempts(pool), parent_of(pid)
    mark = job.reserve(of_pool(pool))
    assert mark is not None
    os.kill(pid if which == "the process" else watchdog, signal.SIGKILL)
    until(lambda: gone([pid]), "it is dead")

    ended = job.start(mark)
    if not ended.begun:
        assert ended.message == "the process that was prepared for it ended"
        ended = job.start(random_token())

    assert ended.exit_status == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_one_that_dies_while_it_is_claimed(
    make: Callable[..., Pool],
    attempts: Callable[[Pool], Attempts],
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """It is no death of the job: nothing was launched, whether the watchdog dies before the launch
    is sent or before it is read."""
    pool = make()
    (pid,) = pool.prepared()
    job = attempts(pool)
    mark = job.reserve(of_pool(pool))
    assert mark is not None
    watchdog, send = parent_of(pid), WatchdogProcess.send
    monkeypatch.setattr(WatchdogProcess, "lives", True)  # The kernel says so for another moment.
    if when == "before":
        os.kill(watchdog, signal.SIGKILL)
        until(lambda: gone([pid]), "it is dead")
    else:
        os.kill(watchdog, signal.SIGSTOP)

    def then_die(process: WatchdogProcess, kind: Kind, line: bytes, *descriptors: int) -> None:
        send(process, kind, line, *descriptors)
        with suppress(ProcessLookupError):
            os.kill(watchdog, signal.SIGKILL)

    monkeypatch.setattr(WatchdogProcess, "send", then_die)
    ended = job.start(mark)

    assert not ended.begun
    assert ended.message == "the process that was prepared for it ended"


@pytest.mark.parametrize("when", ["before it is sent", "before it is read", "after it was read"])
def test_a_launch_that_a_dead_process_had_read(tmp_path: Path, when: str) -> None:
    """What has not read its launch was no attempt, also if it died in that very moment."""
    attempt = AttemptProcess(PROGRAM, "", {}, "", None)
    pid = attempt.process.pid
    given = {
        "job_secrets": {},
        "log_limit": 1 << 20,
        "stdout": str(tmp_path / "out"),
        "stderr": str(tmp_path / "err"),
    }
    if when == "before it is sent":
        os.kill(pid, signal.SIGKILL)
        until(lambda: gone([pid]), "it is dead")
    elif when == "before it is read":
        os.kill(pid, signal.SIGSTOP)
    attempt.launch(Message(Kind.LAUNCH, (in_memory(b"no launch"), in_memory(b""))), given)
    if when != "after it was read":  # That one ends by itself, as it cannot read this launch.
        os.kill(pid, signal.SIGKILL)
    attempt.process.returncode = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    attempt.pump.join(BOUND)

    assert attempt.had_read_launch() == (when == "after it was read")
    attempt.socket.close()
    os.close(attempt.pipe.descriptor)


def test_one_that_was_reserved_for_nothing(
    make: Callable[..., Pool], attempts: Callable[[Pool], Attempts]
) -> None:
    """Its mark may be in the record of a job, so it serves no other."""
    pool = make()
    (pid,) = pool.prepared()
    mark = attempts(pool).reserve(of_pool(pool))
    assert mark is not None
    pool.pool.release(mark)

    assert gone([pid])
    assert marks.marked(marks.marks_of(mark)) == []


def test_a_stopped_watchdog_holds_up_nobody(make: Callable[..., Pool]) -> None:
    pool = make()
    (pid,) = pool.prepared()
    os.kill(parent_of(pid), signal.SIGSTOP)
    pool.close()

    assert gone([pid])


MASTER = """
import sys, time
from jrs.recovery.attempt.runners.warm_pool import WarmPool
from jrs.recovery.attempt.warm_plan import WarmPlan
from tests.recovery.attempt.warm_program import NOTES, PROGRAM
with WarmPool(2, PROGRAM, lambda: [WarmPlan({NOTES: sys.argv[1]})] * 2, print):
    time.sleep(3600.0)
"""


def test_it_ends_with_its_master(tmp_path: Path) -> None:
    """By kill -9, also while one is stopped."""
    notes = tmp_path / "prepared"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    master = subprocess.Popen([sys.executable, "-c", MASTER, notes], env=environment, cwd=ROOT)
    waiting = noted(notes, 2)
    until(lambda: "T" in map(state_of, waiting), "one is stopped")
    master.kill()
    master.wait()

    until(lambda: gone(waiting), "both are gone")


KILLS = {"it is killed", "its watchdog is killed", "its watchdog is stopped"}
ACTS = [*sorted(KILLS), "it is released", "it is claimed"]


def do(act: str, pid: int) -> None:
    watchdog = parent_of(pid)
    match act:
        case "it is killed":
            os.kill(pid, signal.SIGKILL)
        case "its watchdog is killed":
            os.kill(watchdog, signal.SIGKILL)
        case "its watchdog is stopped":
            os.kill(watchdog, signal.SIGSTOP)


def test_interruptions(make: Callable[..., Pool], attempts: Callable[[Pool], Attempts]) -> None:
    """A process is killed, its watchdog is stopped, it is released or claimed, at any moment: what
    was not claimed did nothing, and nothing of it is left."""
    chance, claimed = random.Random(1), set[int]()
    pool = make()
    job = attempts(pool)
    for turn in range(in_long_form(1000, 6)):
        pid = noted(pool.notes, turn + 1)[-1]
        act, lost = chance.choice(ACTS), pool.lost()
        early = act in KILLS and "stopped" not in act and chance.random() < 0.5
        mark = None if early else until(partial(job.reserve, of_pool(pool)), "it is reserved")
        do(act, pid)
        if mark is None:
            until(lambda lost=lost: pool.lost() > lost, "its end is said")  # type: ignore[misc]
            pool.clock.now += 4000.0
            continue
        if act == "it is claimed" and job.start(mark).begun:
            claimed.add(pid)
        pool.pool.release(mark)
        until(partial(gone, [pid]), f"{act}, and gone")
        pool.clock.now += 4000.0

    results = JobResultStore(job.context.backend)
    found = {job.payload()["pid"]} if results.has_entry("job") else set()
    assert found <= claimed
    assert bool(found) == bool(claimed)


# -- plans --------------------------------------------------------------------------------------


def test_what_is_prepared_for_a_job() -> None:
    """Only what its next attempt may have: no secrets, no other process's session."""
    used = AttemptRecord("job", session={"spark.x": "1"})
    settings = JobSettings(python="/opt/python", env={"A": "b"})

    def of(spec: JobSpec, before: AttemptRecord | None = used) -> WarmPlan | None:
        return plan_of(spec, before, shared=True)

    assert of(spec("job", settings=settings)) == WarmPlan(
        {"spark.x": "1"}, "/opt/python", {"A": "b"}, shared=True
    )
    assert of(spec("job"), None) is None
    assert of(spec("job"), AttemptRecord("job")) is None
    assert of(spec("job", runner=RunnerKind.THREAD)) is None
    assert of(spec("job", settings=JobSettings(secrets={"KEY": "env:KEY"}))) is None


@pytest.mark.parametrize(
    ("wanted", "size", "found"),
    [("", 2, ""), ("a", 3, "a"), ("aab", 2, "ab"), ("abb", 1, "b"), ("aaab", 3, "aba")],
)
def test_which_plans_are_chosen(wanted: str, size: int, found: str) -> None:
    """Each plan once, the most wanted one first; then a second time."""

    def plans(names: str) -> Sequence[WarmPlan]:
        return [WarmPlan({"spark.x": name}) for name in names]

    assert chosen(plans(wanted), size) == plans(found)
