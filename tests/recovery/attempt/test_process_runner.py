"""The process runner, with real processes and real kills: nothing outlives its master."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from jrs.contract.clock import Deadline
from jrs.contract.runtime import random_token
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, Failure, JobResult, JobStatus
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.launch import EXIT_INTERRUPTED
from jrs.recovery.attempt.runners import RunningAttempt, watchdog_process
from jrs.recovery.attempt.runners.process import ProcessRunner
from jrs.recovery.attempt_main import PROGRAM
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.processes import left_running, marks
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import lead
from jrs.testing.masters import Masters
from jrs.testing.processes import command_lines
from tests.recovery.support import CLUSTER, Leader, gone, job, noted, spec, state_of
from tests.support import parent_of, until

ONCE = RestartPolicy(attempts=1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Masters]]:
    """Make the masters of a cluster on a folder; all of them and their attempts are ended."""
    with ExitStack() as stack:

        def make(ttl: float = 30.0) -> Masters:
            url = (tmp_path / "store").as_uri()
            return stack.enter_context(Masters(url, cluster=CLUSTER, ttl=ttl))

        yield make


@pytest.fixture
def masters(cluster: Callable[..., Masters]) -> Masters:
    """One master that leads."""
    made = cluster()
    made.start("m1")
    return made


def submit(masters: Masters, job_id: str, function: str, **fields: object) -> None:
    fields.setdefault("restart", ONCE)
    JobCatalog(masters.backend).submit(spec(job_id, job(function), **fields))


def ended(masters: Masters, job_id: str) -> JobResult:
    return JobResultStore(masters.backend).wait(job_id, 60)


def failure(masters: Masters, job_id: str) -> Failure:
    found = ended(masters, job_id).failure
    assert found is not None
    return found


def marked(masters: Masters) -> list[int]:
    return marks.marked(marks.mark_of_cluster(masters.backend.url, CLUSTER))


# -- dying with the master ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "arguments", "count"),
    [("hang", {}, 1), ("hang", {"deaf": True}, 1), ("family", {}, 5)],
    ids=["plain", "deaf-to-signals", "with-strayed-children"],
)
def test_an_attempt_dies_with_its_master_by_kill_9(
    masters: Masters, tmp_path: Path, function: str, arguments: dict[str, object], count: int
) -> None:
    """When the master is killed -9, its attempt and everything that attempt has started end:
    children in sessions and groups of their own, daemons, and processes that ignore signals."""
    pids = tmp_path / "pids"
    submit(masters, "job", function, arguments={"pids": str(pids), **arguments})
    started = noted(pids, count)
    watchdog = parent_of(started[-1])
    masters.leader().kill()
    until(lambda: gone([*started, watchdog]), "all of the attempt is gone")

    assert marked(masters) == []


def test_an_attempt_whose_python_is_stopped_dies_with_its_master(
    masters: Masters, tmp_path: Path
) -> None:
    """A SIGSTOPped attempt can do nothing itself, and ends all the same."""
    pids = tmp_path / "pids"
    submit(masters, "job", "family", arguments={"pids": str(pids)})
    started = noted(pids, 5)
    os.kill(started[-1], signal.SIGSTOP)
    until(lambda: state_of(started[-1]) == "T", "it is stopped")
    masters.leader().kill()
    until(lambda: gone(started), "all of the attempt is gone")


def test_a_master_that_is_told_to_stop_leaves_no_process(masters: Masters, tmp_path: Path) -> None:
    """After SIGTERM the master ends by itself, its attempts before it, also those that it was
    just starting; the jobs have no result."""
    pids = tmp_path / "pids"
    for number in range(6):
        submit(masters, f"job-{number}", "hang", arguments={"pids": str(pids)})
    noted(pids, 1)
    leader = masters.leader()
    leader.process.terminate()

    assert leader.process.wait(60) == 0
    assert marked(masters) == []
    assert not any(JobResultStore(masters.backend).has_entry(f"job-{n}") for n in range(6))


def test_when_the_watchdog_is_killed_the_master_ends_the_attempt(
    masters: Masters, tmp_path: Path
) -> None:
    """An attempt without its watchdog does not run on unguarded: the master notices, ends all of
    it, and counts a death."""
    pids = tmp_path / "pids"
    submit(masters, "job", "family", arguments={"pids": str(pids)})
    started = noted(pids, 5)
    os.kill(parent_of(started[-1]), signal.SIGKILL)

    assert failure(masters, "job").exit_status == -signal.SIGKILL
    assert gone(started)


def kill_with_its_watchdog(masters: Masters, attempt: int) -> None:
    """Kill -9 the leader and the watchdog of its attempt, so that neither can do anything."""
    watchdog = parent_of(attempt)
    os.kill(watchdog, signal.SIGSTOP)
    masters.leader().kill()
    os.kill(watchdog, signal.SIGKILL)


@pytest.mark.parametrize("server", ["file", "etcd"])
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_an_attempt_dies_with_its_watchdog(
    request: pytest.FixtureRequest, tmp_path: Path, server: str, stopped: bool
) -> None:
    """B10: when master and watchdog are killed -9 together, the attempt ends by itself, also if it
    is stopped, and although there is no other master."""
    url = (tmp_path / "store").as_uri()
    if server == "etcd":
        url = request.getfixturevalue("etcd_server").url()
    cluster = f"b10-{uuid.uuid4().hex[:8]}"
    with Masters(url, cluster=cluster, storage=tmp_path / "jobs", ttl=30.0) as masters:
        masters.start("m1")
        pids = tmp_path / "pids"
        submit(masters, "job", "hang", arguments={"pids": str(pids)})
        [attempt] = noted(pids, 1)
        if stopped:
            os.kill(attempt, signal.SIGSTOP)
        kill_with_its_watchdog(masters, attempt)
        until(lambda: gone([attempt]), "the attempt is gone")


def test_when_master_and_watchdog_are_killed_the_next_leader_ends_what_is_left(
    cluster: Callable[..., Masters], tmp_path: Path
) -> None:
    """With nobody left to end what an attempt has started, the next leader finds and kills it
    before it starts the job again. What was forked by the attempt holds its lock for a ttl."""
    masters = cluster(ttl=2.0)
    masters.start("m1")
    pids = tmp_path / "pids"
    submit(masters, "job", "family", arguments={"pids": str(pids)})
    started = noted(pids, 5)
    kill_with_its_watchdog(masters, started[-1])
    until(lambda: gone(started[-1:]), "the attempt is gone")

    assert not gone(started)

    masters.start("m2")
    noted(pids, 10)

    assert gone(started)
    assert masters.event(lambda event: event.kind == "orphans", "it is told").job_id == "job"


def test_an_attempt_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    """B10: the kernel goes by the thread that forked. An attempt is started by one that lives as
    long as its process, whatever pool asked for it."""
    url, pids = (tmp_path / "store").as_uri(), tmp_path / "pids"
    over = threading.Event()
    running: list[RunningAttempt] = []
    with open_backend(url, cluster=CLUSTER) as backend:
        leadership = backend.campaign("m1", ttl=30.0, stop=threading.Event())
        assert leadership is not None
        with leadership:
            context = AttemptContext(
                spec=spec("job", job("hang"), arguments={"pids": str(pids)}),
                attempt=1,
                fence=leadership.fence,
                backend=backend,
                storage=JobStorage(tmp_path / "jobs", CLUSTER),
                first_started_at=0.0,
                mark=random_token(),
            )
            runner = ProcessRunner(url, PROGRAM)
            starter = threading.Thread(
                target=lambda: running.append(runner.start(context, None, lambda ended: over.set()))
            )
            starter.start()
            starter.join()
            started = noted(pids, 1)

            assert not gone(started)
            assert not over.is_set()
            assert running[0].end(Deadline.after(30))
            assert gone(started)
            assert over.is_set()


def test_a_forked_child_of_the_master_does_not_keep_attempts_alive(tmp_path: Path) -> None:
    """A child that the driver forked, and that outlives it, holds no end of an attempt's pipe: the
    attempt ends with its master."""
    url, pids, child = (tmp_path / "store").as_uri(), tmp_path / "pids", tmp_path / "child"
    source = f"""
