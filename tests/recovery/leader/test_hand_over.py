"""U2: what is wrong with one host is no outcome of a job."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.clock import Deadline
from jrs.contract.errors import CannotStartHere, JobHeld
from jrs.contract.runtime import Runtime
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, JobStatus, MasterInfo, RunnerKind, StopMode
from jrs.records.obstacles import Obstacle, with_obstacle
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.job import Job
from jrs.recovery.attempt.runners import OnEnd, Runner, RunningAttempt
from jrs.recovery.attempt.runners.thread import ThreadRunner
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.inspect.explain import explain
from jrs.recovery.leader import orphans
from jrs.recovery.leader.attempt_records import RETRY
from jrs.recovery.leader.attempts import Attempts
from jrs.recovery.leader.hand_over import HandOver
from jrs.recovery.rules import lineage_runs
from jrs.store import history, obstacles
from jrs.store.historian import Historian
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.store.stops import JobStops
from jrs.testing.contract import lead
from tests.recovery.support import FailingEngine, FaultyMemory, Leader, leader_context, put, spec
from tests.support import FakeClock, until


def record(memory: FaultyMemory, job_id: str = "job") -> AttemptRecord:
    stored = memory.get(keys.ATTEMPTS + job_id)
    assert stored is not None
    return decode(AttemptRecord, stored.value, stored.key)


def submit(memory: FaultyMemory, entry: str) -> None:
    JobCatalog(memory).submit(spec("job", entry, runner=RunnerKind.THREAD))


def test_u2_a_missing_module_holds_the_job_until_it_arrives(
    memory: FaultyMemory, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U2: the job is held with the host and the reason, counts no death and no attempt, and runs
    by itself once the module is there."""
    monkeypatch.syspath_prepend(tmp_path)
    clock = FakeClock()
    submit(memory, "arrives_for_hand_over:f")
    with Leader(memory, root, runner=ThreadRunner(), clock=clock, candidate="m1") as leader:
        leader.until_said("decision", "job", "held: no master could start it so far: m1 on ")
        view = JobCatalog(memory).view("job")
        found = explain(memory, view)

        assert view.status is JobStatus.CREATED
        assert any("No module named 'arrives_for_hand_over'" in line for line in found.details)
        assert (record(memory).attempt, record(memory).deaths) == (1, 0)

        clock.now += RETRY + 1
        leader.look()
        until(lambda: len(leader.said("waiting", "job")) == 2, "it is tried again")
        assert (record(memory).attempt, record(memory).deaths) == (1, 0)
        (tmp_path / "arrives_for_hand_over.py").write_text("def f(job): return job.attempt\n")
        until(lambda: leader.said("decision", "job", "hold")[1:], "it is held again")
        clock.now += RETRY + 1
        leader.look()

        assert leader.store.wait("job", 60).payload == 1


