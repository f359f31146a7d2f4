"""What the chaos kit says of single cases: of histories, of nemeses, of what it cannot check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from jrs.contract.errors import InvalidInput
from jrs.contract.operations import Create
from jrs.contract.texts import redacted
from jrs.contract.watch import Watch
from jrs.records.model import Failure, JobResult, JobSpec, JobStatus
from jrs.recovery.attempt_main import PROGRAM
from jrs.store.attempt_fence import NOBODY
from jrs.store.opening import open_backend
from jrs.testing.chaos import (
    Nemesis,
    Plan,
    chaos,
    kill,
    linearizable,
    nothing_lost,
    once_per_job,
    output_equals,
    pause,
    plugin,
    protocol,
    undisturbed,
)
from jrs.testing.chaos.checking.jobs import undisturbed_jobs
from jrs.testing.chaos.checking.tables import to_parquet
from jrs.testing.chaos.checking.verdict import Run, evaluated_nothing
from jrs.testing.chaos.cluster import ChaosCluster
from jrs.testing.chaos.faults import ALL, Fault
from jrs.testing.chaos.harm import Harms
from jrs.testing.chaos.hosts import Hosts
from jrs.testing.chaos.marks import MARK
from jrs.testing.chaos.meddling import Meddler
from jrs.testing.chaos.progress import Progress
from jrs.testing.chaos.reading import checks_of, nemesis_of, run_of
from jrs.testing.chaos.recorded import INCOMPLETE, Event, Kind, Verb, digest, events_of
from jrs.testing.chaos.recorded_watch import RecordedWatch
from jrs.testing.chaos.recorder import HISTORY, RecordedBackend, Recording, parts_of, recorded
from jrs.testing.chaos.report import strikes_by_nemesis
from jrs.testing.chaos.strikes import Strike, Striker, never_hit, schedule
from jrs.testing.chaos.submissions import LASTING, Submission, Submissions, copies_of
from jrs.testing.chaos.trials import Trials
from jrs.testing.masters import LoggedProcess, Masters
from jrs.testing.processes import all_pids, command_lines
from jrs.testing.servers import FINDERS, Server, ServerUnhealthy
from tests.support import until


class Writer:
    """Writes a history, one operation behind the other."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, f: Verb, answer: Kind, key: str = "", value: Any = None, **more: Any) -> None:
        number = len(self.events)
        asked = value if f is Verb.COMMIT else None
        read = None if f is Verb.COMMIT else value
        self.events += [
            Event("p.1", number, Kind.INVOKE, f, number * 10, key, asked, **more),
            Event("p.1", number, answer, f, number * 10 + 5, key, read, **more),
        ]

    def commit(self, *parts: list[Any], answer: Kind = Kind.OK) -> None:
        self.add(Verb.COMMIT, answer, value=list(parts), epoch=1, version=1)

    def let_in(self, *parts: list[Any]) -> None:
        self.commit(*parts, ["check", "jobs/j", 1])


def test_a_delete_of_unknown_outcome_may_have_happened() -> None:
    """A leader that was killed has removed a spec; the next one finds nothing to remove."""
    history = Writer()
    history.commit(["create", "jobs/j", "a"])
    history.commit(["create", "results/j", "b"], ["create", "dirty/j", "c"])
    history.commit(["delete", "jobs/j", None], answer=Kind.INFO)
    history.add(Verb.GET, Kind.OK, "jobs/j")
    history.commit(["delete", "dirty/j", None])

    assert protocol.violations(Run(history.events)) == []


def test_a_second_fence_that_is_closed_with_an_unknown_outcome() -> None:
    """All closed fences have one value, so that no read shows which commit has closed this one."""
    closed = digest(NOBODY)
    history = Writer()
    history.commit(["create", "jobs/j", "a"])
    history.let_in(["create", "fence/j", "first"], ["create", "attempts/j", "1"])
    history.commit(["update", "fence/j", closed, 2])
    history.let_in(["update", "fence/j", "second", 3], ["update", "attempts/j", "2", 2])
    history.commit(["update", "fence/j", closed, 4], answer=Kind.INFO)
    history.add(Verb.GET, Kind.OK, "fence/j", closed, version=5)
    history.let_in(["update", "fence/j", "third", 5], ["update", "attempts/j", "3", 4])

    assert protocol.violations(Run(history.events)) == []