import os, signal, threading, time
from pathlib import Path
import jrs

def lead(dispatcher, leadership, stop):
    jrs.JobCatalog(backend).submit(jrs.JobSpec("job", {job("hang")!r}, {{"pids": {str(pids)!r}}}))
    while not os.path.exists({str(pids)!r}):
        time.sleep(0.005)
    if os.fork() == 0:
        Path({str(child)!r}).write_text(f"{{os.getpid()}}\\n")
        time.sleep(3600)
    while not os.path.exists({str(child)!r}):
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGKILL)

backend = jrs.open_backend({url!r}, cluster={CLUSTER!r})
jrs.Master(backend, url={url!r}).run(threading.Event(), lead)
"""
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", source], timeout=120)
    forked = noted(child, 1)
    try:
        assert ended.returncode == -signal.SIGKILL
        until(lambda: gone(noted(pids, 1)), "the attempt is gone")
        assert not gone(forked)
    finally:
        os.kill(forked[0], signal.SIGKILL)
    with open_backend(url, cluster=CLUSTER) as backend:
        mark = marks.mark_of_cluster(backend.url, CLUSTER)
        assert marks.end(mark, Deadline.after(30)) == []


# -- ending an attempt --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deaf", "stopped"])
def test_cancel_always_works(masters: Masters, tmp_path: Path, how: str) -> None:
    """A job that ignores every signal it can, or is stopped, is canceled, and all of it ends."""
    pids = tmp_path / "pids"
    submit(masters, "job", "hang", arguments={"pids": str(pids), "deaf": True})
    started = noted(pids, 1)
    if how == "stopped":
        os.kill(started[0], signal.SIGSTOP)
    JobCatalog(masters.backend).cancel("job")

    assert ended(masters, "job").status is JobStatus.CANCELED
    assert gone(started)


def test_strayed_children_are_ended_by_cancel(masters: Masters, tmp_path: Path) -> None:
    """When the job has a result, none of its processes is left, whatever session it moved to."""
    pids = tmp_path / "pids"
    submit(masters, "job", "family", arguments={"pids": str(pids)})
    started = noted(pids, 5)
    JobCatalog(masters.backend).cancel("job")

    assert ended(masters, "job").status is JobStatus.CANCELED
    assert gone(started)


def test_a_finished_job_leaves_no_child(masters: Masters, tmp_path: Path) -> None:
    """What a job that returned has left running is ended before its result is clean."""
    pids = tmp_path / "pids"
    submit(masters, "job", "leave_child", arguments={"pids": str(pids)})
    store = JobResultStore(masters.backend)

    assert ended(masters, "job").payload == "done"

    until(lambda: store.has_clean("job"), "the job is cleaned up")

    assert gone(noted(pids, 1))


def test_ending_one_job_leaves_those_of_similar_names_alone(
    masters: Masters, tmp_path: Path
) -> None:
    """Processes are found by the whole job id, so that canceling ``job`` does not end ``job.1``."""
    pids = {job_id: tmp_path / job_id for job_id in ("job", "job.1", "job-1", "jo")}
    for job_id, path in pids.items():
        submit(masters, job_id, "hang", arguments={"pids": str(path)})
    started = {job_id: noted(path, 1) for job_id, path in pids.items()}
    JobCatalog(masters.backend).cancel("job")
    ended(masters, "job")

    assert {job_id: gone(numbers) for job_id, numbers in started.items()} == {
        "job": True, "job.1": False, "job-1": False, "jo": False,
    }  # fmt: skip


# -- reports of the end --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "arguments", "status", "message"),
    [
        ("die", {}, 9, "exited with status 9"),
        ("die", {"status": 0}, 0, "exited with status 0"),
        ("die", {"status": 75}, 75, "exited with status 75"),
        ("die", {"status": EXIT_INTERRUPTED}, EXIT_INTERRUPTED, "exited with status 79"),
        ("die", {"status": 200}, 200, "exited with status 200"),
        ("die_by_signal", {}, -9, "killed by signal 9"),
    ],
    ids=["status", "zero", "fenced-status", "interrupted-status", "large-status", "signal"],
)
def test_a_death_is_told_by_its_exit_status(
    masters: Masters, function: str, arguments: dict[str, object], status: int, message: str
) -> None:
    """The failure of a job whose process died says how, as a number and in words."""
    submit(masters, "job", function, arguments=arguments)
    told = failure(masters, "job")

    assert told.exit_status == status
    assert message in told.message


def test_an_interruption_is_told_by_the_attempt_itself(masters: Masters) -> None:
    """Not by its exit status, with which the job's code may end: so no restart is for free."""
    submit(masters, "job", "full_disk_at_first")
    result = ended(masters, "job")

    assert (result.status, result.payload) == (JobStatus.FINISHED, 2)
    assert "No space left on device" in result.attempts[0].ended


