"""The chaos kit on real processes: the examples of its page, every nemesis, every check."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from jrs.cli import cli
from jrs.contract.errors import InvalidInput
from jrs.contract.operations import Update
from jrs.records import keys
from jrs.testing.chaos import (
    Nemesis,
    Plan,
    World,
    begun,
    fenced,
    linearizable,
    no_overlap,
    nothing_left,
    nothing_lost,
    once_per_job,
    once_per_stage,
    outcomes,
    output_equals,
    protocol,
    serializable,
    undisturbed,
    watched,
)
from jrs.testing.chaos.checking.jobs import attempts_of
from jrs.testing.chaos.checking.run_itself import wrong_with
from jrs.testing.chaos.failure import ChaosFailure
from jrs.testing.chaos.faults import ALL, partition, skew, slow_disk
from jrs.testing.chaos.recorded import Verb
from jrs.testing.chaos.recorder import HISTORY
from jrs.testing.processes import all_pids, command_lines
from jrs.testing.servers import Server
from tests.chaos.page import run_example, save_examples
from tests.support import BOUND, until

CHECKS = (
    *(once_per_job, once_per_stage, no_overlap, nothing_lost, nothing_left, fenced),
    *(linearizable, serializable, outcomes, watched, protocol),
)


def work(job, target: str, seconds: float = 0.5) -> dict[str, str]:  # type: ignore[no-untyped-def]
    """The job of these tests: two stages, and a file of its own."""

    def write(stage) -> str:  # type: ignore[no-untyped-def]
        time.sleep(seconds)
        Path(target).mkdir(parents=True, exist_ok=True)
        (Path(target) / "rows.txt").write_text("one\ntwo\n")
        return "written"

    written = job.stage("write", write)
    return {"write": job.stage("read", lambda stage: written.result(), after=[written]).result()}


BACKENDS = pytest.mark.parametrize("backend", ["file", "etcd", "zookeeper"])


@BACKENDS
def test_ten_lines(backend: str, tmp_path: Path) -> None:
    """The page's ten lines run on each backend, with fewer copies and for a shorter time."""
    save_examples(tmp_path)
    test = tmp_path / "test_orders.py"
    test.write_text(test.read_text().replace("copies=50", "copies=3"))
    status, printed = run_example(tmp_path, f"test_orders.py::test_orders[{backend}]",
                                  "--chaos-seconds", "5", "--chaos-report", "kept")  # fmt: skip

    assert status == 0, printed
    (report,) = (tmp_path / "kept").iterdir()
    assert "Passed" in report.read_text()
    assert "kill master" in report.read_text()
    if backend == "file":
        assert "partition leader: 0 of 0 strikes hit anyone" in printed


@pytest.mark.soak
@BACKENDS
def test_ten_lines_as_they_stand(backend: str, tmp_path: Path) -> None:
    """The same: 50 copies, and a minute of faults."""
    save_examples(tmp_path)
    status, printed = run_example(tmp_path, f"test_orders.py::test_orders[{backend}]")

    assert status == 0, printed


def test_a_driver(tmp_path: Path) -> None:
    """The page's driver is started again until it has ended, and survives."""
    save_examples(tmp_path)
    status, printed = run_example(
        tmp_path, "test_driver.py::test_driver[file]", "--chaos-seconds", "6"
    )

    assert status == 0, printed


DRIVER = """
import os, time
import jrs

def load(job):
    while not os.path.exists("{stop}"):
        time.sleep(0.05)
    return 1

jrs.run(lambda driver: driver.run("load", load), os.environ["JRS_BACKEND"], name="week", ttl=2,
        cluster=os.environ["JRS_CLUSTER"], storage=os.environ["JRS_STORAGE"])
"""


