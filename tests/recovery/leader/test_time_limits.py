"""Time limits of jobs and attempts: measured over all leaders, and what follows when one passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.contract.errors import InvalidInput, Unavailable
from jrs.contract.operations import Update
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import (
    AttemptRecord,
    Failure,
    JobResult,
    JobStatus,
    StageRecord,
    StopMode,
)
from jrs.records.policies import RestartPolicy
from jrs.records.time_limits import OnTimeout, TimeLimits
from jrs.recovery.leader.facts import Look
from jrs.recovery.rules import used_time
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops
from tests.recovery.support import Fault, FaultyMemory, Leader, put, spec
from tests.support import FakeClock, until

HOUR = 3600.0


def ended(leader: Leader, job_id: str) -> tuple[JobResult, Failure]:
    """Wait for a job's result, which is a failure."""
    result = leader.store.wait(job_id, 60)
    assert result.failure is not None
    return result, result.failure


class Time(FakeClock):
    """The clocks of a leader, which only a test moves."""

    def pass_by(self, seconds: float, leader: Leader) -> None:
        self.now += seconds
        leader.look()


def leading(memory: FaultyMemory, root: Path, time: FakeClock) -> Leader:
    return Leader(memory, root, clock=time, now=time)


def test_a_job_whose_time_is_up_fails(memory: FaultyMemory, root: Path) -> None:
    """U16: the attempt is ended, and the job is FAILED; the kind is `timeout`."""
    time = Time()
    JobCatalog(memory).submit(spec("job", timeout=TimeLimits(HOUR)))
    with leading(memory, root, time) as leader:
        attempt = leader.runner.of("job")
        time.pass_by(HOUR, leader)
        result, failure = ended(leader, "job")

        assert attempt.was_ended
        assert result.status is JobStatus.FAILED
        assert failure.kind == "timeout"
        assert failure.message == "the job has run for longer than 3600 s"
        assert len(leader.runner.started) == 1


def test_a_job_within_its_time_runs_on(memory: FaultyMemory, root: Path) -> None:
    """U16: nothing happens before the limit, and the job's result is its own."""
    time = Time()
    JobCatalog(memory).submit(spec("job", timeout=TimeLimits(HOUR, attempt=HOUR)))
    with leading(memory, root, time) as leader:
        attempt = leader.runner.of("job")
        for _ in range(5):
            time.pass_by(HOUR / 6, leader)
        leader.until_said("attempt", "job")

        assert not attempt.was_ended

        attempt.finish("done")

        assert leader.store.wait("job", 60).payload == "done"


def test_a_failover_does_not_begin_the_time_again(memory: FaultyMemory, root: Path) -> None:
    """U16: two leaders die, each after a quarter of the limit; the third one ends the job after the
    rest. Of the time in which no master ran, at most one interval for each death counts."""
    time = Time()
    JobCatalog(memory).submit(spec("job", timeout=TimeLimits(600.0)))
    for _ in range(2):
        with leading(memory, root, time) as leader:
            leader.runner.of("job")
            for _ in range(5):
                time.pass_by(30.0, leader)
                until(lambda: attempt_of(memory).counted_at == time.now, "the time is counted")
        time.now += 10 * HOUR  # No master runs.
    with leading(memory, root, time) as leader:
        leader.runner.of("job")
        time.pass_by(200.0, leader)
        until(lambda: attempt_of(memory).counted_at == time.now, "the time is counted")

        assert not leader.store.has_entry("job")

        time.pass_by(100.0, leader)

        assert ended(leader, "job")[1].kind == "timeout"


def attempt_of(memory: FaultyMemory) -> AttemptRecord:
    stored = memory.get(keys.ATTEMPTS + "job")
    assert stored is not None
    return decode(AttemptRecord, stored.value, stored.key)


def test_suspended_time_does_not_count(memory: FaultyMemory, root: Path) -> None:
    """U16: a job that was suspended for a week has the time left that it had before."""
    time = Time()
    JobCatalog(memory).submit(spec("job", timeout=TimeLimits(100.0)))
    with leading(memory, root, time) as leader:
        leader.runner.of("job")
        time.now += 5.0
        JobStops(memory, now=time).request("job", StopMode.SUSPEND, grace=0.0)
        leader.until_said("suspended", "job")

        assert attempt_of(memory).used == 5.0

        time.now += 7 * 24 * HOUR
        JobStops(memory).resume("job")
        leader.runner.of("job", 2)
        time.pass_by(90.0, leader)
        leader.until_said("attempt", "job", "attempt 2")

        assert not leader.store.has_entry("job")

        time.pass_by(5.0, leader)

        assert ended(leader, "job")[1].kind == "timeout"