def test_a_result_that_is_committed_until_an_answer_comes() -> None:
    """Each try writes the same value, so that no read shows which of them has happened."""
    history = Writer()
    history.commit(["create", "jobs/j", "a"])
    for _ in range(3):
        history.commit(["create", "results/j", "b"], ["create", "dirty/j", "c"], answer=Kind.INFO)
    history.add(Verb.GET, Kind.OK, "results/j", "b", version=2)
    history.commit(["delete", "jobs/j", None])

    assert protocol.violations(Run(history.events)) == []


@pytest.mark.parametrize("answer", [Kind.OK, Kind.INFO])
def test_a_result_may_expire(answer: Kind) -> None:
    """A tombstone takes its place in one commit, also if nobody learned that it did."""
    history = Writer()
    history.commit(["create", "results/j", "a"], ["create", "dirty/j", "b"])
    history.add(Verb.GET, Kind.OK, "results/j", "a", version=1)
    history.commit(["delete", "dirty/j", None])
    bury = ["create", "tombstones/j", "c"]
    history.commit(["delete", "results/j", 1], ["absent", "dirty/j"], bury, answer=answer)
    history.add(Verb.GET, Kind.OK, "tombstones/j", "c", version=3)
    history.add(Verb.GET, Kind.OK, "results/j")
    checks = protocol, once_per_job, nothing_lost, linearizable

    assert [one for check in checks for one in check.violations(Run(history.events))] == []


def test_an_attempt_that_is_let_in_next_to_another_one_is_found() -> None:
    """Without that read the fence may be open."""
    history = Writer()
    history.commit(["create", "jobs/j", "a"])
    history.let_in(["create", "fence/j", "first"], ["create", "attempts/j", "1"])
    history.let_in(["update", "fence/j", "second", 2], ["update", "attempts/j", "2", 2])

    (found,) = protocol.violations(Run(history.events))
    assert "not shut out" in found.message


def test_a_spec_that_is_left_is_found() -> None:
    """Without that delete the job is not clean."""
    history = Writer()
    history.commit(["create", "jobs/j", "a"])
    history.commit(["create", "results/j", "b"], ["create", "dirty/j", "c"])
    history.commit(["delete", "dirty/j", None])

    (found,) = protocol.violations(Run(history.events))
    assert "jobs/j is left" in found.message
    assert found.calls


def test_rules_that_cannot_be_checked_are_no_success() -> None:
    """If no order of the commits fits, the check says so."""
    history = Writer()
    history.commit(["create", "jobs/j", "a"])
    history.add(Verb.GET, Kind.OK, "jobs/j", "a", version=1)
    history.commit(["update", "jobs/j", "b", 1])
    history.add(Verb.GET, Kind.OK, "jobs/j", "b", version=2)
    history.add(Verb.GET, Kind.OK, "jobs/j", "a", version=1)

    assert linearizable.violations(Run(history.events))
    (found,) = protocol.violations(Run(history.events))
    assert "no order" in found.message


EVENTFUL = {
    "once_per_job",
    "once_per_stage",
    "no_overlap",
    "nothing_lost",
    "list_append",
    "watched",
}
"""The checks that look at what may not have happened."""


def test_what_did_not_happen_does_not_hold() -> None:
    """A check that has looked at nothing says so, until there is something to look at."""
    history = Writer()
    history.commit(["create", "masters/m1", "a"])
    checks = [one for one in checks_of(()) if not one.needs]

    def blind() -> set[str]:
        return {line.split()[0] for line in evaluated_nothing(checks, Run(history.events))}

    assert blind() == EVENTFUL
    history.commit(["create", "jobs/j", "b"])
    assert blind() == EVENTFUL - {"nothing_lost"}  # It finds the job without a result.
    history.commit(["create", "stages/j/s", "c"])
    history.commit(["create", "results/j", "d"], ["create", "lists/0", "one"])
    assert blind() == {"no_overlap", "watched"}
    history.add(Verb.ALIVE, Kind.INFO, "j", version=1)
    assert blind() == {"watched"}


