"""Finding the processes of attempts: all of them, and no others, or it is said that it failed."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable
from jrs.contract.runtime import random_token
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, JobStatus
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.runners import process
from jrs.recovery.attempt.runners.process import ProcessRunner
from jrs.recovery.attempt_main import PROGRAM
from jrs.recovery.processes import marks
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from tests.recovery.support import (
    CLUSTER,
    FaultyMemory,
    Leader,
    gone,
    job,
    noted,
    put,
    spec,
    spoil,
    state_of,
)
from tests.support import BOUND, until

URL = "file:///nowhere"
MARK = random_token()
"""Of this process alone: tests in others look for marks, too, and kill what has theirs."""


def old_mark(url: str, job_id: str, rest: str) -> str:
    """Return a mark that any process that knows the cluster can make up."""
    where = hashlib.sha256(f"{url}\0{CLUSTER}".encode()).hexdigest()[:16]
    return f"{where}:{job_id}:{rest}"


@pytest.fixture
def sleeper() -> Iterator[Callable[..., int]]:
    """Start processes that do nothing, with more in their environment; return their pids."""
    with ExitStack() as stack:

        def start(**environment: str) -> int:
            process = stack.enter_context(
                subprocess.Popen(["sleep", "3600"], env={**os.environ, **environment})
            )
            stack.callback(process.kill)
            return process.pid

        yield start


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    """A leader on a folder, whose jobs run in processes of their own."""
    url = (tmp_path / "store").as_uri()
    with (
        open_backend(url, cluster=CLUSTER) as backend,
        Leader(backend, tmp_path / "jobs", runner=ProcessRunner(url, PROGRAM)) as made,
    ):
        yield made


def submit(leader: Leader, job_id: str, function: str, **fields: Any) -> None:
    JobCatalog(leader.backend).submit(spec(job_id, job(function), **fields))


def stored(backend: Backend, job_id: str) -> AttemptRecord:
    record = backend.get(keys.ATTEMPTS + job_id)
    assert record is not None
    return decode(AttemptRecord, record.value, record.key)


def environment(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


# -- marks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["x", "1.1;x", "1.1;"])
def test_a_stray_mark_keeps_no_job_from_starting(
    leader: Leader, sleeper: Callable[..., int], rest: str
) -> None:
    """B11: a process with a made-up ``JRS_JOB`` neither keeps a job from starting, starting again
    and being cleaned up, nor is it killed."""
    stray = sleeper(JRS_JOB=old_mark(leader.backend.url, "job", rest))
    submit(leader, "job", "die", restart=RestartPolicy(attempts=2, delay=0.0))

    assert leader.store.wait("job", 30).attempt == 2

    leader.until_clean("job")

    assert not gone([stray])


def test_a_mark_is_recorded_before_its_process_is_born(memory: FaultyMemory, root: Path) -> None:
    """B11: 16 random bytes for each attempt, in its record before its runner hears of it."""
    seen: list[tuple[str, AttemptRecord]] = []

    def look(context: AttemptContext) -> None:
        seen.append((context.mark, stored(memory, "job")))

    with Leader(memory, root) as leader:
        leader.runner.before_start = look
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=3, delay=0.0)))
        leader.runner.of("job").die()
        leader.runner.of("job", 2).die()
        leader.runner.of("job", 3)

    marks = [mark for mark, _ in seen]
    assert len(set(marks)) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", mark) for mark in marks)
    assert [record.mark for _, record in seen] == marks
    assert [record.earlier_marks for _, record in seen] == [(), (marks[0],), tuple(marks[:2])]


def test_all_of_an_attempt_is_born_with_its_mark(leader: Leader, tmp_path: Path) -> None:
    """B11: the attempt, whatever it has started, and its watchdog."""
    pids = tmp_path / "pids"
    submit(leader, "job", "family", arguments={"pids": str(pids)})
    started = noted(pids, 5)
    mark = stored(leader.backend, "job").mark
    entry = f"JRS_MARK={mark}".encode()

    assert all(entry in environment(pid) for pid in started)
    assert set(started) < set(marks.marked(marks.marks_of(mark)))
    assert marks.marked(marks.marks_of(mark[:-1])) == []


def test_a_process_in_the_middle_of_exec_is_found(tmp_path: Path) -> None:
    """The kernel shows no environment from the moment when it has loaded a program to the moment
    when it has put the environment in its place."""
    program = tmp_path / "again"
    program.write_text('#!/bin/sh\nexec "$0"\n')
    program.chmod(0o755)
    with subprocess.Popen([program], env={**os.environ, "JRS_MARK": MARK}) as process:
        try:
            for _ in range(200):
                assert process.poll() is None
                assert marks.marked(marks.marks_of(MARK)) == [process.pid]
        finally:
            process.kill()


WITHOUT_ITS_FIRST_THREAD = """
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_is_found() -> None:
    """The kernel shows it as a zombie, and its environment only at the threads that still run."""
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD], env={**os.environ, "JRS_MARK": MARK}
    ) as process:
        try:
            until(lambda: state_of(process.pid) == "Z", "its first thread has ended")

            assert process.poll() is None
            assert marks.marked(marks.marks_of(MARK)) == [process.pid]
            assert marks.end(marks.marks_of(MARK), Deadline.after(60.0)) == [process.pid]
        finally:
            process.kill()


