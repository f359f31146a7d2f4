"""The dispatcher: what it does about jobs, in which order, and what it leaves alone."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    CannotStartHere,
    CorruptRecord,
    Fenced,
    OutcomeUnknown,
    Unavailable,
)
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, Failure, JobResult, JobSpec, JobStatus, StopMode
from jrs.records.policies import RestartPolicy, SnapshotPolicy
from jrs.records.settings import JobSettings
from jrs.records.time_limits import OnTimeout, TimeLimits
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.job import Job
from jrs.recovery.attempt.runners import AttemptExit, OnEnd
from jrs.recovery.attempt.runners.thread import ThreadRunner
from jrs.recovery.leader import actions
from jrs.recovery.leader.actions import Actions
from jrs.recovery.leader.attempt_records import AttemptRecords
from jrs.recovery.leader.attempts import Attempts
from jrs.recovery.leader.recovery_point import RecoveryPoints
from jrs.recovery.leader.starts import Starts
from jrs.recovery.rules.events import Event
from jrs.store import attempt_fence, history
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.store.stop_transitions import StopEvent, StopStep
from jrs.store.stops import JobStops
from tests.recovery.support import (
    DirectedAttempt,
    DirectedRunner,
    FaultyMemory,
    Leader,
    Thing,
    put,
    result,
    spec,
    spoil,
)
from tests.support import BOUND, FakeClock, until


def ended(leader: Leader, job_id: str) -> JobResult:
    """Wait for a job's result."""
    return leader.store.wait(job_id, 60)


def failure_of(leader: Leader, job_id: str) -> Failure:
    """Wait for a job's result, which is a failure."""
    failure = ended(leader, job_id).failure
    assert failure is not None
    return failure


# -- starting and restarting --------------------------------------------------------------------


def test_recovery_starts_what_has_no_result_and_only_that(memory: FaultyMemory, root: Path) -> None:
    """J1, J6: of the jobs it finds, a new leader starts the unfinished, cleans up after the dirty
    and skips the clean."""
    catalog, store = JobCatalog(memory), JobResultStore(memory)
    for job_id in ("unfinished", "dirty", "clean"):
        catalog.submit(spec(job_id))
    for job_id in ("dirty", "clean"):
        store.create_dirty(result(job_id), None)
    store.mark_clean("clean", None)
    with Leader(memory, root) as leader:
        leader.runner.of("unfinished")
        leader.until_clean("dirty")
        until(lambda: memory.get("jobs/clean") is None, "the left-over spec is swept")

        assert [attempt.job_id for attempt in leader.runner.started] == ["unfinished"]
        assert leader.said("decision", "unfinished", "recover")
        assert leader.said("decision", "dirty", "clean up")
        assert leader.said("decision", "clean", "skip")


def test_a_job_that_is_submitted_later_is_started_at_once(memory: FaultyMemory, root: Path) -> None:
    """A submission is a hint: nobody has to tell the leader."""
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job"))
        attempt = leader.runner.of("job")

        assert attempt.context.attempt == 1
        assert attempt.context.fence.check() == leader.fence.check()


def test_starts_whose_files_hang_delay_no_job_without_files(
    memory: FaultyMemory, root: Path
) -> None:
    """However many of them hang."""
    answers = threading.Event()
    settings = JobSettings(secrets={"KEY": "file:/mnt/key"})

    def hang(context: AttemptContext) -> None:
        if context.spec.settings.secrets:
            answers.wait()

    jobs = JobCatalog(memory)
    with Leader(memory, root) as leader:
        leader.runner.before_start = hang
        try:
            for number in range(20):
                jobs.submit(spec(f"bad-{number}", settings=settings))
            for number in range(4):
                leader.until_said("attempt", f"bad-{number}")
            jobs.submit(spec("good"))
            leader.runner.of("good").finish()
            leader.until_clean("good")
        finally:
            answers.set()


def test_a_death_is_followed_by_the_next_attempt_after_the_policys_delay(
    memory: FaultyMemory, root: Path
) -> None:
    """Each further attempt waits twice as long on the leader's clock, and is not started before."""
    clock = FakeClock()
    with Leader(memory, root, clock=clock) as leader:
        JobCatalog(memory).submit(
            spec("job", restart=RestartPolicy(attempts=4, delay=10, max_delay=25))
        )
        for attempt, delay in ((1, 10), (2, 20), (3, 25)):
            leader.runner.of("job", attempt).die()
            leader.until_said("died", "job", f"attempt {attempt} died")
            leader.until_said("died", "job", f"next in {delay} s")

            assert len(leader.runner.started) == attempt

            clock.now += delay
        leader.runner.of("job", 4).finish("in the end")

        assert ended(leader, "job").payload == "in the end"
        assert ended(leader, "job").attempt == 4


@pytest.mark.parametrize("expired", [False, True])
def test_a_result_that_lands_before_its_attempt_is_shut_out(
    memory: FaultyMemory, root: Path, expired: bool
) -> None:
    """The commit of a dead attempt may still have been on its way: no attempt starts behind it."""
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=3, delay=0.0)))
        first = leader.runner.of("job")
        fence, done = first.context.fence, result("job", "first", attempt=1)

        def land() -> None:
            leader.store.create_dirty(done, fence, also=attempt_fence.close_ops(fence))
            if expired:
                leader.store.mark_clean("job", None)
                leader.store.delete("job")

        memory.before_read(keys.FENCES, 0, land)  # By the leader, to shut the attempt out.
        first.die()
        until(lambda: memory.get(keys.JOBS + "job") is None, "its spec is removed")

        assert len(leader.runner.started) == 1
        assert not leader.said("attempt", "job", "attempt 2 starts")
        if not expired:
            assert leader.store.get("job").result.payload == "first"  # type: ignore[union-attr]


def test_the_delay_begins_with_the_death_not_with_its_count(
    memory: FaultyMemory, root: Path
) -> None:
    """However long the record of a death takes, the next attempt does not wait for longer."""
    clock = FakeClock()

    def late(event: Event) -> None:
        if event.kind == "died":
            clock.now += 10.0

    with Leader(memory, root, clock=clock, report=late) as leader:
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=2, delay=10)))
        leader.runner.of("job").die()
        leader.runner.of("job", 2).finish()


