"""Application mode: replicas of one driver, of which the leader is killed in the middle of main."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tenacity

import jrs
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord, InvalidInput, ResultExpired, TooLarge
from jrs.contract.operations import Create, Fence, Update
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobStatus, MasterInfo, RunnerKind
from jrs.records.not_finished import JobNotFinished
from jrs.recovery import application, leading_replica, standby_replica
from jrs.recovery.application import Driver
from jrs.recovery.cleanup import remaining
from jrs.recovery.cleanup.policy import CleanupPolicy
from jrs.recovery.processes import marks
from jrs.recovery.rules.events import Event
from jrs.recovery.standby_replica import Standby
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from tests.recovery.support import CLUSTER, JOBS, FaultyMemory, Thing, job, put, result, spec, spoil
from tests.support import BOUND, until

APPLICATION = Path(__file__).with_name("application.py")


class Replicas:
    """The replicas of one application."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.url = (folder / "store").as_uri()
        self.kind = kind
        self.all: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        replica = subprocess.Popen(
            [sys.executable, APPLICATION, self.url, self.folder, self.kind],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.all.append(replica)
        return replica

    def lines(self, what: str) -> list[str]:
        path = self.folder / what
        return path.read_text().splitlines() if path.exists() else []

    def until_lines(self, what: str, count: int) -> list[str]:
        until(lambda: len(self.lines(what)) >= count, f"{what} has {count} lines")
        return self.lines(what)

    def touch(self, what: str) -> None:
        (self.folder / what).touch()

    def kill_leader(self) -> None:
        """Kill -9 the replica whose main began last."""
        pid = int(self.lines("main")[-1].split()[0])
        leader = next(replica for replica in self.all if replica.pid == pid)
        leader.kill()
        leader.wait()

    def returned(self) -> list[Any]:
        """Return what the replicas that were not killed returned."""
        living = [replica for replica in self.all if replica.returncode is None]
        with ThreadPoolExecutor(len(living)) as pool:
            ends = list(pool.map(lambda one: one.communicate(timeout=120), living))
        assert [replica.returncode for replica in living] == [0] * len(living), ends
        return [json.loads(out) for out, _ in ends]

    def close(self) -> None:
        for replica in self.all:
            replica.kill()
            replica.wait()
            for pipe in (replica.stdout, replica.stderr):
                assert pipe is not None
                pipe.close()
        with open_backend(self.url, cluster=CLUSTER) as backend:
            mark = marks.mark_of_cluster(backend.url, CLUSTER)
            marks.end(mark, Deadline.after(30.0))


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Callable[[str], Replicas]]:
    with ExitStack() as stack:

        def make(kind: str) -> Replicas:
            made = Replicas(tmp_path, kind)
            stack.callback(made.close)
            return made

        yield make


# -- failover of the whole driver ---------------------------------------------------------------


def test_a_finished_job_is_not_called_again_after_a_failover(
    replicas: Callable[[str], Replicas],
) -> None:
    """With the leader killed between two jobs, main runs again on the next replica, where the
    first job's stored result comes back without a call; all replicas return the same."""
    app = replicas("between_jobs")
    for _ in range(3):
        app.start()
    app.until_lines("first.ran", 1)
    until(lambda: _has_result(app, "first"), "the first job has its result")
    killed = app.lines("main")[-1].split()[0]
    app.kill_leader()
    app.touch("may.go.on")
    app.touch("second.may.end")
    returned = app.returned()

    assert len(returned) == 2
    assert returned[0] == returned[1]
    assert returned[0] == [{"rows": 3, "pid": int(killed)}, "second"]
    assert len(app.lines("first.ran")) == 1
    assert app.lines("second.ran") == ["2"]
    assert [line.split()[1] for line in app.lines("main")] == ["1", "2"]


def test_a_job_that_ran_when_its_leader_died_runs_again_on_the_next(
    replicas: Callable[[str], Replicas],
) -> None:
    """With the leader killed in the middle of the second job, that job is run again by the next
    leader, and the one after it if that dies, too; the first job never is."""
    app = replicas("in_a_job")
    for _ in range(3):
        app.start()
    for epoch in (1, 2):
        app.until_lines("second.ran", epoch)
        app.kill_leader()
    app.until_lines("second.ran", 3)
    app.touch("second.may.end")
    returned = app.returned()

    assert len(returned) == 1
    assert returned[0][1] == "second"
    assert app.lines("first.ran") == ["1"]
    assert app.lines("second.ran") == ["1", "2", "3"]