def test_a_driver_that_a_shell_starts(tmp_path: Path) -> None:
    """It is hit as any driver, and is one host, also if the shell alone is killed. What a plan
    never hits is told."""
    stop, program = tmp_path / "stop", tmp_path / "program.py"
    program.write_text(DRIVER.format(stop=stop))
    nemesis = ALL["kill"]("jvm", every=0.1) | ALL["partition"]()
    with World(Plan(masters=0, seconds=60, nemesis=nemesis), "file", tmp_path / "run") as world:
        world.driver(["sh", "-c", f"{sys.executable} {program}; exit $?"], replicas=2)
        world.until(lambda: world.pids("leader"), "a driver leads")
        (leader,) = world.pids("leader")
        assert str(program) in command_lines([leader])[leader]
        assert leader in world.pids("driver")
        assert world.strike(ALL["kill"]("leader")) == [f"leader {leader}"]
        world.until(lambda: world.pids("leader") not in ([], [leader]), "another one leads")
        (shell,) = {host.process.process.pid for host in world.cluster.fleet.all.values()
                    if host.process and host.name == world.cluster.leading()}  # fmt: skip
        (left,) = world.pids("leader")
        os.kill(shell, signal.SIGKILL)
        until(lambda: left not in all_pids(), "its driver ends with it")
        stop.touch()
        run = world.check(once_per_job, nothing_lost, fenced, linearizable)
        missed = [line for line in world.without_effect() if "hit anyone" in line]

    strikes = run.notes["faults"]["kill jvm"]["strikes"]
    assert strikes > 0
    assert missed == [
        f"kill jvm: 0 of {strikes} strikes hit anyone",
        "partition leader: 0 of 0 strikes hit anyone (it has no meaning on file)",
    ]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "partition leader (it has no meaning on file)" in page


def test_jobs_of_a_driver_are_seen(tmp_path: Path) -> None:
    """Their attempts, which are threads, and what they return, which a run without faults compares;
    an id that it does not have is not taken for one that it has."""
    save_examples(tmp_path)
    program = tmp_path / "driver.py"
    # Tuesday returns what no other process does.
    text = program.read_text().replace("len(day)", 'len(day) if day == "monday" else os.getpid()')
    program.write_text(text)
    with World(Plan(masters=0, seconds=30, timeout=60), "file", tmp_path / "run") as world:
        world.driver([sys.executable, str(program)])
        run = world.check(once_per_job, no_overlap, output_equals({"load-monday": 6}))
        with pytest.raises(ChaosFailure) as caught:
            world.check(output_equals(undisturbed), output_equals({"load-mondy": 6}))

    assert sorted(one.job_id for one in attempts_of(run)) == ["load-monday", "load-tuesday"]
    said = [one.message for one in caught.value.violations]
    assert any(one.startswith("the payload of load-tuesday is") for one in said)
    assert not any("load-monday" in one for one in said)
    assert "load-mondy has returned nothing: no job has that id" in said


@pytest.mark.parametrize(
    ("code", "timeout", "found"),
    [
        ("import sys; sys.exit(2)", 1.0, ["d1 had not ended", "d1 has asked", "no driver has"]),
        ("pass", BOUND, ["d1 has asked the store for nothing", "no driver has campaigned"]),
    ],
)
def test_a_driver_that_does_nothing_is_no_success(
    tmp_path: Path, code: str, timeout: float, found: list[str]
) -> None:
    """Whatever was asked for: here and where the checks run on Spark, which read its notes. One
    that fails is started again, and so never ends."""
    folder = tmp_path / "run"
    with World(Plan(masters=0, seconds=0, timeout=timeout), "file", folder) as world:
        world.driver([sys.executable, "-c", code])
        with pytest.raises(ChaosFailure) as caught:
            world.check(once_per_job, no_overlap, fenced)

    # How often it fails in this time is not certain.
    said = [one.message for one in caught.value.violations if one.check != "works"]
    assert [one.startswith(what) for one, what in zip(said, found, strict=True)] == [True] * len(
        said
    )
    assert wrong_with(folder) == list(caught.value.violations)
    checked = CliRunner().invoke(cli, ["chaos", "check", str(folder), "--check", "fenced"])
    assert "broken       all_ended" in checked.output