def test_what_becomes_due_during_a_check_is_noticed(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moment that passes between the look at a job and the plan for its next one is not
    forgotten: on a busy machine a job waited until all were looked at again, a minute later."""
    clock, delay = FakeClock(), 5.0
    has_died, give_way = threading.Event(), Starts.give_way

    def slowly(starts: Starts, job_id: str) -> None:
        give_way(starts, job_id)
        if has_died.is_set():  # It waits for its delay: this is between the look and the plan.
            has_died.clear()
            clock.now += delay

    def report(event: Event) -> None:
        if event.kind == "died":
            has_died.set()

    monkeypatch.setattr(Starts, "give_way", slowly)
    with Leader(memory, root, clock=clock, report=report) as leader:
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=2, delay=delay)))
        leader.runner.of("job").die()
        leader.runner.of("job", 2).finish()
        leader.until_clean("job")


def test_a_job_that_died_too_often_has_failed_with_its_last_words(
    memory: FaultyMemory, root: Path
) -> None:
    """After the last allowed death the result is FAILED and holds exit status and stderr of it."""
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=2, delay=0)))
        leader.runner.of("job", 1).die("first", detail="early", exit_status=3)
        leader.runner.of("job", 2).die("exited", detail="last words", exit_status=9)
        failed = ended(leader, "job")
        leader.until_clean("job")

        assert failed.status is JobStatus.FAILED
        assert failed.attempt == 2
        assert failed.failure is not None
        assert (failed.failure.kind, failed.failure.message) == ("exit", "exited")
        assert (failed.failure.detail, failed.failure.exit_status) == ("last words", 9)
        assert len(leader.runner.started) == 2
        decided = [event.message for event in leader.events if event.kind == "decision"]
        assert "FAILED: exited; its resources are being cleaned up [clean up]" in decided


def test_deaths_are_counted_across_leaders(memory: FaultyMemory, root: Path) -> None:
    """A crash loop is not begun again by a failover, while attempts that ended with their leader
    do not count."""
    JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=2, delay=0)))
    with Leader(memory, root) as first:
        first.runner.of("job", 1).die("one")
        first.runner.of("job", 2)
    with Leader(memory, root) as second:
        attempt = second.runner.of("job")

        assert attempt.context.attempt == 3
        assert not second.said("died")
        attempt.die("two")
        assert failure_of(second, "job").message == "two"


def test_a_death_while_the_backend_is_away_is_counted_when_it_is_back(
    memory: FaultyMemory, root: Path
) -> None:
    """The end of an attempt is not forgotten because the store could not be asked about it."""
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=1)))
        attempt = leader.runner.of("job")
        memory.down = True
        attempt.die("in the dark")
        leader.until_said("waiting")
        memory.down = False

        assert failure_of(leader, "job").message == "in the dark"
        assert len(leader.runner.started) == 1


@pytest.mark.parametrize("after", [True, False], ids=["applied", "not-applied"])
def test_a_death_whose_count_has_an_unknown_outcome_counts_once(
    memory: FaultyMemory, root: Path, after: bool
) -> None:
    """Read back, it counts as one death, not as none and not as two."""
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=2, delay=0)))
        attempt = leader.runner.of("job")
        memory.fault(keys.ATTEMPTS, OutcomeUnknown, after=after, times=1)
        attempt.die("one")
        leader.runner.of("job", 2).die("two")

        assert failure_of(leader, "job").message == "two"
        assert len(leader.runner.started) == 2


def test_an_exception_fails_the_job_at_once(memory: FaultyMemory, root: Path) -> None:
    """A function that raises is not tried again unless its policy says so; its traceback is
    kept."""

    def boom(job: Job) -> None:
        raise ValueError("no good")

    with Leader(memory, root, runner=ThreadRunner()) as leader:
        JobCatalog(memory).submit(spec("job", "driver:job"))
        leader.dispatcher.provide("job", boom)
        failure = ended(leader, "job").failure

        assert failure is not None
        assert (failure.kind, failure.message) == ("exception", "ValueError: no good")
        assert "in boom" in failure.detail


def test_an_exception_is_a_death_where_the_policy_says_so(memory: FaultyMemory, root: Path) -> None:
    """With `on_exception` a function that raises is called again, up to the allowed attempts."""
    calls: list[int] = []

    def boom_twice(job: Job) -> str:
        calls.append(job.attempt)
        if len(calls) < 3:
            raise ValueError("no good")
        return "good"

    policy = RestartPolicy(attempts=3, delay=0, on_exception=True)
    with Leader(memory, root, runner=ThreadRunner()) as leader:
        JobCatalog(memory).submit(spec("job", "driver:job", restart=policy))
        leader.dispatcher.provide("job", boom_twice)

        assert ended(leader, "job").payload == "good"
        assert calls == [1, 2, 3]


@pytest.mark.parametrize(
    "raised", [SystemExit(0), GeneratorExit(), __import__("asyncio").CancelledError("x")], ids=repr
)
def test_whatever_a_function_raises_is_its_jobs_end(
    memory: FaultyMemory, root: Path, raised: BaseException
) -> None:
    """Exceptions that are no Exception end the job as FAILED, too, and never leave it running."""

    def leave(job: Job) -> None:
        raise raised

    with Leader(memory, root, runner=ThreadRunner()) as leader:
        JobCatalog(memory).submit(spec("job", "driver:job"))
        leader.dispatcher.provide("job", leave)
        failure = ended(leader, "job").failure

        assert failure is not None
        assert failure.message.startswith(type(raised).__name__)


def test_a_job_of_the_driver_waits_for_its_function(memory: FaultyMemory, root: Path) -> None:
    """A job that only the driver's main can start waits until main reaches it."""
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job", "driver:job"))
        leader.until_said("decision", "job", "wait")

        assert leader.runner.started == []

        leader.dispatcher.provide("job", lambda job: 1)
        leader.runner.of("job")


# -- what is decided and changes meanwhile --------------------------------------------------------

BEFORE_IT_IS_RECORDED = pytest.mark.parametrize(
    ("of", "step"),
    [(AttemptRecords, "newest"), (RecoveryPoints, "ensure_recoverable"), (AttemptRecords, "_put")],
    ids=["between-two-looks", "before-the-last-look", "behind-it"],
)


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, of: type, step: str, what: Callable[[], object]
) -> None:
    """Have `what` happen once, while an attempt is about to be started."""
    real, left = getattr(of, step), [what]

    def late(self: object, *args: object) -> object:
        if left:
            left.pop()()
        return real(self, *args)

    monkeypatch.setattr(of, step, late)


