"""The fork server: what it forks is like what would have been started, and it is never needed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.runtime import Runtime, random_token
from jrs.records.model import JobResult, JobStatus
from jrs.records.policies import RestartPolicy
from jrs.records.settings import JobSettings
from jrs.recovery.attempt.attempt_process import AttemptProcess
from jrs.recovery.attempt.launch_socket import LaunchSocket
from jrs.recovery.attempt.runners import fork_server_process
from jrs.recovery.attempt.runners.fork_server_process import ForkServer
from jrs.recovery.attempt.runners.process import ProcessRunner
from jrs.recovery.attempt.runners.watchdog_process import WatchdogProcess
from jrs.recovery.attempt_main import PROGRAM
from jrs.recovery.files.log_writer import Pump
from jrs.recovery.processes import marks
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from jrs.testing.processes import children, command_lines
from tests.recovery.support import (
    CLUSTER,
    Leader,
    gone,
    many_descriptors,
    noted,
    spec,
    state_of,
)
from tests.support import BOUND, FakeClock, until

JOBS = Path(__file__).with_name("fork_jobs.py")
OLD_MARK = "0123456789abcdef:job:1.1;"


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with open_backend((tmp_path / "store").as_uri(), cluster=CLUSTER) as backend:
        yield backend


@pytest.fixture
def fork_server(backend: Backend) -> Iterator[ForkServer]:
    with ForkServer(PROGRAM, backend.url) as server:
        yield server


Run = Callable[..., JobResult]


@pytest.fixture
def run(backend: Backend, tmp_path: Path, fork_server: ForkServer) -> Run:
    """Run a function of the jobs in a process; return its result."""
    ids = iter(range(1000))

    def run(function: str, server: ForkServer | None = fork_server, **fields: Any) -> JobResult:
        job_id = f"job-{next(ids)}"
        runner = ProcessRunner(backend.url, PROGRAM, fork_server=server)
        with Leader(backend, tmp_path / "files", runner=runner):
            JobCatalog(backend).submit(spec(job_id, f"{JOBS}:{function}", **fields))
            result = JobResultStore(backend).wait(job_id, 60.0)
        assert result.status is JobStatus.FINISHED, result.failure
        return result

    return run


def servers() -> list[int]:
    """Return the fork servers that this process has started."""
    return [
        pid
        for pid, line in command_lines(children(os.getpid())).items()
        if "jrs.recovery.attempt.fork_server" in line
    ]


def start(server: ForkServer) -> WatchdogProcess | None:
    return server.start(random_token(), OLD_MARK)


def end(watchdog: WatchdogProcess | None) -> None:
    assert watchdog is not None
    assert watchdog.end(Deadline.after(BOUND)) is not None


# -- what is forked -----------------------------------------------------------------------------


def test_a_forked_attempt_is_like_one_that_was_started(run: Run) -> None:
    """Arguments, environment, folder, paths, descriptors and signals; and a mark and a session of
    its own, which others see, too."""
    forked, started = run("look").payload, run("look", None).payload
    pids = {forked["pid"], forked["watchdog"], started["pid"], started["watchdog"]}
    assert len(pids) == 4
    for payload in (forked, started):
        for who in ("seen", "of the watchdog"):
            seen = payload[who]
            assert seen.pop("session") == payload["watchdog"]
            assert seen["marks"].pop("JRS_MARK") == payload["environment"]["JRS_MARK"]
            seen["arguments"] = seen["arguments"][:4]  # Descriptors and marks follow.
        assert payload["seen"]["marks"].pop("JRS_JOB") == payload["environment"].pop("JRS_JOB")
        del payload["of the watchdog"]["marks"]["JRS_JOB"]
        del payload["seen"]["arguments"][3], payload["environment"]["JRS_MARK"]
        del payload["environment"]["TRACEPARENT"]  # Without a submitter's, the job's id names it.
        del payload["pid"], payload["watchdog"]

    assert forked == started


def test_it_is_born_with_its_mark(fork_server: ForkServer) -> None:
    """A scan of /proc finds the watchdog before this process knows of it."""
    mark = random_token()
    watchdog = fork_server.start(mark, OLD_MARK)

    assert len(marks.marked(marks.marks_of(mark))) == 1
    end(watchdog)
    assert marks.marked(marks.marks_of(mark)) == []


def test_modules_of_the_user_are_loaded_by_each_attempt(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of the code is seen by the next attempt, as if it had been started."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    module = tmp_path / "fork_value.py"
    for value in (1, 2):
        module.write_text(f"VALUE = {value}\n")
        assert run("value").payload == value


def test_a_changed_environment_or_folder_is_that_of_the_next_attempt(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is forked has those of the fork server: another one is started."""
    run("look")
    first = servers()
    monkeypatch.setenv("FORKED", "1")
    monkeypatch.chdir(tmp_path)
    payload = run("look").payload

    assert payload["environment"]["FORKED"] == "1"
    assert payload["seen"]["folder"] == str(tmp_path)
    assert gone(first)
    assert len(servers()) == 1


