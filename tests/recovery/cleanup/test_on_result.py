"""`on_result` runs at least once, with retries, and not without end."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import InvalidInput, Unavailable
from jrs.records import keys
from jrs.records.model import CleanupJournal, JobResult, JobSpec, JobStatus
from jrs.records.on_result import OnResult
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.job_records import Spec
from jrs.recovery.cleanup.on_result import Notification
from jrs.recovery.leader.trust import Trust
from jrs.recovery.run_hook import PROGRAM
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from tests.recovery.support import Thing
from tests.support import BOUND, FakeClock, until

ENDED = 1000.0
WRITE = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


def python(program: str, *arguments: object) -> str:
    """Return a command that runs a program of Python."""
    return shlex.join([sys.executable, "-c", program, *map(str, arguments)])


@attrs.define
class EndedJob:
    """A job that has ended, with something to be told of its result."""

    backend: Backend
    clock: FakeClock
    thing: Thing
    trust: Trust = attrs.field(factory=Trust)

    def end(self, on_result: OnResult) -> None:
        spec = JobSpec("job", "etl.jobs:nightly", {"day": "x"}, on_result=on_result)
        JobCatalog(self.backend).submit(spec)
        result = JobResult("job", JobStatus.FINISHED, {"rows": 7}, finished_at=ENDED)
        JobResultStore(self.backend).create_dirty(result, None)

    def cleanup(self) -> JobCleanup:
        hook = Notification(self.backend, self.trust.check, self.clock, PROGRAM)
        return JobCleanup(self.backend, [hook, self.thing, Spec(self.backend)])

    def clean_up(self) -> CleanupJournal:
        return self.cleanup().run("job", None)

    def is_clean(self) -> bool:
        return JobResultStore(self.backend).has_clean("job")


@pytest.fixture
def ended(backend: Backend) -> EndedJob:
    return EndedJob(backend, FakeClock(), Thing("thing"))


def test_a_command_gets_the_result_once(ended: EndedJob, tmp_path: Path) -> None:
    """It reads the result as JSON; a pass that repeats for another resource does not run it."""
    told = tmp_path / "told"
    ended.end(OnResult(python(WRITE, told)))
    ended.thing.broken = OSError("busy")
    ended.clean_up()
    ended.thing.broken = None

    assert not ended.clean_up().problems
    (line,) = told.read_text().splitlines()
    assert json.loads(line)["payload"] == {"rows": 7}
    assert json.loads(line)["status"] == "FINISHED"
    assert ended.is_clean()


def test_an_entry_point_is_called_with_the_result(ended: EndedJob, tmp_path: Path) -> None:
    """A function gets the same JSON, in a process of its own."""
    module = tmp_path / "hooks.py"
    told = tmp_path / "told"
    module.write_text(
        f"import os\ndef tell(result):\n    open({str(told)!r}, 'w').write("
        "f\"{result['job_id']} {os.getpid()}\")\n"
    )
    ended.end(OnResult(f"{module}:tell"))

    assert not ended.clean_up().problems
    job_id, pid = told.read_text().split()
    assert job_id == "job"
    assert int(pid) != os.getpid()


def test_a_failure_is_tried_again(ended: EndedJob, tmp_path: Path) -> None:
    """Until it succeeds the result is dirty, the spec stays, and the journal says why."""
    flag = tmp_path / "flag"
    program = "import os, sys; sys.exit(0 if os.path.exists(sys.argv[1]) else 'no such host')"
    ended.end(OnResult(python(program, flag)))
    journal = ended.clean_up()

    assert "exit status 1: no such host" in journal.problems["on_result"]
    assert journal.done == ("thing",)
    assert ended.backend.get(keys.JOBS + "job") is not None
    assert not ended.is_clean()

    flag.touch()

    assert not ended.clean_up().problems
    assert ended.is_clean()
    assert ended.backend.get(keys.JOBS + "job") is None


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (python("import sys; sys.exit(3)"), "exit status 3"),
        ("/no/such/program", "No such file or directory"),
        ("no.such.module:tell", "No module named"),
    ],
)
def test_after_its_deadline_it_is_given_up(ended: EndedJob, command: str, why: str) -> None:
    """It does not keep the result dirty; the job shows it for as long as it has a result."""
    ended.end(OnResult(command, deadline=60.0))
    ended.clock.now = ENDED + 59.0
    assert why in ended.clean_up().problems["on_result"]
    ended.clock.now = ENDED + 60.0
    journal = ended.clean_up()

    assert not journal.problems
    assert ended.is_clean()
    view = JobCatalog(ended.backend).view("job")
    assert view.cleanup is not None
    assert why in view.cleanup.given_up["on_result"]

    JobResultStore(ended.backend).delete("job")

    left = [one.key for one in ended.backend.scan("") if not one.key.startswith(keys.FEED)]
    assert left == [keys.TOMBSTONES + "job"]


def test_one_that_hangs_is_killed(ended: EndedJob, tmp_path: Path) -> None:
    """After its timeout nothing of it runs, children included."""
    pids = tmp_path / "pids"
    program = (
        "import os, subprocess, sys; child = subprocess.Popen(['sleep', '1000']); "
        "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid}'); child.wait()"
    )
    ended.end(OnResult(python(program, pids), timeout=2.0))

    assert "killed after 2 s" in ended.clean_up().problems["on_result"]
    for pid in map(int, pids.read_text().split()):
        until(lambda: not is_alive(pid), "it is gone")  # noqa: B023


def test_one_that_outlasts_its_pass_is_not_run_again(ended: EndedJob, tmp_path: Path) -> None:
    """The next pass takes how it has ended, also if the journal cannot be written at first."""
    told, hold = tmp_path / "told", tmp_path / "hold"
    os.mkfifo(hold)
    ended.end(OnResult(python(f"{WRITE}; open(sys.argv[2]).read()", told, hold), timeout=BOUND))
    ended.thing.broken = OSError("busy")
    cleanup = ended.cleanup()
    assert "has not ended in time" in cleanup.run("job", None, timeout=0.5).problems["on_result"]
    assert "earlier try" in cleanup.run("job", None, timeout=0.5).problems["on_result"]
    hold.write_text("")
    until(lambda: not hooks(), "it has ended")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleanup, "_write", fail)
        with pytest.raises(Unavailable):
            cleanup.run("job", None)
    assert "on_result" in cleanup.run("job", None).done
    ended.thing.broken = None
    assert not cleanup.run("job", None).problems
    assert len(told.read_text().splitlines()) == 1


def test_one_that_is_killed_after_its_pass_is_given_up(ended: EndedJob) -> None:
    """Its deadline counts, however short the passes are."""
    ended.end(OnResult("sleep 1000", timeout=1.0, deadline=60.0))
    ended.clock.now = ENDED + 60.0
    cleanup = ended.cleanup()
    until(lambda: not cleanup.run("job", None, timeout=0.2).problems, "it is given up", 20.0)

    assert ended.is_clean()
    view = JobCatalog(ended.backend).view("job")
    assert view.cleanup is not None
    assert "killed after 1 s; it is not run again" in view.cleanup.given_up["on_result"]


def hooks() -> list[str]:
    """Return the threads in which a hook runs."""
    return [one.name for one in threading.enumerate() if one.name.startswith("jrs-cleanup-job")]


def fail(*arguments: object) -> None:
    raise Unavailable("the disk is full")


def test_what_it_prints_takes_no_memory(ended: EndedJob) -> None:
    """Of a command that prints very much the end is kept, and not in the memory of the leader."""
    program = "import sys; [print('x' * 1_000_000) for _ in range(100)]; sys.exit('no such host')"
    ended.end(OnResult(python(program)))
    tracemalloc.start()
    try:
        problem = ended.clean_up().problems["on_result"]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert problem.endswith("x no such host")
    assert most < 20_000_000


def test_what_it_leaves_behind_does_not_count(ended: EndedJob, tmp_path: Path) -> None:
    """It has succeeded once it has ended with 0, also if what it started could still print."""
    pid = tmp_path / "pid"
    program = (
        "import subprocess, sys; child = subprocess.Popen(['sleep', '1000'], "
        "start_new_session=True); open(sys.argv[1], 'w').write(str(child.pid))"
    )
    ended.end(OnResult(python(program, pid)))
    try:
        assert not ended.clean_up().problems
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_it_may_read_nothing_and_print_nothing(ended: EndedJob, tmp_path: Path) -> None:
    """Such a command succeeds, too, whatever the size of the result."""
    told = tmp_path / "told"
    program = "import os, sys; os.close(0); os.close(1); os.close(2); open(sys.argv[1], 'w')"
    ended.end(OnResult(python(program, told)))

    assert not ended.clean_up().problems
    assert told.exists()


def test_it_dies_with_its_master(ended: EndedJob, tmp_path: Path) -> None:
    """No run outlives a master that is killed: the next master's would run next to it."""
    started = tmp_path / "started"
    program = (
        "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}.'); time.sleep(999)"
    )
    url = (tmp_path / "store").as_uri()
    with open_backend(url, cluster="test") as backend:
        EndedJob(backend, ended.clock, ended.thing).end(OnResult(python(program, started)))
    master = subprocess.Popen([sys.executable, "-c", MASTER, url])
    try:
        pid = int(until(lambda: written(started), "it runs"))
    finally:
        master.kill()
        master.wait()

    until(lambda: not is_alive(pid), "it is gone")