@BEFORE_IT_IS_RECORDED
def test_a_job_that_is_changed_while_it_is_started_is_started_as_what_it_is(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch, of: type, step: str
) -> None:
    """An attempt is of the code that is stored at the moment at which it is recorded."""
    stops = JobStops(memory)
    leader = Leader(memory, root)

    def change() -> None:
        stops.reconfigure("job", entry_point="new:code")
        stop = stops.get("job")
        assert stop is not None
        assert stops.advance(stop, StopEvent.COMPLETE, leader.fence) is StopStep.NONE

    meanwhile(monkeypatch, of, step, change)
    JobCatalog(memory).submit(spec("job", "old:code"))
    with leader:
        context = leader.runner.of("job").context

        assert (context.spec.entry_point, context.attempt) == ("new:code", 1)
        assert not leader.said("error")


@BEFORE_IT_IS_RECORDED
def test_a_job_that_is_to_stop_while_it_is_started_is_not_started(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch, of: type, step: str
) -> None:
    """A job that is suspended before its attempt is recorded has none."""
    stops = JobStops(memory)
    meanwhile(monkeypatch, of, step, lambda: stops.request("job", StopMode.SUSPEND))
    JobCatalog(memory).submit(spec("job"))
    with Leader(memory, root) as leader:
        leader.until_said("suspended", "job")

        assert leader.runner.started == []
        assert not leader.said("error")


