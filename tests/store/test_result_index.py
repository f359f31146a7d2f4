"""The index of results: no entry without its result, and none missing, whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from jrs.backends.memory import MemoryBackend, Space
from jrs.client.client import Client
from jrs.client.listing import JobOrder
from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    InvalidInput,
    JrsError,
    NoSuchResult,
    OutcomeUnknown,
    ResultIsDirty,
    Unavailable,
)
from jrs.contract.operations import Absent, Create, Delete, Fence, Op
from jrs.records import keys
from jrs.records.attempts import AttemptSummary
from jrs.records.codec import encode
from jrs.records.model import (
    MAX_COPIED_ARGUMENTS,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    ResultState,
    StageSummary,
)
from jrs.recovery.inspect.fsck import fsck
from jrs.store import cluster_format, result_index, result_order
from jrs.store.result_store import JobResultStore
from tests.recovery.support import spoil

TAGS = ("nightly", "team=sales", "größer", "a_b", "x" * 128, "❄" * 128)


class Interrupted(BaseException):
    """The process dies here."""


class Dying(MemoryBackend):
    """Dies before or after its next commits, as a process would."""

    def __init__(self, *, marks: bool = True) -> None:
        super().__init__(Space())
        self.left = 1 << 30
        self.after = False
        self._marks = marks

    def mark_format(self, version: int) -> None:
        if self._marks:  # Clusters that share a folder share its marker: it stays as it is.
            super().mark_format(version)

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Interrupted
        super()._commit(ops, fence, deadline)
        if self.left < 0:
            raise Interrupted


def result(job_id: str, at: float, status: JobStatus, *tags: str) -> JobResult:
    failure = Failure("exit", "it died") if status is JobStatus.FAILED else None
    spec = JobSpec(job_id, "m:f", {"day": 1}, submitted_at=at - 2, tags=tags)
    return JobResult(job_id, status, failure=failure, started_at=at - 1, finished_at=at, spec=spec)


def indexed(backend: Backend) -> set[str]:
    return {r.key for prefix in (keys.ENDED, keys.TAGGED) for r in backend.scan(prefix)}


def expected(backend: Backend) -> set[str]:
    entries = JobResultStore(backend).list()
    return {key for one in entries if one.result for key in result_index.keys_of(one.result)}


@pytest.fixture
def old() -> Iterator[MemoryBackend]:
    """A cluster of the format before the index."""
    with MemoryBackend(Space()) as backend:
        backend.marked_format = result_index.SINCE_FORMAT - 1
        yield backend


def test_the_index_is_that_of_the_results() -> None:
    """U17: random histories of two stores, with raises of the format, end each time with an index
    that fits the results."""

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.backend = MemoryBackend(Space())
            self.backend.marked_format = result_index.SINCE_FORMAT - 1
            self.store = JobResultStore(self.backend, now=lambda: 100.0)
            self.raised = False
            self.known: dict[str, JobResult] = {}

        @rule(
            job=st.sampled_from("abcdef"),
            at=st.floats(0, 120),
            status=st.sampled_from(result_index.ENDED),
            tags=st.lists(st.sampled_from(TAGS), unique=True, max_size=3),
        )
        def create(self, job: str, at: float, status: JobStatus, tags: list[str]) -> None:
            new = result(job, at, status, *tags)
            with suppress(JrsError):
                self.store.create_dirty(new, None)
                self.known[job] = new

        @rule(job=st.sampled_from("abcdef"))
        def clean(self, job: str) -> None:
            with suppress(JrsError):
                self.store.mark_clean(job, None)

        @rule(job=st.sampled_from("abcdef"))
        def delete(self, job: str) -> None:
            with suppress(NoSuchResult, ResultIsDirty):
                self.store.delete(job)
                self.known.pop(job, None)

        @rule(age=st.floats(0, 120), keep=st.integers(0, 3))
        def expire(self, age: float, keep: int) -> None:
            clean = [e.result for e in self.store.list(state=ResultState.CLEAN) if e.result]
            clean.sort(key=lambda each: (-int(each.finished_at * 1000), each.job_id))
            # One whose end is unknown stays.
            ended = [e for e in clean[keep:] if e.finished_at >= result_order.FIRST_END]
            old = sorted(e.job_id for e in ended if e.finished_at <= 100.0 - age - 0.001)
            gone = self.store.expire(age, keep)
            assert set(old) <= set(gone) <= {e.job_id for e in ended}
            for job in gone:
                del self.known[job]

        @rule()
        def raise_format(self) -> None:
            cluster_format.raise_format(self.backend)
            self.raised = True

        @invariant()
        def fits(self) -> None:
            assert indexed(self.backend) == (expected(self.backend) if self.raised else set())

        @invariant()
        def lists_the_newest_first(self) -> None:
            for status in (None, *result_index.ENDED):
                for tag in (None, *TAGS):
                    wanted = [
                        (-int(one.finished_at * 1000), one.job_id)
                        for one in self.known.values()
                        if status in (None, one.status)
                        and (tag is None or (one.spec is not None and tag in one.spec.tags))
                    ]
                    found = self.store.by_end(status=status, tag=tag)
                    assert [one.job_id for one in found] == [job for _, job in sorted(wanted)]

    checks = list(HealthCheck)
    how = settings(
        max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=checks
    )
    run_state_machine_as_test(Machine, settings=how)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("marks", [True, False], ids=["marked", "in a shared folder"])
@pytest.mark.parametrize("step", range(15))
def test_a_process_that_dies_at_any_write(step: int, after: bool, marks: bool) -> None:
    """U17: a process that stores, cleans, expires and raises the format may die at each write: the
    repeated call ends as if it had not, and there is no entry without its result before."""
    backend = Dying(marks=marks)
    backend.marked_format = result_index.SINCE_FORMAT - 1
    store = JobResultStore(backend, now=lambda: 100.0)

    def history() -> None:
        for number, job in enumerate("abc"):
            with suppress(JrsError):
                store.create_dirty(result(job, number + 1, JobStatus.FINISHED, "nightly"), None)
            with suppress(JrsError):
                store.mark_clean(job, None)
            if job == "b":
                cluster_format.raise_format(backend)
        store.expire(98.5, 0)

    backend.left, backend.after = step, after
    with suppress(Interrupted):
        history()
    backend.left = 1 << 30
    assert indexed(backend) <= expected(backend)
    if result_index.is_complete(backend):
        assert indexed(backend) == expected(backend)
    history()

    assert result_index.is_complete(backend)
    assert indexed(backend) == expected(backend) != set()
    assert not fsck(backend, None).left_over
    assert [one.job_id for one in store.by_end(tag="nightly")] == ["c", "b"]


class Counting(MemoryBackend):
    """A backend that counts its commits; another process deletes a result before the first, and
    those that are sent at once are refused for it, as ZooKeeper refuses them."""

    commits = 0
    expires = ""
    refuses = False

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        self.commits += 1
        super()._commit(ops, fence, deadline)

    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        self.commits += 1
        if job_id := self.expires:
            self.expires = ""
            self.commit(Delete(keys.RESULTS + job_id))
        if self.refuses:
            refused = Future[None]()
            refused.set_exception(Unavailable("another key was deleted meanwhile"))
            return refused
        return super()._commit_async(ops, fence)


def test_a_page_of_results_takes_few_commits() -> None:
    """A cluster may have a million of them, and a server be far away. One that is expired at that
    moment keeps no other one out."""
    backend, told = Counting(Space()), list[int]()
    backend.marked_format = result_index.SINCE_FORMAT - 1
    store = JobResultStore(backend)
    for number in range(300):
        store.create_dirty(result(f"job{number}", number + 1, JobStatus.FINISHED, "t"), None)
    before, most = backend.commits, 3 * 300 // backend.capabilities.max_ops + 4

    cluster_format.raise_format(backend, progress=told.append)

    assert backend.commits - before <= most
    assert indexed(backend) == expected(backend)
    assert told == [256, 300]

    for key in indexed(backend) - {one for one in indexed(backend) if one.endswith("job1")}:
        backend.commit(Delete(key))
    backend.expires, backend.refuses, before = "job7", True, backend.commits
    result_index.build(backend)

    # At most one batch is refused twice: that with the deleted result.
    assert backend.commits - before <= 2 * most + backend.capabilities.max_ops
    assert indexed(backend) == expected(backend)
    assert not any(key.endswith("/job7") for key in indexed(backend))


def test_the_format_is_raised_while_results_are_stored(old: MemoryBackend) -> None:
    """U17: results that other threads store at the same time are in the index as well."""
    store = JobResultStore(old)
    begun = threading.Event()

    def write(name: str) -> None:
        for number in range(60):
            store.create_dirty(result(f"{name}{number}", 1.0, JobStatus.FINISHED, "t"), None)
            if number == 20:
                begun.set()

    writers = [threading.Thread(target=write, args=(name,)) for name in "xy"]
    for writer in writers:
        writer.start()
    assert begun.wait(60)
    cluster_format.raise_format(old)
    for writer in writers:
        writer.join()

    assert len(expected(old)) == 240
    assert indexed(old) == expected(old)


def test_an_older_cluster_is_listed_without_the_index(old: MemoryBackend) -> None:
    """U17: until the format is raised, nothing new is written, and lists are the same."""
    store = JobResultStore(old, now=lambda: 100.0)
    for number, job in enumerate("abc", 1):
        store.create_dirty(result(job, number, JobStatus.FINISHED, "t"), None)
        store.mark_clean(job, None)

    def listed(since: float | None = None, until: float | None = None) -> list[str]:
        return [one.job_id for one in store.by_end(tag="t", since=since, until=until)]

    before = listed(), listed(since=2.0), listed(until=2.0)
    assert indexed(old) == set()
    cluster_format.raise_format(old)
    assert (listed(), listed(since=2.0), listed(until=2.0)) == before
    assert before == (["c", "b", "a"], ["c", "b"], ["b", "a"])
    assert store.expire(97.5, keep=1) == ["a", "b"]
    assert indexed(old) == expected(old)


def test_fsck_names_what_does_not_fit() -> None:
    """U17: entries that are missing or have no result are named, and repaired by one command."""
    with MemoryBackend(Space()) as backend:
        store = JobResultStore(backend)
        store.create_dirty(result("a", 1.0, JobStatus.FAILED, "t"), None)
        store.create_dirty(result("b", 2.0, JobStatus.FINISHED), None)
        (tagged,) = [key for key in indexed(backend) if key.startswith(keys.TAGGED)]
        backend.commit(Delete(tagged))
        ghost = keys.ended("FAILED") + "9999999999999/ghost"
        backend.commit(Create(ghost, b""))
        found = fsck(backend, None).left_over
        cluster_format.raise_format(backend)

        assert [line.partition(":")[0] for line in found] == [tagged, ghost]
        assert all("jrs cluster-format --raise" in line for line in found)
        assert indexed(backend) == expected(backend)


def test_a_damaged_result_takes_its_entries_along() -> None:
    """U17: an operator deletes a result that cannot be read, and its entries go with it."""
    with MemoryBackend(Space()) as backend:
        store = JobResultStore(backend)
        store.create_dirty(result("a", 1.0, JobStatus.FINISHED, "t"), None)
        store.mark_clean("a", None)
        spoil(backend, keys.RESULTS + "a")
        store.delete("a")

        assert indexed(backend) == set()


def test_different_tags_have_different_keys() -> None:
    """A tag is found by itself alone, however much it looks like another."""
    tags = ["a/b", "a_b", "a_2fb", "a b", ".", "..", "-", "ä", "a\u0308", "x" * 128, "❄" * 128,
            "❄" * 127 + "☃"]  # fmt: skip
    assert len({keys.tagged(tag) for tag in tags}) == len(tags)
    with MemoryBackend(Space()) as backend:
        store = JobResultStore(backend)
        job = "j" * 128
        store.create_dirty(result(job, 1.0, JobStatus.FINISHED, *tags), None)
        assert all([one.job_id for one in store.by_end(tag=tag)] == [job] for tag in tags)


def test_a_large_result_leaves_out_its_spec_first() -> None:
    """U7: arguments and settings go before the attempts, and these before the stages."""
    with MemoryBackend(Space()) as backend:
        store = JobResultStore(backend)
        stages = tuple(StageSummary("s" * 120 + str(n), 1, 1, 1.0) for n in range(1000))
        large = attrs.evolve(
            result("a", 1.0, JobStatus.FINISHED, "t"),
            payload="x" * 250_000,
            stages=stages,
            attempts=tuple(AttemptSummary(n, ended="e" * 4000) for n in range(100)),
        )
        store.create_dirty(large, None)
        entry = store.get("a")
        assert entry is not None
        kept = entry.result
        assert kept is not None
        assert kept.spec is not None

        assert (kept.spec.arguments, kept.arguments_left_out) == ({}, True)
        assert (kept.spec.entry_point, kept.spec.tags) == ("m:f", ("t",))
        assert (len(kept.attempts), kept.attempts_left_out) == (0, 100)
        assert len(kept.stages) == 1000
        store.create_dirty(large, None)  # The same again is a no-op.
        assert indexed(backend) == expected(backend)


def test_large_arguments_are_not_copied() -> None:
    """U7: a result keeps no arguments of 256 KiB, and says so."""
    spec = JobSpec("a", "m:f", {"x": "y" * MAX_COPIED_ARGUMENTS}, signature="s")
    kept = JobResult("a", JobStatus.FINISHED, spec=spec)

    assert kept.spec is not None
    assert (kept.spec.arguments, kept.spec.signature, kept.arguments_left_out) == ({}, "", True)


def test_a_failed_result_says_why() -> None:
    """U19: a result without a cause is refused; one of an older version is still read."""
    with MemoryBackend(Space()) as backend:
        store = JobResultStore(backend)
        without = JobResult("a", JobStatus.FAILED)
        with pytest.raises(InvalidInput, match="the FAILED result of job 'a' has no failure"):
            store.create_dirty(without, None)
        assert list(backend.scan("")) == []
        backend.commit(Create(keys.RESULTS + "a", encode(without)))
        entry = store.get("a")
        assert entry is not None
        assert entry.status is JobStatus.FAILED


def test_an_unknown_outcome_of_an_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that may have happened is read back, and the id is yielded once it is gone."""
    with MemoryBackend(Space()) as backend:
        store = JobResultStore(backend, now=lambda: 100.0)
        for job in "ab":
            store.create_dirty(result(job, 1.0, JobStatus.FINISHED, "t"), None)
            store.mark_clean(job, None)
        commit, times = backend._commit, iter(range(100))

        def sometimes(ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
            commit(ops, fence, deadline)
            if any(isinstance(op, Absent) for op in ops) and next(times) == 0:
                raise OutcomeUnknown("injected")

        monkeypatch.setattr(backend, "_commit", sometimes)
        assert store.expire(0) == ["a", "b"]
        assert indexed(backend) == set()


# -- lists of jobs ------------------------------------------------------------------------------


@pytest.fixture
def client() -> Iterator[Client]:
    backend = MemoryBackend(Space())
    with Client(backend) as client:
        for number, job in enumerate(("e-1", "e-2", "e-3")):
            status = JobStatus.FAILED if job == "e-2" else JobStatus.FINISHED
            tags = ("t",) if job != "e-3" else ()
            client.results.create_dirty(result(job, 10.0 - number, status, *tags), None)
        client.results.mark_clean("e-3", None)
        for job, tags in (("a", ("t",)), ("z", ())):
            client.submit_spec(JobSpec(job, "m:f", tags=tags))
        yield client


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, "a e-1 e-2 e-3 z"),
        ({"order": JobOrder.ENDED}, "a z e-1 e-2 e-3"),
        ({"order": JobOrder.ENDED, "after": "a"}, "z e-1 e-2 e-3"),
        ({"order": JobOrder.ENDED, "after": "e-1"}, "e-2 e-3"),
        ({"order": JobOrder.ENDED, "after": "unfinished:a"}, "z e-1 e-2 e-3"),
        ({"order": JobOrder.ENDED, "after": "unfinished:e-1"}, "z e-1 e-2 e-3"),
        ({"status": JobStatus.CREATED, "order": JobOrder.ENDED, "after": "unfinished:a"}, "z"),
        ({"tag": "t"}, "a e-1 e-2"),
        ({"tag": "t", "after": "a"}, "e-1 e-2"),
        ({"tag": "t", "status": JobStatus.FAILED}, "e-2"),
        ({"tag": "t", "order": JobOrder.ENDED}, "a e-1 e-2"),
        ({"tag": "no"}, ""),
        ({"since": 9.0}, "e-1 e-2"),
        ({"until": 9.0}, "e-2 e-3"),
        ({"since": 9.0, "until": 9.0, "order": JobOrder.ID}, "e-2"),
        ({"since": 9.0, "order": JobOrder.ID}, "e-1 e-2"),
        ({"status": JobStatus.FAILED}, "e-2"),
        ({"status": JobStatus.FINISHED}, "e-1 e-3"),
        ({"status": JobStatus.CREATED}, "a z"),
        ({"status": JobStatus.CREATED, "order": JobOrder.ENDED}, "a z"),
        ({"prefix": "e-", "after": "e-1"}, "e-2 e-3"),
        ({"prefix": "e-", "after": "a"}, "e-1 e-2 e-3"),
        ({"prefix": "e-", "order": JobOrder.ENDED}, "e-1 e-2 e-3"),
        ({"prefix": "/"}, ""),
        ({"state": ResultState.DIRTY}, "e-1 e-2"),
        ({"state": ResultState.CLEAN, "tag": "t"}, ""),
        ({"state": ResultState.CLEAN, "since": 0.0}, "e-3"),
    ],
)
def test_lists(client: Client, filters: dict[str, Any], found: str) -> None:
    """U17: jobs by tag, status, state, prefix and the time of their end, in either order."""
    listed = [view.job_id for view in client.views(**filters)]

    assert listed == found.split()
    assert [job.id for job in client.jobs(**filters)] == listed