def test_a_job_in_a_process_of_its_own_keeps_its_stages_over_a_failover(
    replicas: Callable[[str], Replicas],
) -> None:
    """J8: a process job of the driver whose replica is killed resumes after its finished stage."""
    app = replicas("in_a_process")
    app.touch("hold")
    for _ in range(2):
        app.start()
    app.until_lines("calls.between", 1)
    app.kill_leader()
    app.until_lines("calls.between", 2)
    (app.folder / "hold").unlink()

    assert app.returned() == [{"rows": 3, "skipped": [True, False], "text": "first second"}]
    assert app.lines("calls.first") == ["1"]
    assert app.lines("calls.second") == ["2"]


def test_a_failed_job_is_told_on_every_replica(replicas: Callable[[str], Replicas]) -> None:
    """A job that ended FAILED raises JobNotFinished in the main of each replica in turn, without
    being called again."""
    app = replicas("failing")
    for _ in range(3):
        app.start()
    told = {"failed": "broken", "why": "job 'broken' ended FAILED: ValueError: no good"}

    assert app.returned() == [told] * 3
    assert len(app.lines("broken.ran")) == 1


def test_a_replica_that_comes_late_returns_the_stored_value(
    replicas: Callable[[str], Replicas],
) -> None:
    """After the application has ended, another replica returns what it returned, and main is not
    called again."""
    app = replicas("between_jobs")
    app.touch("may.go.on")
    app.touch("second.may.end")
    app.start()
    first = app.returned()
    late = app.start()

    assert [json.loads(late.communicate(timeout=120)[0])] == first
    assert len(app.lines("main")) == 1


def _has_result(app: Replicas, job_id: str) -> bool:
    with open_backend(app.url, cluster=CLUSTER) as backend:
        return JobResultStore(backend).has_entry(job_id)


# -- one replica, in this process ---------------------------------------------------------------


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


def run(main: Callable[[Driver], Any], url: str, **options: Any) -> Any:
    options.setdefault("name", "main")
    return jrs.run(main, url, cluster=CLUSTER, ttl=30.0, **options)


def test_main_gets_results_and_its_own_is_stored(url: str) -> None:
    """Functions run in this process, entry points in one of their own; what main returned is the
    result of the application's job. A program may call it again and again: no thread stays."""
    before = set(threading.enumerate())

    def main(driver: Driver) -> dict[str, Any]:
        doubled = driver.run("double", lambda job, n: n * 2, n=4)
        return {"sum": driver.run("add", job("add"), a=doubled, b=1), "epoch": driver.epoch}

    assert run(main, url) == {"sum": 9, "epoch": 1}
    until(lambda: set(threading.enumerate()) <= before, "all threads have ended")
    with open_backend(url, cluster=CLUSTER) as backend:
        results = JobResultStore(backend)
        assert results.wait("main").payload == {"sum": 9, "epoch": 1}
        assert [entry.job_id for entry in results.list()] == ["add", "double", "main"]
        assert list(results.dirty()) == []


def test_what_main_returned_is_given_as_json_gives_it_back(url: str) -> None:
    """The first call returns what every later one does: tuples are lists in both."""
    assert run(lambda driver: (1, (2,)), url) == [1, [2]]
    assert run(lambda driver: "never called", url) == [1, [2]]


@pytest.mark.parametrize(
    "returned", [{1}, float("nan"), object, b"", "x" * 300_000],
    ids=["set", "nan", "type", "bytes", "too-large"],
)  # fmt: skip
def test_a_main_that_returns_no_json_is_refused_and_not_stored(url: str, returned: Any) -> None:
    """It is an error here, and main runs again when it was mended; its jobs' results are kept."""
    calls: list[int] = []

    def main(driver: Driver) -> Any:
        driver.run("once", lambda job: calls.append(1))
        return returned

    with pytest.raises((InvalidInput, TooLarge), match="what main returned"):
        run(main, url)

    returned = None
    assert run(main, url) is None
    assert calls == [1]


def test_an_exception_of_main_is_raised_here_and_not_stored(url: str) -> None:
    """The next replica runs main again, and finds the results of the jobs that had ended."""
    calls: list[str] = []

    def main(driver: Driver) -> Any:
        driver.run("once", lambda job: calls.append("job"))
        calls.append("main")
        if calls.count("main") == 1:
            raise LookupError("in main")
        return "good"

    with pytest.raises(LookupError, match="in main"):
        run(main, url)

    assert run(main, url) == "good"
    assert calls == ["job", "main", "main"]


