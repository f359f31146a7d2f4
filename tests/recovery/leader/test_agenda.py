"""The agenda: a leader looks at what was named, reads pages at once, and lets resting jobs rest."""

from __future__ import annotations

import math
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.memory import MemoryBackend, Space
from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.contract.operations import Create, Delete, Fence, Op, Record
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobStatus, StopMode, StopRecord, StopState
from jrs.records.policies import RestartPolicy
from jrs.recovery.leader.agenda import Agenda
from jrs.recovery.leader.changed_jobs import PAGE
from jrs.recovery.leader.dispatcher import Dispatcher
from jrs.recovery.leader.facts import Look
from jrs.recovery.leader.job_memory import SCANNED, JobMemory
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.stops import JobStops
from jrs.testing.masters import Masters
from jrs.testing.servers import EtcdServer
from tests.recovery.support import (
    CLUSTER,
    FaultyMemory,
    Leader,
    Thing,
    job,
    put,
    result,
    spec,
    spoil,
)
from tests.support import FakeClock, until


class Counting(MemoryBackend):
    """A memory backend that counts its requests, and notes which keys are read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.requests: Counter[str] = Counter()
        self.reads: list[str] = []

    def clear(self) -> None:
        self.requests.clear()
        self.reads.clear()

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        self.requests["get"] += 1
        self.reads.append(key)
        return super()._get(key, deadline)

    def _get_many(
        self, wanted: Sequence[str], deadline: Deadline
    ) -> list[Record | CorruptRecord | None]:
        self.requests["get_many"] += 1
        self.reads += wanted
        return [super(Counting, self)._get(key, deadline) for key in wanted]

    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        self.requests["page"] += 1
        return super()._page(prefix, after, limit, deadline)

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        self.requests["commit"] += 1
        super()._commit(ops, fence, deadline)


@pytest.fixture
def counting() -> Iterator[Counting]:
    with Counting(Space(), url=f"memory://{uuid.uuid4().hex}", cluster=CLUSTER) as backend:
        yield backend


def suspended(backend: Backend, count: int) -> None:
    """Submit jobs, and suspend them as a leader has."""
    done = [
        backend.commit_async(
            Create(f"{keys.JOBS}rests-{number}", encode(spec(f"rests-{number}"))),
            Create(
                f"{keys.STOPS}rests-{number}",
                encode(StopRecord(f"rests-{number}", StopMode.SUSPEND, StopState.DONE, 1.0)),
            ),
        )
        for number in range(count)
    ]
    for one in done:
        one.result(60)


# -- reads --------------------------------------------------------------------------------------


def test_jobs_that_rest_are_not_read_again(counting: Counting, root: Path) -> None:
    """B5: while other jobs run from their submission to their clean end, nothing is read of 50
    suspended jobs, and nothing is listed."""
    suspended(counting, 50)
    with Leader(counting, root) as leader:
        JobCatalog(counting).submit(spec("first"))
        leader.runner.of("first")
        leader.until_said("decision", "rests-49")
        counting.clear()
        for number in range(5):
            JobCatalog(counting).submit(spec(f"job-{number}"))
            leader.runner.of(f"job-{number}").finish()
            leader.until_clean(f"job-{number}")

        assert [key for key in counting.reads if "rests" in key] == []


def test_a_new_leader_reads_pages_and_no_job_alone(counting: Counting, root: Path) -> None:
    """B5: to recover next to 300 suspended jobs takes one request for a page of them, next to the
    scans, and none for a single job."""
    suspended(counting, 300)
    with Leader(counting, root) as leader:
        until(lambda: len(leader.said("decision", text="suspended")) == 300, "all are decided")
        requests = counting.requests.copy()

        # The pages of jobs; the pause, again when its watch begins.
        assert requests["get_many"] <= 2 + math.ceil(300 / PAGE)
        assert requests["get"] <= 2
        # The urgent jobs, and what has changed; that once more when its watch begins.
        assert requests["page"] <= 2 + 2 * len(SCANNED)


def test_a_job_is_looked_at_a_bounded_number_of_times(counting: Counting, root: Path) -> None:
    """B5: from the submission to the clean end a job's spec is read by its leader a handful of
    times, however many other events there are."""
    with Leader(counting, root) as leader:
        JobCatalog(counting).submit(spec("first"))
        leader.runner.of("first")
        counting.clear()
        attempts = []
        for number in range(20):
            JobCatalog(counting).submit(spec(f"job-{number}"))
            attempts.append(leader.runner.of(f"job-{number}"))
        for attempt in attempts:
            attempt.finish()
        leader.until_clean(*(attempt.job_id for attempt in attempts))
        looks = Counter(key for key in counting.reads if key.startswith(keys.JOBS))

        assert max(looks.values()) <= 20
        assert looks["jobs/first"] <= 2  # Once because its own start has come back.


def test_a_job_that_does_nothing_costs_few_requests(counting: Counting, root: Path) -> None:
    """One commit each for its submission, its start, its result and its end; and a bounded number
    of reads."""
    with Leader(counting, root) as leader:
        for job_id in ("first", "job"):
            counting.clear()
            JobCatalog(counting).submit(spec(job_id))
            leader.runner.of(job_id).finish()
            until(lambda: not leader.dispatcher._jobs, "its cleanup has ended")

        requests = counting.requests.copy()

        assert leader.store.has_clean("job")
        assert requests.pop("commit") == 4
        assert requests.total() <= 52  # Some of its events may be seen one by one, or together.


def requests_of(server: EtcdServer) -> int:
    """Return how many requests the server has answered, by its own count; streams left out."""
    host, port = server.members[0].seat.host, server.members[0].seat.port
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    handled = [line for line in lines if line.startswith("grpc_server_handled_total")]
    return sum(int(float(line.split()[-1])) for line in handled if 'grpc_type="unary"' in line)


def test_suspended_jobs_cost_no_requests(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """B5: at rest, next to 2,000 suspended jobs, a master asks etcd fewer than five times a
    second, signs of life and heartbeats included."""
    cluster = f"rest-{uuid.uuid4().hex}"
    url = etcd_server.url()
    with open_backend(url, cluster=cluster) as backend:
        suspended(backend, 2000)
    with Masters(url, cluster=cluster, storage=tmp_path, ttl=15.0) as masters:
        masters.start("m1")
        masters.event(lambda event: event.kind == "leading", "it leads")
        # A job that runs to its end: what recovery has begun is over.
        JobCatalog(masters.backend).submit(spec("last", job("add")))
        masters.event(lambda event: event.kind == "clean", "the job is clean")
        before, window = requests_of(etcd_server), Deadline.after(5.0)
        until(lambda: window.expired, "the window has passed")
        asked = requests_of(etcd_server) - before

        assert asked < 5 * 5.0


# -- what puts a job on the agenda ---------------------------------------------------------------


def test_a_job_that_rests_is_looked_at_when_it_is_named(counting: Counting, root: Path) -> None:
    """B5: a resting job is resumed, and another canceled, as soon as a client asks for it."""
    suspended(counting, 3)
    with Leader(counting, root) as leader:
        JobStops(counting).resume("rests-1")
        leader.runner.of("rests-1")
        JobCatalog(counting).cancel("rests-2")
        leader.until_clean("rests-2")

        assert [attempt.job_id for attempt in leader.runner.started] == ["rests-1"]


def test_what_no_watch_has_told_is_found_by_a_scan(
    counting: Counting, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B5: a job that changed, appeared or went without a word is found by comparing versions, and
    the jobs that did not change are not read."""
    suspended(counting, 20)
    with Leader(counting, root) as leader:
        for number in range(20):
            leader.until_said("decision", f"rests-{number}")
        heard = leader.dispatcher._heard

        def only_scan(names: frozenset[str] | None) -> None:
            if names is None:
                heard(None)

        monkeypatch.setattr(leader.dispatcher, "_heard", only_scan)
        counting.clear()
        JobStops(counting).resume("rests-1")
        JobCatalog(counting).submit(spec("new"))
        leader.look()
        leader.runner.of("rests-1")
        leader.runner.of("new")

        assert {keys.job_of(key) for key in counting.reads if key.startswith(keys.RESULTS)} == {
            "new",
            "rests-1",
        }


