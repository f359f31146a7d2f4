"""Admission and pools: how much a leader does at once, and that what hangs stops nothing else."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import tenacity

from jrs.backends.etcd import backend as etcd_backend
from jrs.backends.memory import MemoryBackend
from jrs.backends.shared.lease import LeadershipLease
from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput
from jrs.contract.operations import Create
from jrs.contract.pool import Pool
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import CleanupJournal, JobSpec, JobStatus, RunnerKind, StopMode
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.cleanup import tries
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.policy import CleanupPolicy
from jrs.recovery.leader.admission import Admission, slots_for
from jrs.recovery.leader.changed_jobs import PAGE
from jrs.recovery.leader.job_memory import JobMemory
from jrs.recovery.leader.starts import Starts
from jrs.recovery.master import Master
from jrs.recovery.processes.pools import side_by_side
from jrs.recovery.rules.decision import Facts
from jrs.recovery.rules.queue import Turn
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.stops import JobStops
from jrs.testing.contract import lead
from jrs.testing.masters import MasterEvent, Masters
from jrs.testing.servers import EtcdServer
from tests.recovery.support import FaultyMemory, Leader, Thing, job, put, result, spec
from tests.support import BOUND, FakeClock, until

HANGING = Path(__file__).with_name("hanging.py")


def starts(masters: Masters) -> list[MasterEvent]:
    return [e for e in list(masters.events) if e.kind == "attempt" and "starts" in e.message]


# -- slots --------------------------------------------------------------------------------------


def test_no_more_attempts_run_at_once_than_slots_exist(memory: FaultyMemory, root: Path) -> None:
    """U15: of 60 jobs at most 4 run at once; the others wait, say at which place, and are started
    in the order of their submission."""
    catalog = JobCatalog(memory, now=itertools.count(1).__next__)
    names = [f"job-{number:02}" for number in reversed(range(60))]
    for name in names:
        catalog.submit(spec(name))
    with Leader(memory, root, max_attempts=4) as leader:
        leader.until_said("decision", names[4], "place 1 in")
        leader.until_said("decision", names[-1], "place 56 in")
        most = 0

        def have_started(number: int) -> bool:
            return len(leader.runner.started) == number

        for due in (*range(4, 61), 60, 60, 60):
            until(partial(have_started, due), "the slots are used")
            running = [one for one in leader.runner.started if not one.is_over]
            most = max(most, len(running))
            running[0].finish()
        leader.until_clean(*names)

        assert most == 4
        assert {one.job_id for one in leader.runner.started} == {*names}
        for n, attempt in enumerate(leader.runner.started):
            assert abs(names.index(attempt.job_id) - n) < 4, "no job overtakes another"


def test_a_higher_priority_starts_first(memory: FaultyMemory, root: Path) -> None:
    """U15: of the jobs that wait, the one with the highest priority is next; what runs stays."""
    catalog = JobCatalog(memory, now=itertools.count(1).__next__)
    catalog.submit(spec("runs"))
    with Leader(memory, root, max_attempts=1) as leader:
        running = leader.runner.of("runs")
        for name, priority in (("low", -1), ("first", 0), ("second", 0), ("high", 7)):
            catalog.submit(spec(name, priority=priority))
        leader.until_said("decision", "high", "place 1 in")

        assert not running.is_over

        running.finish()
        for name in ("high", "first", "second", "low"):
            leader.runner.of(name).finish()
        leader.until_clean("low")

        order = [one.job_id for one in leader.runner.started]
        assert order == ["runs", "high", "first", "second", "low"]


def test_a_job_that_waits_can_be_canceled_and_suspended(memory: FaultyMemory, root: Path) -> None:
    """U15: a job that waits for a slot gives up its place, and the one behind it is next."""
    catalog = JobCatalog(memory)
    for name in ("runs", "canceled", "suspended", "next"):
        catalog.submit(spec(name))
    with Leader(memory, root, max_attempts=1) as leader:
        leader.until_said("decision", "next", "place 3 in")
        catalog.cancel("canceled")
        leader.until_clean("canceled")
        JobStops(memory).request("suspended", StopMode.SUSPEND)
        leader.until_said("suspended", "suspended")
        leader.runner.of("runs").die()
        leader.until_said("died", "runs")
        leader.runner.of("next").finish()
        leader.runner.of("runs", 2).finish()
        leader.until_clean("runs", "next")

        assert [one.job_id for one in leader.runner.started] == ["runs", "next", "runs"]


def test_a_start_that_fails_gives_its_slot_back(memory: FaultyMemory, root: Path) -> None:
    """U15: a job whose start keeps failing does not hold the only slot."""
    catalog = JobCatalog(memory)
    catalog.submit(spec("bad"))

    def broken(context: AttemptContext) -> None:
        if context.spec.job_id == "bad":
            raise OSError("no more processes")

    leader = Leader(memory, root, max_attempts=1)
    leader.runner.before_start = broken
    with leader:
        catalog.submit(spec("good"))
        leader.runner.of("good").finish()
        leader.until_clean("good")


def test_attempts_in_the_masters_process_take_no_slot(memory: FaultyMemory, root: Path) -> None:
    """U15: an application's own jobs run although a job in a process has the only slot, so that a
    main that waits for its jobs cannot deadlock."""
    catalog = JobCatalog(memory)
    catalog.submit(spec("process"))
    with Leader(memory, root, max_attempts=1) as leader:
        leader.runner.of("process")
        for name in ("one", "two"):
            catalog.submit(spec(name, runner=RunnerKind.THREAD))
            leader.runner.of(name)


def test_masters_run_no_more_than_they_are_told(tmp_path: Path) -> None:
    """U15: `jrs master --max-attempts 2` runs two of eight jobs at once, in processes, and all of
    them in the end."""
    with Masters((tmp_path / "store").as_uri(), options=["--max-attempts", "2"]) as masters:
        catalog = JobCatalog(masters.backend)
        hold = tmp_path / "hold"
        hold.touch()
        held = {"calls": str(tmp_path / "calls"), "hold": str(hold)}
        for number in range(2):
            catalog.submit(spec(f"job-{number}", job("two_stages"), arguments=held))
        for number in range(2, 8):
            catalog.submit(spec(f"job-{number}", job("add")))
        masters.start("m1")
        until(lambda: len(starts(masters)) == 2, "two have started")
        masters.event(lambda e: e.job_id == "job-7" and "place 6" in e.message, "the last waits")
        explain = [sys.executable, "-m", "jrs", "--backend", masters.url, "explain", "job-7"]
        said = subprocess.run(explain, capture_output=True, text=True, timeout=BOUND, check=True)

        assert "waiting: place 6 in the queue [wait]" in said.stdout

        hold.unlink()
        for number in range(8):
            masters.event(partial(is_clean, f"job-{number}"), f"job-{number} is clean")
        running, most = set(), 0
        for event in masters.events:
            if event.kind == "attempt":
                running.add(event.job_id)
            elif event.kind == "decision" and event.message.endswith("[clean up]"):
                running.discard(event.job_id)
            most = max(most, len(running))

        assert most == 2
        for n, event in enumerate(starts(masters)):
            assert abs(int(event.job_id.removeprefix("job-")) - n) < 2, "no job overtakes another"


def is_clean(job_id: str, event: MasterEvent) -> bool:
    return event.kind == "clean" and event.job_id == job_id


def test_the_queue_is_in_the_order_of_submission() -> None:
    """U15: places follow the time of submission, whenever the jobs were found."""
    admission = Admission(1)
    for name, at in (("late", 3.0), ("early", 1.0), ("middle", 2.0)):
        admission.ask(Turn(0, at, name))

    assert admission.grant() == ["early"]
    assert admission.grant() == []
    assert [admission.place(name) for name in ("early", "middle", "late")] == [0, 1, 2]

    admission.release("middle")
    admission.release("early")
    admission.release("unknown")

    assert admission.grant() == ["late"]
    assert admission.taken == 1


def test_the_queue_is_in_the_order_of_priority() -> None:
    """U15: a higher priority goes before an earlier submission, also if it comes later."""
    admission = Admission(1)
    for name, priority, at in (("low", -1, 1.0), ("first", 0, 2.0), ("high", 5, 3.0)):
        admission.ask(Turn.of(spec(name, priority=priority, submitted_at=at)))

    assert [admission.place(name) for name in ("high", "first", "low")] == [1, 2, 3]

    admission.ask(Turn.of(spec("low", priority=9, submitted_at=1.0)))  # It was changed.

    assert admission.grant() == ["low"]


def test_how_long_jobs_wait() -> None:
    """A queue that moves has no old job, however long it is never empty; a job that is changed
    while it waits has waited all the time."""
    clock = FakeClock()
    admission, began = Admission(1, clock), clock.now
    assert admission.oldest == 0.0
    for number in range(100):
        admission.ask(Turn(0, float(number), f"job-{number}"))
        clock.now += 60.0
        admission.release(f"job-{number - 1}")
        assert admission.grant() == [f"job-{number}"]
        admission.ask(Turn(0, number + 0.5, "next"))
        assert admission.oldest == 0.0
        admission.release("next")

    admission.ask(Turn(0, 1.0, "waits"))
    clock.now += 60.0
    admission.ask(Turn(5, 1.0, "waits"))
    clock.now += 60.0
    assert clock.now == began + 100 * 60.0 + 120.0
    assert admission.oldest == 120.0
    admission.release("job-99")
    assert admission.grant() == ["waits"]
    assert admission.oldest == 0.0


def test_a_job_takes_as_many_slots_as_it_asks_for() -> None:
    """U15: a job waits until all of its slots are free, and nothing overtakes it meanwhile; one
    that asks for more than there are takes all of them."""
    admission = Admission(4)
    for number, slots in enumerate((2, 3, 1, 9)):
        admission.ask(Turn(0, float(number), f"job-{number}", slots))

    assert admission.grant() == ["job-0"]
    assert admission.grant() == []

    admission.release("job-0")

    assert admission.grant() == ["job-1", "job-2"]
    assert admission.taken == 4

    admission.release("job-1")

    assert admission.grant() == []

    admission.release("job-2")

    assert admission.grant() == ["job-3"]
    assert admission.taken == 4


@pytest.mark.parametrize(
    ("cores", "memory", "slots"), [(2, 64 << 30, 16), (64, 8 << 30, 8), (1, 256 << 20, 2)]
)
def test_the_default_follows_cores_and_memory(cores: int, memory: int, slots: int) -> None:
    """U15: by default 8 attempts for a core and one for a GiB, whichever is less; at least two."""
    assert slots_for(cores, memory) == slots


def test_a_master_refuses_a_limit_below_one(memory: MemoryBackend, root: Path) -> None:
    """U15: a limit that would run nothing is refused in words."""
    with pytest.raises(InvalidInput, match="max_attempts"):
        Master(memory, url=memory.url, storage=root, max_attempts=0)


# -- what hangs ---------------------------------------------------------------------------------


class Hanging(Thing):
    """A resource whose cleaning hangs, for jobs with that name, until the test sets `go`."""

    def __init__(self) -> None:
        super().__init__("hanging")
        self.go = threading.Event()
        self.on_clean = lambda job_id: job_id.startswith("hangs") and self.go.wait()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """One that is set free when the test ends, which waits for all that hung to end."""
    thing = Hanging()
    yield thing
    thing.go.set()
    until(lambda: not cleanings(), "no cleanup runs any more")


def cleanings() -> list[threading.Thread]:
    """Return the threads of cleanups, and of what they clean."""
    return [one for one in threading.enumerate() if one.name.startswith("jrs-clean")]


def ended_but_dirty(memory: FaultyMemory, count: int) -> None:
    for number in range(count):
        put(memory, f"{keys.RESULTS}hangs-{number}", result(f"hangs-{number}"))
        memory.commit(Create(f"{keys.DIRTY}hangs-{number}", b""))


def test_cleanups_that_hang_hold_up_no_cancel_and_no_suspend(
    memory: FaultyMemory, root: Path, hanging: Hanging
) -> None:
    """B8: next to 40 cleanups that hang, a running job is canceled and another suspended, and the
    attempt of one that has its result but lives on is ended."""
    ended_but_dirty(memory, 40)
    with Leader(memory, root, resources=[hanging]) as leader:
        for name in ("finishes", "to-cancel", "to-suspend"):
            JobCatalog(memory).submit(spec(name))
            leader.runner.of(name)
        until(lambda: len(hanging.calls) == 16, "the cleanups hang in all threads that they have")
        leader.runner.of("finishes").record()
        until(lambda: leader.runner.of("finishes").was_ended, "its attempt is ended")
        JobCatalog(memory).cancel("to-cancel")
        JobStops(memory).request("to-suspend", StopMode.SUSPEND, grace=0.0)

        assert leader.store.wait("to-cancel", BOUND).status is JobStatus.CANCELED
        leader.until_said("suspended", "to-suspend")


def test_cleanups_that_hang_hold_up_no_other_cleanup(
    memory: FaultyMemory, root: Path, hanging: Hanging
) -> None:
    """B8: a pass that has not ended in time is abandoned and said; its thread is waited for before
    the next one of the same resource, so that they do not pile up; other jobs are cleaned up."""
    ended_but_dirty(memory, 40)
    policy = CleanupPolicy(timeout=0.2)
    with Leader(memory, root, resources=[hanging], policy=policy) as leader:
        JobCatalog(memory).submit(spec("good"))
        leader.runner.of("good").finish()
        leader.until_clean("good")
        leader.until_said("cleanup", "hangs-0", "has not ended in time")
        leader.until_said("cleanup", "hangs-0", "an earlier try has not ended yet")

        assert hanging.calls.count("hangs-0") == 1

        hanging.go.set()
        leader.until_clean(*(f"hangs-{number}" for number in range(40)))


def test_waiting_for_a_cleanup_uses_up_no_retry(
    memory: FaultyMemory, root: Path, hanging: Hanging
) -> None:
    """It is not given up because it takes longer than the passes with which the leader asks; and
    its end is noticed although the next pass is not due."""
    ended_but_dirty(memory, 1)
    policy = CleanupPolicy(
        wait=tenacity.wait_chain(*[tenacity.wait_none()] * 3, tenacity.wait_fixed(3600)),
        stop=tenacity.stop_after_attempt(2),
        timeout=0.2,
    )
    with Leader(memory, root, resources=[hanging], policy=policy) as leader:
        leader.until_said("cleanup", "hangs-0", "again in 3600 s")
        assert not leader.said("cleanup", "hangs-0", "given up")
        hanging.go.set()
        leader.until_clean("hangs-0")
        assert hanging.calls == ["hangs-0"]


def test_a_cleanup_that_hangs_and_fails_is_given_up_after_its_retries(
    memory: FaultyMemory, root: Path, hanging: Hanging
) -> None:
    """A try counts once it has ended, and the next pause is as long as after any other."""
    ended_but_dirty(memory, 1)
    hanging.broken = OSError("busy")
    policy = CleanupPolicy(
        wait=tenacity.wait_fixed(0.01), stop=tenacity.stop_after_attempt(2), timeout=0.2
    )
    with Leader(memory, root, resources=[hanging], policy=policy) as leader:
        leader.until_said("cleanup", "hangs-0", "an earlier try has not ended yet")
        hanging.go.set()
        leader.until_said("cleanup", "hangs-0", "busy (given up)")
        assert hanging.calls == ["hangs-0"] * 2
        stored = memory.get(keys.CLEANUP + "hangs-0")
        assert stored is not None
        journal = decode(CleanupJournal, stored.value, stored.key)
        assert (journal.tries, journal.waits) == (2, 0)


def test_cleanups_that_hang_take_a_bounded_number_of_threads(
    memory: FaultyMemory, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B8: a resource that hangs for every job is not begun for more and more of them; what else
    the jobs leave behind is cleaned up, and the rest once it hangs no more."""
    monkeypatch.setattr(tries, "_MOST", 8)
    ended_but_dirty(memory, 13)
    other = Thing("other")
    with lead(memory) as leadership:
        cleanup = JobCleanup(memory, [hanging, other])
        for number in range(12):
            cleanup.run(f"hangs-{number}", leadership.fence, timeout=0.05)
        until(lambda: len(hanging.calls) >= 8 and len(other.calls) == 12, "all have begun")
        last = cleanup.run("hangs-12", leadership.fence, timeout=BOUND)

        assert last.problems == {"hanging": "not begun: it hangs for 8 other jobs"}
        assert len(hanging.calls) == len(cleanings()) == 8
        assert len(other.calls) == 13

        hanging.go.set()
        until(lambda: not cleanings(), "all have ended")
        jobs = [f"hangs-{number}" for number in range(13)]
        assert [cleanup.run(job, leadership.fence).problems for job in jobs] == [{}] * 13