@pytest.mark.parametrize(("at", "missed"), [(2.5, False), (3.5, False), (6.0, True)])
def test_faults_that_miss_all_jobs_are_told(at: float, missed: bool) -> None:
    """A job that runs when the faults are over, or before them, was tested by none. One that a
    fault has killed gave its last sign of life shortly before that."""
    alive = [Event("d1.1", number, Kind.INFO, Verb.ALIVE, number * 10**9, "j", version=1, epoch=1)
             for number in (1, 2, 3)]  # fmt: skip
    when = int(at * 10**9)
    strike = Event("world.1", 1, Kind.INVOKE, Verb.STRIKE, when, "kill driver", "driver 1")
    heal = Event("world.1", 1, Kind.INFO, Verb.HEAL, when + 1, "kill driver")

    assert bool(undisturbed_jobs(Run([*alive, strike, heal]))) is missed
    assert undisturbed_jobs(Run(alive)) == []
    assert undisturbed_jobs(Run([strike, heal])) == []


def test_what_was_not_noted_is_not_judged(tmp_path: Path) -> None:
    """A kept history without notes has no verdict on what was left, and none on outputs."""
    recording = Recording(tmp_path / "history", "p")
    recording.note(Verb.ALIVE)
    recording.close()
    run = run_of(tmp_path)

    noted = {"nothing_left", "all_ended", "no_crash", "works", "output_equals"}
    assert {one.name for one in checks_of(()) if not one.can_judge(run)} == noted | EVENTFUL
    assert output_equals({"j": 1}).needs == "ended"


def outcome(job_id: str, payload: Any) -> dict[str, Any]:
    return {"status": "FINISHED", "payload": payload, "files": [{f"day/{job_id}": [f"'{job_id}'"]}]}


@pytest.mark.parametrize(
    ("payload", "is_found"),
    [
        ({"at": "/out/orders-2/rows.txt", "ids": ["orders-2", 1]}, False),
        ({"at": "/out/orders-3/rows.txt", "ids": ["orders-2", 1]}, True),
        ({"at": "/out/orders-2/rows.txt", "ids": ["orders-25", 1]}, True),
        ({"at": "/out/orders-2/rows.txt", "ids": ["orders-2", 2]}, True),
    ],
)
def test_copies_are_compared_without_their_ids(payload: Any, is_found: bool) -> None:
    """Only one of them ran without faults. What has another job's id differs."""
    calm = outcome("orders-3", {"at": "/out/orders-3/rows.txt", "ids": ["orders-3", 1]})
    notes = {
        "copy_of": {"orders-2": "orders"},
        "ended": {"orders-2": outcome("orders-2", payload)},
        "undisturbed": {"orders": {**calm, "id": "orders-3"}},
    }

    assert bool(output_equals(undisturbed).violations(Run([], notes))) is is_found


@pytest.mark.parametrize("expected", [undisturbed, {"orders": 1}, {"orders-2": 1, "orders-3": 1}])
def test_a_job_that_has_not_ended_returns_nothing(expected: Any) -> None:
    """A job whose output is never there differs from what is expected; a driver has no output."""
    ended = {"status": "FINISHED", "payload": 1, "files": []}
    notes: dict[str, Any] = {
        "copy_of": {"orders-2": "orders", "orders-3": "orders"},
        "ended": {"orders-2": ended},
        "undisturbed": {"orders": {**ended, "id": "orders-3"}},
        "unfinished": ["orders-3", "d1"],
    }
    (found,) = output_equals(expected).violations(Run([], notes))
    assert found.message == "orders-3 has returned nothing: it had not ended"
    notes["ended"]["orders-3"], notes["unfinished"] = ended, ["d1"]
    assert output_equals(expected).violations(Run([], notes)) == []


def test_a_job_that_was_not_submitted_returns_nothing() -> None:
    """What is expected of an id that no job has, such as one with a typo, is not there."""
    ended = {"status": "FINISHED", "payload": 1, "files": []}
    notes = {"copy_of": {"orders": "orders"}, "ended": {"orders": ended}}
    (found,) = output_equals({"orders": 1, "oders": 1}).violations(Run([], notes))
    assert found.message == "oders has returned nothing: no job has that id"


def test_histories_of_several_clusters(tmp_path: Path) -> None:
    """Each is evaluated alone: the folder of all of them is refused, and so is one without any."""
    for cluster in ("calm", "demo"):
        recording = Recording(tmp_path / "history" / cluster, "p")
        recording.note(Verb.ALIVE)
        recording.close()

    with pytest.raises(InvalidInput, match="several clusters: name one of calm, demo"):
        run_of(tmp_path)
    assert len(run_of(tmp_path / "history" / "demo").events) == 1
    with pytest.raises(InvalidInput, match="has no history"):
        run_of(tmp_path / "other")


