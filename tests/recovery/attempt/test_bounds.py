"""What jobs and disks say may be of any size; what is stored of it is not."""

from __future__ import annotations

import zlib
from pathlib import Path

import attrs
import pytest

from jrs.backends.memory import MemoryBackend, Space
from jrs.contract.backend import Backend
from jrs.contract.errors import InvalidInput, JobHeld, TooLarge, Unavailable
from jrs.contract.operations import Create, Fence
from jrs.records import keys
from jrs.records.checks import MAX_PAYLOAD
from jrs.records.codec import decode, encode
from jrs.records.model import (
    CleanupJournal,
    Failure,
    JobResult,
    JobStatus,
    RunnerKind,
    StageRecord,
    StageSummary,
    StopMode,
    StopRecord,
    StopState,
)
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.job import Job
from jrs.recovery.attempt.runners.thread import ThreadRunner
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.files.job_folders import JobStorage
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import lead
from tests.recovery.support import FailingEngine, FaultyMemory, Leader, Thing, spec
from tests.support import until

VAST = "x" * 600_000 + " the end"


def stage_record(number: int, job_id: str = "j") -> StageRecord:
    name = f"{number:04}-{'n' * 123}"
    return StageRecord(job_id, name, {"rows": number}, 1, 1, 1.0, 1.0, order=number)


def with_stages(backend: Backend, number: int) -> None:
    """Store a job that has finished as many stages, with names as long as they may be."""
    JobCatalog(backend).submit(spec("j"))
    for first in range(0, number, 100):
        records = [stage_record(at) for at in range(first, min(first + 100, number))]
        backend.commit(*(Create(keys.stage("j", one.name), encode(one)) for one in records))


# -- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["finish", "fail", "cancel"])
def test_a_job_of_many_stages_ends(memory: FaultyMemory, root: Path, end: str) -> None:
    """B3: a job of 4,000 stages with long names can finish, fail and be canceled."""
    with_stages(memory, 4000)
    with Leader(memory, root) as leader:
        if end == "finish":
            summaries = tuple(stage_record(at).summary() for at in range(4000))
            done = JobResult("j", JobStatus.FINISHED, "x" * (MAX_PAYLOAD - 2), stages=summaries)
            leader.store.create_dirty(done, leader.fence)
        elif end == "fail":
            leader.dispatcher._actions.fail(spec("j"))
        else:
            leader.dispatcher._actions.cancel("j")
        result = leader.store.wait("j", 60.0)

    assert (len(result.stages), result.stages_left_out) == (1000, 3000)
    assert result.stages[-1].name == stage_record(3999).name


def test_the_same_result_of_many_stages_again(backend: Backend) -> None:
    """B3: a result of which something was left out is still the same when it is recorded again."""
    stages = tuple(stage_record(at).summary() for at in range(4000))
    result = JobResult("j", JobStatus.FINISHED, stages=stages)
    store = JobResultStore(backend)

    store.create_dirty(result, None)
    store.create_dirty(result, None)

    assert store.wait("j", 0.0) == result


@pytest.mark.parametrize(
    ("limit", "kept"),
    [(60_000, "stages"), (40_000, "detail"), (20_000, "message"), (10_000, "nothing")],
)
def test_what_a_small_backend_takes(limit: int, kept: str) -> None:
    """B3: what does not fit is left out of a result, but never its status and its message."""
    backend = MemoryBackend(Space())
    backend.capabilities = attrs.evolve(backend.capabilities, max_value=limit)
    failure = Failure("exception", VAST, VAST)
    stages = tuple(StageSummary(f"stage-{at}", 1, 1, 1.0) for at in range(200))
    result = JobResult("j", JobStatus.FAILED, None, failure, stages=stages)
    store = JobResultStore(backend)
    if kept == "nothing":
        with pytest.raises(TooLarge):
            store.create_dirty(result, None)
        return

    store.create_dirty(result, None)
    store.create_dirty(result, None)
    stored = store.wait("j", 0.0)

    assert stored.failure is not None
    assert stored.failure.message.endswith("the end")
    assert bool(stored.failure.detail) == (kept in ("stages", "detail"))
    counts = (200, 0) if kept == "stages" else (0, 200)
    assert (len(stored.stages), stored.stages_left_out) == counts


# -- texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_exception", [False, True])
def test_a_vast_exception(memory: FaultyMemory, root: Path, on_exception: bool) -> None:
    """B3: a job whose exception has a text of 600 KB ends as its policy says, and says the end."""
    restart = RestartPolicy(attempts=2, delay=0.0, on_exception=on_exception)
    with Leader(memory, root, runner=ThreadRunner()) as leader:
        job = spec("j", "driver:j", runner=RunnerKind.THREAD, restart=restart)
        JobCatalog(memory).submit(job)

        def raises(job: Job) -> None:
            raise ValueError(VAST)

        leader.dispatcher.provide("j", raises)
        result = leader.store.wait("j", 60.0)

    assert result.failure is not None
    assert "the end" in result.failure.message + result.failure.detail
    assert len(encode(result)) < 40_000
    assert result.attempt == (2 if on_exception else 1)