def test_a_death_is_told_with_the_end_of_stderr(masters: Masters) -> None:
    """The failure holds the end of what the process wrote to stderr, also if that was a lot."""
    submit(masters, "job", "die", arguments={"words": f"{'x' * 20_000} the very end"})
    told = failure(masters, "job")

    assert told.detail.endswith("the very end\n")
    assert len(told.detail) <= 4096


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("boom", "ValueError: no good"),
        ("not_json", "no JSON form"),
        ("nan", "no JSON form"),
        ("canceled_inside", "CancelledError"),
        ("no_such_function", "there is no 'no_such_function'"),
    ],
)
def test_a_job_that_cannot_succeed_fails_at_once(
    masters: Masters, function: str, says: str
) -> None:
    """An exception, a result that is no JSON and an entry point that leads nowhere are the job's
    failure, by their own words, in the first attempt."""
    submit(masters, "job", function, restart=RestartPolicy(attempts=3))
    told = failure(masters, "job")

    assert told.kind == "exception"
    assert says in told.message
    assert ended(masters, "job").attempt == 1


def test_arguments_of_the_largest_size_arrive(masters: Masters) -> None:
    """A launch that is larger than a pipe's buffer is handed over whole."""
    submit(masters, "job", "die", arguments={"words": "y" * 200_000 + "end"})

    assert failure(masters, "job").detail.endswith("yend\n")