@pytest.mark.parametrize("prefix", [keys.STAGES, keys.RESULTS, keys.STOPS])
def test_a_held_job_continues_when_what_held_it_is_mended(
    memory: FaultyMemory, root: Path, prefix: str
) -> None:
    """B5: a job that is held by a record that cannot be read is looked at once that changes."""
    JobCatalog(memory).submit(spec("job"))
    key = f"{prefix}job/first" if prefix == keys.STAGES else f"{prefix}job"
    spoil(memory, key)
    with Leader(memory, root) as leader:
        leader.until_said("decision", "job", "hold")
        record = memory.get(key)
        assert record is not None
        memory.commit(Delete(key))
        leader.runner.of("job")


def test_a_job_whose_spec_may_be_lost_ends_by_a_cancel(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its decision says."""
    JobCatalog(memory).submit(spec("job"))
    get, get_many, lost = memory.get, memory.get_many, CorruptRecord("jobs/job: damaged")

    def damaged(key: str, **more: Any) -> Any:
        if key == keys.JOBS + "job":
            raise lost
        return get(key, **more)

    def damaged_many(wanted: Sequence[str], **more: Any) -> Any:
        found = zip(wanted, get_many(wanted, **more), strict=True)
        return [lost if key == keys.JOBS + "job" else one for key, one in found]

    monkeypatch.setattr(memory, "get", damaged)
    monkeypatch.setattr(memory, "get_many", damaged_many)
    with Leader(memory, root) as leader:
        leader.until_said("decision", "job", "`jrs cancel` ends it")
        JobCatalog(memory).cancel("job")
        result = leader.store.wait("job", 60.0)

    assert (result.status, result.spec) == (JobStatus.CANCELED, None)


def test_an_agenda_names_each_job_once_and_in_order() -> None:
    """B5: a job is taken once however often it was named; moments come when they are due."""
    clock = FakeClock()
    agenda = Agenda(clock)
    for job_id in ("b", "a", "b"):
        agenda.add(job_id)
    agenda.at(clock.now + 5, "late", "cause")
    agenda.at(clock.now + 5, "late", "cause")

    assert agenda.until_next() == 0
    assert agenda.take(1) == ["b"]
    assert agenda.take(10) == ["a"]
    assert agenda.until_next() == 5

    clock.now += 5

    assert agenda.take(10) == ["late"]
    assert agenda.take(10) == []
    assert agenda.until_next() == float("inf")


def test_a_moment_takes_the_place_of_the_one_before_of_its_cause() -> None:
    """The moments of other causes stay; what is over does not pile up."""
    clock = FakeClock()
    agenda = Agenda(clock)
    for number in range(1000):
        agenda.at(clock.now + 5 + number, "job", "held")
    agenda.at(clock.now + 7, "job", "restart")
    agenda.at(clock.now + 3, "other", "held")

    assert len(agenda._moments) < 100
    assert agenda.until_next() == 3

    agenda.at(clock.now + 4, "other", "held")
    clock.now += 3

    assert agenda.take(10) == []
    assert agenda.until_next() == 1

    clock.now += 4

    assert agenda.take(10) == ["other", "job"]
    assert agenda.until_next() == 1004 - 7


def test_a_job_that_is_held_is_not_checked_ever_more_often(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check had one more follow half a minute later, for as long as the job was held."""
    clock, checked = FakeClock(), []
    reconcile = Dispatcher._reconcile

    def counted(dispatcher: Dispatcher, job_id: str, job: JobMemory, look: Look) -> None:
        checked.append(clock.now)
        reconcile(dispatcher, job_id, job, look)

    monkeypatch.setattr(Dispatcher, "_reconcile", counted)
    leader = Leader(memory, root, clock=clock)
    dispatcher = leader.dispatcher
    put(memory, keys.JOBS + "job", spec("job"))
    spoil(memory, keys.JOBS + "job")

    def turn() -> None:
        dispatcher._loop._take_turn()

    def is_recorded() -> bool:
        turn()
        return bool(dispatcher._jobs["job"].held_for)

    until(is_recorded, "the hold is recorded")
    for _ in range(100):
        clock.now += 0.25
        dispatcher._agenda.add("job")
        turn()
    checked.clear()
    for _ in range(61):
        clock.now += 1
        turn()

    assert len(checked) == 2
    leader.stop()
    leader.leadership.resign()


def test_a_pause_leaves_time_for_what_is_reported(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All jobs are checked when a pause begins or ends; an event waits for a page of them at most,
    and a slot goes to none before all are checked."""
    jobs = 4 * PAGE
    suspended(memory, jobs)
    leader = Leader(memory, root)
    events: list[object] = []
    dispatcher = leader.dispatcher
    look, admit = Dispatcher._look, Dispatcher._admit

    def looked(dispatcher: Dispatcher, page: dict[str, Any]) -> None:
        events.append(len(page))
        dispatcher._loop.post(lambda: events.append("event"))
        look(dispatcher, page)

    def admitted(dispatcher: Dispatcher) -> None:
        events.append("admitted")
        admit(dispatcher)

    while not dispatcher._listing.is_complete:
        dispatcher._loop._take_turn()
    monkeypatch.setattr(Dispatcher, "_look", looked)
    monkeypatch.setattr(Dispatcher, "_admit", admitted)
    spoil(memory, keys.PAUSE)
    dispatcher._pause.note_change()
    for _ in range(5):
        dispatcher._loop._take_turn()

    assert events == [PAGE, *["event", PAGE] * 3, "admitted", "event", "admitted"]
    leader.stop()
    leader.leadership.resign()


def test_a_page_that_fails_is_still_checked_before_a_slot_goes(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job on it may have the highest priority; it is checked behind the other pages."""
    suspended(memory, 2 * PAGE)
    leader = Leader(memory, root)
    events: list[object] = []
    dispatcher = leader.dispatcher
    look = Dispatcher._look

    def looked(dispatcher: Dispatcher, page: dict[str, Any]) -> None:
        dispatcher._loop.post(lambda: None)
        if not events:
            events.append("failed")
            raise Unavailable("down")
        events.append(len(page))
        look(dispatcher, page)

    while not dispatcher._listing.is_complete:
        dispatcher._loop._take_turn()
    monkeypatch.setattr(Dispatcher, "_look", looked)
    monkeypatch.setattr(Dispatcher, "_admit", lambda dispatcher: events.append("admitted"))
    spoil(memory, keys.PAUSE)
    dispatcher._pause.note_change()
    for _ in range(3):
        with suppress(Unavailable):
            dispatcher._turn()

    assert events == ["failed", PAGE, PAGE, "admitted"]
    leader.stop()
    leader.leadership.resign()


# -- what fails ----------------------------------------------------------------------------------


def test_a_start_that_fails_is_repeated_ever_less_often(memory: FaultyMemory, root: Path) -> None:
    """B9: a runner that cannot start is tried after 1, 2, 4, 8 … seconds on the leader's clock,
    not each second; and the job is canceled without waiting for that."""
    clock = FakeClock()
    tried: list[str] = []

    def broken(context: Any) -> None:
        tried.append(context.spec.job_id)
        if context.spec.job_id == "bad":
            raise OSError("no more processes")

    with Leader(memory, root, clock=clock) as leader:
        leader.runner.before_start = broken
        JobCatalog(memory).submit(spec("bad", restart=RestartPolicy(attempts=1)))
        leader.until_said("waiting", "bad", "again in 1 s")
        for second in range(16):
            clock.now += 1
            JobCatalog(memory).submit(spec(f"other-{second}"))
            leader.runner.of(f"other-{second}")
        JobCatalog(memory).cancel("bad")
        leader.until_clean("bad")

        assert 2 <= tried.count("bad") <= 5


def test_a_resource_that_exits_is_a_problem_of_its_own(memory: FaultyMemory, root: Path) -> None:
    """B9: `sys.exit` in a resource's `clean` is named and tried again, like any exception."""
    thing = Thing()
    thing.broken = SystemExit(3)
    put(memory, keys.RESULTS + "job", result("job"))
    memory.commit(Create(keys.DIRTY + "job", b""))
    with Leader(memory, root, resources=[thing]) as leader:
        leader.until_said("cleanup", "job", "SystemExit: 3")
        thing.broken = None
        leader.until_clean("job")