@pytest.mark.parametrize("then", OnTimeout)
def test_a_limit_that_passes_while_the_job_stops_is_no_death(
    memory: FaultyMemory, root: Path, then: OnTimeout
) -> None:
    """U16: the grace period of a stop goes beyond the limit of the attempt; after it the job is
    suspended, and another attempt resumes it."""
    time = Time()
    JobCatalog(memory).submit(spec("job", timeout=TimeLimits(attempt=60.0, then=then)))
    with leading(memory, root, time) as leader:
        leader.runner.of("job")
        JobStops(memory, now=time).request("job", StopMode.SUSPEND, grace=90.0)
        until_seen(leader, "suspending")
        time.pass_by(75.0, leader)
        memory_of = leader.dispatcher._jobs["job"]
        until(lambda: memory_of.checked_at == time.now, "the job is checked after its limit")
        time.pass_by(30.0, leader)
        leader.until_said("suspended", "job")
        time.now += HOUR
        JobStops(memory, now=time).resume("job")
        leader.runner.of("job", 2).finish("in time")

        assert leader.store.wait("job", 60).payload == "in time"
        assert leader.said("died") == []


def until_seen(leader: Leader, decision: str) -> None:
    """Wait until the leader has decided that about the job."""

    def seen() -> bool:
        memory = leader.dispatcher._jobs["job"]
        return memory.last_reported is not None and decision in memory.last_reported.reason

    until(seen, f"the leader decides: {decision}")


def test_a_job_whose_time_ran_out_while_it_stopped_is_not_started(
    memory: FaultyMemory, root: Path
) -> None:
    """U16: the time until the end of the grace period counts. A job that has used all of its time
    then fails once it is resumed, without another attempt."""
    time = Time()
    JobCatalog(memory).submit(spec("job", timeout=TimeLimits(60.0)))
    with leading(memory, root, time) as leader:
        leader.runner.of("job")
        for _ in range(9):
            time.pass_by(6.0, leader)
            until(lambda: attempt_of(memory).counted_at == time.now, "the time is counted")
        JobStops(memory, now=time).request("job", StopMode.SUSPEND, grace=6.0)
        until_seen(leader, "suspending")
        time.pass_by(6.0, leader)
        leader.until_said("suspended", "job")
        JobStops(memory, now=time).resume("job")

        assert ended(leader, "job")[1].kind == "timeout"
        assert len(leader.runner.started) == 1


def test_an_attempt_that_takes_too_long_is_started_again(memory: FaultyMemory, root: Path) -> None:
    """U16: with the policy restart each attempt has its whole time, and the restart policy counts
    the attempts that ran out of it."""
    time = Time()
    limits = TimeLimits(attempt=60.0, then=OnTimeout.RESTART)
    restart = RestartPolicy(attempts=2, delay=0.0)
    JobCatalog(memory).submit(spec("job", timeout=limits, restart=restart))
    with leading(memory, root, time) as leader:
        for number in (1, 2):
            leader.runner.of("job", number)
            time.pass_by(60.0, leader)
            leader.until_said("died", "job", f"attempt {number} died: its attempt has run for lon")
        result, failure = ended(leader, "job")

        assert result.attempt == 2
        assert failure.kind == "timeout"


def test_an_attempt_that_got_on_until_its_time_was_up_has_recovered(
    memory: FaultyMemory, root: Path
) -> None:
    """U16: a stream that is restarted each day does not end FAILED at its third restart."""
    time = Time()
    limits = TimeLimits(attempt=24 * HOUR, then=OnTimeout.RESTART)
    restart = RestartPolicy(attempts=2, delay=0.0)
    JobCatalog(memory).submit(spec("job", timeout=limits, restart=restart))
    with leading(memory, root, time) as leader:
        for day in (1, 2, 3):
            leader.runner.of("job", day)
            done = StageRecord("job", f"s{day}", None, day, leader.fence.epoch, time.now, 1.0)
            put(memory, keys.stage("job", f"s{day}"), done)
            time.pass_by(24 * HOUR, leader)
        leader.runner.of("job", 4).finish("at last")

        assert leader.store.wait("job", 60).payload == "at last"


