"""The master: which one leads, when it says so, and what it leaves behind afterwards."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.memory import Space
from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Create, Fence, Op, Record
from jrs.contract.runtime import Runtime
from jrs.host import filesystems
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import AttemptRecord, RunnerKind
from jrs.recovery import master as master_module
from jrs.recovery.files import storage_marker
from jrs.recovery.files.storage_identity import StorageIdentity
from jrs.recovery.health.facts import MasterHealth
from jrs.recovery.health.metrics import exposition
from jrs.recovery.leader import process_end, storage_calls
from jrs.recovery.leader.dispatcher import Dispatcher
from jrs.recovery.leader.process_end import EXIT_DEPOSED
from jrs.recovery.master import Master
from jrs.recovery.rules.events import Event
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore
from jrs.store.steering import Steering
from tests.recovery.support import CLUSTER, DirectedRunner, FaultyMemory, Thing, result, spec
from tests.support import BOUND, until


class Running:
    """A master in a thread of its own."""

    def __init__(self, backend: FaultyMemory, root: Path, name: str, **options: Any) -> None:
        self.backend = backend
        self.name = name
        self.events: list[Event] = []
        self.stop_event = threading.Event()
        lead = options.pop("lead", None)
        options.setdefault("ttl", 3600.0)
        self.health = MasterHealth()
        self.master = Master(
            backend, url=backend.url, storage=root, name=name, report=self.events.append,
            health=self.health, **options,
        )  # fmt: skip
        self.runner = DirectedRunner()
        self.master._runners = dict.fromkeys(RunnerKind, self.runner)
        self.errors: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, args=(lead,))
        self.thread.start()

    def _run(self, lead: Any) -> None:
        try:
            self.master.run(self.stop_event, lead)
        except BaseException as error:
            self.errors.append(error)

    def kinds(self) -> list[str]:
        return [event.kind for event in list(self.events)]

    def until(self, kind: str, times: int = 1) -> None:
        until(lambda: self.kinds().count(kind) >= times, f"{self.name}: {kind} in {self.events}")

    def stop(self) -> None:
        self.stop_event.set()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def leadership(self) -> Any:
        return self.backend.space.leader


Start = Callable[..., Running]


@pytest.fixture
def space() -> Space:
    return Space()


@pytest.fixture
def start(space: Space, root: Path) -> Iterator[Start]:
    """Start masters of one cluster in this process; all are stopped when the test ends."""
    with ExitStack() as stack:

        def start_one(name: str, **options: Any) -> Running:
            backend = FaultyMemory(space, url="memory://masters", cluster=CLUSTER)
            running = Running(backend, root, name, **options)
            stack.callback(running.stop)
            return running

        yield start_one


def leading(backend: FaultyMemory) -> list[str]:
    return [info.name for info in Registry(backend).masters() if info.leading is not None]


# -- leading ------------------------------------------------------------------------------------


def test_a_master_announces_itself_only_after_it_has_recovered(
    memory: FaultyMemory, root: Path
) -> None:
    """While recovery is held up, the epoch is bumped and nobody is shown as leading; afterwards
    the master is, in that epoch."""
    proceed = threading.Event()
    JobCatalog(memory).submit(spec("job"))
    JobResultStore(memory).create_dirty(result("job"), None)
    page = memory._page

    def held_up(prefix: str, *args: Any, **how: Any) -> list[Record]:
        if prefix == keys.DIRTY:
            proceed.wait(60)
        return page(prefix, *args, **how)

    memory._page = held_up
    running = Running(memory, root, "m1")
    try:
        running.until("elected")
        until(lambda: Registry(memory).masters(), "it is registered")

        assert memory.get(keys.EPOCH) is not None
        assert leading(memory) == []
        assert "leading" not in running.kinds()

        proceed.set()
        until(lambda: leading(memory) == ["m1"], "it is announced")

        assert [info.leading for info in Registry(memory).masters()] == [1]
        running.until("leading")
        order = running.kinds()
        assert order.index("elected") < order.index("decision") < order.index("leading")
    finally:
        proceed.set()
        running.stop()


def test_one_leads_and_the_others_wait(start: Start) -> None:
    """Of three masters one leads; all three are registered."""
    masters = [start(f"m{number}") for number in range(3)]
    first = masters[0].backend
    until(lambda: len(Registry(first).masters()) == 3 and len(leading(first)) == 1, "one leads")

    def said() -> int:
        return sum(master.kinds().count("leading") for master in masters)

    until(said, "it says so")
    assert said() == 1


def test_a_graceful_stop_hands_over_at_once(start: Start) -> None:
    """With a ttl of an hour the next master leads as soon as the first is stopped. The attempt is
    ended, and a second one runs there."""
    first = start("m1")
    first.until("leading")
    JobCatalog(first.backend).submit(spec("job"))
    attempt = first.runner.of("job")
    second = start("m2")
    first.stop()
    second.until("leading")

    assert attempt.was_ended
    assert second.runner.of("job").context.attempt == 2
    assert first.kinds()[-1] == "resigned"
    until(lambda: leading(second.backend) == ["m2"], "only the second one is announced")
    assert [info.name for info in Registry(second.backend).masters()] == ["m2"]


def test_a_stopped_candidate_goes_without_having_led(start: Start) -> None:
    """A master that waits for its turn ends on request."""
    start("m1").until("leading")
    second = start("m2")
    until(lambda: len(Registry(second.backend).masters()) == 2, "it is registered")
    second.stop()

    assert second.errors == []
    assert second.events == []


def test_a_leader_that_was_replaced_steps_down_and_campaigns_again(start: Start) -> None:
    """A leader whose leadership is lost ends its attempts, which count as no deaths, and becomes a
    candidate; it leads again when the other one goes."""
    first = start("m1")
    first.until("leading")
    JobCatalog(first.backend).submit(spec("job"))
    attempt = first.runner.of("job")
    second = start("m2")
    leadership = first.leadership()
    with first.backend.space.changed:
        first.backend.space.leader = None
    second.until("leading")
    leadership.lost.set()
    until(lambda: attempt.was_ended, "its attempt is ended")
    second.stop()
    first.until("leading", times=2)

    assert first.runner.of("job", 2).context.attempt == 3
    assert "died" not in first.kinds() + second.kinds()


def test_a_leader_that_is_replaced_before_it_leads_campaigns_again(
    start: Start, space: Space
) -> None:
    """Between its election and its first commit another master is elected, as when a host hangs
    just then. It is no error of the process."""
    other = FaultyMemory(space, url="memory://masters", cluster=CLUSTER)
    taken: list[int] = []

    def take_over() -> None:
        if not taken:
            with space.changed:
                space.leader = None
            leadership = other.campaign("other", ttl=3600.0, stop=threading.Event())
            assert leadership is not None
            taken.append(leadership.epoch)
            leadership.resign()

    first = start("m0")
    first.until("leading")
    running = start("m1")
    commit = running.backend._commit

    def late(ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        if any(op.key == keys.STORAGE for op in ops):
            take_over()
        commit(ops, fence, deadline)

    running.backend._commit = late
    first.stop()
    running.until("lost")
    running.until("leading")

    assert taken
    assert running.errors == []


def test_a_leader_that_is_replaced_while_it_recovers_has_lost(start: Start, space: Space) -> None:
    """It hung until another master was elected: events and metrics say that it lost."""
    other = FaultyMemory(space, url="memory://masters", cluster=CLUSTER)

    def take_over() -> Leadership:
        with space.changed:
            space.leader = None
        leadership = other.campaign("other", ttl=3600.0, stop=threading.Event())
        assert leadership is not None
        return leadership

    first = take_over()
    JobCatalog(other).submit(spec("job", runner=RunnerKind.THREAD))
    ran = AttemptRecord("job", 1, first.epoch, "other", started_at=1.0)
    other.commit(Create(keys.ATTEMPTS + "job", encode(ran)))
    running = start("m1")
    commit, taken = running.backend._commit, threading.Event()

    def late(ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        # What it found out of the leader before it.
        if not taken.is_set() and any(op.key == keys.ATTEMPTS + "job" for op in ops):
            taken.set()
            take_over().resign()
        commit(ops, fence, deadline)

    running.backend._commit = late
    first.resign()
    running.until("leading")

    assert taken.is_set()
    assert running.kinds().count("lost") == 1
    assert "resigned" not in running.kinds()
    assert 'jrs_leaderships_ended_total{how="lost"} 1' in exposition(running.health.facts())


def test_after_a_while_without_the_backend_a_master_continues(start: Start) -> None:
    """A master whose backend is away while it campaigns, and then while it leads, says so and
    leads again without being started again."""
    blocker = start("m0")
    blocker.until("leading")
    running = start("m1")
    until(lambda: len(Registry(running.backend).masters()) == 2, "it is registered")
    running.backend.down = True
    blocker.stop()
    running.until("waiting")
    running.backend.down = False
    running.until("leading")
    JobCatalog(running.backend).submit(spec("job"))
    running.runner.of("job").finish()
    until(lambda: JobResultStore(running.backend).has_clean("job"), "the job is clean")

    assert running.errors == []


def test_a_recovery_that_fails_is_tried_again(start: Start, root: Path) -> None:
    """If the backend goes away in the middle of recovery the master resigns, waits, and leads in
    a newer epoch when it is back; the jobs are not lost."""
    blocker = start("m0")
    blocker.until("leading")
    running = start("m1")
    until(lambda: len(Registry(running.backend).masters()) == 2, "it is registered")
    page = running.backend._page
    failures: list[str] = []

    def fail_once(prefix: str, *args: Any, **how: Any) -> list[Record]:
        if prefix == keys.DIRTY and not failures:
            failures.append(prefix)
            running.backend.down = True
        try:
            return page(prefix, *args, **how)
        finally:
            running.backend.down = False

    running.backend._page = fail_once
    JobCatalog(blocker.backend).submit(spec("job"))
    blocker.stop()
    running.until("leading")
    running.runner.of("job")

    assert failures == [keys.DIRTY]
    assert running.kinds().count("elected") == 2


def test_an_error_of_the_leading_function_is_the_callers(start: Start) -> None:
    """What `lead` raises comes out of `run`, after the attempts were ended and the leadership
    given up."""
    proceed = threading.Event()

    def lead(dispatcher: Dispatcher, leadership: Leadership, stop: threading.Event) -> bool:
        proceed.wait(60)
        raise LookupError("of main")

    first = start("m1", lead=lead)
    first.until("leading")
    JobCatalog(first.backend).submit(spec("job"))
    attempt = first.runner.of("job")
    second = start("m2")
    proceed.set()
    second.until("leading")
    until(lambda: first.errors, "the first one's run ends")

    assert [type(error) for error in first.errors] == [LookupError]
    assert attempt.was_ended


def test_attempts_are_ended_at_a_loss_whatever_the_leading_thread_does(start: Start) -> None:
    """Also while `lead` is busy and does not look, a loss of the leadership ends the attempts."""
    busy = threading.Event()

    def lead(dispatcher: Dispatcher, leadership: Leadership, stop: threading.Event) -> bool:
        busy.wait(60)
        return stop.is_set()

    running = start("m1", lead=lead)
    running.until("leading")
    JobCatalog(running.backend).submit(spec("job"))
    attempt = running.runner.of("job")
    leadership = running.leadership()
    leadership.lost.set()
    until(lambda: attempt.was_ended, "its attempt is ended")
    busy.set()


def test_a_backend_that_hangs_does_not_end_the_process(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that is lost while its own threads wait for the backend, and whose attempts are
    dead, lives on and leads again once the backend answers."""
    exits: list[int] = []
    monkeypatch.setattr(process_end, "_exit", exits.append)
    proceed, waits = threading.Event(), threading.Event()

    def hang() -> None:
        waits.set()
        proceed.wait(60)

    memory.before_read(keys.JOBS, 0, hang)
    running = Running(memory, root, "m1", ttl=0.5)
    try:
        assert waits.wait(60)
        guard = next(one for one in threading.enumerate() if one.name == "jrs-guard-e1")
        running.leadership().lost.set()
        guard.join(60)
        assert not guard.is_alive()

        proceed.set()
        running.until("elected", times=2)
        until(lambda: running.kinds()[-1] == "leading", "it leads again")

        assert exits == []
    finally:
        proceed.set()
        running.stop()