def test_processes_with_one_name_and_one_pid_are_two(tmp_path: Path) -> None:
    """Two containers have them, and a long run. One was killed, and its commit is only seen."""
    inner = open_backend(f"memory://{uuid.uuid4().hex}")
    first, second = (Recording(tmp_path, "process") for _ in range(2))
    first.begin(Verb.COMMIT, "", parts_of([Create("k", b"1")], None))
    os.write(first._file, b'["process.1", 2, "inv')
    inner.commit(Create("k", b"1"))
    backend = RecordedBackend(inner, second)
    backend.commit(Create("other", b"2"))
    backend.get("k")
    first.close()
    second.close()
    run = Run(events_of(tmp_path))

    assert len(run.calls) == 3
    assert linearizable.violations(run) == []


def test_a_history_that_could_not_be_written_has_no_verdict(tmp_path: Path) -> None:
    """A full disk under the history fails no commit; the history says that it is incomplete."""
    inner = open_backend(f"memory://{uuid.uuid4().hex}")
    recording = Recording(tmp_path, "process")
    backend = RecordedBackend(inner, recording)
    backend.commit(Create("a", b"1"))
    assert len(events_of(tmp_path)) == 2
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, recording._file)
    os.close(full)
    backend.commit(Create("b", b"2"))
    assert inner.get("b") is not None
    recording.close()

    for read in (events_of, run_of, lambda folder: to_parquet(folder, tmp_path / "table")):
        with pytest.raises(InvalidInput, match=r"history is incomplete: process\."):
            read(tmp_path)


def test_a_history_that_cannot_say_that_it_is_incomplete(tmp_path: Path) -> None:
    """It would look whole. So the process can call its backend no more."""
    inner = open_backend(f"memory://{uuid.uuid4().hex}")
    recording = Recording(tmp_path, "process")
    backend = RecordedBackend(inner, recording)
    (tmp_path / f"{recording.process}{INCOMPLETE}").mkdir()
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, recording._file)
    os.close(full)

    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            backend.commit(Create("a", b"1"))
    assert inner.get("a") is None
    recording.close()


def test_a_torn_line_is_named(tmp_path: Path) -> None:
    recording = Recording(tmp_path, "process")
    recording.note(Verb.ALIVE)
    os.write(recording._file, b'["process.1", 2, "inv')
    recording.note(Verb.ALIVE)
    recording.close()

    with pytest.raises(InvalidInput, match=r"line 2 of .*/process\."):
        events_of(tmp_path)


class Starter:
    """Starts a program in the place of a master."""

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def start(self, name: str, url: str | None, environment: dict[str, str]) -> LoggedProcess:
        return LoggedProcess(name, self._command, environment, piped=False)


SHOWS = """
import os, sys

open(sys.argv[1], "w").write(f"{os.environ['TABLES']} {sys.path[1]}")
"""


@pytest.mark.parametrize("role", ["master", "driver"])
def test_all_hosts_have_the_variables_of_the_plan(tmp_path: Path, role: str) -> None:
    """Masters and drivers alike, and modules are found where the plan says."""
    modules, shown = tmp_path / "modules", tmp_path / "shown"
    modules.mkdir()
    command = [sys.executable, "-c", SHOWS, str(shown)]
    variables = {"TABLES": "t", "PYTHONPATH": str(modules)}
    hosts = Hosts(lambda network: "", None, tmp_path, str(tmp_path), Trials(), variables)
    try:
        if role == "master":
            hosts.add_master(role, cast(Masters, Starter(command)))
        else:
            hosts.add_driver(role, command, "c", tmp_path)
        until(lambda: shown.exists() and shown.read_text(), "it has started")
    finally:
        for process in hosts.all[role].lives:
            process.close()
        hosts.close()

    assert shown.read_text() == f"t {modules}"