def test_a_job_that_is_drained_is_started(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain is the attempt's to carry out, whenever it was asked for."""
    stops = JobStops(memory)
    meanwhile(
        monkeypatch,
        RecoveryPoints,
        "ensure_recoverable",
        lambda: stops.request("job", StopMode.DRAIN),
    )
    JobCatalog(memory).submit(spec("job"))
    with Leader(memory, root) as leader:
        assert leader.runner.of("job").context.attempt == 1


# -- canceling ----------------------------------------------------------------------------------


def test_cancel_ends_the_attempt_and_then_records_it(memory: FaultyMemory, root: Path) -> None:
    """A running job is ended first; its CANCELED result is written only then."""
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job"))
        attempt = leader.runner.of("job")
        recorded_before: list[bool] = []
        leader.runner.before_end = lambda attempt: recorded_before.append(
            leader.store.has_entry("job")
        )
        JobCatalog(memory).cancel("job")
        canceled = ended(leader, "job")
        leader.until_clean("job")

        assert attempt.was_ended
        assert recorded_before[0] is False
        assert canceled.status is JobStatus.CANCELED
        assert not leader.said("died")


@pytest.mark.parametrize(
    ("reason", "message"),
    [("", "canceled on request"), ("too dear", "canceled on request: too dear")],
)
def test_the_reason_of_a_cancel_is_in_the_result(
    memory: FaultyMemory, root: Path, reason: str, message: str
) -> None:
    """The result outlives the request, so it says what the request said."""
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job"))
        JobCatalog(memory).cancel("job", reason)
        failure = ended(leader, "job").failure

        assert failure is not None
        assert (failure.kind, failure.message) == ("cancel", message)


@pytest.mark.parametrize("state", ["waiting for main", "backing off", "not looked at yet"])
def test_cancel_of_a_job_that_does_not_run_needs_no_attempt(
    memory: FaultyMemory, root: Path, state: str
) -> None:
    """A job that waits is canceled, and cleaned up after, without being started or waited for."""
    clock = FakeClock()
    catalog = JobCatalog(memory)
    job = spec("job", "driver:job" if state == "waiting for main" else "nowhere:never",
               restart=RestartPolicy(delay=3600))  # fmt: skip
    catalog.submit(job)
    if state == "not looked at yet":
        catalog.cancel("job")
    with Leader(memory, root, clock=clock) as leader:
        if state == "waiting for main":
            leader.until_said("decision", "job", "wait")
        elif state == "backing off":
            leader.runner.of("job").die()
            leader.until_said("decision", "job", "wait")
        if state != "not looked at yet":
            catalog.cancel("job")

        assert ended(leader, "job").status is JobStatus.CANCELED
        leader.until_clean("job")
        assert len(leader.runner.started) == (1 if state == "backing off" else 0)


def test_the_first_result_wins_over_a_cancel_in_the_same_moment(
    memory: FaultyMemory, root: Path
) -> None:
    """A job that finishes while it is being canceled stays FINISHED."""
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job"))
        leader.runner.of("job")
        leader.runner.before_end = lambda attempt: attempt.finish("just in time")
        JobCatalog(memory).cancel("job")
        leader.until_clean("job")

        assert ended(leader, "job").payload == "just in time"
        assert ended(leader, "job").status is JobStatus.FINISHED


def test_a_cancel_while_the_attempt_is_being_started_ends_it(
    memory: FaultyMemory, root: Path
) -> None:
    """An attempt whose start has not returned yet when the request comes is ended like any."""
    starting, proceed = threading.Event(), threading.Event()

    def slow(context: AttemptContext) -> None:
        starting.set()
        proceed.wait(60)

    with Leader(memory, root) as leader:
        leader.runner.before_start = slow
        JobCatalog(memory).submit(spec("job"))
        assert starting.wait(60)
        JobCatalog(memory).cancel("job")
        leader.look()
        proceed.set()

        assert ended(leader, "job").status is JobStatus.CANCELED
        assert leader.runner.of("job").was_ended


def test_an_attempt_that_will_not_end_is_not_recorded_as_canceled(
    memory: FaultyMemory, root: Path
) -> None:
    """As long as the attempt may still run, the job has no result, the trouble is reported, and
    other jobs are started meanwhile."""
    with Leader(memory, root) as leader:
        catalog = JobCatalog(memory)
        for number in range(12):
            catalog.submit(spec(f"stubborn-{number}"))
            leader.runner.of(f"stubborn-{number}").stubborn = True
        for number in range(12):
            catalog.cancel(f"stubborn-{number}")
            leader.until_said("error", f"stubborn-{number}", "does not end")
        catalog.submit(spec("other"))
        leader.runner.of("other").finish()
        leader.until_clean("other")

        assert [leader.store.has_entry(f"stubborn-{n}") for n in range(12)] == [False] * 12

        for attempt in leader.runner.started:
            attempt.stubborn = False
        assert ended(leader, "stubborn-0").status is JobStatus.CANCELED


# -- next to a snapshot ---------------------------------------------------------------------------


class Pins:
    """Snapshots that take until they may end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way = self.most = 0
        self.begun, self.go = threading.Event(), threading.Event()
        monkeypatch.setattr(RecoveryPoints, "take_scheduled_snapshot", lambda *args: self.pin())

    def pin(self) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.begun.set()
        self.go.wait(60)
        self.under_way -= 1


@pytest.fixture
def pins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pins]:
    found = Pins(monkeypatch)
    yield found
    found.go.set()


def test_a_cancel_does_not_wait_for_a_snapshot(
    memory: FaultyMemory, root: Path, pins: Pins
) -> None:
    """A job is canceled while a snapshot of it is taken; only its cleanup waits for that."""
    thing = Thing()
    with Leader(memory, root, resources=[thing]) as leader:
        JobCatalog(memory).submit(spec("job", snapshots=SnapshotPolicy(every=0.1)))
        attempt = leader.runner.of("job")
        assert pins.begun.wait(60)
        JobCatalog(memory).cancel("job")

        assert ended(leader, "job").status is JobStatus.CANCELED
        assert attempt.was_ended

        leader.until_said("decision", "job", "clean up")
        assert (pins.under_way, thing.calls) == (1, [])

        pins.go.set()
        leader.until_clean("job")


def test_a_stop_ends_the_attempt_during_a_snapshot(
    memory: FaultyMemory, root: Path, pins: Pins
) -> None:
    """A stop ends the attempt at once. The job is suspended after the snapshot under way and after
    its own one: never two at once."""
    stops = JobStops(memory)
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job", snapshots=SnapshotPolicy(every=0.1)))
        attempt = leader.runner.of("job")
        assert pins.begun.wait(60)
        stops.request("job", StopMode.SUSPEND, grace=0.0)
        until(lambda: attempt.was_ended, "the attempt is ended")
        until(lambda: not leader.dispatcher._attempts.is_running("job"), "nothing runs")
        leader.look()

        assert pins.under_way == 1
        assert not leader.said("suspended")

        pins.go.set()
        leader.until_said("suspended", "job")

        assert pins.most == 1


def test_a_restart_waits_for_a_snapshot(memory: FaultyMemory, root: Path, pins: Pins) -> None:
    """An attempt that died is counted at once; the next may change what the snapshot is of."""
    policy = RestartPolicy(attempts=2, delay=0)
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job", restart=policy, snapshots=SnapshotPolicy(every=0.1)))
        attempt = leader.runner.of("job")
        assert pins.begun.wait(60)
        recovered = len(leader.said("decision", "job", "recover"))
        attempt.die()
        until(
            lambda: len(leader.said("decision", "job", "recover")) > recovered, "it is to continue"
        )

        assert len(leader.runner.started) == 1

        pins.go.set()
        leader.runner.of("job", 2)

        assert pins.most == 1


def test_an_interval_of_snapshots_outlasts_its_leader(
    memory: FaultyMemory, root: Path, pins: Pins
) -> None:
    """Leaders that are replaced more often than that take snapshots as well."""
    clock = FakeClock()
    pins.go.set()
    with Leader(memory, root, clock=clock, now=clock) as leader:
        JobCatalog(memory).submit(spec("job", snapshots=SnapshotPolicy(every=10.0)))
        leader.runner.of("job")
        clock.now += 6
    with Leader(memory, root, clock=clock, now=clock) as leader:
        leader.runner.of("job")
        until(lambda: leader.dispatcher._jobs["job"].snapshot.at, "the snapshot is planned")

        assert leader.dispatcher._jobs["job"].snapshot.at == clock.now + 4
        assert not pins.begun.is_set()

        clock.now += 4
        leader.look()

        assert pins.begun.wait(BOUND)


# -- ends ---------------------------------------------------------------------------------------


def test_an_attempt_that_lingers_after_its_result_is_ended_before_cleanup(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cleaned up under an attempt that still runs though its result is durable."""
    monkeypatch.setattr(actions, "_COMPLETED", 0.1)
    thing = Thing()
    order: list[str] = []
    thing.on_clean = lambda job_id: order.append("cleaned")
    with Leader(memory, root, resources=[thing]) as leader:
        leader.runner.before_end = lambda attempt: order.append("ended")
        JobCatalog(memory).submit(spec("job"))
        attempt = leader.runner.of("job")
        attempt.stubborn = True
        attempt.record()
        leader.until_said("error", "job", "does not end")

        assert thing.calls == []

        attempt.stubborn = False
        leader.until_clean("job")

        assert order == ["ended", "cleaned"]


def test_attempts_that_linger_after_their_results_delay_no_cancel(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has seconds to end by itself, and all may take them at once: where their spans go is
    down. Another job is canceled meanwhile."""
    monkeypatch.setattr(actions, "_COMPLETED", 2 * BOUND)
    with Leader(memory, root) as leader:
        jobs = JobCatalog(memory)
        lingering = [f"lingers-{number}" for number in range(40)]
        for job_id in (*lingering, "other"):
            jobs.submit(spec(job_id))
        for job_id in lingering:
            leader.runner.of(job_id).record()
        leader.runner.of("other")
        until(lambda: len(leader.said("decision", None, "clean up")) == 40, "all linger")
        jobs.cancel("other")

        assert leader.store.wait("other", BOUND).status is JobStatus.CANCELED


def test_an_attempt_is_counted_by_its_result_not_by_its_exit(
    memory: FaultyMemory, root: Path
) -> None:
    """A process that ended by itself says no more than its status; whether it left a result, died,
    or was ended, the store and the leader know."""

    def counted(leader: Leader) -> dict[str, int]:
        return leader.health.facts().attempts.ended

    with Leader(memory, root) as leader:
        jobs = JobCatalog(memory)
        for job_id in ("done", "dead", "canceled", "lapsed", "running"):
            jobs.submit(spec(job_id, restart=RestartPolicy(attempts=1)))
        done = leader.runner.of("done")
        done.record("sum")
        done.die("its process exited with status 0 and left no result", exit_status=0)
        until(lambda: counted(leader)["completed"] == 1, "the result counts")
        leader.runner.of("dead").die("its process was killed by signal 9", exit_status=-9)
        until(lambda: counted(leader)["died"] == 1, "the death counts")
        jobs.cancel("canceled")
        until(lambda: counted(leader)["stopped"] == 1, "the cancel counts")
        leader.runner.of("lapsed").die("its leadership was over", lapsed=True)
        until(lambda: counted(leader)["fenced"] == 1, "the end of its lease counts")

        assert sum(counted(leader).values()) == 4


def test_an_end_that_comes_while_the_start_is_still_on_its_way_counts_once(
    memory: FaultyMemory, root: Path
) -> None:
    """An attempt that is over before its start has returned is one death, and the next attempt
    is started."""

    def at_once(self: DirectedAttempt) -> None:
        self.die("stillborn")

    with Leader(memory, root) as leader:
        start = leader.runner.start

        def stillborn(*args: object) -> DirectedAttempt:
            attempt: DirectedAttempt = start(*args)
            if len(leader.runner.started) == 1:
                at_once(attempt)
            return attempt

        leader.runner.start = stillborn
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=2, delay=0)))
        leader.runner.of("job", 2).finish("second")

        assert ended(leader, "job").payload == "second"
        assert len(leader.said("died", "job")) == 1


def test_an_attempt_that_says_it_was_fenced_under_a_living_leader_has_died(
    memory: FaultyMemory, root: Path
) -> None:
    """If this leader still leads, a fenced attempt is a death like any, so that it is not started
    again forever."""
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=2, delay=0)))
        for attempt in (1, 2):
            leader.runner.of("job", attempt).die("exit status 75", fenced=True)

        assert ended(leader, "job").status is JobStatus.FAILED
        assert len(leader.runner.started) == 2


# -- others are not harmed ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["its start raises", "its spec is damaged", "its storage is away"])
def test_a_job_that_fails_harms_no_other(memory: FaultyMemory, root: Path, how: str) -> None:
    """Whatever goes wrong with the first job, the second one runs to its clean end; and the first
    does, too, once the trouble is over."""
    catalog = JobCatalog(memory)
    catalog.submit(spec("a-bad"))
    catalog.submit(spec("b-good"))
    trouble = [True]

    def raises(context: AttemptContext) -> None:
        if context.spec.job_id == "a-bad" and trouble:
            raise OSError("no more processes")

    leader = Leader(memory, root)
    folder = leader.storage.folder("a-bad")
    whole = memory.get(keys.JOBS + "a-bad")
    assert whole is not None
    if how == "its start raises":
        leader.runner.before_start = raises
    elif how == "its spec is damaged":
        spoil(memory, whole.key)
    else:
        folder.parent.mkdir(parents=True)
        folder.write_text("in the way")
    with leader:
        leader.runner.of("b-good").finish()
        leader.until_clean("b-good")
        until(
            lambda: any(leader.said(kind, "a-bad") for kind in ("error", "held", "waiting")),
            "it is reported",
        )
        trouble.clear()
        if how == "its spec is damaged":
            spoil(memory, whole.key, whole.value)
        elif how == "its storage is away":
            folder.unlink()
        leader.runner.of("a-bad").finish()
        leader.until_clean("a-bad")


def test_a_report_that_raises_harms_nothing(memory: FaultyMemory, root: Path) -> None:
    """A listener may fail; the job runs to its clean end."""

    def broken(event: object) -> None:
        raise RuntimeError("the screen is gone")

    with Leader(memory, root, report=broken) as leader:
        JobCatalog(memory).submit(spec("job"))
        leader.runner.of("job").finish()
        leader.until_clean("job")


def test_after_a_while_without_the_backend_it_continues(memory: FaultyMemory, root: Path) -> None:
    """While the backend is away nothing is decided and nothing ended; afterwards the running job's
    result is cleaned up and a new one started."""
    with Leader(memory, root) as leader:
        catalog = JobCatalog(memory)
        catalog.submit(spec("running"))
        attempt = leader.runner.of("running")
        memory.down = True
        leader.until_said("waiting")
        memory.down = False

        assert not attempt.was_ended

        attempt.finish()
        catalog.submit(spec("new"))
        leader.runner.of("new")
        leader.until_clean("running")

        assert not leader.leadership.lost.is_set()


def test_a_snapshot_that_is_damaged_while_the_attempt_is_ended(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is held for the one while the other is under way: the end was begun a second time,
    and counted as two deaths."""
    clock, entered, ending = FakeClock(), threading.Event(), threading.Event()
    damaged, ends = threading.Event(), threading.Event()

    def take_scheduled_snapshot(actions: Actions, of_job: JobSpec, failures: int) -> float:
        entered.set()
        damaged.wait(BOUND)
        raise CorruptRecord("the index of snapshots")

    def before_end(attempt: DirectedAttempt) -> None:
        ending.set()
        ends.wait(BOUND)

    monkeypatch.setattr(Actions, "take_scheduled_snapshot", take_scheduled_snapshot)
    limits = TimeLimits(attempt=60.0, then=OnTimeout.RESTART)
    with Leader(memory, root, clock=clock) as leader:
        leader.runner.before_end = before_end
        policy, restart = SnapshotPolicy(every=10.0), RestartPolicy(attempts=5, delay=0.0)
        JobCatalog(memory).submit(spec("job", snapshots=policy, timeout=limits, restart=restart))
        leader.runner.of("job")
        memory_of = leader.dispatcher._jobs["job"]
        until(lambda: memory_of.snapshot.at is not None, "the snapshot is planned")
        clock.now += 10
        leader.look()
        assert entered.wait(BOUND)
        clock.now += 60
        assert ending.wait(BOUND)
        damaged.set()
        leader.until_said("decision", "job", "the index of snapshots")
        JobCatalog(memory).submit(spec("other"))
        leader.runner.of("other").finish()
        leader.until_clean("other")

        assert memory_of.busy

        ends.set()
        leader.runner.of("job", 2)

        assert len(leader.said("died", "job")) == 1


@pytest.mark.parametrize("starts", [False, True])
def test_two_writes_that_keep_failing_pause_each_for_itself(
    memory: FaultyMemory, root: Path, starts: bool
) -> None:
    """Neither a start, or the count of a death, nor the record that the job is held for it can be
    written: each failure had the other one tried again at once, without end."""
    clock = FakeClock()
    JobCatalog(memory).submit(spec("job"))
    failing = memory.fault("history/job/", CorruptRecord)
    if not starts:
        memory.faults.clear()
    with Leader(memory, root, clock=clock) as leader:
        if not starts:
            attempt = leader.runner.of("job")
            until(lambda: not leader.dispatcher._jobs["job"].busy, "the start has returned")
            memory.faults.append(failing)
            attempt.die()
        for times in (2, 4):
            until(lambda: failing.happened >= times, "both have failed")  # noqa: B023
            for number in range(10):
                JobCatalog(memory).submit(spec(f"other-{times}-{number}"))
                leader.runner.of(f"other-{times}-{number}")

            assert failing.happened == times

            clock.now += 1
            leader.look()
        memory.faults.clear()
        clock.now += 30
        leader.look()
        leader.runner.of("job", 1 if starts else 2).finish()


def test_a_check_that_failed_does_not_delay_the_count_of_a_death(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a delay of its own, and a check that works ends that of checks."""
    JobCatalog(memory).submit(spec("job"))
    with Leader(memory, root, clock=FakeClock()) as leader:
        attempt, dispatcher = leader.runner.of("job"), leader.dispatcher
        until(lambda: not dispatcher._jobs["job"].busy, "the start has returned")

        def check() -> None:
            dispatcher._loop.post(lambda: dispatcher._agenda.add("job"))

        with monkeypatch.context() as broken:
            raises = lambda jobs, *_: {one: ValueError("no") for one in jobs}  # noqa: E731
            broken.setattr(dispatcher._facts, "gather", raises)
            check()
            leader.until_said("error", "job")
        attempt.die()
        leader.until_said("died", "job")
        check()
        until(lambda: not dispatcher._jobs["job"].failing, "a check has worked")


def test_a_write_that_keeps_failing_is_not_repeated_without_a_pause(
    memory: FaultyMemory, root: Path
) -> None:
    """An action that raised is not tried again before a tick has passed on the leader's clock."""
    clock = FakeClock()
    failing = memory.fault(keys.RESULTS, Unavailable)
    catalog = JobCatalog(memory)
    catalog.submit(spec("job"))
    catalog.cancel("job")
    with Leader(memory, root, clock=clock) as leader:
        leader.until_said("error", "job")
        for number in range(20):
            catalog.submit(spec(f"other-{number}"))
            leader.runner.of(f"other-{number}")

        assert failing.happened == 1

        memory.faults.clear()
        clock.now += 1
        leader.look()
        assert ended(leader, "job").status is JobStatus.CANCELED


def no_descriptor(memory: FaultyMemory) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def no_proc(memory: FaultyMemory) -> None:
    raise Unavailable("/proc cannot be read")


def nothing_recorded(memory: FaultyMemory) -> None:
    """What the host lacks cannot be recorded."""
    memory.fault(keys.ATTEMPTS, Unavailable, times=1)
    raise CannotStartHere("there is no python3.99")


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        (no_descriptor, "Too many open files"),
        (no_proc, "/proc cannot be read"),
        (nothing_recorded, "there is no python3.99; not recorded: Unavailable: injected"),
    ],
)
def test_a_start_that_fails_is_the_end_of_its_attempt(
    memory: FaultyMemory, root: Path, fails: Callable[[FaultyMemory], None], why: str
) -> None:
    """Not a death: it is tried again ever later, and its record and the history say what failed.
    What was reserved for the attempt is released."""
    clock, marks = FakeClock(), list[str]()

    def fail(context: AttemptContext) -> None:
        marks.append(context.mark)
        fails(memory)

    with Leader(memory, root, clock=clock) as leader:
        leader.runner.before_start = fail
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=1)))
        for number, delay in enumerate((1, 2, 4), 1):
            leader.until_said("attempt", "job", f"attempt {number} starts")
            leader.until_said("waiting", "job", f"trying again in {delay} s")
            stored = memory.get(keys.ATTEMPTS + "job")
            assert stored is not None
            record = decode(AttemptRecord, stored.value, stored.key)

            assert (record.attempt, record.deaths) == (number, 0)
            assert record.ended_at
            assert why in record.ended
            if number == 3:
                leader.runner.before_start = lambda context: None
            clock.now += delay
            leader.look()
        leader.runner.of("job").finish()
        leader.until_clean("job")

        assert leader.runner.released == marks
        texts = [event.text for event in history.read(memory, "job")]
        assert len([text for text in texts if why in text]) == 3
        assert leader.health.facts().attempts.ended["not_started"] == 3


