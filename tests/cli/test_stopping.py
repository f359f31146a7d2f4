"""``jrs suspend``, ``drain`` and ``jrs resume``, as programs, on real masters."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jrs.cli.suspend import telling_unled
from jrs.records.model import JobResult, JobStatus, StopMode
from jrs.recovery.inspect.explain import Explanation
from jrs.recovery.rules.decision import Action
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.stop_transitions import StopEvent
from jrs.store.stops import JobStops
from jrs.testing.contract import lead
from tests.support import until

from .conftest import Jrs


def test_suspend_and_resume(jrs: Jrs, master: subprocess.Popen[bytes]) -> None:
    """S1, S4: stopping needs no options; the job is SUSPENDED without a result, and resumes."""
    jrs("submit", "long", "jobs_here:sleeps")
    until_started(jrs, "long")
    stopped = jrs("suspend", "long", "--because", "deploy")

    assert stopped.returncode == 0, stopped.stderr
    assert "jrs resume long" in stopped.stderr

    shown = json.loads(jrs("show", "long", "--json").stdout)

    assert shown["status"] == "SUSPENDED"
    assert shown["entry"] is None
    assert "deploy" in jrs("list").stdout
    assert "suspended" in jrs("explain", "long").stdout
    again = jrs("suspend", "long")
    assert (again.returncode, "is suspended already" in again.stderr) == (0, True)

    assert jrs("resume", "long").returncode == 0
    again = jrs("resume", "long")
    assert (again.returncode, "is not suspended" in again.stderr) == (0, True)
    assert json.loads(jrs("show", "long", "--json").stdout)["status"] == "RUNNING"


def until_started(jrs: Jrs, job_id: str) -> None:
    until(lambda: json.loads(jrs("show", job_id, "--json").stdout)["attempt"], "it was started")


def test_a_suspended_job_is_left_alone_by_the_next_leader(
    jrs: Jrs, master: subprocess.Popen[bytes], home: Path
) -> None:
    """Nobody starts it before it is resumed, and it can be canceled while it is suspended."""
    jrs("submit", "long", "jobs_here:sleeps")
    until_started(jrs, "long")
    jrs("suspend", "long")
    before = json.loads(jrs("show", "long", "--json").stdout)["attempt"]["attempt"]
    master.kill()
    master.wait()
    with subprocess.Popen(master.args, cwd=home) as other:
        jrs("submit", "sum", "jobs_here:add", "--wait", "--no-check")
        shown = json.loads(jrs("show", "long", "--json").stdout)
        canceled = jrs("cancel", "long", "--wait")
        other.terminate()

    assert (shown["status"], shown["attempt"]["attempt"]) == ("SUSPENDED", before)
    assert "CANCELED" in canceled.stderr


def test_a_drained_job_is_never_resumed(jrs: Jrs, master: subprocess.Popen[bytes]) -> None:
    """A job that has ended is neither stopped nor resumed."""
    jrs("submit", "sum", "jobs_here:add", "--wait")
    for command in (["resume", "sum"], ["suspend", "sum"], ["drain", "sum"]):
        refused = jrs(*command)

        assert refused.returncode == 2
        assert "has FINISHED at" in refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["suspend", "nobody"], "there is no job"),
        (["resume", "nobody"], "there is no job"),
        (["suspend", "a/b"], "job id"),
        (["suspend", "waiting", "--grace", "nan"], "not a duration"),
        (["suspend", "waiting", "--timeout", "-1"], "not a duration"),
    ],
)
def test_bad_input(jrs: Jrs, arguments: list[str], says: str) -> None:
    """One clear line, exit 2, and nothing is changed."""
    jrs("submit", "waiting", "jobs_here:add")
    refused = jrs(*arguments)

    assert refused.returncode == 2
    assert says in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert json.loads(jrs("show", "waiting", "--json").stdout)["stop"] is None


def test_waiting_for_a_stop_can_time_out(jrs: Jrs) -> None:
    """Without a leader the request stays, and the next one carries it out."""
    jrs("submit", "waiting", "jobs_here:add")
    late = jrs("suspend", "waiting", "--timeout", "0.1")

    assert late.returncode == 3
    assert json.loads(jrs("show", "waiting", "--json").stdout)["stop"]["mode"] == "suspend"


def test_a_job_that_is_held_is_not_drained(jrs: Jrs, url: str) -> None:
    """A client that waits for a drain is told that the job is held, why, and what to do."""
    jrs("submit", "waiting", "jobs_here:add")
    with open_backend(url, cluster="default") as backend, ThreadPoolExecutor() as pool:
        stopping = pool.submit(jrs, "drain", "waiting")
        stops = JobStops(backend)
        until(lambda: stops.get("waiting"), "the drain is asked for")
        stops.hold("waiting", "its plan has changed", lead(backend).fence)
        stopped = stopping.result()

    assert stopped.returncode == 1
    assert "waiting is held: its plan has changed; 'jrs resume waiting'" in stopped.stderr
    assert "continues the drain" in stopped.stderr
    assert "suspended" not in stopped.stderr


@pytest.mark.parametrize(
    "change", [["upgrade", "waiting", "--entry", "jobs_here:boom"],
               ["rescale", "waiting", "--partitions", "4"]], ids=lambda change: change[0]
)  # fmt: skip
@pytest.mark.parametrize(
    ("event", "says"),
    [
        ("hold", "waiting is held: its state is lost; 'jrs resume waiting' tries again"),
        ("end", "waiting ended FINISHED"),
        ("suspend", "another request has suspended waiting"),
    ],
)
def test_a_change_that_does_not_take_effect_is_no_success(
    jrs: Jrs, url: str, change: list[str], event: str, says: str
) -> None:
    """The job is held, ends, or is suspended before it restarts: exit 1, and what happened."""
    jrs("submit", "waiting", "jobs_here:add")
    with open_backend(url, cluster="default") as backend, ThreadPoolExecutor() as pool:
        changing = pool.submit(jrs, *change)
        stops = JobStops(backend)
        until(lambda: stops.get("waiting"), "the restart is asked for")
        with lead(backend) as leads:
            if event == "hold":
                stops.hold("waiting", "its state is lost", leads.fence)
            elif event == "end":
                ended = JobResult("waiting", JobStatus.FINISHED)
                JobResultStore(backend).create_dirty(ended, leads.fence)
            else:
                stop = stops.request("waiting", StopMode.SUSPEND)
                stops.advance(stop, StopEvent.COMPLETE, leads.fence)
        done = changing.result()

    assert done.returncode == 1
    assert says in done.stderr
    assert "from now on" not in done.stderr


@pytest.mark.parametrize(
    ("command", "ends"),
    [
        (["suspend", "waiting"], 1),
        (["drain", "waiting"], 0),
        (["cancel", "waiting", "--wait"], 0),
        (["upgrade", "waiting", "--entry", "jobs_here:boom"], 1),
        (["rescale", "waiting", "--partitions", "4"], 1),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_that_waits_says_that_no_master_leads(
    jrs: Jrs, home: Path, url: str, tmp_path: Path, command: list[str], ends: int
) -> None:
    jrs("submit", "waiting", "jobs_here:add")
    with (
        (tmp_path / "stderr").open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "jrs", "--backend", url, *command], cwd=home, stderr=stderr
        ) as waiting,
    ):
        says = (tmp_path / "stderr").read_text
        until(lambda: "no master has ever led" in says(), "it says what it waits for")
        with open_backend(url, cluster="default") as backend, lead(backend) as leads:
            ended = JobResult("waiting", JobStatus.FINISHED)
            JobResultStore(backend).create_dirty(ended, leads.fence)
        assert waiting.wait(60) == ends


def test_that_no_master_leads_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    """Again only once one has led meanwhile, whatever else changes."""
    nobody = "no master leads"
    tell = telling_unled()
    for action, nobody_leads in (
        (Action.RECOVER, nobody),
        (Action.LEAVE, nobody),
        (Action.LEAVE, ""),
        (Action.LEAVE, nobody),
    ):
        tell(Explanation("job", action, "a reason", (), nobody_leads=nobody_leads))

    assert capfd.readouterr().err == 2 * "jrs: no master leads\n"


def test_stop_still_works(jrs: Jrs) -> None:
    """The command and the option of the last release do what they did, and say what to use."""
    jrs("submit", "waiting", "jobs_here:add")
    stopped = jrs("stop", "waiting", "--no-wait", "--patience", "5")

    assert stopped.returncode == 0
    assert "deprecated. use 'jrs suspend' or 'jrs drain'" in stopped.stderr
    assert "deprecated. use '--grace'" in stopped.stderr
    stop = json.loads(jrs("show", "waiting", "--json").stdout)["stop"]
    assert (stop["mode"], stop["grace"]) == ("suspend", 5.0)
    assert "--patience" not in jrs("suspend", "--help").stdout