@pytest.mark.parametrize(
    "settings", [JobSettings(env={"PYTHONHASHSEED": "0"}), JobSettings(python=sys.executable)]
)
def test_what_only_exec_can_do_is_not_forked(run: Run, settings: JobSettings) -> None:
    """An interpreter and variables of the job's own; its watchdog is forked all the same."""
    payload = run("look", settings=settings).payload

    assert len(servers()) == 1
    for name, value in settings.env.items():
        assert payload["environment"][name] == value


def test_temporary_files_where_the_job_wants_them_are_removed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the watchdog, whose own environment has no variables of the job."""
    monkeypatch.delenv("JRS_SCRATCH", raising=False)
    settings = JobSettings(env={"SPARK_LOCAL_DIRS": str(tmp_path / "fast")})
    (place,) = run("spill", settings=settings).payload

    assert Path(place).parent == tmp_path / "fast"
    until(lambda: not os.listdir(place), "they are removed")


def test_many_at_once(fork_server: ForkServer) -> None:
    with ThreadPoolExecutor(32) as pool:
        watchdogs = list(pool.map(lambda _: start(fork_server), range(64)))
    assert len({watchdog.mark for watchdog in watchdogs if watchdog}) == 64
    assert len(servers()) == 1
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(end, watchdogs))


# -- faults of the fork server ------------------------------------------------------------------


def test_what_was_forked_survives_the_fork_server(
    backend: Backend, tmp_path: Path, fork_server: ForkServer
) -> None:
    """It is killed, and the attempt is not; the next one is started without it."""
    pids = tmp_path / "pids"
    runner = ProcessRunner(backend.url, PROGRAM, fork_server=fork_server)
    with Leader(backend, tmp_path / "files", runner=runner) as leader:
        catalog = JobCatalog(backend)
        catalog.submit(spec("one", f"{JOBS}:hang", arguments={"pids": str(pids)}))
        [attempt] = noted(pids, 1)
        [server] = servers()
        os.kill(server, signal.SIGKILL)
        until(lambda: state_of(server) in ("", "Z"), "it is dead")
        catalog.submit(spec("two", f"{JOBS}:hang", arguments={"pids": str(pids)}))
        both = noted(pids, 2)

        assert not gone([attempt])
        assert servers() == []
        assert leader.stop()
    assert gone(both)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_fork_server_that_fails_has_a_break(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Attempts are started without one meanwhile, and do not wait for it each time."""
    clock = FakeClock()
    with ForkServer(PROGRAM, backend.url, Runtime(clock=clock)) as server:
        end(start(server))
        [first] = servers()
        os.kill(first, number)
        with monkeypatch.context() as impatient:
            impatient.setattr(fork_server_process, "_PATIENCE", 0.5)
            assert start(server) is None
        assert gone([first])
        assert start(server) is None
        assert servers() == []
        clock.now += 61.0
        end(start(server))


