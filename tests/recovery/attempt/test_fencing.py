"""The fence of one attempt: what an attempt that was shut out still writes counts for nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import Fenced, JrsError, Unavailable
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobStatus, StageRecord, StopMode
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.run import record_result, run_attempt
from jrs.store import attempt_fence
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.stops import JobStops
from jrs.testing.servers import Server
from tests.recovery.support import Faulty, Leader, job, result, spec, spoil
from tests.support import BOUND, until

OpenFaulty = Callable[[], Faulty]
AT_ONCE = RestartPolicy(delay=0.0)


def late_stage(context: AttemptContext) -> Create:
    """Return the mark of a stage, as an attempt writes it."""
    job_id = context.spec.job_id
    record = StageRecord(
        job_id, "load", {"rows": 1}, context.attempt, context.fence.epoch, 0.1, 0.2
    )
    return Create(keys.stage(job_id, "load"), encode(record))


def test_a_late_stage_record_of_a_dead_attempt(open_faulty: OpenFaulty, root: Path) -> None:
    """B6: a stage record of a dead attempt of the same epoch that arrives late is refused; the
    attempt after it finishes the stage and the job."""
    with Leader(open_faulty(), root) as leader:
        JobCatalog(leader.backend).submit(spec("job", restart=AT_ONCE))
        first = leader.runner.of("job")
        first.die()
        second = leader.runner.of("job", 2).context
        with pytest.raises(Fenced, match="shut out"):
            leader.backend.commit(late_stage(first.context), fence=first.context.fence)
        with pytest.raises(Fenced, match="shut out"):
            leader.backend.commit_async(
                late_stage(first.context), fence=first.context.fence
            ).result(BOUND)
        assert AttemptRun(second).job.stage("load", lambda stage: {"rows": 2}).result() == {
            "rows": 2
        }
        with pytest.raises(Fenced):
            AttemptRun(first.context).job.check()


def test_a_stage_record_between_any_two_steps_of_the_next_start(
    open_faulty: OpenFaulty, root: Path
) -> None:
    """B6: wherever it arrives while the next attempt is started, it is either refused or found by
    that attempt: nobody's stage conflicts with it."""
    outcomes: list[bool] = []
    with Leader(open_faulty(), root) as leader:
        backend = leader.backend
        assert isinstance(backend, Faulty)
        for step in range(24):
            job_id = f"job-{step:02}"
            JobCatalog(backend).submit(spec(job_id, restart=AT_ONCE))
            first = leader.runner.of(job_id)
            arrived: list[bool] = []
            backend.before_read(job_id, step, partial(arrive, backend, first.context, arrived))
            first.die()
            second = leader.runner.of(job_id, 2)
            finished = AttemptRun(second.context).job.stage("load", lambda stage: {"rows": 2})
            assert finished.skipped == (arrived == [True])
            second.finish()
            outcomes += arrived
    assert {True, False} <= set(outcomes)


def arrive(backend: Backend, context: AttemptContext, arrived: list[bool]) -> None:
    """Commit the mark of a stage late; note whether it was accepted."""
    try:
        backend.commit(late_stage(context), fence=context.fence)
        arrived.append(True)
    except Fenced:
        arrived.append(False)


@pytest.mark.parametrize("end", ["cancel", "fail", "suspend"])
def test_whatever_ends_a_job_shuts_its_attempt_out(
    open_faulty: OpenFaulty, root: Path, end: str
) -> None:
    """B17: behind a durable CANCELED, FAILED or SUSPENDED an attempt that is still alive commits
    nothing."""
    with Leader(open_faulty(), root) as leader:
        backend = leader.backend
        JobCatalog(backend).submit(spec("job", restart=RestartPolicy(attempts=1)))
        attempt = leader.runner.of("job")
        if end == "cancel":
            JobCatalog(backend).cancel("job")
            until(lambda: leader.store.has_entry("job"), "it is canceled")
        elif end == "fail":
            attempt.die()
            until(lambda: leader.store.has_entry("job"), "it has failed")
        else:
            JobStops(backend).request("job", StopMode.SUSPEND, grace=0.0)
            JobStops(backend).wait("job", BOUND)
        with pytest.raises(Fenced):
            backend.commit(Create("anything", b""), fence=attempt.context.fence)


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_no_batch_is_published_behind_a_result(
    open_faulty: OpenFaulty, root: Path, end: str
) -> None:
    """B17: a leader that cancels or fails a job takes the folder of its epoch over first, so that
    an attempt of an earlier leader, alive and unreachable, cannot publish behind the result."""
    backend = open_faulty()
    with Leader(backend, root) as leader:
        JobCatalog(backend).submit(spec("job", restart=RestartPolicy(attempts=1)))
        leader.runner.of("job")
        staging = leader.storage.staging("job", leader.fence.epoch, "load", 1)
        if end == "fail":
            backend.fault(keys.RESULTS, Unavailable)
            leader.runner.of("job").die()
            leader.until_said("died")
    backend.faults.clear()
    assert staging.exists()
    if end == "cancel":
        JobCatalog(backend).cancel("job")
    there: list[bool] = []
    backend.before_commit(keys.RESULTS, lambda: there.append(staging.exists()))
    with Leader(backend, root) as leader:
        until(lambda: leader.store.has_entry("job"), "it has ended")
    assert there == [False]