def test_the_attempt_knows_who_it_is(masters: Masters) -> None:
    """Job id, attempt and epoch arrive in the process, which is neither master nor watchdog."""
    submit(masters, "job", "where")
    payload = ended(masters, "job").payload

    assert payload["pid"] != masters.leader().process.pid
    assert (payload["job"], payload["attempt"], payload["epoch"]) == ("job", 1, 1)


def test_no_process_shows_the_launch_to_others(tmp_path: Path) -> None:
    """Neither the backend's URL nor the job's arguments are in any process's command line while
    the attempt runs."""
    secret = "s3cret-in-the-url"
    store, pids = tmp_path / secret / "store", tmp_path / "another-s3cret"
    with open_backend(store.as_uri(), cluster=CLUSTER) as backend:
        root = tmp_path / "jobs"
        runner = ProcessRunner(store.as_uri(), PROGRAM)
        with Leader(backend, root, runner=runner) as leader:
            JobCatalog(backend).submit(spec("job", job("hang"), arguments={"pids": str(pids)}))
            noted(pids, 1)
            mark = marks.mark_of_cluster(backend.url, CLUSTER)
            running = marks.marked(mark)
            seen = command_lines({*running, *map(parent_of, running)} - {os.getpid()})

            assert len(seen) >= 2
            assert not any("s3cret" in line or quote(secret) in line for line in seen.values())
            assert leader.stop()
        assert marks.marked(mark) == []


# -- a leader that slept ------------------------------------------------------------------------