def test_a_module_that_starts_a_thread_is_not_forked(backend: Backend, tmp_path: Path) -> None:
    """A forked process would not have the thread."""
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with ForkServer("threaded", backend.url) as server:
            assert start(server) is None


def test_marks_that_are_too_long_are_not_forked(fork_server: ForkServer) -> None:
    assert fork_server.start("m" * 65, OLD_MARK) is None
    assert fork_server.start("m", "o" * 1025) is None
    assert servers() == []


# -- its life -----------------------------------------------------------------------------------


def test_it_is_there_while_it_is_needed(backend: Backend) -> None:
    """It begins with the first attempt, and ends with its master's run."""
    with ForkServer(PROGRAM, backend.url) as server:
        assert servers() == []
        end(start(server))
        assert len(servers()) == 1
    assert servers() == []
    assert start(server) is None


def test_it_ends_with_its_master(tmp_path: Path) -> None:
    """The master is killed -9, and a child that it has forked lives on."""
    pids = tmp_path / "pids"
    with Masters((tmp_path / "store").as_uri(), cluster=CLUSTER) as masters:
        masters.start("m1")
        job = spec("job", f"{JOBS}:hang", arguments={"pids": str(pids)})
        JobCatalog(masters.backend).submit(job)
        noted(pids, 1)
        lines = command_lines(children(masters.leader().process.pid))
        [server] = [pid for pid, line in lines.items() if "fork_server" in line]
        masters.leader().kill()
        until(lambda: gone([server]), "the fork server has ended")


def test_a_forked_child_of_the_master_does_not_keep_it(backend: Backend) -> None:
    with ForkServer(PROGRAM, backend.url) as server:
        end(start(server))
        [pid] = servers()
        child = os.fork()
        if child == 0:
            time.sleep(3600.0)
        try:
            server._stop()
            assert gone([pid])
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_it_reaps_its_children(fork_server: ForkServer) -> None:
    """No zombie is left of a watchdog that has ended."""
    for _ in range(3):
        end(start(fork_server))
    [server] = servers()
    until(lambda: not children(server), "all are reaped")


# -- a host that has no room for the attempt's process -------------------------------------------


def test_a_master_with_very_many_descriptors(fork_server: ForkServer) -> None:
    """`select` takes none from 1024 on: no attempt could be started in a process."""
    with many_descriptors():
        end(start(fork_server))


def test_an_unforeseen_error_of_the_fork_server(
    fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt is started in another way."""

    def fails(*_: object) -> None:
        raise ValueError("unforeseen")

    monkeypatch.setattr(LaunchSocket, "receive", fails)

    assert start(fork_server) is None


FULL_ONCE = """
import os
begun, fork = os.getpid(), os.fork
def full_once():
    if os.getpid() != begun:  # In the watchdog, which the fork server has forked.
        try:
            os.unlink({flag!r})
        except FileNotFoundError:
            pass
        else:
            raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = full_once
"""


def test_a_watchdog_that_cannot_fork_is_no_death(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host has too many processes for a moment: the attempt is tried again, uncounted."""
    flag, site = tmp_path / "full", tmp_path / "site"
    flag.touch()
    site.mkdir()
    (site / "sitecustomize.py").write_text(FULL_ONCE.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", f"{site}:{os.environ.get('PYTHONPATH', '')}")

    result = run("look", restart=RestartPolicy(attempts=1))

    assert not flag.exists()
    assert result.attempt == 2
    assert "Resource temporarily unavailable" in result.attempts[0].ended


def test_no_thread_for_what_an_attempt_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that waits for its launch is gone, and what is raised is the host's fault."""

    def no_thread(pump: Pump) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Pump, "start", no_thread)
    before = children(os.getpid())

    with pytest.raises(OSError, match="can't start new thread"):
        AttemptProcess(PROGRAM, "", {}, OLD_MARK, None)

    assert children(os.getpid()) == before