# -- stopping and stepping down -----------------------------------------------------------------


def test_a_leader_that_is_fenced_ends_its_attempts_and_touches_nothing_more(
    memory: FaultyMemory, root: Path
) -> None:
    """The first refused write sets `lost`; after `stop` the map does not change any more, deaths
    of the ended attempts are not counted, and nothing is cleaned up."""
    thing = Thing()
    leader = Leader(memory, root, resources=[thing])
    with leader:
        catalog = JobCatalog(memory)
        catalog.submit(spec("one"))
        catalog.submit(spec("two"))
        one, two = leader.runner.of("one"), leader.runner.of("two")
        memory.space.leader = None
        successor = memory.campaign("new", ttl=10.0, stop=threading.Event())
        assert successor is not None
        catalog.submit(spec("three"))
        assert leader.leadership.lost.wait(60)
        before = list(memory.scan(""))
        assert leader.stop()

        assert one.was_ended
        assert two.was_ended
        assert list(memory.scan("")) == before
        assert {attempt.job_id for attempt in leader.runner.started} == {"one", "two"}
        assert thing.calls == []
        assert set(thing.released) == {"one", "two"}
        successor.resign()


def test_an_attempt_that_was_being_started_when_all_stopped_does_not_survive(
    memory: FaultyMemory, root: Path
) -> None:
    """`stop` waits for a start that is under way and ends what comes of it."""
    starting, proceed = threading.Event(), threading.Event()

    def slow(context: AttemptContext) -> None:
        starting.set()
        proceed.wait(60)

    leader = Leader(memory, root)
    with leader:
        leader.runner.before_start = slow
        JobCatalog(memory).submit(spec("job"))
        assert starting.wait(60)
        outcome: list[bool] = []
        stopping = threading.Thread(target=lambda: outcome.append(leader.stop()))
        stopping.start()
        until(lambda: leader.dispatcher._attempts.over, "the stop has begun")
        proceed.set()
        stopping.join(60)

        assert outcome == [True]
        assert [attempt.was_ended for attempt in leader.runner.started] == [True]