@pytest.mark.parametrize(
    ("program", "broken"),
    [
        ('ulimit -n 3; exec "$0" -c pass', False),
        ('ulimit -n 4; exec "$0" -c "import jrs.recovery.master"', False),
        ('echo "ImportError: a.so: cannot open: Too many open files"; exit 1', False),
        ('echo "  <no Python frame>"; exit 1', False),
        ('echo "jrs: the address is in use"; exit 1', False),
        ('exec "$0" -c "raise ValueError(3)"', True),
    ],
)
def test_a_master_that_cannot_be_started_is_no_fault(
    tmp_path: Path, program: str, broken: bool
) -> None:
    """Without descriptors its interpreter cannot; then it is started again."""
    hosts = Hosts(lambda network: "", None, tmp_path, str(tmp_path), Trials(), {})
    starter = Starter(["/bin/sh", "-c", program, sys.executable])
    try:
        hosts.add_master("m1", cast(Masters, starter))
        first = hosts.all["m1"].lives[0]
        first.process.wait()
        hosts.supervise()

        assert bool(hosts.broken) is broken, first.errors()
        assert len(hosts.all["m1"].lives) == 2
    finally:
        for process in hosts.all["m1"].lives:
            process.close()
        hosts.close()


@pytest.mark.parametrize(
    ("says", "starved", "broken"), [("", True, False), ("", False, True), ("Fatal", True, True)]
)
def test_a_library_that_aborts_for_lack_of_descriptors_is_no_fault(
    tmp_path: Path, says: str, starved: bool, broken: bool
) -> None:
    """It says nothing; an abort of Python's, or without a reason, is one."""
    hosts = Hosts(lambda network: "", None, tmp_path, str(tmp_path), Trials(), {})
    program = f"printf '{says}'; kill -ABRT $$"
    try:
        hosts.add_master("m1", cast(Masters, Starter(["/bin/sh", "-c", program])))
        first = hosts.all["m1"].lives[0]
        if starved:
            hosts.starved.add(first.process.pid)
        first.process.wait()
        hosts.supervise()

        assert bool(hosts.broken) is broken
    finally:
        for process in hosts.all["m1"].lives:
            process.close()
        hosts.close()


class Unhealthy:
    """In the place of servers: a member of them never comes back."""

    endpoints = ()

    def __init__(self, url: str = "") -> None:
        self._url = url

    def url(self, endpoints: object) -> str:
        return self._url

    def heal(self) -> None:
        raise ServerUnhealthy("m0 is not healthy", "")


def test_servers_that_do_not_heal_keep_nothing_alive(tmp_path: Path) -> None:
    """All else of the cluster ends, before the test fails."""
    server = cast(Server, Unhealthy((tmp_path / "store").as_uri()))
    plan, before = Plan(masters=0), os.environ.get(HISTORY)
    cluster = ChaosCluster(plan, "file", tmp_path, server, lambda text: None, Trials())
    cluster.fleet.add_driver("d1", ["sleep", "600"], cluster.name, cluster.storage)
    (driver,) = cluster.pids("driver")
    with pytest.raises(ServerUnhealthy):
        cluster.close()

    until(lambda: driver not in all_pids(), "the driver has ended")
    assert os.environ.get(HISTORY) == before
    cluster.close()