def test_stop_ends_next_to_a_cleanup_that_hangs(
    memory: FaultyMemory, root: Path, hanging: Hanging
) -> None:
    """B8: a leader stops although a cleanup hangs, and says that it leaves something behind."""
    ended_but_dirty(memory, 1)
    with Leader(memory, root, resources=[hanging]) as leader:
        until(lambda: hanging.calls, "it is cleaned up")

        assert leader.stop()
        assert leader.said("left")


def test_a_hanging_cleanup_does_not_keep_a_master_from_ending(tmp_path: Path) -> None:
    """B8: `jrs master` ends on SIGTERM although a resource's `clean` never does."""
    begun = tmp_path / "begun"
    with Masters(
        (tmp_path / "store").as_uri(),
        resources=[f"{HANGING}:hanging"],
        environment={"JRS_TEST_BEGUN": str(begun)},
    ) as masters:
        JobCatalog(masters.backend).submit(spec("job", job("add")))
        master = masters.start("m1")
        masters.until(begun.exists, "it is being cleaned up")
        master.process.terminate()

        assert master.process.wait(BOUND) == 0


def test_what_waits_in_a_pool_runs_in_turn_and_not_after_its_end() -> None:
    """B8: a pool runs at most so many at once, in order, and drops the rest when it is closed."""
    pool, go, ran = Pool("test", 2), threading.Event(), []
    running = threading.Semaphore(0)

    def work(number: int) -> None:
        ran.append(number)
        running.release()
        go.wait(BOUND)

    for number in range(5):
        pool.submit(partial(work, number))
    for _ in range(2):
        assert running.acquire(timeout=BOUND)

    assert ran == [0, 1]
    assert not pool.join(Deadline.after(0))

    pool.close()
    pool.submit(lambda: work(6))
    go.set()

    assert pool.join(Deadline.after(BOUND))
    assert ran == [0, 1]