def test_a_start_that_outlasts_the_stop_is_ended_when_it_returns(
    memory: FaultyMemory, root: Path
) -> None:
    """`stop` with no time left says that not all is dead; the attempt is ended nevertheless as
    soon as its start returns."""
    starting, proceed = threading.Event(), threading.Event()

    def slow(context: AttemptContext) -> None:
        starting.set()
        proceed.wait(60)

    leader = Leader(memory, root)
    with leader:
        leader.runner.before_start = slow
        JobCatalog(memory).submit(spec("job"))
        assert starting.wait(60)

        assert leader.stop(timeout=0) is False

        proceed.set()
        until(lambda: leader.runner.started and leader.runner.started[0].was_ended, "it is ended")


def test_nothing_begins_after_the_end_of_all() -> None:
    """Once all attempts were told to end, a start is refused before it is made."""
    attempts = Attempts()
    attempts.end_all(Deadline.after(1))
    calls: list[int] = []

    def start(on_end: OnEnd) -> Any:
        calls.append(1)

    with pytest.raises(Unavailable, match="over"):
        attempts.begin("job", start, lambda begun, ended: None)

    assert calls == []


def test_an_attempt_whose_end_raises_is_not_taken_for_dead(
    memory: FaultyMemory, root: Path
) -> None:
    """`stop` ends every attempt even if ending one of them raises, and then says so."""

    def broken(attempt: DirectedAttempt) -> None:
        if attempt.job_id == "a":
            raise RuntimeError("the JVM is gone")

    leader = Leader(memory, root)
    with leader:
        leader.runner.before_end = broken
        for job_id in ("a", "b"):
            JobCatalog(memory).submit(spec(job_id))
            leader.runner.of(job_id)

        assert leader.stop() is False
        assert [attempt.was_ended for attempt in leader.runner.started] == [True, True]