@pytest.mark.parametrize("lost_first", [False, True])
def test_a_main_that_ignores_the_loss_is_ended_and_a_late_one_does_not_begin(
    lost_first: bool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver's main that runs on after a loss ends its process; after a loss none begins."""
    exited, busy = threading.Event(), threading.Event()
    monkeypatch.setattr(process_end, "_exit", lambda _: exited.set())
    mains: list[int] = []
    loses = lost_first

    def lead(dispatcher: Dispatcher, leadership: Leadership, stop: threading.Event) -> bool:
        mains.append(leadership.epoch)
        if leadership.epoch > 1:
            return True
        leadership.lost.set()
        busy.wait(60)
        return False

    def lose(self: MasterHealth) -> None:
        nonlocal loses
        if loses:
            loses = False
            running.leadership().lost.set()

    monkeypatch.setattr(MasterHealth, "leads", lose)
    # Short where the process has to end; otherwise a busy machine would lose the next lead, too.
    running = start("m1", ttl=5.0 if lost_first else 0.5, lead=lead)
    assert lost_first or exited.wait(60)
    busy.set()
    running.thread.join(60)

    assert mains[:-1] == ([] if lost_first else [1])
    assert mains[-1] > 1
    assert exited.is_set() is not lost_first


def test_a_resource_of_the_user_is_part_of_every_cleanup(start: Start) -> None:
    """Resources given to the master are cleaned before a result is clean, and released when the
    master stops while the job continues."""
    thing = Thing()
    running = start("m1", resources=[thing])
    running.until("leading")
    catalog = JobCatalog(running.backend)
    catalog.submit(spec("ends"))
    running.runner.of("ends").finish()
    until(lambda: JobResultStore(running.backend).has_clean("ends"), "the job is clean")
    catalog.submit(spec("goes-on"))
    running.runner.of("goes-on")
    running.stop()

    assert thing.calls == ["ends"]
    assert thing.released == ["goes-on"]


def test_a_result_that_an_old_leader_left_dirty_is_cleaned_up_by_the_next(start: Start) -> None:
    """Cleanup is recovered like everything else."""
    first = start("m1")
    first.until("leading")
    first.stop()
    store = JobResultStore(first.backend)
    store.create_dirty(result("job"), None)
    start("m2")
    until(lambda: store.has_clean("job"), "the job is clean")


# -- not leading --------------------------------------------------------------------------------


@pytest.mark.parametrize("ttl", [0.0, -1.0, 1e9, float("nan")])
def test_a_ttl_that_the_backend_cannot_keep_is_refused(
    memory: FaultyMemory, root: Path, ttl: float
) -> None:
    """The refusal comes when the master is made, before it campaigns."""
    with pytest.raises(InvalidInput, match="ttl"):
        Master(memory, url=memory.url, storage=root, ttl=ttl)


def test_a_master_without_a_place_for_files_is_refused(memory: FaultyMemory) -> None:
    """A backend without a folder of its own needs a storage folder, and the refusal asks for it."""
    with pytest.raises(InvalidInput, match="--storage FOLDER"):
        Master(memory, url=memory.url)


def test_names_of_masters_differ_within_a_process() -> None:
    """Two masters of one process do not share a name by default."""
    assert master_module.default_name() != master_module.default_name()


def test_a_master_whose_storage_hangs_lets_another_one_lead(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It resigns after its election, says why, and does not campaign until the storage answers."""
    record_use, answers = StorageIdentity.record_use, threading.Event()

    def hang(identity: StorageIdentity, fence: Fence, name: str, now: float) -> None:
        if name == "sick":
            answers.wait(BOUND)
        record_use(identity, fence, name, now)

    monkeypatch.setattr(StorageIdentity, "record_use", hang)
    monkeypatch.setattr(storage_calls, "LEAST", 1.0)
    sick = start("sick", ttl=1.0)
    sick.until("waiting")
    assert "the storage has not answered for 1 s" in sick.events[-1].message
    well = start("well")
    well.until("leading")
    assert sick.kinds() == ["waiting"]
    answers.set()
    well.stop()
    sick.until("leading")


def test_a_marker_that_cannot_be_listed_now(
    memory: FaultyMemory, root: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master says so and waits: one error of the disk ended its process."""
    listed, errors = storage_marker._Files.newest, [OSError(errno.EIO, "Input/output error")]

    def fails_once(marker: Any, kind: str) -> int:
        if errors and threading.current_thread() is not threading.main_thread():
            raise errors.pop()
        return listed(marker, kind)

    monkeypatch.setattr(storage_marker._Files, "newest", fails_once)
    running = start("m1")
    running.until("leading")

    assert [event for event in running.events if "Input/output error" in event.message]
    assert running.errors == []


STORAGE_HANGS = """
def hang(*_):
    while True:
        time.sleep(3600.0)
def lose():
    os.write = hang
"""
NO_THREADS = """
def start(thread, real=threading.Thread.start):
    if not leadership.lost.is_set():
        return real(thread)
    raise RuntimeError("can't start new thread")
def lose():
    threading.Thread.start = start
"""


@pytest.mark.parametrize(
    "fault", ["def lose(): pass", STORAGE_HANGS, NO_THREADS], ids=["", "hangs", "no threads"]
)
def test_a_replaced_leader_with_an_attempt_that_will_not_end_ends_its_process(
    tmp_path: Path, fault: str
) -> None:
    """A thread that ignores the loss of its leadership is ended with its whole process, whose exit
    status says why; also where the storage hangs, or the host has no threads."""
    source = f"""
import os, threading, time
from pathlib import Path
import jrs
from jrs.backends.memory import Space, MemoryBackend
from jrs.records.model import JobSpec, RunnerKind

backend = MemoryBackend(Space())
running = threading.Event()

def deaf(job):
    running.set()
    while True:
        time.sleep(0.01)

def lead(dispatcher, leadership, stop):
    jrs.JobCatalog(backend).submit(JobSpec("job", "driver:job", runner=RunnerKind.THREAD))
    dispatcher.provide("job", deaf)
    running.wait(60)
    globals()["leadership"] = leadership
    lose()
    leadership.lost.set()
    return False
{fault}
master = jrs.Master(backend, url="memory://", storage=Path({str(tmp_path)!r}), ttl=0.5)
master.run(threading.Event(), lead)
"""
    ended = subprocess.run([sys.executable, "-c", source], timeout=120)

    assert ended.returncode == EXIT_DEPOSED


def test_no_jobs_on_an_object_store(
    memory: FaultyMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where folders are not renamed in one step, jobs cannot keep their files: the rename is the
    fence of all that Spark writes.
    """
    monkeypatch.setattr(filesystems, "filesystem_of", lambda root, _: "fuse.s3fs")
    with pytest.raises(InvalidInput, match=r"it is on fuse.s3fs, where a folder is not renamed"):
        Master(memory, url=memory.url, storage=tmp_path)


def test_a_driver_hands_over(start: Start, space: Space) -> None:
    """A switchover ends a driver's main as a loss does, and the named master leads; the third one
    stays out of the campaign."""

    def main(dispatcher: Dispatcher, leadership: Leadership, stop: threading.Event) -> bool:
        until(lambda: leadership.lost.is_set() or stop.is_set(), "it is over")
        return stop.is_set()

    still = Runtime(clock=lambda: 0.0)  # No head start is over, however busy the host is.
    first = start("first", lead=main, runtime=still)
    first.until("leading")
    others = [start(name, lead=main, runtime=still) for name in ("second", "third")]
    steering = Steering(first.backend)
    until(lambda: len(Registry(first.backend).views()) == 3, "all are registered")
    request = steering.request_switchover("third", "tester", "a test")
    others[1].until("leading")

    assert request is not None
    assert (request.epoch, request.to) == (1, "third")
    assert "leading" not in others[0].kinds()
    first.until("lost")
    until(lambda: leading(first.backend) == ["third"], "the third one is shown as the leader")
    assert steering.request_switchover("third", "tester", "again") is None