def test_after_a_restart_a_job_has_its_whole_time_again(memory: FaultyMemory, root: Path) -> None:
    """U16: the policy restart gives a job whose time is up another run of that time."""
    time = Time()
    limits = TimeLimits(60.0, then=OnTimeout.RESTART)
    JobCatalog(memory).submit(spec("job", timeout=limits, restart=RestartPolicy(delay=0.0)))
    with leading(memory, root, time) as leader:
        leader.runner.of("job")
        time.pass_by(60.0, leader)
        second = leader.runner.of("job", 2)
        time.pass_by(59.0, leader)
        second.finish("in time")

        assert leader.store.wait("job", 60).payload == "in time"


def test_after_a_restart_a_job_has_its_whole_time_whatever_was_stored_of_it(
    memory: FaultyMemory, root: Path
) -> None:
    """U16: the stored time lags behind a little with each update that is late. A time-out of the
    job gives it its whole time again, and is one death."""
    time = Time()
    limits = TimeLimits(60.0, then=OnTimeout.RESTART)
    JobCatalog(memory).submit(spec("job", timeout=limits, restart=RestartPolicy(delay=0.0)))
    with leading(memory, root, time) as leader:
        leader.runner.of("job")
        for _ in range(9):
            time.pass_by(6.25, leader)
            until(lambda: attempt_of(memory).counted_at == time.now, "the time is counted")

        assert attempt_of(memory).used < 56.25

        time.pass_by(3.75, leader)
        second = leader.runner.of("job", 2)

        assert attempt_of(memory).used == 0.0

        time.pass_by(59.0, leader)
        second.finish("in time")

        assert leader.store.wait("job", 60).payload == "in time"
        assert len(leader.said("died")) == 1


def test_a_time_out_is_counted_although_the_store_is_away(memory: FaultyMemory, root: Path) -> None:
    """U16: an attempt that was ended and could not be counted is counted later, and no other
    attempt is started before."""
    time = Time()
    JobCatalog(memory).submit(spec("job", timeout=TimeLimits(attempt=60.0)))
    with leading(memory, root, time) as leader:
        attempt = leader.runner.of("job")
        fault = Fault(keys.ATTEMPTS, Unavailable, kind=Update, times=3)
        memory.faults.append(fault)
        time.pass_by(60.0, leader)
        until(lambda: fault.happened, "the count fails")

        def has_ended() -> bool:
            time.pass_by(1.0, leader)
            return leader.store.has_entry("job")

        until(has_ended, "it is counted in the end")

        assert ended(leader, "job")[1].kind == "timeout"
        assert attempt.was_ended
        assert len(leader.runner.started) == 1


def test_the_stored_time_is_bounded_by_the_interval() -> None:
    """U16: after a leader's death at most one interval counts that nobody saw."""
    limits = TimeLimits(HOUR)
    record = AttemptRecord("job", used=100.0, counted_at=1000.0)

    assert used_time.used(record, limits, 1010.0) == 110.0
    assert used_time.used(record, limits, 1_000_000.0) == 130.0
    assert used_time.used(record, limits, 0.0) == 100.0
    assert used_time.used(record, TimeLimits(), 1010.0) == 0.0


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "2h", True])
def test_a_limit_is_a_number_of_seconds(seconds: float) -> None:
    """U16: anything else is refused in words."""
    with pytest.raises(InvalidInput, match="time limit must be a number of seconds"):
        TimeLimits(seconds)


def test_a_limit_has_one_moment_however_often_its_job_is_checked(
    memory: FaultyMemory, root: Path
) -> None:
    """Each check computed the moment again, a little off, and had one more check follow."""
    time = FakeClock()
    with Leader(memory, root, clock=time) as leader:
        time.now += 0.1
        JobCatalog(memory).submit(spec("job", timeout=TimeLimits(attempt=600.0)))
        leader.runner.of("job")
        dispatcher = leader.dispatcher
        until(lambda: not dispatcher._jobs["job"].busy, "the start has returned")
        job = {"job": dispatcher._jobs["job"]}
        moments = set()
        for _ in range(20):
            time.now += 0.1
            look = dispatcher._facts.gather(job, {}, {})["job"]
            assert isinstance(look, Look)
            moments.add(look.time_up)

    assert len(moments) == 1
