"""Attempts that end through no fault of their job: no deaths, and tried again ever later."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jrs
from jrs.contract.backend import Backend
from jrs.contract.errors import (
    CannotStartHere,
    CorruptRecord,
    Fenced,
    JobHeld,
    OutcomeUnknown,
    Unavailable,
)
from jrs.contract.operations import Fence, Record
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.model import AttemptRecord, JobResult, JobStatus, RunnerKind, StopMode
from jrs.records.policies import RestartPolicy
from jrs.recovery import attempt_main
from jrs.recovery.attempt.engine import NO_SPARK, SparkEngine
from jrs.recovery.attempt.job import Job, Stage
from jrs.recovery.attempt.launch import EXIT_INTERRUPTED, Launch
from jrs.recovery.attempt.runners.thread import ThreadRunner
from jrs.recovery.attempt.triage import call_users, is_of_jrs
from jrs.recovery.attempt_main import run_launch
from jrs.recovery.files import permissions
from jrs.recovery.leader import suspects
from jrs.recovery.processes.last_words import LastWords
from jrs.recovery.spark.engine import PySparkEngine
from jrs.store import history
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops
from tests.recovery.lead import Lead
from tests.recovery.support import FailingEngine, FaultyMemory, Leader, spec
from tests.support import FakeClock, until

ONCE = RestartPolicy(attempts=1)
DRIVEN = {"runner": RunnerKind.THREAD, "restart": ONCE}


def newest(backend: Backend, job_id: str = "job") -> AttemptRecord:
    stored = backend.get(keys.ATTEMPTS + job_id)
    assert stored is not None
    return decode(AttemptRecord, stored.value, stored.key)


def one_stage(job: Job) -> Any:
    def write(stage: Stage) -> int:
        (stage.output / "x").write_text("x")
        return job.attempt

    return job.stage("s", write).result()


def run(
    memory: FaultyMemory,
    root: Path,
    function: Callable[[Job], Any],
    engine: SparkEngine = NO_SPARK,
) -> JobResult:
    """Run a job in the master's process that a single death would fail."""
    JobCatalog(memory).submit(spec("job", "driver:job", **DRIVEN))
    with Leader(memory, root, runner=ThreadRunner(engine=engine)) as leader:
        leader.dispatcher.provide("job", function)
        return leader.store.wait("job", 60.0)


# -- what interrupts an attempt -----------------------------------------------------------------


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
@pytest.mark.parametrize("after", [False, True])
def test_the_mark_of_a_stage(
    memory: FaultyMemory, root: Path, error: type[Exception], after: bool
) -> None:
    """It is committed once the backend is back, and the stage does not run again for it."""
    fault = memory.fault(
        keys.stage("job", "s"), error, times=3, after=after and error is OutcomeUnknown
    )

    result = run(memory, root, one_stage)

    assert (result.status, result.payload) == (JobStatus.FINISHED, 1), result.failure
    assert fault.happened


def test_the_mark_of_a_stage_whose_leader_is_replaced(memory: FaultyMemory, root: Path) -> None:
    """The wait ends with the leadership."""
    fault = memory.fault(keys.stage("job", "s"), Unavailable)
    JobCatalog(memory).submit(spec("job", "driver:job", **DRIVEN))
    with Leader(memory, root, runner=ThreadRunner()) as leader:
        leader.dispatcher.provide("job", one_stage)
        until(lambda: fault.happened, "its mark was refused")
    memory.faults.clear()

    assert memory.get(keys.stage("job", "s")) is None