def test_calls_side_by_side_tell_how_each_has_ended() -> None:
    """B8: one returned, one raised, one exited, and one hangs and is left behind."""
    go = threading.Event()

    def leave() -> int:
        raise SystemExit(4)

    def hang() -> int:
        go.wait(BOUND)
        return 0

    calls: list[Callable[[], int]] = [lambda: 7, lambda: 1 // 0, leave, hang]
    ends = side_by_side("test", calls, Deadline.after(1.0))
    go.set()

    assert ends[0].value == 7
    assert isinstance(ends[1].error, ZeroDivisionError)
    assert isinstance(ends[2].error, SystemExit)
    assert [end.hangs for end in ends] == [False, False, False, True]


# -- under load ---------------------------------------------------------------------------------


def test_a_leader_that_is_late_starts_nothing_more(memory: FaultyMemory, root: Path) -> None:
    """D9: a leader whose own loop is late runs one attempt, and starts others once it is in time
    again: what it has under way must not cost it the lead."""

    class Clock:
        """A clock on which each look at it comes late, as long as it is told so."""

        now, step = 1000.0, 1.0

        def __call__(self) -> float:
            self.now += self.step
            return self.now

    clock = Clock()
    catalog = JobCatalog(memory)
    with Leader(memory, root, clock=clock, ttl=2.0) as leader:
        for name in ("a", "b", "c"):
            catalog.submit(spec(name))
        leader.runner.of("a")
        leader.until_said("decision", "c", "place 2 in")
        catalog.submit(spec("d"))
        leader.until_said("decision", "d", "place 3 in")

        assert [one.job_id for one in leader.runner.started] == ["a"]

        clock.step = 0.0
        leader.runner.of("d")


def test_a_heartbeat_on_etcd_waits_for_no_other_thread(etcd_server: EtcdServer) -> None:
    """D9: while another thread of the handle is busy shutting out what is late, the leadership is
    prolonged again and again."""
    backend = open_backend(etcd_server.url(), cluster=f"beat-{uuid.uuid4().hex}")
    assert isinstance(backend, etcd_backend.EtcdBackend)
    with backend, lead(backend, ttl=2.0) as leadership, backend._barrier._turn:
        assert isinstance(leadership, LeadershipLease)

        def is_prolonged(before: float) -> bool:
            return leadership.valid_until > before or leadership.lost.is_set()

        backend._barrier.note_late()
        for _ in range(4):
            until(partial(is_prolonged, leadership.valid_until), "the next heartbeat")

            assert not leadership.lost.is_set()


def churn(folder: Path, jobs: int) -> None:
    """Have two masters with a ttl of 2 s run so many jobs, and see that the first one leads on."""
    with Masters((folder / "store").as_uri(), ttl=2.0) as masters:
        catalog = JobCatalog(masters.backend)
        masters.start("m1")
        masters.event(lambda e: e.kind == "leading", "m1 leads")
        masters.start("m2")
        for number in range(jobs):
            catalog.submit(spec(f"job-{number}", job("add")))
        for number in range(jobs):
            masters.until(
                partial(masters_store, masters, f"job-{number}"),
                f"job-{number} has ended",
                timeout=900.0,
            )

        assert {e.epoch for e in masters.events if e.kind == "leading"} == {1}
        assert not [e for e in masters.events if e.kind in ("lost", "deposed")]


def masters_store(masters: Masters, job_id: str) -> bool:
    return masters.backend.get(keys.RESULTS + job_id) is not None


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_leadership_does_not_churn_under_load(tmp_path: Path) -> None:
    """D9: 200 jobs at once, ttl 2 s: the first leader leads to the end."""
    churn(tmp_path, 200)


# -- a pause ------------------------------------------------------------------------------------


def test_a_leader_of_a_paused_cluster_rests(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause is read between the look at jobs that wait for a slot and the report that they do:
    the leader took turns without end, as long as the pause lasted."""
    for number in range(PAGE + 1):
        JobCatalog(memory).submit(spec(f"job-{number:02}"))
    has_slot = Starts.has_slot

    def paused_meanwhile(starts: Starts, job: JobMemory, of_job: JobSpec, facts: Facts) -> bool:
        if memory.get(keys.PAUSE) is None:
            memory.commit(Create(keys.PAUSE, b""))
        return has_slot(starts, job, of_job, facts)

    monkeypatch.setattr(Starts, "has_slot", paused_meanwhile)
    leader = Leader(memory, root, max_attempts=1)
    loop = leader.dispatcher._loop
    for _ in range(10):
        loop._wake.clear()
        loop._take_turn()

    assert not loop._wake.is_set()
    assert not leader.runner.started
    assert memory.get(keys.PAUSE) is not None
    leader.stop()
    leader.leadership.resign()