@pytest.mark.parametrize("order", JobOrder)
def test_a_job_that_ends_between_two_pages(client: Client, order: JobOrder) -> None:
    """A page that continues behind it leaves no other job out."""
    first = next(client.views(order=order))
    assert first.job_id == "a"
    client.results.create_dirty(result("a", 99.0, JobStatus.FINISHED), None)

    rest = [view.job_id for view in client.views(order=order, after=order.after(first))]
    by_end = order is JobOrder.ENDED
    assert rest == (["z", "a"] if by_end else []) + ["e-1", "e-2", "e-3"] + ["z"] * (not by_end)


@pytest.mark.parametrize(
    "wrong",
    [
        {"after": "unfinished:a"},
        {"after": "unfinished:a", "order": JobOrder.ID},
        {"after": "unfinished:", "order": JobOrder.ENDED},
        {"after": "unfinished:unfinished:a", "order": JobOrder.ENDED},
        {"after": "ended:a", "order": JobOrder.ENDED},
    ],
)
def test_what_no_list_continues_behind(client: Client, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        client.views(**wrong)


def test_expired_jobs_by_end(client: Client) -> None:
    """U7: of an expired job the status and the times are known, and it is found by them."""
    client.results.mark_clean("e-1", None)
    client.results.expire(0)
    expired = ResultState.EXPIRED

    assert [one.id for one in client.jobs(state=expired, order=JobOrder.ENDED)] == ["e-1", "e-3"]
    assert [one.id for one in client.jobs(state=expired, since=9.0)] == ["e-1"]
    view = client.job("e-1").view()
    assert view.status is JobStatus.FINISHED
    assert view.entry is not None
    assert view.entry.tombstone is not None
    tombstone = view.entry.tombstone
    assert (tombstone.submitted_at, tombstone.started_at, tombstone.finished_at) == (8.0, 9.0, 10.0)


def test_bad_filters(client: Client) -> None:
    """What is no filter is refused when it is given."""
    bads: list[dict[str, Any]] = [
        {"status": "failed"},
        {"since": "7d"},
        {"tag": ""},
        {"after": "a/b"},
        {"order": 1},
    ]
    for bad in bads:
        with pytest.raises(InvalidInput):
            client.views(**bad)


def test_a_page_costs_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """U17: the newest ten of a status or tag are found without reading the others."""
    with MemoryBackend(Space()) as backend:
        store = JobResultStore(backend)
        for number in range(3000):
            tags = ("rare",) if number % 1000 == 0 else ()
            store.create_dirty(result(f"j{number}", number, JobStatus.FINISHED, *tags), None)
        read: list[str] = []
        get_many = backend.get_many

        def counted(names: Any) -> Any:
            read.extend(names)
            return get_many(names)

        monkeypatch.setattr(backend, "get_many", counted)
        newest = [one.job_id for one, _ in zip(store.by_end(), range(10), strict=False)]
        rare = [one.job_id for one in store.by_end(tag="rare")]

        assert newest == [f"j{number}" for number in range(2999, 2989, -1)]
        assert rare == ["j2000", "j1000", "j0"]
        assert len(read) < 700