def test_a_disk_that_is_full_while_a_stage_is_published(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is committed: the next attempt publishes it, and does not run it again."""
    make, full = permissions.make, [OSError(errno.ENOSPC, "No space left on device")]

    def once_full(path: Path, *how: Any, **more: Any) -> None:
        if path.name == "out" and full:
            raise full.pop()
        make(path, *how, **more)

    monkeypatch.setattr(permissions, "make", once_full)

    result = run(memory, root, one_stage)

    assert (result.status, result.payload, result.attempt) == (JobStatus.FINISHED, 1, 2)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), RuntimeError("no thread")])
def test_no_room_for_last_words(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    append, errors = LastWords._append, [error]

    def fails_once(self: LastWords, lines: bytes) -> None:
        if errors:
            raise errors.pop()
        append(self, lines)

    monkeypatch.setattr(LastWords, "_append", fails_once)
    called = []

    result = run(memory, root, lambda job: called.append(job.attempt))

    assert result.status is JobStatus.FINISHED
    assert called == [2]


def test_a_check_while_the_backend_is_away(memory: FaultyMemory, root: Path) -> None:
    """It waits, as the commits of a stage do: what the stage has done so far is not thrown away."""

    def function(job: Job) -> int:
        job.stage("s", checks)
        return job.attempt

    def checks(stage: Stage) -> None:
        here = threading.get_ident()

        def is_away(fence: Fence) -> bool:
            if threading.get_ident() == here and len(asked) < 3:
                asked.append(fence)
                raise Unavailable("injected")
            return is_current(fence)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(memory, "is_current", is_away)
            stage.job.check()

    asked, is_current = list[Fence](), memory.is_current
    result = run(memory, root, function)

    assert (result.status, result.payload) == (JobStatus.FINISHED, 1)
    assert len(asked) == 3


def side_by_side(function: Callable[[], object]) -> None:
    """Call a function in a thread of a task group."""

    async def all_tasks() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(function))

    asyncio.run(all_tasks())


@pytest.mark.parametrize("of_jrs", [True, False], ids=["jrs", "a client of its own"])
def test_an_error_in_a_group(memory: FaultyMemory, root: Path, of_jrs: bool) -> None:
    """What runs side by side is interrupted, and dies, by the errors that would do so alone."""

    def function(job: Job) -> int:
        if job.attempt == 1:
            away = Unavailable("the other cluster is away")
            side_by_side((lambda: job.spark) if of_jrs else (lambda: raise_(away)))
        return job.attempt

    result = run(memory, root, function, FailingEngine(Unavailable("it is away")))

    if of_jrs:
        assert (result.status, result.payload) == (JobStatus.FINISHED, 2), result.failure
    else:
        assert (result.status, result.attempt) == (JobStatus.FAILED, 1)
        assert result.failure is not None
        assert "ExceptionGroup: " in result.failure.message


def launch(url: str) -> Launch:
    """Return what the process of a job's first attempt is started with."""
    return Launch(
        url, "c", "/nowhere", "", encode(spec("job")).decode(),
        attempt=1, epoch=1, fence_version=1, attempt_fence=None, first_started_at=0.0, mark="",
        stdout="", stderr="", log_limit=0,
    )  # fmt: skip


def test_a_backend_that_is_away_while_a_process_begins() -> None:
    """Its attempt could not open the backend: its function was not called."""
    assert (
        run_launch(launch("etcd://127.0.0.1:1?timeout=1"), 1, None, PySparkEngine())
        == EXIT_INTERRUPTED
    )


@pytest.mark.parametrize(
    "key", [keys.RESULTS, keys.DIRTY], ids=["its result", "the marker of its result"]
)
def test_a_record_of_its_result_that_cannot_be_read(
    memory: FaultyMemory, root: Path, key: str
) -> None:
    memory.fault(key, CorruptRecord, times=1)

    result = run(memory, root, lambda job: job.attempt)

    assert (result.status, result.payload) == (JobStatus.FINISHED, 2)


def test_a_backend_that_cannot_be_read_while_a_process_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(*_: object, **__: object) -> None:
        raise CorruptRecord("the folder is damaged")

    monkeypatch.setattr(attempt_main, "open_backend", damaged)

    assert run_launch(launch("file:///nowhere"), 1, None, PySparkEngine()) == EXIT_INTERRUPTED


# -- what holds its job -------------------------------------------------------------------------


def lose(monkeypatch: pytest.MonkeyPatch, memory: FaultyMemory, key: str) -> None:
    """Have a record be one that the disk may have lost."""
    get = memory.get

    def damaged(wanted: str, **more: Any) -> Record | None:
        if wanted == key:
            raise CorruptRecord(f"{key}: held, because damage may have hit it")
        return get(wanted, **more)

    monkeypatch.setattr(memory, "get", damaged)


def test_a_record_of_a_stage_that_may_be_lost(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No result is recorded, and no death: it resumes where the disk gives the record back."""
    JobCatalog(memory).submit(spec("job", "driver:job", **DRIVEN))
    with Leader(memory, root, runner=ThreadRunner()) as leader:
        with monkeypatch.context() as patched:
            lose(patched, memory, keys.stage("job", "s"))
            leader.dispatcher.provide("job", one_stage)
            stop = until(lambda: JobStops(memory).get("job"), "it is held")
        assert stop.mode is StopMode.HOLD
        assert "damage may have hit it; restore the job from a snapshot" in stop.reason
        JobStops(memory).resume("job")
        result = leader.store.wait("job", 60.0)

    assert (result.status, result.payload) == (JobStatus.FINISHED, 2)


def test_a_job_that_is_resumed_before_its_leader_looks(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stop is gone when the end of its attempt is counted: that is no death."""
    hold = JobStops.hold

    def hold_and_resume(stops: JobStops, job_id: str, *how: Any) -> None:
        hold(stops, job_id, *how)
        JobStops(memory).resume(job_id)

    def held_at_first(job: Job) -> Any:
        return job.spark if job.attempt == 1 else job.attempt

    monkeypatch.setattr(JobStops, "hold", hold_and_resume)
    result = run(memory, root, held_at_first, FailingEngine(JobHeld("its plan has changed")))

    assert (result.status, result.payload) == (JobStatus.FINISHED, 2), result.failure


def test_a_hold_that_cannot_be_recorded(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an interruption: the job is tried again."""
    fault = memory.fault(keys.STOPS + "job", CorruptRecord)
    JobCatalog(memory).submit(spec("job", "driver:job", **DRIVEN))
    with Leader(memory, root, runner=ThreadRunner()) as leader:
        with monkeypatch.context() as patched:
            lose(patched, memory, keys.stage("job", "s"))
            leader.dispatcher.provide("job", one_stage)
            until(lambda: fault.happened, "it tried to record that the job is held")
        result = leader.store.wait("job", 60.0)

    assert result.status is JobStatus.FINISHED
    assert "cannot be recorded" in result.attempts[0].ended


# -- what does not ------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [False, True], ids=["the job's function", "a stage's"])
def test_what_the_users_function_raises(memory: FaultyMemory, root: Path, inside: bool) -> None:
    """A client of its own, of a server that never answers: a death."""

    def asks(job: Job) -> None:
        def ask(*_: Stage) -> None:
            raise Unavailable("the other cluster is away")

        if inside:
            job.stage("s", ask)
        ask()

    result = run(memory, root, asks)

    assert (result.status, result.attempt) == (JobStatus.FAILED, 1)
    assert result.failure is not None
    assert "the other cluster is away" in result.failure.message


@pytest.mark.parametrize(
    "raises",
    [
        lambda job: jrs.check_entry("no_such_module_at_all:f", {}),
        lambda job: raise_(CannotStartHere("no disk is mounted")),
        lambda job: raise_(JobHeld("the source is late")),
        lambda job: raise_(Fenced("the leader of another cluster was replaced")),
    ],
    ids=["check_entry", "CannotStartHere", "JobHeld", "Fenced"],
)
def test_what_is_not_of_this_host_or_leader(
    memory: FaultyMemory, root: Path, raises: Callable[[Job], Any]
) -> None:
    """The user's function says so, of something else: its job has failed, and runs no more."""
    result = run(memory, root, raises)

    assert (result.status, result.attempt) == (JobStatus.FAILED, 1)
    assert result.failure is not None
    assert "Traceback" in result.failure.detail


class Unreadable(Exception):
    """As an error of py4j, which asks a JVM for its text that may have ended since."""

    def __str__(self) -> str:
        raise ConnectionError("no JVM answers")


@pytest.mark.parametrize("inside", [False, True], ids=["the job's function", "a stage's"])
def test_an_exception_whose_text_cannot_be_read(
    memory: FaultyMemory, root: Path, inside: bool
) -> None:
    """It is judged as any other."""

    def raises(*_: Stage) -> None:
        raise Unreadable

    result = run(memory, root, lambda job: job.stage("s", raises) if inside else raises())

    assert (result.status, result.attempt) == (JobStatus.FAILED, 1)
    assert result.failure is not None
    assert result.failure.message == "Unreadable: its text cannot be read: ConnectionError"
    assert "in raises" in result.failure.detail


def raise_(error: Exception) -> None:
    raise error


def test_which_calls_are_of_jrs(memory: FaultyMemory, tmp_path: Path) -> None:
    """The innermost of the user's functions counts: what it has called of the attempt, or not."""
    job = Lead(memory, tmp_path).job()
    memory.fault(keys.stage("job", "s"), Unavailable)
    memory.before_commit(keys.STAGES, job._run.context.lost.set)  # It would wait for the backend.

    def raised(function: Callable[[Job], Any]) -> bool:
        with pytest.raises(Unavailable) as raised:
            call_users(function, job)
        return is_of_jrs(raised.value)

    def asks_jrs_then_another(job: Job) -> None:
        job.check()
        raise Unavailable("another")

    assert not raised(asks_jrs_then_another)
    assert raised(one_stage)


# -- trying again -------------------------------------------------------------------------------


def test_the_delay_grows_and_no_death_is_counted(memory: FaultyMemory, root: Path) -> None:
    """Until an attempt has run for a while, or has died."""
    clock = FakeClock()
    JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=2)))
    with Leader(memory, root, clock=clock) as leader:
        for number, delay in enumerate([1, 2, 4, 8, 16, 30, 30], 1):
            attempt = leader.runner.of("job", number)
            attempt.die("etcd restarts", interrupted=True)
            leader.until_said("waiting", "job", f"again in {delay} s")
            until(lambda: newest(memory).ended, "its end is recorded")
            clock.now += delay
            leader.look()
        leader.runner.of("job", 8)
        clock.now += 3600.0
        leader.runner.of("job", 8).die("etcd restarts", interrupted=True)
        until(lambda: len(leader.said("waiting", "job", "again in 1 s")) == 2, "at once again")
        clock.now += 1.0
        leader.look()
        leader.runner.of("job", 9).die("it died")
        leader.until_said("died", "job", "1 left")

    found = newest(memory)
    assert (found.attempt, found.deaths) == (9, 1)
    assert found.earlier[0].ended == "etcd restarts"
    told = [one for one in history.read(memory, "job") if one.kind == HistoryKind.INTERRUPTED]
    assert [one.text for one in told] == [
        f"attempt {number} was interrupted: etcd restarts" for number in range(1, 9)
    ]
    assert {one.by for one in told} == {found.master}
    assert all(one.about and one.about["host"] for one in told)


