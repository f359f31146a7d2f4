"""Actions that take long, or hang: what they must not delay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import Unavailable
from jrs.records.model import AttemptRecord, JobResult, JobStatus, StopMode
from jrs.records.policies import RestartPolicy
from jrs.recovery.leader import orphans, progress
from jrs.recovery.leader.job_memory import JobMemory, Step
from jrs.recovery.leader.recovery_point import RecoveryPoints
from jrs.recovery.leader.take_over import take_over
from jrs.store.jobs import JobCatalog
from jrs.store.stop_transitions import StopEvent
from jrs.store.stops import JobStops
from tests.recovery.support import FaultyMemory, Leader, spec
from tests.support import until

MANY = 16
"""More than the threads of a small pool."""


class Blocker:
    """What holds a call of jobs whose id begins with `slow` back, from `shut` until `open`."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.shut = threading.Event()
        self.waiting: list[str] = []

    def wait(self, job_id: str) -> None:
        if self.shut.is_set() and job_id.startswith("slow"):
            self.waiting.append(job_id)
            self.open.wait()


@pytest.fixture
def blocker() -> Iterator[Blocker]:
    blocker = Blocker()
    yield blocker
    blocker.open.set()


@pytest.fixture
def take_overs(blocker: Blocker, monkeypatch: pytest.MonkeyPatch) -> Blocker:
    """Take-overs of files take long."""

    def slow(backend: Any, storage: Any, job_id: str, fence: Any) -> Path:
        blocker.wait(job_id)
        return take_over(backend, storage, job_id, fence)

    monkeypatch.setattr(orphans, "take_over", slow)
    return blocker


@pytest.fixture
def snapshots(blocker: Blocker, monkeypatch: pytest.MonkeyPatch) -> Blocker:
    """Snapshots of jobs that are suspended take long."""
    real = RecoveryPoints.take_scheduled_snapshot

    def slow(self: RecoveryPoints, job_id: str, policy: Any) -> str:
        blocker.wait(job_id)
        return real(self, job_id, policy)

    monkeypatch.setattr(RecoveryPoints, "take_scheduled_snapshot", slow)
    return blocker


def result_of(leader: Leader, job_id: str) -> JobResult:
    leader.until_clean(job_id)
    entry = leader.store.get(job_id)
    assert entry is not None
    assert entry.result is not None
    return entry.result


def started(leader: Leader, job_id: str) -> int:
    return sum(one.job_id == job_id for one in leader.runner.started)


def test_jobs_that_fail_slowly_delay_no_death_cancel_or_cleanup(
    memory: FaultyMemory, root: Path, take_overs: Blocker
) -> None:
    jobs, slow = JobCatalog(memory), [f"slow-{number}" for number in range(MANY)]
    with Leader(memory, root) as leader:
        for job_id in slow:
            jobs.submit(spec(job_id, restart=RestartPolicy(attempts=1)))
        for job_id in ("dies", "ends", "goes"):
            jobs.submit(spec(job_id, restart=RestartPolicy(attempts=2, delay=0.0)))
        dies, ends, _ = (leader.runner.of(job_id) for job_id in ("dies", "ends", "goes"))
        take_overs.shut.set()
        for job_id in slow:
            leader.runner.of(job_id).die()
        until(lambda: len(take_overs.waiting) == MANY, "all of them fail")

        dies.die()
        until(lambda: started(leader, "dies") == 2, "the next attempt")
        ends.finish()
        jobs.cancel("goes")
        leader.until_clean("ends", "goes")
        take_overs.open.set()
        leader.until_clean(*slow)


def test_slow_restarts_delay_no_new_job(
    memory: FaultyMemory, root: Path, take_overs: Blocker
) -> None:
    jobs, slow = JobCatalog(memory), [f"slow-{number}" for number in range(MANY)]
    with Leader(memory, root) as leader:
        for job_id in slow:
            jobs.submit(spec(job_id))
        for job_id in slow:
            leader.runner.of(job_id)
    take_overs.shut.set()
    with Leader(memory, root) as leader:
        until(lambda: len(take_overs.waiting) == MANY, "all of them are taken over")
        jobs.submit(spec("new"))
        leader.runner.of("new").finish()
        leader.until_clean("new")
        take_overs.open.set()


def test_slow_suspends_delay_no_cancel(
    memory: FaultyMemory, root: Path, snapshots: Blocker
) -> None:
    """And keep no slot."""
    jobs, slow = JobCatalog(memory), [f"slow-{number}" for number in range(40)]
    with Leader(memory, root, max_attempts=len(slow) + 1) as leader:
        for job_id in (*slow, "goes"):
            jobs.submit(spec(job_id))
        for job_id in (*slow, "goes"):
            leader.runner.of(job_id)
        snapshots.shut.set()
        for job_id in slow:
            JobStops(memory).request(job_id, StopMode.SUSPEND, grace=0)
        until(lambda: len(snapshots.waiting) >= 32, "as many as may be suspended at once")
        jobs.submit(spec("next"))
        leader.runner.of("next")
        jobs.cancel("goes")
        leader.until_clean("goes")
        snapshots.open.set()