def test_a_server_that_does_not_heal_is_no_other_tests(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next test gets a new one."""
    made: list[object] = []

    def find(members: int) -> ExitStack:
        made.append(members)
        return ExitStack()

    monkeypatch.setitem(FINDERS, "unhealthy", cast(Any, find))
    servers = pytestconfig.stash[plugin._SERVERS]
    servers["unhealthy", 1] = Unhealthy()
    try:
        found: object = plugin._server(pytestconfig, "unhealthy", 1)
        assert isinstance(found, ExitStack)
        assert made == [1]
    finally:
        del servers["unhealthy", 1]


def test_what_is_meant_by_an_attempt_is_no_watchdog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nemesis strikes what it names: not what has started it, and is told its program."""
    mark = "of-this-run"
    monkeypatch.setenv(MARK, mark)
    hosts = Hosts(lambda network: "", None, tmp_path, mark, Trials(), {})
    waits = [sys.executable, "-c", "input()", "-m"]
    started = [
        *(["jrs.recovery.attempt.watchdog", PROGRAM, "old:job:1.1;"], [PROGRAM, "5"]),
        *(["jrs.recovery.attempt.fork_server", PROGRAM, "file"], ["pyspark.daemon"]),
    ]
    with ExitStack() as stack:
        for words in started:
            one = subprocess.Popen([*waits, *words], stdin=subprocess.PIPE)
            stack.enter_context(one)
            stack.callback(one.kill)
        until(lambda: len(hosts.pids("child")) == len(started), "all of them run")
        lines = command_lines(hosts.pids("child"))
        found = {who: [lines[pid].partition("-m ")[2] for pid in hosts.pids(who)]
                 for who in ("attempt", "watchdog", "worker")}  # fmt: skip
    hosts.close()

    assert found == {
        "attempt": [f"{PROGRAM} 5"],
        "watchdog": [f"jrs.recovery.attempt.watchdog {PROGRAM} old:job:1.1;"],
        "worker": ["pyspark.daemon"],
    }


@pytest.mark.parametrize(
    "text",
    [
        *("kill(every=0)", "kill(every=-1)", 'kill(every="x")', 'kill("mater")', 'pause("x")'),
        *("pause()", 'partition("foo")', "kill", "1 | 2", "kill() | nope()", "kill(", "a.b()"),
        *("__import__('os')", "kill(*[1])", "skew(1, every=True)", "kill()" + " | kill()" * 5000),
    ],
)
def test_what_is_no_nemesis(text: str) -> None:
    """It is refused in one line, before anything is started."""
    with pytest.raises(InvalidInput) as caught:
        nemesis_of(text)
    assert "\n" not in str(caught.value)


def test_nemeses_in_words() -> None:
    """The words of the command line make what Python makes."""
    made = nemesis_of('kill("leader", every=2) | pause(3)')

    assert str(made) == "kill leader | pause master"
    assert [fault.every for fault in made.faults] == [2, 5]
    assert str(nemesis_of("")) == "no faults"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"backend": "memory"}, "no chaos run has the backend 'memory'"),
        ({"backend": []}, "backend must have each name once"),
        ({"backend": ["file", "file"]}, "backend must have each name once"),
        ({"masters": -1}, "masters must not be negative"),
        ({"masters": "3"}, "masters must be a whole number, not '3'"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"members": 0}, "members must be a whole number from 1"),
        ({"seconds": -1}, "seconds must be a number of seconds"),
        ({"timeout": float("inf")}, "timeout must be a number of seconds"),
        ({"ttl": "2"}, "ttl must be a number of seconds"),
        ({"nemesis": kill}, "nemesis must be nemeses joined by |"),
        ({"nemesis": "kill()"}, "nemesis must be nemeses joined by |"),
        ({"options": "--slots 3"}, "options must be a list of texts, not '--slots 3'"),
        ({"environment": {"JAVA_HOME": Path("/java")}}, "environment must be texts by names"),
    ],
)
def test_plans_that_are_refused(wrong: dict[str, Any], said: str) -> None:
    """In one line, where the plan is made: nothing has started yet."""
    with pytest.raises(InvalidInput, match=re.escape(said)):
        chaos(**wrong)


def test_what_is_joined_to_a_nemesis() -> None:
    """Another one, and not the function that makes one."""
    assert str(kill() | pause(1)) == "kill master | pause master"
    with pytest.raises(TypeError, match="'Nemesis' and 'function'"):
        kill() | pause
    for make, given in ((ALL["slow_disk"], "1"), (ALL["skew"], None)):
        with pytest.raises(InvalidInput, match="is a number of seconds"):
            make(given)


def test_a_chaos_test_without_a_world_is_refused() -> None:
    """It would pass without a single fault."""
    assert chaos(backend=["file", "etcd"])(test_nemeses_in_words) is test_nemeses_in_words
    (marker,) = test_nemeses_in_words.pytestmark  # type: ignore[attr-defined]  # Of the decorator.
    definition = SimpleNamespace(name="test_orders", get_closest_marker=lambda name: marker)
    made = SimpleNamespace(definition=definition, fixturenames=["tmp_path"])
    with pytest.raises(pytest.fail.Exception, match="no argument 'world'"):
        plugin.pytest_generate_tests(cast("pytest.Metafunc", made))


def test_ids_that_are_taken() -> None:
    """A job that has the id of a copy would never be submitted: the store has that job."""
    with open_backend("memory://") as backend:
        jobs = Submissions(backend)
        for spec in copies_of(JobSpec("orders", "etl:orders", {"at": "{id}"}), 2):
            jobs.add(Submission(spec, 0.0, "orders"))

        assert [one.spec.arguments["at"] for one in jobs.all()] == ["orders-1", "orders-2"]
        for taken in ("orders", "orders-2"):
            with pytest.raises(InvalidInput, match=f"'{taken}' is submitted already"):
                jobs.refuse_known([taken])
        jobs.refuse_known(["orders-3"])
    for wrong in (0, -1, 2.0):
        with pytest.raises(InvalidInput, match="copies must be a whole number"):
            copies_of(JobSpec("orders", "etl:orders"), wrong)  # type: ignore[arg-type]