def test_u2_an_import_error_inside_of_the_module_fails_the_job(
    memory: FaultyMemory, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U2: what the module itself imports is the job's own business."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imports_what_is_missing.py").write_text("import no_such_module_at_all\n")
    submit(memory, "imports_what_is_missing:f")
    with Leader(memory, root, runner=ThreadRunner()) as leader:
        result = leader.store.wait("job", 60)

    assert result.status is JobStatus.FAILED
    assert result.failure is not None
    assert "no_such_module_at_all" in result.failure.message


def test_u2_each_new_leader_tries_at_once(memory: FaultyMemory, root: Path) -> None:
    """U2: a reason that one master has recorded does not keep the next one from trying."""
    submit(memory, "no_such_module_at_all:f")
    with Leader(memory, root, runner=ThreadRunner(), candidate="m1") as first:
        first.until_said("waiting", "job")
    with Leader(memory, root, runner=ThreadRunner(), candidate="m2") as second:
        second.until_said("waiting", "job")

    assert second.said("suspect") == []


class Lacking(Runner):
    """A runner whose host lacks what any process needs, until `complete`."""

    def __init__(self) -> None:
        self.complete = threading.Event()
        self._runner = ThreadRunner()

    def start(
        self, context: AttemptContext, function: Callable[..., Any] | None, on_end: OnEnd
    ) -> RunningAttempt:
        if not self.complete.is_set():
            raise CannotStartHere("there is no python3.99")
        return self._runner.start(context, lambda job: "ran", on_end)


def test_a_job_that_was_called_keeps_its_number(memory: FaultyMemory, root: Path) -> None:
    """It asks for what its host lacks only later: it may have done half of its work before. It is
    held as any other, and each time is an attempt."""
    clock, called = FakeClock(), list[int]()
    submit(memory, "driver:job")
    runner = ThreadRunner(engine=FailingEngine(CannotStartHere("there is no Java")))

    def needs_java_later(job: Job) -> object:
        called.append(job.attempt)
        return job.spark if job.attempt == 1 else job.attempt

    with Leader(memory, root, runner=runner, clock=clock) as leader:
        leader.dispatcher.provide("job", needs_java_later)
        leader.until_said("decision", "job", "there is no Java")
        clock.now += RETRY + 1
        leader.look()
        result = leader.store.wait("job", 60)

    first, second = result.attempts
    assert (result.payload, called, second.ended) == (2, [1, 2], "finished")
    assert "there is no Java" in first.ended


@pytest.mark.parametrize("how", ["suspend", "hold"])
def test_a_run_that_never_started_ends_once(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A suspend or a hold ends what was reported as a run, although its host could not start it; so
    the attempt after that has another number, and is another run."""
    clock, runner = FakeClock(), Lacking()
    submit(memory, "m:f")
    stops = JobStops(memory)
    with Leader(memory, root, runner=runner, clock=clock) as leader:
        leader.until_said("decision", "job", "there is no python3.99")
        if how == "suspend":
            stops.request("job", StopMode.SUSPEND)
            leader.until_said("suspended", "job")
        else:
            with monkeypatch.context() as patch:
                patch.setattr(orphans, "take_over", _is_held)
                clock.now += RETRY + 1
                leader.look()
                leader.until_said("held", "job", "its checkpoint is damaged")
        runner.complete.set()
        stops.resume("job")
        assert leader.store.wait("job", 60).payload == "ran"

    running: dict[str, int] = {}
    told = [
        (one.state.value, one.attempt)
        for event in history.read(memory, "job")
        for one in lineage_runs.advance(running, event)
    ]
    first = "ABORT" if how == "suspend" else "FAIL"
    assert told == [("START", 1), (first, 1), ("START", 2), ("COMPLETE", 2)]


def _is_held(*given: Any, **named: Any) -> None:
    raise JobHeld("its checkpoint is damaged")


def test_u2_a_process_that_cannot_be_started_is_no_death(memory: FaultyMemory, root: Path) -> None:
    """U2: what a runner finds missing is recorded and tried again, as what an attempt does."""
    clock, runner = FakeClock(), Lacking()
    submit(memory, "m:f")
    with Leader(memory, root, runner=runner, clock=clock) as leader:
        leader.until_said("decision", "job", "there is no python3.99")
        assert record(memory).deaths == 0
        runner.complete.set()
        clock.now += RETRY + 1
        leader.look()

        assert leader.store.wait("job", 60).payload == "ran"


# -- handing over ---------------------------------------------------------------------------------


MINE = Obstacle("m1", "host-a", "no java")
OTHERS = Obstacle("m2", "host-b", "no module")


def consider(
    memory: FaultyMemory,
    root: Path,
    known: list[Obstacle],
    *,
    later: float = 0.0,
    busy: bool = False,
) -> list[bool]:
    """Return the hand-overs of the leader m1 next to a standby m2."""
    clock, handed = FakeClock(), list[bool]()
    registry = Registry(memory)
    registry.put(MasterInfo("m1", "host-a", 1, 0.0, 0.0, leading=1))
    registry.put(MasterInfo("m2", "host-b", 2, 0.0, 0.0))
    attempts = Attempts()
    with lead(memory) as leadership:
        storage = JobStorage(root, memory.cluster)
        context = leader_context(
            leadership, memory, storage, master="m1", runtime=Runtime(clock=clock),
            hand_over=handed.append,
        )  # fmt: skip
        hand_over = HandOver(context, attempts)
        clock.now += later
        if busy:
            attempts.begin("other", lambda on_end: Idle(), lambda begun, ended: None)
        hand_over.consider("job", known)
    return handed


class Idle(RunningAttempt):
    def end(self, deadline: Deadline) -> bool:
        return True


def test_u2_an_idle_leader_lets_a_master_lead_that_has_not_tried(
    memory: FaultyMemory, root: Path
) -> None:
    """U2: at once, as it may have what the job needs."""
    assert consider(memory, root, [MINE]) == [False]


def test_u2_masters_that_all_lack_something_take_turns(memory: FaultyMemory, root: Path) -> None:
    """U2: what the other one lacked may have arrived, but only after this leader had its turn."""
    assert consider(memory, root, [OTHERS, MINE]) == []
    assert consider(memory, root, [OTHERS, MINE], later=31.0) == [True]


def test_u2_a_leader_that_runs_other_jobs_stays(memory: FaultyMemory, root: Path) -> None:
    """U2: the others do not suffer for one job."""
    assert consider(memory, root, [MINE], later=31.0, busy=True) == []


def test_u2_a_record_keeps_one_obstacle_of_each_master() -> None:
    """U2: the newest comes last."""
    newer = Obstacle("m1", "host-a", "no module")

    assert with_obstacle((MINE, OTHERS), newer) == (OTHERS, newer)
    many = tuple(Obstacle(f"x{number}", "h", "r") for number in range(40))
    assert len(with_obstacle(many, newer)) == 20


def test_an_obstacle_is_told_once(memory: FaultyMemory) -> None:
    """Each try of a host that lacks something brings its record up to date; the history has an
    event of each reason, and none that only says when it was tried again."""
    with lead(memory) as leadership:
        put(memory, keys.ATTEMPTS + "job", AttemptRecord("job", 1, 1, master="m1"))
        for reason in ("no java", "no java", "no pyspark", "no pyspark"):
            historian = Historian(memory, "m1", 1)
            obstacles.record(memory, "job", reason, leadership.fence, historian)

    host = socket.gethostname()
    assert [(one.kind, one.text) for one in history.read(memory, "job")] == [
        ("held", f"it cannot be started by m1 on {host}: {reason}")
        for reason in ("no java", "no pyspark")
    ]


def test_u2_an_obstacle_of_a_job_that_has_ended_is_not_recorded(memory: FaultyMemory) -> None:
    """U2: there is no attempt any more that it could belong to."""
    with lead(memory) as leadership:
        obstacles.record(memory, "job", "no java", leadership.fence, Historian(memory, "m1", 1))

    assert memory.get(keys.ATTEMPTS + "job") is None
