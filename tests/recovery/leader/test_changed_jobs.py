"""A leader leads once it has decided about what ran and what is dirty; other jobs follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import Unavailable
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.model import JobStatus
from jrs.recovery.leader.changed_jobs import PAGE, ChangedJobs, Page
from jrs.recovery.leader.job_memory import SCANNED, JobMemory
from jrs.store import attempt_fence
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from tests.recovery.support import DirectedRunner, FaultyMemory, Leader, result, spec
from tests.support import until

MANY = 2 * PAGE + 10
"""Jobs that make several pages."""


def submit(memory: FaultyMemory, count: int = MANY, **fields: Any) -> None:
    for number in range(count):
        JobCatalog(memory).submit(spec(f"many-{number:04}", **fields))


def test_it_recovers_what_ran_and_what_is_dirty_before_it_leads(
    memory: FaultyMemory, root: Path
) -> None:
    """However many other jobs there are: of those it has decided about none by then."""
    submit(memory)
    JobCatalog(memory).submit(spec("z-running", priority=1))
    with Leader(memory, root, max_attempts=1) as former:
        former.runner.of("z-running")
    JobCatalog(memory).submit(spec("a-dirty"))
    JobResultStore(memory).create_dirty(result("a-dirty"), None)
    leader = Leader(memory, root, max_attempts=1, candidate="next")
    leader.dispatcher.recover()

    assert leader.dispatcher._jobs.keys() == {"a-dirty", "z-running"}
    assert leader.dispatcher.tally().queued == 0
    assert leader.said("decision", "z-running", "starting")
    assert leader.said("decision", "a-dirty")

    leader.dispatcher.start()
    leader.runner.of("z-running")
    until(lambda: leader.dispatcher.tally().queued == MANY, "all other jobs are queued")
    leader.stop()


def test_a_request_without_an_answer_as_attempts_begin(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends no leadership, nor the attempts that have begun: the loop asks again."""
    JobCatalog(memory).submit(spec("one"))
    JobCatalog(memory).submit(spec("other"))
    with Leader(memory, root) as former:
        former.runner.of("one")
        former.runner.of("other")
    leader = Leader(memory, root, candidate="next")
    look, looks = leader.dispatcher._look_at_due, list[int]()

    def failing(**how: Any) -> None:
        looks.append(1)
        if len(looks) == 2:
            raise Unavailable("injected")
        look(**how)

    monkeypatch.setattr(leader.dispatcher, "_look_at_due", failing)
    leader.dispatcher.recover()
    assert len(looks) == 2

    leader.dispatcher.start()
    leader.runner.of("one").finish()
    leader.runner.of("other").finish()
    leader.stop()


def test_a_job_that_ran_keeps_its_slot_and_the_highest_priority_gets_the_next(
    memory: FaultyMemory, root: Path
) -> None:
    """The last page may have the job that goes first: nothing else starts before it is known."""
    JobCatalog(memory).submit(spec("ran"))
    with Leader(memory, root, max_attempts=1) as former:
        former.runner.of("ran")
    submit(memory)
    JobCatalog(memory).submit(spec("z-urgent", priority=9))
    with Leader(memory, root, max_attempts=1, candidate="next") as leader:
        leader.runner.of("ran").finish()
        leader.runner.of("z-urgent").finish()
        leader.runner.of("many-0000")

        started = [attempt.job_id for attempt in leader.runner.started]
        assert started == ["ran", "z-urgent", "many-0000"]


def test_of_the_jobs_that_ran_the_highest_priority_gets_the_first_slot(
    memory: FaultyMemory, root: Path
) -> None:
    """A leader with fewer slots than the former one starts that one before a job of a higher
    priority that waited; the others queue with it."""
    JobCatalog(memory).submit(spec("a-low"))
    JobCatalog(memory).submit(spec("b-high", priority=5))
    with Leader(memory, root, max_attempts=2) as former:
        former.runner.of("a-low")
        former.runner.of("b-high")
        JobCatalog(memory).submit(spec("c-waited", priority=9))
        former.until_said("decision", "c-waited", "place 1 in")
    with Leader(memory, root, max_attempts=1, candidate="next") as leader:
        order = ["b-high", "c-waited", "a-low"]
        for job_id in order:
            leader.runner.of(job_id).finish()

        assert [each.job_id for each in leader.runner.started] == order


def test_all_jobs_that_wait_are_reported_with_their_places(
    memory: FaultyMemory, root: Path
) -> None:
    """Also if they are more than one turn reports."""
    submit(memory)
    with Leader(memory, root, max_attempts=1) as leader:
        leader.runner.of("many-0000")
        until(lambda: len(leader.said("decision", text="wait")) == MANY - 1, "all are reported")

        assert leader.said("decision", f"many-{MANY - 1:04}", str(MANY - 1))


