"""Probations: after a leader's death, what ran in its process starts one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, RunnerKind
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.job import Job
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader import suspects
from jrs.recovery.processes.last_words import LastWords, folder_of
from jrs.store.jobs import JobCatalog
from jrs.testing.contract import lead
from tests.recovery.support import FaultyMemory, Leader, put, spec, spoil
from tests.support import FakeClock, until


def is_submitted(memory: FaultyMemory, *job_ids: str, suspicion: int = 1) -> None:
    """Submit jobs that only a driver can give, in order, as suspects whose end is evaluated."""
    catalog = JobCatalog(memory, now=itertools.count(1).__next__)
    for job_id in job_ids:
        catalog.submit(spec(job_id, "driver:job", runner=RunnerKind.THREAD))
        if suspicion:
            record = AttemptRecord(job_id, attempt=1, suspicion=suspicion, retry_at=1.0)
            put(memory, keys.ATTEMPTS + job_id, record)


def leads(memory: FaultyMemory, root: Path, clock: FakeClock, *driven: str) -> Leader:
    """Return a leader, not recovered yet, whose driver's main has reached these jobs."""
    leader = Leader(memory, root, clock=clock)
    for job_id in driven:
        leader.dispatcher.provide(job_id, nothing)
    return leader


def nothing(job: Job) -> None:
    """What a driver's main gives for its jobs; the tests direct their attempts."""


def started(leader: Leader) -> list[str]:
    return [attempt.job_id for attempt in leader.runner.started]


def looked_at(leader: Leader, memory: FaultyMemory, *job_ids: str) -> None:
    """Return after a look at jobs that wait, with the clock as it is now."""
    for _ in range(2):  # One may be under way that began before.
        memory.reads.clear()
        for job_id in job_ids:
            leader.dispatcher.provide(job_id, nothing)
        until(
            lambda: {keys.STOPS + job_id for job_id in job_ids} <= {*memory.reads},
            f"{job_ids} are looked at",
        )


def until_started(leader: Leader, memory: FaultyMemory, clock: FakeClock, job_id: str) -> None:
    """Move the clock on, by less than a probation, until a job that waits has started."""

    def has_started() -> bool:
        if job_id not in started(leader):
            clock.now += suspects.PROBATION / 4
            looked_at(leader, memory, job_id)
        return job_id in started(leader)

    until(has_started, f"{job_id} starts")


def attempt_of(memory: FaultyMemory, job_id: str) -> AttemptRecord:
    record = memory.get(keys.ATTEMPTS + job_id)
    assert record is not None
    return decode(AttemptRecord, record.value, record.key)


def is_acquitted(memory: FaultyMemory, job_id: str) -> bool:
    return not attempt_of(memory, job_id).on_probation


def test_two_suspects_of_one_page_start_one_after_the_other(
    memory: FaultyMemory, root: Path
) -> None:
    """B2: suspects that are looked at together never start together; the next one starts once the
    one before has run alone for its probation and that was noted."""
    clock, names = FakeClock(), ("a", "b", "c")
    is_submitted(memory, *names)
    with leads(memory, root, clock, *names) as leader:
        for number, job_id in enumerate(names):
            until_started(leader, memory, clock, job_id)
            looked_at(leader, memory, *names[number + 1 :])

            assert started(leader) == [*names[: number + 1]]
            assert attempt_of(memory, job_id).on_probation

            clock.now += suspects.probation(1)
            until(partial(is_acquitted, memory, job_id), "its probation is over")

        assert leader.said("decision", "b", "start in turn")


def test_what_is_new_does_not_overtake_a_suspect_that_waits(
    memory: FaultyMemory, root: Path
) -> None:
    """B2: jobs that are new wait behind the suspects, though they are looked at before them; else
    a driver that always has another job would keep a suspect from its turn."""
    clock = FakeClock()
    is_submitted(memory, "y-first", "z-next")
    with leads(memory, root, clock, "y-first", "z-next") as leader:
        first = leader.runner.of("y-first")
        is_submitted(memory, "a-new", suspicion=0)
        leader.dispatcher.provide("a-new", nothing)
        leader.until_said("decision", "a-new", "start in turn")
        first.finish()
        leader.until_clean("y-first")
        clock.now += suspects.probation(1)  # Both are looked at again, this one first.
        leader.runner.of("z-next")
        looked_at(leader, memory, "a-new")

        assert started(leader) == ["y-first", "z-next"]

        clock.now += suspects.probation(1)
        until_started(leader, memory, clock, "a-new")