def test_every_nemesis(server: Server, tmp_path: Path) -> None:
    """Each of them hits what it should and heals it, and the jobs survive all of them together."""
    made = {
        name: make(*{"pause": [0.5], "slow_disk": [0.1], "skew": [30.0]}.get(name, []))
        for name, make in ALL.items()
        if name not in ("full_disk", "blackout")
    }
    plan = Plan(masters=2, backend=server.scheme, seconds=0, timeout=60)
    with World(plan, server.scheme, tmp_path / "run", server=server) as world:
        world.submit("job", work, copies=2, target=world.output / "{id}", seconds=2)
        world.until_stage("job-1", "write", begun)
        for name, nemesis in made.items():
            world.until(partial(world.strike, nemesis), f"{name} strikes")
        run = world.check(*CHECKS, output_equals(undisturbed))

    assert set(run.notes["ended"]) == {"job-1", "job-2"}
    assert watched.can_judge(run), "masters lived long enough for their watches"


def place(job, target: str, owner: str) -> dict[str, str]:  # type: ignore[no-untyped-def]
    """A job that returns where it has written, and what it is."""
    Path(target).mkdir(parents=True)
    (Path(target) / "rows.txt").write_text("one\ntwo\n")
    return {"at": f"{target}/rows.txt", "owner": owner, "id": job.job_id}


def deep(job, config: dict[str, list[str]]) -> None:  # type: ignore[no-untyped-def]
    """A job whose place is within an argument."""
    (target,) = config["targets"]
    Path(target).mkdir()
    (Path(target) / "rows.txt").write_text("one\n")