def test_no_attempt_follows_a_result(memory: FaultyMemory, root: Path) -> None:
    """The commit of the result is of unknown outcome, and has happened."""
    JobCatalog(memory).submit(spec("job", restart=ONCE))
    with Leader(memory, root) as leader:
        attempt = leader.runner.of("job")
        attempt.record("done")
        attempt.die("unknown", interrupted=True)
        leader.until_clean("job")

        assert leader.store.wait("job", 0.0).payload == "done"
        assert len(leader.runner.started) == 1


def test_what_an_interrupted_attempt_still_writes_is_fenced(
    memory: FaultyMemory, root: Path
) -> None:
    """It may not have ended as it says: the next one has shut it out."""
    clock = FakeClock()
    JobCatalog(memory).submit(spec("job", restart=ONCE))
    with Leader(memory, root, clock=clock) as leader:
        first = leader.runner.of("job")
        first.die("unknown", interrupted=True)
        leader.until_said("waiting", "job", "again in 1 s")
        clock.now += 1.0
        leader.look()
        second = leader.runner.of("job", 2)
        with pytest.raises(Fenced):
            first.record("first")
        second.finish("second")

        assert leader.store.wait("job", 60.0).payload == "second"


def test_its_leaders_death_is_not_its_own(memory: FaultyMemory, root: Path) -> None:
    """A job that waits to be tried again does not run in its leader, so it is no suspect."""
    job = spec("job", "m:f", **DRIVEN)
    JobCatalog(memory).submit(job)
    with Leader(memory, root, clock=FakeClock()) as leader:
        attempt = leader.runner.of("job")
        assert suspects.ran_in_its_leader(newest(memory), job)
        attempt.die("etcd restarts", interrupted=True)
        leader.until_said("waiting", "job", "again in")

        assert not suspects.ran_in_its_leader(newest(memory), job)