def test_a_vast_reason_to_hold(memory: FaultyMemory, root: Path) -> None:
    """B3: a job that is held for a reason of 600 KB is held."""
    with Leader(memory, root, runner=ThreadRunner(engine=FailingEngine(JobHeld(VAST)))) as leader:
        JobCatalog(memory).submit(spec("j", "driver:j", runner=RunnerKind.THREAD))
        leader.dispatcher.provide("j", lambda job: job.spark)
        stop = until(lambda: JobCatalog(memory).view("j").stop, "it is held")

    assert stop.mode is StopMode.HOLD
    assert stop.reason.endswith("the end")


def test_a_vast_problem_of_a_cleanup(memory: FaultyMemory, root: Path) -> None:
    """B3: a cleanup that fails with a text of 600 KB is journalled and tried again."""
    things = [Thing(f"thing-{at}") for at in range(40)]
    for thing in things:
        thing.broken = OSError(VAST)
    with lead(memory) as leadership:
        JobResultStore(memory).create_dirty(JobResult("j", JobStatus.FINISHED), None)
        cleanup = JobCleanup(memory, things)
        for tries in (1, 2):
            cleanup.run("j", leadership.fence)
            stored = memory.get(keys.CLEANUP + "j")
            assert stored is not None
            journal = decode(CleanupJournal, stored.value, stored.key)
            assert (journal.tries, len(journal.problems)) == (tries, 40)
            assert all(problem.endswith("the end") for problem in journal.problems.values())


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb", "\x1b[2J", None])
def test_what_is_no_name_of_a_resource(memory: FaultyMemory, name: str) -> None:
    """B3: a resource has a name that a journal can hold and a line can show."""
    with pytest.raises(InvalidInput, match="resource"):
        JobCleanup(memory, [Thing(name)])


def test_vast_steps_of_many_stages(memory: FaultyMemory) -> None:
    """B3: the steps of 4,000 stages with long texts fit into one record."""
    steps = dict.fromkeys((stage_record(at).name for at in range(4000)), VAST)
    stop = StopRecord("j", StopMode.DRAIN, StopState.REQUESTED, 1.0, VAST, stages=steps)

    memory.commit(Create(keys.STOPS + "j", encode(stop)))


def test_old_records_are_read() -> None:
    """B3: what an earlier version has written without bounds is read, and bounded by that."""
    text = b'"' + b"b" * 20_000 + b' the end"'
    body = b'{"job_id":"j","status":"FAILED","failure":{"kind":"exit","message":%s}}' % text
    data = b'{"jrs":"result/1","crc":"%08x","body":%s}' % (zlib.crc32(body), body)

    failure = decode(JobResult, data, "here").failure

    assert failure is not None
    assert failure.message.endswith("the end")
    assert len(failure.message) <= 16 * 1024


# -- marks ----------------------------------------------------------------------------------------


def attempt(backend: Backend, folder: Path, fence: Fence) -> AttemptRun:
    context = AttemptContext(spec("j"), 1, fence, backend, JobStorage(folder, "test"), 0.0)
    return AttemptRun(context)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_the_marks_of_many_streams(kind: str, tmp_path: Path) -> None:
    """B3: a drain of 4,000 streams is marked, in as many commits as it takes."""
    url = f"memory://{tmp_path.name}" if kind == "memory" else (tmp_path / "store").as_uri()
    with open_backend(url) as backend, lead(backend) as leadership:
        marks = [stage_record(at) for at in range(4000)]
        attempt(backend, tmp_path, leadership.fence).commit_stages(marks)

        stored = [decode(StageRecord, one.value, one.key) for one in backend.scan(keys.stages("j"))]
        assert [one.name for one in stored] == [one.name for one in marks]
        assert len({one.serial for one in stored}) == 1


def test_marks_that_are_cut_off(memory: FaultyMemory, tmp_path: Path) -> None:
    """B3: marks of which only the first commit got there are completed by the next try, and the
    next attempt needs no more than to mark the others."""
    marks = [stage_record(at) for at in range(200)]
    with lead(memory) as leadership:
        job = attempt(memory, tmp_path, leadership.fence)
        memory.fault(keys.stage("j", marks[150].name), Unavailable, times=1)
        with pytest.raises(Unavailable):
            job.commit_stages(marks)
        first = {record.key: record.value for record in memory.scan(keys.stages("j"))}
        assert 0 < len(first) < 200

        job.commit_stages(marks)

        both = {record.key: record.value for record in memory.scan(keys.stages("j"))}
    assert len(both) == 200
    assert first.items() <= both.items()