def test_a_release_that_raises_keeps_no_other_from_being_released(
    memory: FaultyMemory, root: Path
) -> None:
    """Every job that continues elsewhere is released, and what raises is reported."""

    class Broken(Thing):
        def release(self, job_id: str) -> None:
            super().release(job_id)
            raise OSError(f"cannot let go of {job_id}")

    thing = Broken()
    leader = Leader(memory, root, resources=[thing])
    with leader:
        for job_id in ("a", "b"):
            JobCatalog(memory).submit(spec(job_id))
            leader.runner.of(job_id)
        assert leader.stop() is True

    assert set(thing.released) == {"a", "b"}
    assert {event.job_id for event in leader.said("error", text="cannot let go")} == {"a", "b"}


def test_a_graceful_stop_leaves_the_jobs_to_the_next_leader(
    memory: FaultyMemory, root: Path
) -> None:
    """After a stop nothing of the running job is recorded as its end, and the next leader starts
    it as another attempt that counts no death."""
    JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=1)))
    with Leader(memory, root) as first:
        first.runner.of("job")
    with Leader(memory, root) as second:
        second.runner.of("job").finish("done")
        second.until_clean("job")

    assert first.runner.started[0].was_ended
    assert not second.said("died")


def test_what_has_ended_and_was_cleaned_is_forgotten(memory: FaultyMemory, root: Path) -> None:
    """A leader keeps nothing in memory of jobs that are over, however many there were."""
    with Leader(memory, root) as leader:
        for number in range(20):
            JobCatalog(memory).submit(spec(f"job-{number}"))
            leader.runner.of(f"job-{number}").finish()
        leader.until_clean(*(f"job-{number}" for number in range(20)))

        def nothing_kept() -> bool:
            leader.look()
            return not leader.dispatcher._jobs

        until(nothing_kept, "all of them are forgotten")


def test_a_thread_attempt_is_told_that_its_leader_is_gone(memory: FaultyMemory, root: Path) -> None:
    """A job in the master's own process sees the loss at its next step and ends as fenced,
    without a result."""
    running, seen = threading.Event(), []

    def patient(job: Job) -> None:
        running.set()
        try:
            while True:
                job.check()
                time.sleep(0.001)
        except Fenced as error:
            seen.append(error)
            raise

    leader = Leader(memory, root, runner=ThreadRunner())
    with leader:
        JobCatalog(memory).submit(spec("job", "driver:job"))
        leader.dispatcher.provide("job", patient)
        assert running.wait(60)
        assert leader.stop()

    assert len(seen) == 1
    assert leader.store.get("job") is None