def test_a_suspect_that_cannot_start_keeps_no_other_from_its_turn(
    memory: FaultyMemory, root: Path
) -> None:
    """B2: between two tries of a start that fails, others have their turn."""
    clock = FakeClock()
    is_submitted(memory, "bad")
    leader = leads(memory, root, clock, "bad")

    def broken(context: AttemptContext) -> None:
        if context.spec.job_id == "bad":
            raise OSError("no more threads")

    leader.runner.before_start = broken
    with leader:
        leader.until_said("waiting", "bad", "no more threads")
        is_submitted(memory, "good", suspicion=0)
        leader.dispatcher.provide("good", nothing)
        leader.runner.of("good")

        assert started(leader) == ["good"]


def test_a_suspect_whose_record_is_damaged_keeps_no_other_from_its_turn(
    memory: FaultyMemory, root: Path
) -> None:
    """B2: a suspect that is held while it waits for its turn waits for none."""
    clock = FakeClock()
    is_submitted(memory, "first", "held")
    with leads(memory, root, clock, "first", "held") as leader:
        first = leader.runner.of("first")
        leader.until_said("decision", "held", "start in turn")
        spoil(memory, keys.JOBS + "held")
        is_submitted(memory, "good", suspicion=0)
        leader.dispatcher.provide("good", nothing)
        leader.until_said("decision", "held", "cannot be read")
        first.finish()
        leader.until_clean("first")
        clock.now += suspects.probation(1)
        leader.runner.of("good")

        assert started(leader) == ["first", "good"]


def test_a_suspect_that_any_process_can_load_takes_a_slot(memory: FaultyMemory, root: Path) -> None:
    """B2: what counts for a slot is the runner that is really used, not the one that was asked
    for; such a suspect waits for no turn."""
    catalog = JobCatalog(memory, now=itertools.count(1).__next__)
    for job_id in ("one", "two"):
        catalog.submit(spec(job_id, runner=RunnerKind.THREAD))
        record = AttemptRecord(job_id, attempt=1, suspicion=1, retry_at=1.0)
        put(memory, keys.ATTEMPTS + job_id, record)
    with Leader(memory, root, max_attempts=1) as leader:
        one = leader.runner.of("one")
        leader.until_said("decision", "two", "place 1 in")

        assert one.context.spec.runner is RunnerKind.PROCESS

        one.finish()
        leader.runner.of("two")


def hangs(root: Path, memory: FaultyMemory, epoch: int) -> LastWords:
    """Have a job that was alone in the leader of `epoch` still run there."""
    spec_of = spec("job", "driver:job", runner=RunnerKind.THREAD)
    JobCatalog(memory).submit(spec_of)
    record = AttemptRecord("job", epoch=epoch, suspicion=1, on_probation=True)
    put(memory, keys.ATTEMPTS + "job", record)
    return LastWords(folder_of(JobStorage(root, memory.cluster).root), epoch)


@contextmanager
def behind_one_that_hangs(
    memory: FaultyMemory, root: Path, clock: FakeClock
) -> Iterator[tuple[LastWords, Leader]]:
    """Yield a leader whose job waits for the last words of the one before, and those words."""
    with lead(memory, "old") as old:
        words = hangs(root, memory, old.epoch)
    with words.attempt("job", 60.0), Leader(memory, root, clock=clock, ttl=10.0) as leader:
        leader.dispatcher.provide("job", nothing)
        leader.until_said("decision", "job", "hangs")
        yield words, leader


def test_a_job_waits_for_the_last_words_of_a_leader_that_hangs(
    memory: FaultyMemory, root: Path
) -> None:
    """B2: it is not started again before the leader that it was alone in has ended; then it is
    evaluated by how."""
    clock = FakeClock()
    with behind_one_that_hangs(memory, root, clock) as (words, leader):
        clock.now += 4.0 * 10.0 - 1.0
        looked_at(leader, memory, "job")

        assert started(leader) == []

        words.farewell()
        clock.now += 2.0
        leader.runner.of("job")

        assert attempt_of(memory, "job").suspicion == 1
        assert leader.said("suspect", "job", "left no last words") == []


def test_a_leader_that_hangs_for_too_long_is_waited_for_no_more(
    memory: FaultyMemory, root: Path
) -> None:
    """B2: a stopped leader does not keep a job from its next attempt forever; its last words
    count when they come."""
    clock = FakeClock()
    with behind_one_that_hangs(memory, root, clock) as (words, leader):
        hanging = attempt_of(memory, "job").epoch
        clock.now += 4.0 * 10.0 + 1.0
        leader.runner.of("job")

        assert attempt_of(memory, "job").unheard == (hanging,)
    words.farewell()