def test_a_cancel_is_heard_between_two_pages(memory: FaultyMemory, root: Path) -> None:
    """The job is not started by what the listing has read before."""
    submit(memory)
    runner = DirectedRunner()
    leader = Leader(memory, root, runner=runner, max_attempts=1)
    catalog, last = JobCatalog(memory), f"many-{MANY - 1:04}"
    real, canceled = leader.dispatcher._facts.changed, []

    def changed(jobs: Any, prefixes: Any) -> Iterator[tuple[str, Any]]:
        for number, found in enumerate(real(jobs, prefixes)):
            if number == PAGE:  # The first page was checked.
                canceled.append(catalog.cancel(last))
                leader.dispatcher._heard(frozenset({keys.CANCEL + last}))
            yield found

    leader.dispatcher._facts.changed = changed
    leader.dispatcher.recover()
    leader.dispatcher.start()

    assert leader.store.wait(last, 60).status is JobStatus.CANCELED
    assert len(canceled) == 1

    until(lambda: leader.dispatcher._listing.is_complete, "all jobs are listed")
    leader.stop()
    assert last not in {attempt.job_id for attempt in runner.started}


# -- the listing alone ------------------------------------------------------------------------


class Changes:
    """What has changed, as a test says."""

    def __init__(self, count: int) -> None:
        self.found = {f"job-{number:04}": {keys.JOBS: _record(number)} for number in range(count)}
        self.asked: list[set[str]] = []
        self.fails_at: int | None = None

    def changed(self, jobs: Any, prefixes: Any) -> Iterator[tuple[str, Any]]:
        self.asked.append(set(prefixes))
        for number, (job_id, stored) in enumerate(self.found.items()):
            if number == self.fails_at:
                raise Unavailable("away")
            yield job_id, stored


def _record(number: int) -> Record:
    return Record(f"jobs/job-{number:04}", b"", number + 1)


def listing(changes: Changes, jobs: dict[str, JobMemory] | None = None) -> ChangedJobs:
    return ChangedJobs(changes, {} if jobs is None else jobs)  # type: ignore[arg-type]


def test_each_job_is_on_one_page() -> None:
    """What was read of a job comes with it."""
    one, pages = listing(Changes(MANY)), list[Page]()
    while one.is_due:
        assert not one.is_complete
        one.step(pages.append)

    assert [len(page) for page in pages] == [PAGE, PAGE, MANY - 2 * PAGE]
    assert {job_id: page[job_id] for page in pages for job_id in page} == Changes(MANY).found
    assert one.is_complete


@pytest.mark.parametrize("how", ["known", "checked"])
def test_a_job_that_was_checked_meanwhile_is_read_again(how: str) -> None:
    """What the listing has read of it may be older than what the leader has acted by."""
    jobs: dict[str, JobMemory] = {}
    one, pages = listing(Changes(MANY), jobs), list[Page]()
    one.step(pages.append)
    if how == "known":
        jobs[f"job-{PAGE:04}"] = JobMemory()
    else:
        one.checked([f"job-{PAGE:04}"])
    one.step(pages.append)

    assert [job_id for job_id, stored in pages[1].items() if not stored] == [f"job-{PAGE:04}"]


@pytest.mark.parametrize("what", ["list", "check"])
def test_all_is_listed_again_after_a_failure(what: str) -> None:
    """A page that was not checked to its end is not lost."""
    changes = Changes(MANY)
    one, pages = listing(changes), list[Page]()
    one.step(pages.append)

    def fail(page: Page) -> None:
        raise Unavailable("away")

    changes.fails_at = PAGE + 3 if what == "list" else None
    with pytest.raises(Unavailable):
        one.step(pages.append if what == "list" else fail)
    assert (one.is_due, one.is_complete) == (True, False)

    changes.fails_at = None
    while one.is_due:
        one.step(pages.append)

    assert sum(len(page) for page in pages) == PAGE + MANY
    assert changes.asked == [set(SCANNED)] * 2
    assert one.is_complete


def test_what_is_asked_meanwhile_is_listed_afterwards() -> None:
    changes = Changes(MANY)
    one, pages = listing(changes), list[Page]()
    one.step(pages.append)
    one.ask({keys.DIRTY})
    while one.is_due:
        one.step(pages.append)

    assert changes.asked == [set(SCANNED), {keys.DIRTY}]
    assert sum(len(page) for page in pages) == 2 * MANY


def test_a_listing_of_some_records_is_not_all() -> None:
    one = listing(Changes(0))
    one._asked = {keys.DIRTY}
    one.step(lambda page: None)

    assert not one.is_complete


def test_jobs_whose_attempt_was_let_in_are_urgent(memory: FaultyMemory, root: Path) -> None:
    """One that was shut out is not, such as a suspended job."""
    JobCatalog(memory).submit(spec("job"))
    with Leader(memory, root) as leader:
        leader.runner.of("job")
        assert attempt_fence.let_in(memory) == ["job"]

        attempt_fence.shut_out(memory, "job", leader.fence)
        assert attempt_fence.let_in(memory) == []