MASTER = """
import sys, time
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.on_result import Notification
from jrs.recovery.run_hook import PROGRAM
from jrs.store.opening import open_backend
with open_backend(sys.argv[1], cluster="test") as backend:
    hook = Notification(backend, lambda *_: None, time.time, PROGRAM)
    JobCleanup(backend, [hook]).run("job", None)
"""


def written(path: Path) -> str:
    text = path.read_text() if path.exists() else ""
    return text.removesuffix(".") if text.endswith(".") else ""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("run", "allowed"),
    [("evil.mod:tell", False), ("/bin/sh -c etl.x:f", False), ("etl.hooks:f", True)],
)
def test_masters_run_only_what_they_allow(ended: EndedJob, run: str, allowed: bool) -> None:
    """`--allow-entry` counts for `on_result`, too, whatever the spec says."""
    ended.trust = Trust(allow=("etl.*",))
    ended.end(OnResult(run, deadline=0.0))
    said = ended.clean_up().given_up["on_result"]

    assert ("they allow etl.*" in said) is not allowed
    assert ended.is_clean()


def test_a_master_that_may_run_it_comes_later(ended: EndedJob, tmp_path: Path) -> None:
    """What one master must not run is not given up before the deadline: the next master may."""
    told = tmp_path / "told"
    ended.trust = Trust(allow=("etl.*",))
    ended.end(OnResult(python("import sys; open(sys.argv[1], 'w')", told)))
    ended.clean_up()
    assert not ended.is_clean()

    ended.trust = Trust()
    ended.clean_up()
    assert told.exists()
    assert ended.is_clean()


@pytest.mark.parametrize(
    "make",
    [
        lambda: OnResult(""),
        lambda: OnResult("a\nb"),
        lambda: OnResult("/opt/x 'quote"),
        lambda: OnResult("x" * 5000),
        lambda: OnResult("x", timeout=-1.0),
        lambda: OnResult("x", deadline="1h"),  # type: ignore[arg-type]
        lambda: OnResult(7),  # type: ignore[arg-type]
    ],
)
def test_bad_input(make: Callable[[], OnResult]) -> None:
    with pytest.raises(InvalidInput):
        make()