@pytest.mark.parametrize("environment", [{}, {"A": "1"}], ids=["none", "another"])
def test_a_process_without_a_mark_is_not_waited_for(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may have no environment at all. That is no exec, however long it lasts."""
    monkeypatch.setattr(marks, "_EXEC", float("inf"))
    with subprocess.Popen(["sleep", "3600"], env=environment) as process:
        try:
            assert process.pid not in marks.marked(marks.marks_of(MARK))
        finally:
            process.kill()


@pytest.mark.parametrize("state", ["without a mark", "unreadable", "of earlier attempts"])
def test_what_an_earlier_version_has_left_is_found(
    memory: FaultyMemory, root: Path, sleeper: Callable[..., int], state: str
) -> None:
    """B11: by the old mark where the record has no other, or cannot be read; and by the marks of
    the attempts before the newest, some of which may have run on this host."""
    left = [sleeper(JRS_JOB=old_mark(memory.url, "job", "0.7;"))]
    record = AttemptRecord("job", attempt=7)
    if state == "of earlier attempts":
        left = [sleeper(JRS_MARK=f"{MARK}a"), sleeper(JRS_MARK=f"{MARK}b")]
        record = AttemptRecord("job", attempt=7, mark=f"{MARK}b", earlier_marks=(f"{MARK}a",))
    put(memory, keys.ATTEMPTS + "job", record)
    if state == "unreadable":
        spoil(memory, keys.ATTEMPTS + "job")
    other = sleeper(JRS_JOB=old_mark(memory.url, "job.1", "0.7;"), JRS_MARK=f"{MARK}aa")
    seen: list[bool] = []
    with Leader(memory, root) as leader:
        leader.runner.before_start = lambda context: seen.append(gone(left))
        JobCatalog(memory).submit(spec("job"))
        leader.runner.of("job")

    assert seen == [True]
    assert not gone([other])


# -- looking ------------------------------------------------------------------------------------


class Looks:
    """Counts the times that /proc is listed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._listdir = os.listdir
        monkeypatch.setattr(os, "listdir", self._list)

    def _list(self, path: Any = ".") -> list[str]:
        if path == "/proc":
            self.count += 1
        return self._listdir(path)


def test_many_ends_share_their_looks(
    monkeypatch: pytest.MonkeyPatch, sleeper: Callable[..., int]
) -> None:
    """B13: to end twenty attempts at once takes fewer looks at all processes than there are
    attempts, and each of them is known to be dead."""
    jobs = [f"job-{number}" for number in range(20)]
    pids = {job_id: sleeper(JRS_JOB=old_mark(URL, job_id, "1.1;")) for job_id in jobs}
    looks = Looks(monkeypatch)
    ready = threading.Barrier(len(jobs))

    def end(job_id: str) -> list[int]:
        mark = marks.mark_of_job(URL, CLUSTER, job_id)
        ready.wait()
        return marks.end(mark, Deadline.after(60))

    with ThreadPoolExecutor(len(jobs)) as pool:
        killed = dict(zip(jobs, pool.map(end, jobs), strict=True))

    assert killed == {job_id: [pid] for job_id, pid in pids.items()}
    assert gone(list(pids.values()))
    assert looks.count < 2 * len(jobs)


def test_attempts_that_end_orderly_are_not_looked_for(
    leader: Leader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B13: eight attempts are ended by their watchdogs, which know that nothing is left."""
    pids = tmp_path / "pids"
    for number in range(8):
        submit(leader, f"job-{number}", "hang", arguments={"pids": str(pids)})
    started = noted(pids, 8)
    monkeypatch.setattr(process, "_WATCHDOG", BOUND)
    looks = Looks(monkeypatch)

    assert leader.stop()
    assert gone(started)
    assert looks.count < 8


def test_a_first_attempt_looks_for_nothing(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B13: where no attempt was ever recorded there is none to be found."""
    looks = Looks(monkeypatch)
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job"))
        leader.runner.of("job")

    assert looks.count == 0


def test_short_of_descriptors_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, sleeper: Callable[..., int]
) -> None:
    """D7: where processes cannot be read since descriptors have run out, they are not taken for
    dead."""
    pid = sleeper(JRS_JOB=old_mark(URL, "job", "1.1;"))
    mark = marks.mark_of_job(URL, CLUSTER, "job")
    listdir = os.listdir
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []

    def list_then_run_out(path: Any = ".") -> list[str]:
        found = listdir(path)
        if path == "/proc" and not taken:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            try:
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
        return found

    monkeypatch.setattr(os, "listdir", list_then_run_out)
    try:
        with pytest.raises(Unavailable, match="Too many open files"):
            marks.end(mark, Deadline.after(10))
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not gone([pid])
    assert marks.end(mark, Deadline.after(30)) == [pid]


def test_an_interrupted_look_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, sleeper: Callable[..., int]
) -> None:
    """B13: all that share a search which an exception ended learn that nothing is known; the next
    search is a new one."""
    pid = sleeper(JRS_MARK=MARK)
    listdir = os.listdir
    looking, go = threading.Event(), threading.Event()

    def interrupted(path: Any = ".") -> list[str]:
        looking.set()
        assert go.wait(30)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "listdir", interrupted)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(marks.marked, marks.marks_of(MARK))
        assert looking.wait(30)
        go.set()

        assert isinstance(first.exception(30), KeyboardInterrupt)

    monkeypatch.setattr(os, "listdir", listdir)

    assert marks.marked(marks.marks_of(MARK)) == [pid]