def test_a_job_that_is_canceled_is_not_wrong() -> None:
    """Its result has a failure as well, which says who canceled it; one that is FAILED is wrong."""
    with open_backend("memory://") as backend:
        jobs = Submissions(backend)
        hosts = cast("Hosts", SimpleNamespace(all={}, last_output=dict, unfinished=list))
        progress = Progress(backend, jobs, hosts, Trials())
        for status in (JobStatus.CANCELED, JobStatus.FAILED):
            spec = JobSpec(status.value, "etl:orders", restart=LASTING)
            ended = JobResult(spec.job_id, status, failure=Failure("any", "it is why"))
            jobs.add(Submission(spec, 0.0, spec.job_id, True, ended))

        assert progress.wrong() == ["FAILED is FAILED: it is why"]


class Fake:
    """An arena with nothing in it."""

    disk: Path | None = None
    server: Server | None = None
    harms = Harms()

    def hosts(self) -> list[str]:
        return []

    def leading(self) -> None:
        return None

    def pids(self, who: str) -> list[int]:
        return []

    def starve(self, pid: int) -> None:
        raise ProcessLookupError(pid)

    def network(self, host: str) -> None:
        return None

    def meddler(self, host: str) -> Meddler:
        raise KeyError(host)


def test_nobody_to_hit() -> None:
    """Every nemesis does nothing where nothing is there."""
    made = [make(*([1.0] if name in ("pause", "slow_disk", "skew") else []))
            for name, make in ALL.items() if name != "blackout"]  # fmt: skip
    for nemesis in made:
        (fault,) = nemesis.faults
        assert list(fault.strike(Fake(), Random(1))) == []


def test_a_seed_determines_whom_strikes_of_a_test_hit(tmp_path: Path) -> None:
    """`World.strike` hits the same ones with the same seed, and others with another one, whatever
    the schedule has."""

    def strike(arena: object, rng: Random) -> Iterator[str]:
        yield f"{rng.random()}"

    (fault,) = Nemesis((Fault("one", strike, lasting=60.0),)).faults

    def hit(seed: int, strikes: int) -> list[str | None]:
        recording = Recording(tmp_path / f"{seed}-{strikes}", "p")
        planned = [Strike(9.0, 0, "x")] * strikes
        striker = Striker(Fake(), Nemesis((fault,)), planned, recording, lambda: None, seed=seed)
        found = [striker.strike_now(fault) for _ in range(3)]
        recording.close()
        return found

    assert hit(1, 0) == hit(1, 5)
    assert len({*hit(1, 1), *hit(2, 1)}) == 6


def test_strikes_that_are_late(tmp_path: Path) -> None:
    """They leave time for what a run does between them, and it can be ended before the last one."""
    done: list[str] = []

    def slow(arena: object, rng: Random) -> Iterator[str]:
        done.append("strike")
        yield "it"

    def turn() -> None:
        done.append("turn")
        if done.count("turn") == 2:
            striker._stop.set()

    recording = Recording(tmp_path, "p")
    planned = [Strike(0.0, 0, str(number)) for number in range(100)]
    nemesis = Nemesis((Fault("slow", slow, lasting=60),))
    striker = Striker(Fake(), nemesis, planned, recording, turn, seed=1)
    striker.start()
    until(lambda: striker.is_over, "it has ended by itself")
    striker.stop()
    recording.close()

    assert done.count("strike") <= 2
    assert done[-1] == "turn"