def test_a_leader_that_slept_finds_itself_replaced_and_does_no_harm(
    cluster: Callable[..., Masters], tmp_path: Path
) -> None:
    """While the leader and its watchdog are stopped for longer than the ttl, the next one kills the
    orphaned attempt before it starts the job again; the old one, continued, steps down, and neither
    it nor its attempt touches the new attempt, the job's files or its result."""
    masters = cluster(ttl=5.0)
    masters.start("m1")
    old = masters.leader()
    started, go, wrote = tmp_path / "started", tmp_path / "go", tmp_path / "wrote"
    submit(masters, "job", "write_when_told", arguments={
        "started": str(started), "go": str(go), "wrote": str(wrote)})  # fmt: skip
    noted(started, 1)
    orphans = marked(masters)
    os.kill(parent_of(orphans[0]), signal.SIGSTOP)
    old.pause()
    masters.start("m2")

    assert noted(started, 2) == [1, 2]
    assert gone(orphans)
    story = [event.kind for event in masters.events if event.master == "m2" and event.job_id]
    assert story.index("orphans") < story.index("attempt")

    running = marked(masters)
    old.resume()
    masters.event(lambda event: event.kind == "lost" and event.master == "m1", "it steps down")

    assert marked(masters) == running
    assert old.alive

    go.touch()
    done = ended(masters, "job")
    store = JobResultStore(masters.backend)
    until(lambda: store.has_clean("job"), "the job is cleaned up")

    assert (done.payload, done.epoch, done.attempt) == ("epoch 2", 2, 2)
    assert not wrote.exists()
    output = tmp_path / "store" / "storage" / CLUSTER / "job" / "out" / "only" / "data"
    assert output.read_text() == "2"


def test_a_leader_that_slept_does_not_kill_the_new_leaders_attempt(tmp_path: Path) -> None:
    """Processes of a newer epoch are left alone by a search that an older leader began."""
    with open_backend((tmp_path / "store").as_uri(), cluster=CLUSTER) as backend:
        pids = tmp_path / "pids"
        runner = ProcessRunner((tmp_path / "store").as_uri(), PROGRAM)
        lead(backend, "old").resign()
        with Leader(backend, tmp_path / "jobs", runner=runner) as leader:
            JobCatalog(backend).submit(spec("job", job("hang"), arguments={"pids": str(pids)}))
            started = noted(pids, 1)

            assert leader.fence.epoch == 2
            assert left_running.end(backend, "job", Deadline.after(30), up_to_epoch=1) == []
            assert not gone(started)
            assert set(started) < set(
                left_running.end(backend, "job", Deadline.after(30), up_to_epoch=2)
            )
            assert gone(started)


def test_attempts_are_numbered_across_masters(
    cluster: Callable[..., Masters], tmp_path: Path
) -> None:
    """The attempt after a failover has the next number, the new epoch and the new master's name,
    and the death of a master counts as none of the job's."""
    masters = cluster()
    masters.start("m1")
    pids = tmp_path / "pids"
    submit(masters, "job", "hang", arguments={"pids": str(pids)})
    noted(pids, 1)
    masters.leader().kill()
    masters.start("m2")
    noted(pids, 2)
    record = masters.backend.get(keys.ATTEMPTS + "job")
    assert record is not None
    stored = decode(AttemptRecord, record.value, record.key)

    assert (stored.attempt, stored.epoch, stored.master, stored.deaths) == (2, 2, "m2", 0)


def test_a_wait_in_vain_says_what_is_known(masters: Masters) -> None:
    """A wait that fails says what happened instead, before it is deleted."""
    rarely = RestartPolicy(attempts=2, delay=60.0)
    submit(masters, "job", "die", arguments={"words": "out of luck"}, restart=rarely)
    masters.event(lambda event: event.kind == "died", "it has died")

    with pytest.raises(TimeoutError, match="until it is done: not within 0 s") as raised:
        masters.until(lambda: False, "it is done", 0.0)
    assert "m1 e1 died: job: attempt 1 died: its process exited with status 9" in str(raised.value)
    assert "attempt-1.err ends with: out of luck" in str(raised.value)


@pytest.mark.parametrize("first", ["/scripts", ""])
def test_paths_that_no_import_looks_at(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """Programs put a `Path` into `sys.path`, where it has no effect: attempts start, too."""
    monkeypatch.setenv("PYTHONPATH", "/more")
    monkeypatch.setattr(sys, "path", [Path("/nowhere"), first, "/usr/lib"])
    assert watchdog_process.environment()["PYTHONPATH"] == f"{first or os.getcwd()}:/more"