def test_jobs_that_return_their_id_and_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is that of the run without faults, and yet each returns what it should. The folder
    may be relative."""
    monkeypatch.chdir(tmp_path)
    with World(Plan(masters=1, seconds=0, timeout=60), "file", Path("run")) as world:
        world.submit("copy", place, copies=2, target=world.output / "{id}", owner="of {id}")
        world.submit("job", place, target=world.output / "job", owner="me")
        world.submit("deep", deep, copies=2, config={"targets": [world.output / "{id}"]})
        run = world.check(output_equals(undisturbed))

    rows = [one["files"] for name, one in run.notes["ended"].items() if name.startswith("deep")]
    assert [len(files) for files in rows] == [1, 1]
    assert len({*map(str, rows)}) == 1
    assert {path.name for path in world.output.iterdir()} == {
        *("job", "copy-1", "copy-2", "deep-1", "deep-2")
    }


def test_a_full_disk_and_a_blackout(tmp_path: Path) -> None:
    """Jobs end, although everything is killed at once, and the disk is full meanwhile."""
    nemesis = ALL["blackout"](every=3, until=4) | ALL["full_disk"](1, every=2)
    with World(Plan(masters=2, seconds=5, nemesis=nemesis), "file", tmp_path / "run") as world:
        world.submit("job", work, copies=4, target=world.output / "{id}")
        run = world.check(*CHECKS)

    assert any(event.f is Verb.STRIKE for event in run.events)


def test_what_a_failure_says(tmp_path: Path) -> None:
    """A record that was changed behind the fence is found: what, where the report is, and how to
    repeat the run; the kept run is evaluated in the same way."""
    folder = tmp_path / "run"
    plan = Plan(masters=1, seconds=1, timeout=3)
    with World(plan, "file", folder, again="pytest it") as world:
        world.submit("job", work, target=world.output)
        world.until(lambda: world.cluster.backend.get(keys.RESULTS + "job"), "it has a result")
        record = world.cluster.backend.get(keys.RESULTS + "job")
        assert record is not None
        changed = record.value.replace(b"written", b"changed")
        world.cluster.backend.commit(Update(record.key, changed, record.version))
        with pytest.raises(ChaosFailure) as caught:
            world.check(once_per_job, nothing_left)

    said = str(caught.value)
    assert "two results of job were seen" in said
    assert f"report: {folder / 'report.html'}" in said
    assert "again: pytest it" in said
    assert "fsck" in said  # The record's checksum is wrong.
    page = (folder / "report.html").read_text()
    assert "violation" in page
    assert "two results of job were seen" in page
    checked = CliRunner().invoke(cli, ["chaos", "check", str(folder), "--json",
                                       "--check", "once_per_job"])  # fmt: skip
    assert checked.exit_code == 1
    assert json.loads(checked.output)["violations"][0]["check"] == "once_per_job"


def test_what_a_job_that_has_not_ended_waits_for(tmp_path: Path) -> None:
    """The failure and the report say what its leader does with it, and what it did last."""
    folder = tmp_path / "run"
    with World(Plan(masters=1, seconds=0, timeout=0), "file", folder) as world:
        world.submit("job", loud, seconds=600.0)
        world.until_stage("job", "write", begun)
        with pytest.raises(ChaosFailure) as caught:
            world.check(once_per_job)

    page = (folder / "report.html").read_text()
    for said in (str(caught.value), page):
        assert "job has not ended:" in said or "What has not ended" in said
        assert "running on " in said
        assert "m1, epoch 1: stage-begun stage write" in said
        assert "it sleeps" in said  # Printed by its attempt.


def loud(job, seconds: float) -> None:  # type: ignore[no-untyped-def]
    """A job that says what it does."""
    print("it sleeps", file=sys.stderr, flush=True)
    job.stage("write", lambda stage: time.sleep(seconds))


def wrong(job, text: str) -> None:  # type: ignore[no-untyped-def]
    """A job that raises an exception whatever the run does to it."""
    job.stage("never", lambda stage: int(text)).result()


def unusable(job) -> None:  # type: ignore[no-untyped-def]
    """A job that asks for what does not exist: jrs tries it no second time."""
    job.stage("no/name", lambda stage: None)


def test_a_job_and_a_driver_that_are_wrong(tmp_path: Path) -> None:
    """The run ends long before its time, and says what the jobs and the driver said last. What is
    no check is refused before the run ends."""
    folder = tmp_path / "run"
    with World(Plan(masters=1, seconds=600, timeout=600), "file", folder) as world:
        world.submit("job", wrong, copies=2, text="no number")
        world.driver([sys.executable, "no_such_driver.py"])
        for no_check in ("fenced", output_equals):
            with pytest.raises(InvalidInput, match="no check: "):
                world.check(no_check)  # type: ignore[arg-type]
        with pytest.raises(TimeoutError, match="5 times without any fault"):
            world.until_stage("job-1", "never", timeout=600)
        world.submit("final", unusable)
        with pytest.raises(ChaosFailure) as caught:
            world.check(fenced)

    page = (folder / "report.html").read_text()
    for said in (str(caught.value), page.replace("&#39;", "'")):
        assert "job-1 has failed" in said
        assert "without any fault: ValueError: invalid literal for int()" in said
        assert "job.stage(" in said  # The traceback.
        assert "d1 has failed" in said
        assert "can't open file" in said
        assert "final is FAILED: InvalidInput: " in said
    with pytest.raises(InvalidInput, match="no outputs by the ids of jobs: 42"):
        output_equals(42)


def test_a_run_without_a_job_leaves_nothing(tmp_path: Path) -> None:
    """`jrs fsck` finds nothing wrong with a storage in which no job has written."""
    program = (
        "import os, jrs\n"
        "jrs.run(lambda driver: None, os.environ['JRS_BACKEND'], name='none', "
        "cluster=os.environ['JRS_CLUSTER'], storage=os.environ['JRS_STORAGE'])"
    )
    with World(Plan(masters=0, seconds=60), "file", tmp_path / "run") as world:
        world.driver([sys.executable, "-c", program])
        run = world.check(nothing_left)

    assert run.notes["left"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tests.chaos.test_kit:other"], "there is no 'other'"),
        (["tests.chaos.test_kit:work", "--arg", "targets=x"], "there is no argument 'targets'"),
        (["tests.chaos.test_kit:work"], "target"),
    ],
)
def test_a_job_that_cannot_run_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    """`jrs chaos run` says so before it starts or makes anything."""
    folder = tmp_path / "run"
    done = CliRunner().invoke(cli, ["chaos", "run", *words, "--folder", str(folder)])

    assert isinstance(done.exception, InvalidInput)
    assert said in str(done.exception)
    assert not folder.exists()


def test_a_job_in_the_working_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`jrs chaos run` looks for modules where its masters do: in the working folder."""
    (tmp_path / "etl_here.py").write_text("def nightly(job, day):\n    return day\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = CliRunner().invoke(cli, ["chaos", "run", "etl_here:nightly"])

    assert isinstance(done.exception, InvalidInput)
    assert "the argument 'day' is missing" in str(done.exception)


def test_a_world_leaves_nothing(tmp_path: Path) -> None:
    """No process lives when a world is closed in the middle of a run."""
    with World(Plan(masters=2, seconds=60), "file", tmp_path / "run") as world:
        world.submit("job", work, target=world.output, seconds=60)
        world.until_stage("job", "write", begun)
        mine = {*world.pids("master"), *world.pids("child")}

        assert len(mine) >= 4  # Two masters, a watchdog and an attempt.

    until(lambda: not mine & set(all_pids()), "all of them have ended")


def of_run(folder: Path) -> dict[int, str]:
    """Return the state of each process that the run in a folder has started."""
    found = {}
    for pid in all_pids():
        with suppress(OSError):  # It has ended.
            of = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if f"{HISTORY}={folder}/history".encode() in of:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
                found[pid] = stat.split()[0]
    return {pid: state for pid, state in found.items() if state != "Z"}


def has_stopped(folder: Path) -> bool:
    return "T" in of_run(folder).values()


def test_a_run_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    """No process lives or is stopped, and nothing is mounted, when a CI ends `jrs chaos run`."""
    kits = {}
    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGKILL):
            folder = tmp_path / number.name
            nemeses = 'pause(600, "attempt", every=0.2) | full_disk(every=500)'
            arguments = (f"target={tmp_path}/{{id}}", "seconds=600")
            command = [sys.executable, "-m", "jrs", "chaos", "run", f"{__file__}:work", "--folder",
                       str(folder), "--masters", "1", "--seconds", "600", "--copies", "1",
                       "--nemesis", nemeses]  # fmt: skip
            command += [word for one in arguments for word in ("--arg", one)]
            kits[number, folder] = stack.enter_context(subprocess.Popen(command))
            stack.callback(kits[number, folder].kill)
        for (number, folder), kit in kits.items():
            until(partial(has_stopped, folder), "an attempt is stopped")
            kit.send_signal(number)
            kit.wait()
    until(lambda: not any(of_run(folder) for _, folder in kits), "all have ended")
    mounts = Path("/proc/self/mounts")
    until(lambda: str(tmp_path) not in mounts.read_text(), "nothing is mounted")


def test_the_same_seed_strikes_the_same() -> None:
    """The schedule is a function of nemesis, seconds and seed."""
    from jrs.testing.chaos.strikes import schedule

    nemesis = ALL["kill"](every=2) | partition("one") | slow_disk(0.1) | skew(3)
    one, two = schedule(nemesis, 60, 7), schedule(nemesis, 60, 7)

    assert one == two
    assert one != schedule(nemesis, 60, 8)
    assert all(strike.at < 60 for strike in one)
    assert {strike.fault for strike in one} == {0, 1, 2, 3}
    assert schedule(Nemesis(), 60, 7) == []
    assert Random(one[0].seed).random() == Random(two[0].seed).random()
