"""What happened, and what is happening: as an operator reads it, at the time and long after."""

from __future__ import annotations

import getpass
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.attempts import SparkApplication
from jrs.records.codec import encode
from jrs.records.model import AttemptRecord, JobSpec, MasterInfo, RunnerKind
from jrs.records.stop import StopMode, StopRecord, StopState
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.store.opening import open_backend
from jrs.testing.contract import lead
from tests.cli.conftest import Jrs
from tests.recovery.support import spoil
from tests.support import until

WAITING = SparkApplication("app-1", "spark://s:7077", waiting=True)
JOBS = """
import os, sys, time

def dies_once(job, mark):
    job.stage("ingest", lambda stage: 1)
    if job.attempt == 1:
        os.kill(os.getpid(), 9)
    return {"attempt": job.attempt}

def waits(job, gate):
    job.stage("ingest", lambda stage: (stage.output / "rows").write_text("1") and 1)
    while not os.path.exists(gate):
        time.sleep(0.02)

def boom(job):
    raise ValueError("no good")
"""


@pytest.fixture
def home(home: Path) -> Path:
    (home / "etl.py").write_text(JOBS)
    return home


@pytest.fixture
def start(home: Path, url: str) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts masters that print their events as JSON to NAME.log."""
    running = []

    def start(name: str) -> subprocess.Popen[bytes]:
        with (home / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", "jrs", "--backend", url, "master", "--name", name]
            running.append(
                subprocess.Popen([*command, "--ttl", "5", "--json"], cwd=home, stdout=log)
            )
        return running[-1]

    yield start
    for each in running:
        each.terminate()
        each.wait(60)


def events(home: Path, name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (home / f"{name}.log").read_text().splitlines()]


def leads(home: Path, name: str) -> None:
    """Wait until a master leads."""
    until(lambda: '"leading"' in (home / f"{name}.log").read_text(), f"{name} leads")


def test_a_job_is_known_after_its_end(
    jrs: Jrs, start: Callable[[str], subprocess.Popen[bytes]], home: Path
) -> None:
    """U7, U14, U20: after its end and clean-up, `show` says what ran, who submitted it, and where
    and how each attempt ended; after its expiry, its status and times. Its master reported the
    steps of its stages."""
    start("m1")
    done = jrs("submit", "night", "etl:dies_once", "--arg", "mark=7", "--delay", "0", "--wait")
    assert json.loads(done.stdout) == {"attempt": 2}, done.stderr
    until(lambda: "clean" in jrs("list").stdout.split(), "it is cleaned up")
    shown = jrs("show", "night").stdout
    whole = json.loads(jrs("show", "night", "--json").stdout)["entry"]["result"]

    host = re.escape(socket.gethostname())
    for said in (
        r"entry point: etl:dies_once",
        r'arguments: +\{"mark": 7\}',
        rf"submitted: +20\d\d-.* by {re.escape(getpass.getuser())}@{host}",
        rf"attempt 1: +20.* to 20.* on {host}, pid \d+, by m1 in epoch 1: "
        r"its process was killed by signal 9",
        rf"attempt 2: +20.* to 20.* on {host}, pid \d+, by m1 in epoch 1: finished",
        r"stage ingest: +attempt 1, .*, skipped by the last attempt",
    ):
        assert re.search(said, shown), (said, shown)
    first, last = whole["attempts"]
    assert first["pid"] != last["pid"]
    reported = [(event["kind"], event["stage"]) for event in events(home, "m1") if event["stage"]]
    assert reported == [
        ("stage-begun", "ingest"),
        ("stage-finished", "ingest"),
        ("stage-skipped", "ingest"),
    ]
    decided = [event["message"] for event in events(home, "m1") if event["kind"] == "decision"]
    assert decided[0] == "starting [recover]"
    assert "ended; its resources are being cleaned up [clean up]" in decided
    explained = jrs("explain", "night").stdout
    assert re.match(r"night: has FINISHED at .*; nothing left to do \[skip\]", explained)
    check_history(jrs)

    assert jrs("expire", "--older-than", "0").returncode == 0
    expired = jrs("show", "night").stdout
    for said_then in (r"status: +FINISHED", r"submitted: +20", r"started: +20", r"finished: +20"):
        assert re.search(said_then, expired), expired
    listed = jrs("list", "--state", "expired").stdout
    assert "FINISHED" in listed


def check_history(jrs: Jrs) -> None:
    """The history of the job ``night`` has who did what, and the decision of then."""
    entries = json.loads(jrs("history", "night", "--json").stdout)
    assert [(one["kind"], one["attempt"], one["action"]) for one in entries] == [
        ("submitted", None, None),
        ("attempt", None, "recover"),
        ("stage_begun", 1, None),
        ("stage", 1, None),
        ("died", None, None),
        ("attempt", None, "recover"),
        ("ended", 2, None),
        ("clean", None, "clean up"),
    ]
    assert entries[0]["by"] == f"{getpass.getuser()}@{socket.gethostname()}"
    assert {one["by"] for one in entries[1:]} == {"m1"}
    assert entries[1]["facts"] == {"spec": "readable"}
    assert entries[0]["request"] == "jrs submit --arg --delay --wait"
    assert entries[4]["about"] == {"host": socket.gethostname(), "exit_status": -9}
    shown = jrs("history", "night", "--limit", "3").stdout
    assert "attempt 2 was started [recover]" in shown
    assert "attempt 1 was started" not in shown
    then = jrs("explain", "night", "--epoch", "1").stdout
    assert then.startswith("night: ended; its resources are being cleaned up [clean up]\n")
    assert "decided by m1 in epoch 1" in then
    assert "  result: dirty\n" in then
    clock = datetime.now(UTC).strftime("%H:%M:%S.%f")
    for at in ("0s", clock):
        assert json.loads(jrs("explain", "night", "--at", at, "--json").stdout)["by"] == "m1"
    for wrong, said in (
        (("history", "morning"), "there is no job 'morning'"),
        (("history", "night", "--limit", "0"), "0 is not in the range"),
        (("explain", "night", "--at", "yore"), "yore"),
        (("explain", "night", "--at", "3650d"), "has no such decision: see jrs history night"),
        (("explain", "night", "--epoch", "9"), "has no such decision"),
        (("explain", "night", "--epoch", "0"), "0 is not in the range"),
    ):
        refused = jrs(*wrong)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert said in refused.stderr


def test_elections(jrs: Jrs, start: Callable[[str], subprocess.Popen[bytes]], home: Path) -> None:
    """Of a master that was killed its successor says that it lost its leadership; one that was
    stopped has said itself that it resigned."""
    killed = start("m1")
    leads(home, "m1")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    stopped = start("m2")
    leads(home, "m2")
    stopped.terminate()
    stopped.wait()

    found = json.loads(jrs("history", "--json").stdout)
    assert [(one["kind"], one["by"], one["epoch"]) for one in found] == [
        ("elected", "m1", 1),
        ("lost", "m1", 1),
        ("elected", "m2", 2),
        ("resigned", "m2", 2),
    ]
    assert found[2]["facts"]["pid"] == stopped.pid
    shown = jrs("history", "--limit", "1").stdout
    assert "resigned: it was stopped" in shown
    assert "elected" not in shown
    for wrong in (("--after", "x"), ("--follow", "--after", "x"), ("--after", "9~a~b")):
        refused = jrs("history", *wrong)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def test_the_history_of_all_jobs_is_followed(
    jrs: Jrs, start: Callable[[str], subprocess.Popen[bytes]], home: Path, url: str
) -> None:
    """A follower that is killed resumes with the cursor of the last line that it has printed: each
    event is there once, over a failover."""
    killed = start("m1")
    leads(home, "m1")
    command = [sys.executable, "-m", "jrs", "--backend", url, "history", "-f", "--json"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, cwd=home) as first:
        assert first.stdout is not None
        lines = [json.loads(_first_line(jrs, first))]
        first.kill()
    cursor = lines[-1]["cursor"]
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    start("m2")
    leads(home, "m2")
    jrs("submit", "one", "etl:dies_once", "--arg", "mark=9", "--delay", "0", "--wait")
    until(lambda: "one:" not in jrs("list", "--state", "dirty").stdout, "it is clean")

    def told() -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(
            jrs("history", "--after", cursor, "--json").stdout
        )
        return found

    until(
        lambda: any((one["job_id"], one["kind"]) == ("one", "clean") for one in told()),
        "the end of the job is told",
    )
    rest = told()
    of_job = [one["id"] for one in [*lines, *rest] if one["job_id"] == "one"]
    assert of_job == [one["id"] for one in json.loads(jrs("history", "one", "--json").stdout)]
    assert [one["kind"] for one in rest if one["job_id"] is None] == ["lost", "elected"]
    shown = jrs("history", "--after", cursor).stdout
    assert re.search(r" one +m2 +2 +clean", shown), shown


def _first_line(jrs: Jrs, follower: subprocess.Popen[bytes]) -> bytes:
    """Return the first line of a follower: jobs are submitted until it has begun to look."""
    assert follower.stdout is not None
    waiting = select.poll()
    waiting.register(follower.stdout, select.POLLIN)
    number = 0
    while not waiting.poll(500):
        jrs("submit", f"first-{number}", "etl:dies_once", "--arg", "mark=7")
        number += 1
    return follower.stdout.readline()


def test_nobody_leads(
    jrs: Jrs, start: Callable[[str], subprocess.Popen[bytes]], home: Path, url: str
) -> None:
    """U8: when no master leads, every command that speaks of a running job says so, and none says
    that it runs."""
    leader = start("m1")
    jrs("submit", "long", "etl:waits", "--arg", f"gate={home / 'gate'}")
    until(lambda: "running on" in jrs("explain", "long").stdout, "it runs")
    assert re.search(
        rf"long: running on {socket.gethostname()} since .* UTC \[leave\]",
        jrs("explain", "long").stdout,
    )
    leader.send_signal(signal.SIGKILL)
    leader.wait()
    with open_backend(url) as backend:
        (info,) = Registry(backend).masters()
        Registry(backend, now=lambda: 1_000_000_000.0).put(info)  # Its last heartbeat is old.

    since = "no master leads since 2001-09-09 01:46:40 UTC"
    assert f"waiting: {since}" in jrs("explain", "long").stdout
    assert "starting [recover]" in jrs("explain", "long").stdout
    assert since in jrs("show", "long").stdout
    listed = jrs("list")
    assert since in listed.stderr
    assert "waiting: no master leads" in listed.stdout
    (row,) = [line for line in listed.stdout.splitlines() if line.strip().startswith("long")]
    assert re.search(r"\d\d:\d\d:\d\d +- ", row), row  # No time that counts up.
    assert since in jrs("fsck").stderr
    waited = jrs("wait", "long", "--timeout", "2")
    assert (waited.returncode, since in waited.stderr) == (3, True)
    again = jrs("submit", "sum", "etl:boom", "--no-check")
    assert again.returncode == 0


@pytest.mark.parametrize(
    ("record", "stop", "says"),
    [
        ({"epoch": 1}, False, "running on h1 since"),
        ({"epoch": 1, "spark": WAITING}, False, "waiting for executors of spark://s:7077"),
        ({"epoch": 1, "retry_at": 4e9, "deaths": 1}, False, "waiting: its attempt has ended"),
        ({"epoch": 1, "retry_at": 1.0, "deaths": 3}, False, "failing: it died as often"),
        ({"epoch": 1}, True, "held: its stop request cannot be read"),
        (None, False, "waiting: the driver's main has not reached it yet"),
    ],
    ids=["running", "without executors", "in back-off", "spent", "unreadable stop", "of a driver"],
)
def test_explain_and_list_agree_with_the_leader(
    jrs_here: Jrs, url: str, record: dict[str, Any] | None, stop: bool, says: str
) -> None:
    """U8: an attempt in back-off or spent does not run, nor does a job that main has not reached;
    a stop that cannot be read holds its job, and fsck names the job."""
    with open_backend(url) as backend, lead(backend) as leadership:
        entry, runner = ("m:f", RunnerKind.PROCESS)
        if record is None:
            entry, runner = ("driver:job", RunnerKind.THREAD)
        JobCatalog(backend).submit(JobSpec("job", entry, runner=runner))
        info = MasterInfo("m1", "h1", 1, 1.0, 1.0, leading=leadership.epoch)
        Registry(backend).put(info)
        if record is not None:
            attempt = AttemptRecord("job", master="m1", host="h1", started_at=5.0, **record)
            backend.commit(Create(keys.ATTEMPTS + "job", encode(attempt)))
        if stop:
            spoil(backend, keys.STOPS + "job")

        assert says in jrs_here("explain", "job").stdout
        if not stop:
            assert says in jrs_here("list").stdout
            assert says in jrs_here("show", "job").stdout
        fsck = jrs_here("fsck").stdout
        assert ("job 'job': held: its stop request cannot be read" in fsck) is stop


def test_a_held_job_is_held_in_the_list(jrs_here: Jrs, url: str) -> None:
    """U8: a hold is stored as a stop, but nothing has suspended the job."""
    with open_backend(url) as backend:
        JobCatalog(backend).submit(JobSpec("job", "m:f"))
        held = StopRecord("job", StopMode.HOLD, StopState.DONE)
        backend.commit(Create(keys.STOPS + "job", encode(held)))

    listed = jrs_here("list").stdout
    assert "HELD" in listed
    assert "SUSPENDED" not in listed


def test_what_a_job_is_that_has_ended(
    jrs: Jrs, start: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    """U12, U19: a job that has ended is never said not to exist; a request that was carried out is
    a no-op that says so; a failure is told in short, and shown whole."""
    start("m1")
    failed = jrs("submit", "bad", "etl:boom", "--wait")
    assert failed.returncode == 1
    assert "ended FAILED: ValueError: no good" in failed.stderr
    assert "the whole failure: jrs show bad; its logs: jrs logs bad" in failed.stderr
    assert failed.stderr.count("no good") == 1
    assert "Traceback" not in jrs("wait", "bad").stderr
    assert "Traceback" in jrs("wait", "bad", "--json").stdout
    assert 'raise ValueError("no good")' in jrs("show", "bad").stdout
    assert "again and skip the stages that finished: jrs retry bad" in jrs("explain", "bad").stdout
    jrs("submit", "gone", "etl:waits", "--arg", "gate=/nowhere")
    jrs("cancel", "gone", "--wait")
    until(lambda: jrs("list", "--state", "dirty").stdout == "", "both are cleaned up")

    for command in (["cancel"], ["suspend"], ["drain"], ["resume"], ["snapshot", "create"],
                    ["fork", "--as", "new"], ["rescale", "--partitions", "4"],
                    ["upgrade", "--no-check", "--entry", "etl:boom"]):  # fmt: skip
        refused = jrs(*command, "bad")
        assert refused.returncode == 2
        assert re.search(r"job 'bad' is FAILED since 20\d\d-", refused.stderr), refused.stderr
        assert refused.stderr.count("\n") == 1
    again = jrs("cancel", "gone")
    assert (again.returncode, again.stderr) == (0, "gone is CANCELED already\n")
    unknown = jrs("wait", "nosuch")
    assert (unknown.returncode, "there is no job 'nosuch'" in unknown.stderr) == (2, True)


def test_lists(
    jrs_here: Jrs, jrs: Jrs, url: str, start: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    """U17: ended jobs are listed by the time of their end, status, tag and prefix."""
    with open_backend(url) as backend:
        for job, tags in (("a-1", ("t",)), ("a-2", ()), ("b-1", ("t", "x y"))):
            JobCatalog(backend).submit(JobSpec(job, "etl:boom", tags=tags))
    cut = jrs_here("list", "--sort", "ended", "--limit", "1")
    assert cut.stderr.endswith("more jobs: repeat it with --after unfinished:a-1\n")
    start("m1")
    for job in ("a-1", "a-2", "b-1"):
        jrs("wait", job)

    def ids(*arguments: str) -> list[str]:
        return [
            view["job_id"] for view in json.loads(jrs_here("list", "--json", *arguments).stdout)
        ]

    assert ids("--tag", "t") == ["a-1", "b-1"]
    assert ids("--tag", "x y", "--status", "FAILED") == ["b-1"]
    assert ids("--tag", "x y", "--status", "failed") == ["b-1"]
    assert ids("--prefix", "a-", "--since", "1h") == ids("--sort", "ended", "--prefix", "a-")
    assert ids("--until", "1h") == ids("--until", "2001-01-01") == []
    assert set(ids("--since", "2001-01-01T10:00")) == {"a-1", "a-2", "b-1"}
    newest = ids("--sort", "ended")
    assert ids("--sort", "ended", "--after", newest[0]) == newest[1:]
    assert ids("--sort", "ended", "--after", "unfinished:a-1") == newest
    assert ids("--sort", "ended", "--limit", "1") == newest[:1]
    refused = jrs_here("list", "--since", "yesterday")
    assert (refused.returncode, "--since is no time: 'yesterday'" in refused.stderr) == (2, True)
