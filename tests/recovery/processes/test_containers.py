"""Small containers: masters in PID namespaces of their own, as PID 1, and without /proc."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import attrs
import pytest

from jrs.records.policies import RestartPolicy
from jrs.recovery.processes import marks
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import MasterProcess, Masters
from jrs.testing.processes import children, command_lines
from jrs.testing.servers.fixtures import missing
from tests.recovery.support import CLUSTER, gone, job, noted, spec, state_of
from tests.support import until
from tests.unshared import as_root

__all__ = ["as_root"]

pytestmark = pytest.mark.usefixtures("as_root")

CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[[float], Masters]]:
    """Make masters on one folder, each of which may be in a PID namespace of its own."""
    if shutil.which("unshare") is None:
        missing("no 'unshare' on the PATH: apt-get install util-linux")
    with ExitStack() as stack:

        def make(ttl: float) -> Masters:
            url = (tmp_path / "store").as_uri()
            return stack.enter_context(Masters(url, cluster=CLUSTER, ttl=ttl))

        yield make


@attrs.frozen
class Process:
    """A process of a container, as the host sees it."""

    pid: int
    inside: int
    """Its pid in the container."""
    arguments: list[str]


def container_of(master: MasterProcess) -> list[Process]:
    """Return every process of a master's PID namespace."""
    [child] = children(master.process.pid)
    namespace = os.readlink(f"/proc/{child}/ns/pid")
    found = []
    for pid, line in command_lines().items():
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                status = Path(f"/proc/{pid}/status").read_text()
                inside = next(line for line in status.splitlines() if line.startswith("NSpid"))
                found.append(Process(pid, int(inside.split()[-1]), line.split()))
    return found


def zombies(master: MasterProcess) -> list[int]:
    """Return the zombies of a master's container. `ns/pid` of a zombie cannot be read."""
    pids = {process.pid for process in container_of(master)}
    parents = [*pids]
    while parents:
        born = set(children(parents.pop())) - pids
        pids |= born
        parents += born
    return [pid for pid in pids if state_of(pid) == "Z"]


def submit(masters: Masters, function: str, pids: Path, **arguments: object) -> None:
    JobCatalog(masters.backend).submit(
        spec(
            "job",
            job(function),
            arguments={"pids": str(pids), **arguments},
            restart=RestartPolicy(attempts=1),
        )
    )


def attempts(masters: Masters) -> list[int]:
    return marks.marked(marks.mark_of_cluster(masters.backend.url, CLUSTER))


def test_two_containers_of_one_host_never_run_a_job_twice(
    cluster: Callable[[float], Masters], tmp_path: Path
) -> None:
    """B7: the old leader hangs, and the new one cannot see its processes: the attempt is ended by
    its own watchdog before the next one is started."""
    masters = cluster(4.0)
    pids = tmp_path / "pids"
    old = masters.start("m1", prefix=CONTAINER)
    submit(masters, "hang", pids)
    noted(pids, 1)
    first = attempts(masters)
    masters.start("m2", prefix=CONTAINER)
    for process in container_of(old):
        if "master" in process.arguments:
            os.kill(process.pid, signal.SIGSTOP)
    noted(pids, 2)

    assert gone(first)
    assert len(attempts(masters)) == 1


def test_a_killed_container_leaves_its_lead_at_once(
    cluster: Callable[[float], Masters], tmp_path: Path
) -> None:
    """B7: with all of its processes its lock is gone."""
    masters = cluster(60.0)
    pids = tmp_path / "pids"
    old = masters.start("m1", prefix=CONTAINER)
    submit(masters, "family", pids)
    noted(pids, 5)
    first = attempts(masters)
    masters.start("m2", prefix=CONTAINER)
    old.kill()
    noted(pids, 10)

    assert gone(first)


def test_what_an_attempt_orphans_is_reaped(
    cluster: Callable[[float], Masters], tmp_path: Path
) -> None:
    """B12: with a master as PID 1, twenty orphans of a running attempt leave no zombie."""
    masters = cluster(30.0)
    master = masters.start("m1", prefix=CONTAINER)
    submit(masters, "litter", tmp_path / "pids", count=20)
    noted(tmp_path / "pids", 1)

    until(lambda: not zombies(master), "all of them are reaped", 20.0)


def test_what_a_watchdog_orphans_is_reaped(
    cluster: Callable[[float], Masters], tmp_path: Path
) -> None:
    """B12: when the watchdog is killed, PID 1 inherits the whole attempt, and reaps it."""
    masters = cluster(30.0)
    master = masters.start("m1", prefix=CONTAINER)
    submit(masters, "family", tmp_path / "pids")
    noted(tmp_path / "pids", 5)
    running = attempts(masters)
    for process in container_of(master):
        if "jrs.recovery.attempt.watchdog" in process.arguments:
            os.kill(process.pid, signal.SIGKILL)
    failed = JobResultStore(masters.backend).wait("job", 60).failure

    assert failed is not None
    assert failed.exit_status == -signal.SIGKILL
    assert gone(running)

    until(lambda: not zombies(master), "all of them are reaped", 20.0)


def test_pid_1_passes_on_what_it_is_told(
    cluster: Callable[[float], Masters], tmp_path: Path
) -> None:
    """B12: SIGTERM to PID 1 ends the master gracefully, with its attempts; its exit status is that
    of the container."""
    masters = cluster(30.0)
    master = masters.start("m1", prefix=CONTAINER)
    submit(masters, "hang", tmp_path / "pids")
    noted(tmp_path / "pids", 1)
    first = next(process for process in container_of(master) if process.inside == 1)
    os.kill(first.pid, signal.SIGTERM)

    assert master.process.wait(60) == 0
    assert attempts(masters) == []
    assert not JobResultStore(masters.backend).has_entry("job")
    assert any(event.kind == "resigned" for event in masters.events)


def run_master(tmp_path: Path, prefix: list[str]) -> subprocess.CompletedProcess[str]:
    url = (tmp_path / "store").as_uri()
    return subprocess.run(
        [*prefix, sys.executable, "-m", "jrs", "--backend", url, "master"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("prefix", "says"),
    [
        (["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"],
         "/proc is empty"),
        (["unshare", "--pid", "--fork", "--kill-child"], "/proc is of another PID namespace"),
    ],
    ids=["hidden", "of-the-host"],
)  # fmt: skip
def test_without_its_own_proc_no_master_starts(
    tmp_path: Path, prefix: list[str], says: str
) -> None:
    """B7: a master that could not find its attempts says so in one line, and what to do."""
    done = run_master(tmp_path, prefix)

    assert done.returncode != 0
    assert says in done.stderr
    assert "mount -t proc proc /proc" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_ordinary_user_finds_its_own_where_others_are_hidden(tmp_path: Path) -> None:
    """B7: ``hidepid=2`` hides the processes of other users, which cannot be of this cluster."""
    source = """
import os, subprocess
from jrs.recovery.processes import marks
marks.check_visible()
sleeper = subprocess.Popen(["sleep", "60"], env={**os.environ, "JRS_MARK": "inside"})
assert marks.marked(marks.marks_of("inside")) == [sleeper.pid]
assert len([name for name in os.listdir("/proc") if name.isdigit()]) == 2
sleeper.kill()
"""
    done = subprocess.run(
        [*CONTAINER, "sh", "-c", 'mount -o remount,hidepid=2 /proc && exec "$@"', "sh",
         "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
         sys.executable, "-c", source],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