@pytest.mark.parametrize("how", ["cancel", "suspend"])
def test_a_slot_is_free_once_the_attempt_is_dead(
    memory: FaultyMemory, root: Path, take_overs: Blocker, how: str
) -> None:
    """Whatever is still to be done with its files; the attempt's end is recorded as it was."""
    jobs, now = JobCatalog(memory), [1000.0]
    with Leader(memory, root, max_attempts=1, now=lambda: now[0]) as leader:
        jobs.submit(spec("slow"))
        attempt = leader.runner.of("slow")
        jobs.submit(spec("next"))
        take_overs.shut.set()
        if how == "cancel":
            jobs.cancel("slow")
        else:
            JobStops(memory).request("slow", StopMode.SUSPEND, grace=0)
        leader.runner.of("next")
        assert attempt.is_over
        now[0] = 2000.0
        take_overs.open.set()
        if how == "cancel":
            result = result_of(leader, "slow")
            assert result.status is JobStatus.CANCELED
            (summary,) = result.attempts
            assert (summary.ended_at, result.finished_at) == (1000.0, 2000.0)
        else:
            leader.until_said("suspended", "slow")
            record, _ = leader.dispatcher._records.newest("slow")
            assert record is not None
            assert record.ended_at == 1000.0


def test_a_job_that_is_canceled_while_it_is_started_does_not_begin(
    memory: FaultyMemory, root: Path, take_overs: Blocker
) -> None:
    """However long its start takes."""
    jobs = JobCatalog(memory)
    take_overs.shut.set()
    with Leader(memory, root) as leader:
        jobs.submit(spec("slow"))
        until(lambda: take_overs.waiting, "it is being started")
        jobs.cancel("slow")
        take_overs.open.set()

        assert result_of(leader, "slow").status is JobStatus.CANCELED
        assert started(leader, "slow") == 0


@pytest.fixture
def hold_off(memory: FaultyMemory, root: Path) -> Callable[[Leader, int, bool], list[float]]:
    def failing(leader: Leader, times: int, answers: bool) -> list[float]:
        """Have a look at a job fail so often; return the delays."""
        tasks, job, delays = leader.dispatcher._tasks, JobMemory(), []
        leader.dispatcher._jobs["job"] = job
        for _ in range(times):
            if answers:
                leader.health.answered()
            tasks.put_off("job", job, Step.LOOK, Unavailable("/srv is read-only"))
            failing = job.failing[Step.LOOK]
            delays.append(failing.until - failing.at)
        return delays

    return failing


def test_what_the_storage_fails_is_tried_ever_more_rarely(
    memory: FaultyMemory, root: Path, hold_off: Callable[[Leader, int, bool], list[float]]
) -> None:
    """The backend answers, so it is not the backend. The same failure is said now and then."""
    leader = Leader(memory, root)
    delays = hold_off(leader, 9, True)
    leader.leadership.resign()

    assert [round(delay) for delay in delays] == [1, 2, 4, 8, 16, 30, 30, 30, 30]
    said = [event.message for event in leader.said("error", "job")]
    assert said == [
        f"Unavailable: /srv is read-only; trying again in {delay} s" for delay in (1, 2, 8, 30)
    ]


def test_what_fails_while_the_backend_is_away_continues_at_once_when_it_is_back(
    memory: FaultyMemory, root: Path, hold_off: Callable[[Leader, int, bool], list[float]]
) -> None:
    leader = Leader(memory, root)
    delays = hold_off(leader, 9, False)
    leader.leadership.resign()

    assert [round(delay) for delay in delays] == [1] * 9


def test_a_job_that_stops_to_be_changed_keeps_its_slot(
    memory: FaultyMemory, root: Path, take_overs: Blocker
) -> None:
    """However long the change takes: it starts again, and no other job takes its place."""
    jobs = JobCatalog(memory)
    with Leader(memory, root, max_attempts=1) as leader:
        jobs.submit(spec("slow"))
        attempt = leader.runner.of("slow")
        jobs.submit(spec("next", priority=9))
        leader.until_said("decision", "next", "place 1 in the queue")
        take_overs.shut.set()
        JobStops(memory).reconfigure("slow", entry_point="nowhere:other")
        stop = JobStops(memory).get("slow")
        assert stop is not None
        JobStops(memory).advance(stop, StopEvent.QUIESCE, leader.fence)
        until(lambda: take_overs.waiting, "its files are being taken over")
        assert attempt.is_over
        assert started(leader, "next") == 0
        take_overs.open.set()
        until(lambda: started(leader, "slow") == 2, "it has started again")
        assert started(leader, "next") == 0


def test_a_death_while_the_storage_hangs_is_counted_when_it_answers(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it is not known whether the attempt got on, and its job must not end for that."""
    asked, answers = threading.Event(), threading.Event()
    newest_batches = progress._newest_batches

    def hang(*args: Any) -> Iterator[float]:
        asked.set()
        answers.wait()
        yield from newest_batches(*args)

    monkeypatch.setattr(progress, "_newest_batches", hang)
    monkeypatch.setattr(progress, "_STORAGE", 0.1)
    record = AttemptRecord("job")
    with Leader(memory, root) as leader:
        with pytest.raises(Unavailable, match=f"{leader.storage.root} does not answer"):
            progress.got_on(memory, leader.storage, record, leader.fence.epoch)
        assert asked.is_set()
        answers.set()
        assert not progress.got_on(memory, leader.storage, record, leader.fence.epoch)