def test_strikes_that_hit_nobody_are_counted(tmp_path: Path) -> None:
    """A fault that is not allowed to hurt anyone is told with the reason; of two that have one
    name, each is counted by itself."""

    def refused(arena: object, rng: Random) -> Iterator[str]:
        yield from ()
        raise PermissionError(1, "Operation not permitted")

    def hits(arena: object, rng: Random) -> Iterator[str]:
        yield "it"

    recording = Recording(tmp_path, "p")
    twice = Fault("twice", hits), Fault("twice", hits)
    faults = Nemesis((Fault("refused", refused), *twice, Fault("hits", hits)))
    planned = [Strike(0.0, 0, "a"), Strike(0.0, 0, "b"), Strike(0.0, 1, "c"), Strike(0.0, 3, "d")]
    striker = Striker(Fake(), faults, planned, recording, lambda: None, seed=1)
    striker.start()
    until(lambda: striker.tallies["hits"].hits, "all have struck")
    assert striker.strike_now(Fault("nobody", lambda arena, rng: iter(()))) is None
    striker.stop()
    with pytest.raises(InvalidInput, match="the time of the faults is over"):
        striker.strike_now(faults.faults[3])
    recording.close()

    notes = {"faults": {name: attrs.asdict(one) for name, one in striker.tallies.items()}}
    assert never_hit(notes) == [
        "refused: 0 of 2 strikes hit anyone ([Errno 1] Operation not permitted)",
        "twice (2): 0 of 0 strikes hit anyone (the faults were over before its first one)",
        "nobody, at once: 0 of 1 strike hit anyone",
    ]
    rows = {row["name"]: row for row in strikes_by_nemesis(Run(events_of(tmp_path), notes))}
    assert (rows["refused"]["strikes"], rows["refused"]["hits"]) == (2, 0)
    assert rows["hits"]["hits"] == rows["twice (1)"]["hits"] == 1
    assert rows["hits, at once"]["hits"] == 1  # It came too late: it is in the history, healed.
    assert striker.quiet_since > 0


def test_harm_is_undone_whatever_else_breaks(tmp_path: Path) -> None:
    """One nemesis that cannot heal keeps no other one from healing; the run says so."""
    healed = []

    def broken(arena: object, rng: Random) -> Iterator[str]:
        yield "it"
        raise KeyError("no way back")

    def whole(arena: object, rng: Random) -> Iterator[str]:
        yield "it"
        healed.append(True)

    recording = Recording(tmp_path, "p")
    faults = Nemesis(tuple(Fault(name, strike, lasting=60.0)
                           for name, strike in (("broken", broken), ("whole", whole))))  # fmt: skip
    striker = Striker(Fake(), faults, [], recording, lambda: None, seed=1)
    striker.start()
    assert [striker.strike_now(fault) for fault in faults.faults] == ["it", "it"]
    with pytest.raises(KeyError):
        striker.stop()
    recording.close()

    assert healed == [True]
    events = events_of(tmp_path)
    assert [event.f for event in events] == [Verb.STRIKE] * 2 + [Verb.HEAL] * 2
    # No commit followed: the time to recover is not a number of seconds.
    assert [row["most"] for row in strikes_by_nemesis(Run(events))] == [float("inf")] * 2


def test_a_schedule_ends() -> None:
    """A nemesis strikes until its own end, or that of the run."""
    assert all(strike.at < 3 for strike in schedule(kill(every=1, until=3), 60, 1))
    assert schedule(kill(every=1), 0, 1) == []


def test_no_password_of_a_recorded_backend_is_shown() -> None:
    """The URL behind `recorded:` is as secret as any."""
    assert redacted(recorded("etcd://u:secret@h:1/x?token=s")) == "recorded:etcd://h:1/x"
    assert redacted("file:///var/lib/jrs") == "file:///var/lib/jrs"


class Hangs(Watch):
    """A watch whose calls return when they are told to."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def wait(self, timeout: float) -> bool:
        return self.over.wait()

    def close(self) -> None:
        pass


def test_a_call_of_a_watch_that_does_not_return_is_noted(tmp_path: Path) -> None:
    """While it is open, for it may never return; and not any more when it has returned."""
    recording, inner = Recording(tmp_path, "p"), Hangs()
    watch = RecordedWatch(inner, "jobs/", recording)
    caller = threading.Thread(target=watch.wait, args=(0.01,))
    caller.start()

    def noted() -> list[Event]:
        return [event for event in events_of(tmp_path) if event.f is Verb.OVERDUE]

    until(lambda: len(noted()) > 1, "it is noted, and once more")
    inner.over.set()
    caller.join()
    assert not recording.asked
    recording.close()
    assert {(event.key, event.seq) for event in noted()} == {("jobs/", 1)}
    assert sorted(event.version or 0 for event in noted())[-1] > 10**9