def test_an_attempt_that_may_end_by_itself_does_not_delay_the_end_of_all() -> None:
    """Another leader may start its job."""
    attempts, runner = Attempts(), DirectedRunner()
    nothing: Any = None
    attempts.begin(
        "job", lambda on_end: DirectedAttempt(runner, nothing, on_end), lambda begun, how: None
    )
    ending = threading.Thread(
        target=lambda: attempts.end("job", Deadline.after(BOUND), allowed=threading.TIMEOUT_MAX)
    )
    ending.start()
    assert attempts.end_all(Deadline.after(BOUND)) == []
    ending.join(BOUND)
    assert not ending.is_alive()


def test_end_all_ends_attempts_side_by_side() -> None:
    """The attempts of a leader are ended at the same time: each waits for all the others."""
    attempts = Attempts()
    together = threading.Barrier(5)
    nothing: Any = None

    class Slow(DirectedAttempt):
        def end(self, deadline: Deadline) -> bool:
            together.wait(60)
            return True

    for number in range(5):
        attempts.begin(
            f"job-{number}",
            lambda on_end: Slow(nothing, nothing, on_end),
            lambda begun, ended: None,
        )

    assert attempts.end_all(Deadline.after(60)) == []


def test_the_end_of_an_attempt_that_was_ended_on_purpose_is_no_news() -> None:
    """`forget` says whether the attempt was still known, so a late end is no death."""
    attempts = Attempts()
    nothing: Any = None
    begun: list[Any] = []
    ends: list[Callable[[AttemptExit], None]] = []

    class Quiet(DirectedAttempt):
        def end(self, deadline: Deadline) -> bool:
            return True

    def start(on_end: Callable[[AttemptExit], None]) -> Quiet:
        ends.append(on_end)
        return Quiet(nothing, nothing, on_end)

    attempts.begin("job", start, lambda one, ended: begun.append(one))
    attempts.end("job", Deadline.after(1))
    ends[0](AttemptExit("late"))

    assert not attempts.is_running("job")
    assert attempts.forget("job", begun[0]) is False


# -- what its users' code raises, and what a host lacks ------------------------------------------


@pytest.mark.parametrize("where", ["report", "filter"])
def test_a_report_or_a_filter_that_raises_harms_no_job(
    memory: FaultyMemory, root: Path, where: str
) -> None:
    def leave(record: object) -> Any:
        if where == "filter":
            raise KeyError("tenant")
        sys.exit("as a report may")

    def accept(record: object) -> Any:
        return True

    log = logging.getLogger("jrs.events")
    raises = leave if where == "filter" else accept
    log.addFilter(raises)
    try:
        with Leader(memory, root) as leader:
            leader._also_report = leave if where == "report" else accept
            JobCatalog(memory).submit(spec("job"))
            leader.runner.of("job").finish()
            leader.until_clean("job")

            assert not leader.leadership.lost.is_set()
            leader._also_report = accept
    finally:
        log.removeFilter(raises)


def test_a_dispatcher_that_ends_gives_up_the_lead(memory: FaultyMemory, root: Path) -> None:
    """Otherwise no other master could lead, and no job would run."""

    def interrupt(event: Event) -> None:
        if event.kind == "decision":
            raise KeyboardInterrupt("in its thread")

    with Leader(memory, root) as leader:
        leader._also_report = interrupt
        JobCatalog(memory).submit(spec("job"))

        assert leader.leadership.lost.wait(BOUND)
        leader.until_said("error", "", "the dispatcher has ended: KeyboardInterrupt")


def test_a_job_that_finishes_while_it_is_being_suspended(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is finished, and nothing says or does what suspended jobs get."""
    snapshots, ends = list[str](), list[str]()
    take, end = RecoveryPoints.take_scheduled_snapshot, AttemptRecords.end

    def noted_take(self: RecoveryPoints, job_id: str, policy: Any) -> Any:
        snapshots.append(job_id)
        return take(self, job_id, policy)

    def noted_end(self: AttemptRecords, job_id: str, how: str, **more: Any) -> Any:
        ends.append(how)
        return end(self, job_id, how, **more)

    monkeypatch.setattr(RecoveryPoints, "take_scheduled_snapshot", noted_take)
    monkeypatch.setattr(AttemptRecords, "end", noted_end)
    runner = DirectedRunner()
    runner.before_end = lambda attempt: attempt.record("done")
    with Leader(memory, root, runner=runner) as leader:
        JobCatalog(memory).submit(spec("job"))
        runner.of("job")
        JobStops(memory).request("job", StopMode.SUSPEND, grace=0.0)
        leader.until_clean("job")

        assert ended(leader, "job").status is JobStatus.FINISHED
        assert (snapshots, ends, leader.said("suspended")) == ([], [], [])


def test_nothing_stays_in_memory_of_a_job_that_is_over(memory: FaultyMemory, root: Path) -> None:
    """A leader lives for weeks, and so may an application."""
    with Leader(memory, root) as leader:
        limits = TimeLimits(job=7 * 24 * 3600.0)
        JobCatalog(memory).submit(spec("job", timeout=limits, application="app"))
        leader.runner.of("job")
        dispatcher = leader.dispatcher
        until(lambda: "job" in dispatcher._facts._parts.get("app", ()), "it is remembered")
        leader.runner.of("job").finish()
        leader.until_clean("job")
        until(lambda: not dispatcher._jobs, "it is forgotten")

        until(lambda: not dispatcher._agenda._due, "its moments are, too")
        assert (dispatcher._facts._parts, dispatcher._facts._application_of) == ({}, {})

        JobCatalog(memory).submit(spec("part", application="app"))
        leader.runner.of("part")
        put(memory, keys.RESULTS + "app", result("app"))
        leader.until_clean("part")
        until(lambda: not dispatcher._jobs, "it is forgotten")

        assert leader.store.wait("part", 0).status is JobStatus.CANCELED
        facts = dispatcher._facts
        assert (facts._parts, facts._application_of, facts._over) == ({}, {}, set())