def test_a_stored_result_does_not_wait_for_who_leads(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """While another application leads the cluster, a result that exists is returned, or raised,
    and a main that has to wait says for whom."""
    leads, may_end = threading.Event(), threading.Event()

    def other(driver: Driver) -> str:
        leads.set()
        while not may_end.wait(0.05):
            driver.check()
        return "other"

    def waits() -> bool:
        return any("'later' waits for its turn: " in one.getMessage() for one in caplog.records)

    assert run(lambda driver: 42, url) == 42
    with open_backend(url, cluster=CLUSTER) as backend:
        failure = jrs.Failure("exception", "broken")
        failed = jrs.JobResult("failed", JobStatus.FAILED, failure=failure)
        JobResultStore(backend).create_dirty(failed, None)
    with ThreadPoolExecutor(4) as pool:
        busy = pool.submit(run, other, url, name="other")
        try:
            assert leads.wait(60)
            assert pool.submit(run, lambda driver: 1, url).result(60) == 42
            with pytest.raises(JobNotFinished, match="broken"):
                pool.submit(run, lambda driver: 1, url, name="failed").result(60)
            later = pool.submit(run, lambda driver: "later", url, name="later")
            until(waits, "it says who leads")
        finally:
            may_end.set()
        assert (busy.result(60), later.result(60)) == ("other", "later")


@contextmanager
def standing_by(memory: FaultyMemory) -> Iterator[tuple[Fence, threading.Event]]:
    """Have a replica of "app" stand by while another one leads; yield what that one leads by, and
    what is set when the replica leaves."""
    leadership = memory.campaign("another", ttl=30.0, stop=threading.Event())
    assert leadership is not None
    info = MasterInfo("another", "host", 1, time.time(), time.time(), leading=leadership.epoch)
    Registry(memory).put(info)
    left, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=Standby(memory, "app", "own").run, args=(left, over))
    thread.start()
    try:
        yield leadership.fence, left
    finally:
        over.set()
        thread.join()
        leadership.resign()


def looks(memory: FaultyMemory) -> None:
    """Return once a replica that stands by has looked whether it may leave."""
    seen = memory.reads.count(keys.EPOCH)
    until(lambda: memory.reads.count(keys.EPOCH) > seen + 1, "it looks, and once more")


def test_a_replica_stands_by_until_the_last_cleanup_has_ended(memory: FaultyMemory) -> None:
    """The leader may die before: nobody else would clean up, and end the jobs that are left."""
    put(memory, keys.JOBS + "left", spec("left", application="app"))
    results = JobResultStore(memory)
    with standing_by(memory) as (fence, left):
        results.create_dirty(result("app"), fence)
        looks(memory)
        assert not left.is_set()
        results.mark_clean("app", fence)
        looks(memory)
        assert not left.is_set()
        results.create_dirty(result("left", application="app"), fence)
        looks(memory)
        assert not left.is_set()
        results.create_dirty(result("other"), fence)
        results.mark_clean("left", fence)
        until(left.is_set, "it leaves")