def test_a_forked_child_looks_for_itself(sleeper: Callable[..., int]) -> None:
    """B13: a child that was forked while its parent looked does not wait for that look."""
    pid = sleeper(JRS_MARK=MARK)
    source = f"""
import os, threading
from jrs.recovery.processes import marks
listdir = os.listdir
looking, go = threading.Event(), threading.Event()
def slow(path="."):
    looking.set()
    go.wait(30)
    return listdir(path)
os.listdir = slow
thread = threading.Thread(target=marks.marked, args=(marks.marks_of({MARK!r}),))
thread.start()
looking.wait(30)
child = os.fork()
if child == 0:
    os.listdir = listdir
    os._exit(0 if marks.marked(marks.marks_of({MARK!r})) == [{pid}] else 1)
status = os.waitpid(child, 0)[1]
go.set()
thread.join()
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", source], timeout=120)

    assert done.returncode == 0


def test_a_stopped_watchdog_keeps_nobody_waiting(leader: Leader, tmp_path: Path) -> None:
    """B13: what is not ended by its watchdog is found by its mark; the watchdog is ended, too."""
    pids = tmp_path / "pids"
    submit(leader, "job", "family", arguments={"pids": str(pids)})
    started = noted(pids, 5)
    stat = Path(f"/proc/{started[-1]}/stat").read_bytes().rpartition(b")")[2].split()
    watchdog = int(stat[1])
    os.kill(watchdog, signal.SIGSTOP)
    JobCatalog(leader.backend).cancel("job")

    assert leader.store.wait("job", 60).status is JobStatus.CANCELED
    until(lambda: gone([*started, watchdog]), "all of it is gone")