def test_a_result_ends_the_right_to_write(open_faulty: OpenFaulty, root: Path) -> None:
    """B6: an attempt's result closes its fence in the same commit; the same result again is a
    no-op, anything else of it is refused."""
    with Leader(open_faulty(), root) as leader:
        JobCatalog(leader.backend).submit(spec("job"))
        context = leader.runner.of("job").context
        done = result("job", 1)
        for _ in range(2):
            record_result(leader.backend, done, context.fence, context.lost)
        with pytest.raises(Fenced):
            leader.backend.commit(Create("anything", b""), fence=context.fence)
        leader.runner.of("job").die()
        leader.until_clean("job")
        assert leader.backend.get(keys.FENCES + "job") is None


def test_an_attempt_runs_under_its_fence(open_faulty: OpenFaulty, root: Path) -> None:
    """B6: a whole attempt, its stages and its result pass its own fence."""
    with Leader(open_faulty(), root) as leader:
        JobCatalog(leader.backend).submit(
            spec("job", job("two_stages"), arguments={"calls": str(root.parent / "calls")})
        )
        attempt = leader.runner.of("job")
        assert attempt.context.fence.attempt is not None
        done = run_attempt(attempt.context)
        attempt.die()
        assert done.status is JobStatus.FINISHED


@pytest.mark.parametrize("damaged", [b"", b"\xff\x00", b"1.1.abc and more", b"x" * 1000])
def test_a_damaged_fence_lets_nobody_in_and_holds_up_nobody(
    open_faulty: OpenFaulty, root: Path, damaged: bytes
) -> None:
    """B6: whatever bytes have become of an attempt's fence, that attempt writes nothing more, and
    this leader and the next one start the job again and finish it."""
    with Leader(open_faulty(), root) as leader:
        JobCatalog(leader.backend).submit(spec("job", restart=AT_ONCE))
        first = leader.runner.of("job")
        spoil(leader.backend, keys.FENCES + "job", damaged)
        with pytest.raises(Fenced):
            leader.backend.commit(late_stage(first.context), fence=first.context.fence)
        first.die()
        leader.runner.of("job", 2)
        spoil(leader.backend, keys.FENCES + "job", damaged)
    with Leader(open_faulty(), root) as following:
        following.runner.of("job").finish()
        following.until_clean("job")
        assert following.backend.get(keys.FENCES + "job") is None


def test_no_fence_of_attempts_below_its_format(open_faulty: OpenFaulty, root: Path) -> None:
    """S6: in a cluster whose format knows no fence of attempts, none is written."""
    backend = open_faulty()
    backend.marked_format = attempt_fence.SINCE_FORMAT - 1
    with Leader(backend, root) as leader:
        JobCatalog(backend).submit(spec("job"))
        assert leader.runner.of("job").context.fence.attempt is None
        assert backend.get(keys.FENCES + "job") is None
        leader.runner.of("job").finish()
        leader.until_clean("job")


def test_a_write_through_a_member_that_was_paused(etcd_ensemble: Server, root: Path) -> None:
    """B6: a commit that an attempt sent to a member which then hung arrives after the next attempt
    was let in, and is refused."""
    cluster = uuid.uuid4().hex
    leading = etcd_ensemble.leader()
    slow, quick = etcd_ensemble[(leading + 1) % 3], etcd_ensemble[leading]
    with (
        open_backend(etcd_ensemble.url(endpoints=[quick.endpoint]), cluster=cluster) as backend,
        open_backend(
            f"{etcd_ensemble.url(endpoints=[slow.endpoint])}?timeout=30", cluster=cluster
        ) as of_attempt,
        Leader(backend, root) as leader,
        ThreadPoolExecutor(1) as pool,
    ):
        JobCatalog(backend).submit(spec("job", restart=AT_ONCE))
        first = leader.runner.of("job")
        of_attempt.commit(Create("reached", b""), fence=first.context.fence)
        slow.pause()
        late = pool.submit(of_attempt.commit, late_stage(first.context), fence=first.context.fence)
        first.die()
        second = leader.runner.of("job", 2).context
        done = AttemptRun(second).job.stage("load", lambda stage: {"rows": 2})
        slow.resume()
        with pytest.raises(JrsError):
            late.result(BOUND)
        assert done.result() == {"rows": 2}
        stored = backend.get(keys.stage("job", "load"))
        assert stored is not None
        assert b'"attempt":2' in stored.value