def test_a_replica_that_waits_does_not_ask_who_leads_again(
    memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once it has said so: it waits for a result, and looks for one itself only now and then."""
    monkeypatch.setattr(standby_replica, "_RARELY", 0.05)
    key = keys.RESULTS + "app"
    with standing_by(memory) as (_, left):
        until(lambda: "waits for its turn: another" in caplog.text, "it says who leads")
        asked = memory.reads.count(keys.EPOCH)
        results = memory.reads.count(key)
        until(lambda: memory.reads.count(key) > results + 3, "it looks for a result")
        assert memory.reads.count(keys.EPOCH) == asked
        assert not left.is_set()


def test_a_replica_that_waits_hears_of_a_result(
    memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the watch: it does not depend on the next look."""
    monkeypatch.setattr(standby_replica, "_RARELY", 10 * BOUND)
    with standing_by(memory) as (fence, left):
        until(lambda: "waits for its turn: another" in caplog.text, "it says who leads")
        JobResultStore(memory).create_dirty(result("app"), fence)
        JobResultStore(memory).mark_clean("app", fence)
        until(left.is_set, "it leaves")


class Waits(threading.Event):
    """An event that is set once it was waited for so often."""

    def __init__(self, often: int) -> None:
        super().__init__()
        self.left = often

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        if self.left == 0:
            self.set()
        return self.is_set()


def test_a_replica_that_leads_asks_nothing(memory: FaultyMemory) -> None:
    """Its main may run for days."""
    leads, over = Standby(memory, "app", "own"), Waits(10)
    leads.leads.set()
    leads.run(threading.Event(), over)

    assert over.is_set()
    assert memory.reads == []


@pytest.mark.parametrize("why", ["held", "late"])
def test_a_replica_leaves_where_standing_by_does_not_help(
    memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A cleanup that is held, or does not end: its leader would not wait for it either."""
    if why == "late":
        monkeypatch.setattr(remaining, "_PATIENCE", 0.0)
    with standing_by(memory) as (fence, left):
        JobResultStore(memory).create_dirty(result("app"), fence)
        if why == "held":
            spoil(memory, keys.RESULTS + "app")
        until(left.is_set, "it leaves")


def test_a_failed_job_can_be_caught_in_main(url: str) -> None:
    """JobNotFinished holds the result, so that main can decide what to do."""

    def main(driver: Driver) -> Any:
        with pytest.raises(JobNotFinished) as caught:
            driver.run("boom", lambda job: 1 / 0)
        failed = caught.value.result
        assert failed.failure is not None
        return [failed.status.value, failed.failure.message]

    assert run(main, url) == ["FAILED", "ZeroDivisionError: division by zero"]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("hang", {"pids": "/dev/zero"}),
        ("hang", {"pids": "/dev/null", "deaf": True}),
        ("family", {"pids": "/dev/null"}),
    ],
    ids=["other-value", "one-more", "other-function"],
)
def test_the_same_job_id_for_something_else_is_refused(
    url: str, function: str, arguments: dict[str, Any]
) -> None:
    """While a job has no result, its id cannot be used with other arguments or another function:
    a job id names one run."""
    with open_backend(url, cluster=CLUSTER) as backend:
        JobCatalog(backend).submit(jrs.JobSpec("job", job("hang"), {"pids": "/dev/null"}))
    with pytest.raises(InvalidInput, match="submitted with another function or other arguments"):
        run(lambda driver: driver.run("job", job(function), **arguments), url)


@pytest.mark.parametrize(
    ("job_id", "arguments", "says"),
    [
        ("a/b", {}, "not a job id"),
        ("main", {}, "id of the application itself"),
        ("job", {"x": float("nan")}, "not JSON"),
        ("job", {"x": {1}}, "not JSON"),
    ],
    ids=["id", "own-id", "nan", "set"],
)
def test_bad_input_to_run_changes_nothing(
    url: str, job_id: str, arguments: dict[str, Any], says: str
) -> None:
    """A bad id, the application's own and arguments that are no JSON are refused before anything
    is stored."""
    with pytest.raises(InvalidInput, match=says):
        run(lambda driver: driver.run(job_id, lambda job, **given: 1, **arguments), url)
    with open_backend(url, cluster=CLUSTER) as backend:
        stored = [record.key for record in backend.scan("")]
    # The election is recorded, and that main began and raised.
    kept = (keys.CLUSTER_HISTORY, keys.FEED, keys.history("main"))
    stored = [key for key in stored if not key.startswith(kept)]
    assert stored == ["applications/main", keys.STORAGE, keys.EPOCH]


def one(job: jrs.Job) -> str:
    return "one"


def two(job: jrs.Job) -> str:
    return "two"


@pytest.mark.parametrize("function", [two, lambda job: "two"], ids=["function", "lambda"])
def test_another_function_of_the_driver_is_not_taken_for_the_first(
    url: str, function: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """By its name: refused while the job has no result, and said once it has one."""
    with open_backend(url, cluster=CLUSTER) as backend:
        put(backend, keys.JOBS + "job", driven(one))
    with pytest.raises(InvalidInput, match=r"test_application:one\(\), and this is \S+:\S+\("):
        run(lambda driver: driver.run("job", function), url)

    assert run(lambda driver: [driver.run("job", each) for each in (one, function)], url) == (
        ["one", "one"]
    )
    (said,) = [each for each in caplog.messages if "job 'job' has ended" in each]
    assert "with another function or other arguments" in said


def test_a_function_that_wraps_itself(url: str) -> None:
    """It has a name all the same."""

    def looped(job: jrs.Job) -> str:
        return "ran"

    looped.__wrapped__ = looped  # type: ignore[attr-defined]

    assert run(lambda driver: driver.run("job", looped), url) == "ran"


def test_a_function_that_an_older_version_stored_is_not_compared(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_backend(url, cluster=CLUSTER) as backend:
        put(backend, keys.JOBS + "job", driven(None))

    assert run(lambda driver: [driver.run("job", each) for each in (two, one)], url) == (
        ["two", "two"]
    )
    assert not [each for each in caplog.messages if "has ended" in each]


def driven(function: Callable[..., str] | None) -> jrs.JobSpec:
    """Return the spec of "job", as `driver.run` stores it; None: as an older version did."""
    name = f"{__name__}:{function.__qualname__}" if function else ""
    return jrs.JobSpec("job", "driver:job", runner=RunnerKind.THREAD, function=name)


def needs(job: jrs.Job, day: str) -> str:
    return day


@pytest.mark.parametrize(
    ("function", "says"),
    [(needs, "dya"), (None, "needs a function or an entry point, not None")],
)
def test_a_job_that_cannot_be_called_is_not_stored(url: str, function: Any, says: str) -> None:
    """The same id can be used once the mistake is mended."""
    with pytest.raises(InvalidInput, match=says):
        run(lambda driver: driver.run("need", function, dya="1"), url)

    assert run(lambda driver: driver.run("need", needs, day="1"), url) == "1"


def test_a_partial_with_arguments_is_refused(url: str) -> None:
    """Its arguments are no part of the name that its result is stored under."""

    def main(driver: Driver, day: str) -> str:
        return day

    with pytest.raises(InvalidInput, match="arguments="):
        run(partial(main, day="2026-11-20"), url)

    bare: Any = partial(main)
    assert run(bare, url, arguments={"day": "2026-11-21"}) == "2026-11-21"


def test_the_result_of_an_expired_job_is_an_error_of_its_own(url: str) -> None:
    """Neither the job nor the application is run again when its result was expired."""
    calls: list[int] = []

    def main(driver: Driver) -> Any:
        return driver.run("once", lambda job: calls.append(1))

    run(main, url)
    with open_backend(url, cluster=CLUSTER) as backend:
        JobResultStore(backend).expire(older_than=0)
    with pytest.raises(ResultExpired, match="'main'"):
        run(main, url)
    with pytest.raises(ResultExpired, match="'once'"):
        run(main, url, name="another")

    assert calls == [1]


@pytest.mark.parametrize("what", [keys.RESULTS, keys.JOBS], ids=["result", "spec"])
def test_a_held_job_is_an_error_and_no_endless_wait(url: str, what: str) -> None:
    """`run` of a job of which a record cannot be read raises CorruptRecord with its key."""
    with open_backend(url, cluster=CLUSTER) as backend:
        backend.commit(Create(what + "job", b"no record of jrs"))
    with pytest.raises(CorruptRecord, match=f"{what}job"):
        run(lambda driver: driver.run("job", lambda job: 1), url)


def test_a_canceled_job_ends_the_wait_for_it(url: str) -> None:
    """Canceling a job of the driver ends its `run` with JobNotFinished."""

    def patient(job: jrs.Job) -> None:
        with open_backend(url, cluster=CLUSTER) as other:
            JobCatalog(other).cancel("job")
        while True:
            job.check()

    with pytest.raises(JobNotFinished) as caught:
        run(lambda driver: driver.run("job", patient), url)

    assert caught.value.result.status is JobStatus.CANCELED


def test_the_end_does_not_wait_for_a_cleanup_that_was_given_up(url: str) -> None:
    """What nobody will clean up any more keeps no replica from returning; it stays dirty."""
    thing = Thing()
    thing.broken = OSError("forever")
    policy = CleanupPolicy(wait=tenacity.wait_none(), stop=tenacity.stop_after_attempt(1))
    returned = run(
        lambda driver: driver.run("job", lambda job: 5), url,
        resources=[thing], cleanup_policy=policy,
    )  # fmt: skip

    assert returned == 5
    with open_backend(url, cluster=CLUSTER) as backend:
        assert {entry.job_id for entry in JobResultStore(backend).dirty()} == {"job", "main"}


def test_the_end_does_not_wait_for_cleanups_of_others_that_fail(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for the first pass of each, and says so: the next one may fail as well, for days."""
    monkeypatch.setattr(remaining, "_PATIENCE", 3600.0)
    monkeypatch.setattr(leading_replica, "_QUIET", 0.0)
    thing = Thing()

    def clean(job_id: str) -> None:
        if job_id == "of-another":
            until(lambda: "its leader stays for the end" in caplog.text, "it is waited for")
            raise OSError("the other system is down")

    thing.on_clean = clean
    with open_backend(url, cluster=CLUSTER) as backend:
        put(backend, keys.JOBS + "of-another", spec("of-another"))
        JobResultStore(backend).create_dirty(result("of-another"), None)

    assert run(lambda driver: 5, url, resources=[thing]) == 5
    with open_backend(url, cluster=CLUSTER) as backend:
        assert [entry.job_id for entry in JobResultStore(backend).dirty()] == ["of-another"]
        journal = JobCatalog(backend).view("of-another").cleanup
    assert journal is not None
    assert "the other system is down" in journal.problems["thing"]


def test_several_jobs_run_side_by_side(url: str) -> None:
    """Threads of main may each run a job; the jobs run at the same time."""
    together = threading.Barrier(3)

    def main(driver: Driver) -> list[Any]:
        with ThreadPoolExecutor(3) as pool:
            runs = [
                pool.submit(driver.run, f"job-{n}", lambda job, n: [together.wait(60), n][1], n=n)
                for n in range(3)
            ]
            return [each.result() for each in runs]

    assert run(main, url) == [0, 1, 2]


def test_a_bad_name_of_the_application_is_refused(url: str) -> None:
    """The application's own id is checked before anything is opened."""
    with pytest.raises(InvalidInput, match="not a job id"):
        run(lambda driver: 1, url, name="a/b")


def test_a_spec_that_another_version_wrote_is_held(url: str) -> None:
    """A spec of a newer version is refused by name, not guessed and not started."""
    with open_backend(url, cluster=CLUSTER) as backend:
        catalog = JobCatalog(backend)
        spec = catalog.submit(jrs.JobSpec("job", f"{JOBS}:add"))
        record = backend.get(keys.JOBS + "job")
        assert record is not None
        newer = encode(spec).replace(b"spec/1", b"spec/9")
        backend.commit(Update(record.key, newer, record.version))
    with pytest.raises(CorruptRecord, match="upgrade it"):
        run(lambda driver: driver.run("job", job("add")), url)


def test_main_continues_when_the_backend_was_away_for_a_while(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a job of main runs the backend is away, and comes back: main, which waits for the job,
    is not begun again, and neither is the job."""
    monkeypatch.setattr(application, "open_backend", lambda url, cluster: memory)
    calls: list[str] = []
    waiting = threading.Event()

    def report(event: Event) -> None:
        if event.kind == "waiting":
            waiting.set()

    def outlasts(job: jrs.Job) -> str:
        calls.append("job")
        memory.down = True
        assert waiting.wait(60)
        memory.down = False
        return "done"

    def main(driver: Driver) -> Any:
        calls.append("main")
        return driver.run("job", outlasts)

    assert run(main, "memory://", storage=root, report=report) == "done"
    assert calls == ["main", "job"]


def test_arguments_may_have_the_names_of_options(url: str) -> None:
    """U19: a job's arguments may be called as those of `run` are."""

    def tell(job: jrs.Job, **given: Any) -> Any:
        return given

    def main(driver: jrs.Driver) -> Any:
        more = {"restart": 3, "arguments": 4}
        return driver.run("tell", tell, job_id=1, function=2, arguments=more)

    assert run(main, url) == {"job_id": 1, "function": 2, "restart": 3, "arguments": 4}


@pytest.mark.parametrize(
    "options", [{"restart": 3}, {"restart": 0}, {"arguments": 3}, {"arguments": {"n": 1}, "n": 2}]
)
def test_a_wrong_option_is_refused_in_words(url: str, options: dict[str, Any]) -> None:
    """U19: `restart=3` is no policy, and no error of Python."""
    with pytest.raises(InvalidInput, match=r"restart|arguments|twice"):
        run(lambda driver: driver.run("job", lambda job, **given: 1, **options), url)


def test_a_ttl_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """U19: in words, before anything is started."""
    with pytest.raises(InvalidInput, match="ttl must be a number"):
        jrs.run(
            lambda driver: 1,  # type: ignore[misc]
            (tmp_path / "store").as_uri(),
            name="app",
            ttl="x",  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("entry", [lambda job: 1, 3, None])
def test_a_spec_names_its_function(entry: Any) -> None:
    """U19: a spec is stored, so a function itself is refused."""
    with pytest.raises(InvalidInput, match="entry_point"):
        jrs.JobSpec("job", entry)
