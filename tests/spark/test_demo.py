"""The demo, whole: a user's first command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import jrs
from jrs.contract.operations import Create
from jrs.demo.scene import Scene
from jrs.demo.screen import Screen
from jrs.demo.setting import Setting, perform
from jrs.demo.story import JOBS, TEAMS, _compare, _Outcome
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.history import HistoryEvent
from jrs.records.model import JobResult, JobStatus
from jrs.recovery.rules.decision import RULES, Facts, Spec
from jrs.testing.servers import find_etcd, find_zookeeper
from jrs.testing.servers.fixtures import had

from .browsing import Browser, watch
from .support import BOUND, assert_promises_kept, recorded

SERVERS = ("etcd", "zookeeper")
"""Only in the long form: the demo of streams runs on etcd."""


@pytest.mark.parametrize(
    "backend", ["file", *(pytest.param(name, marks=pytest.mark.soak) for name in SERVERS)]
)
def test_the_demo(tmp_path: Path, backend: str) -> None:
    """`jrs demo` kills two leaders, recovers, cleans up and skips, says that all results are equal,
    and leaves nothing behind. Its page shows both failovers. All that its processes asked of the
    store keeps the promises.
    """
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    if backend != "file":
        with had(find_etcd if backend == "etcd" else find_zookeeper):
            pass  # It can be had, or this test is skipped; the demo starts its own.
    where = ["--backend", backend] if backend != "file" else []
    environment = recorded({**os.environ, "TMPDIR": str(temporary)}, tmp_path / "history")
    watched = watch(where, environment, tmp_path)
    shown = watched.shown

    assert watched.status == 0, shown + watched.errors
    assert shown.count("kill -9 m") == 2
    for said in (
        "recover   starting",
        "clean up  ended; its resources are being cleaned up",
        "skip      ended; a left-over spec is swept",
        "ingest was finished in attempt 1: skipped",
        "EQUAL: all 3 results",
    ):
        assert said in shown
    # Which ports are taken is kept for all servers of this user.
    assert [path for path in temporary.iterdir() if not path.name.startswith("jrs-ports-")] == []
    assert_told_once(watched.browser)
    if backend == "file":
        assert_reported(watched.store, watched.browser.cluster)
    assert_promises_kept(tmp_path / "history", 2)


def assert_told_once(browser: Browser) -> None:
    """Assert that the page's server has told each event once, over all leaders."""
    told = [(one["job_id"], one["id"]) for one in browser.events]
    kinds = Counter((one["job_id"], one["kind"]) for one in browser.events)

    assert browser.problems == []
    assert len(told) == len(set(told))
    assert [one["epoch"] for one in browser.events if one["kind"] == "elected"] == [1, 2, 3]
    assert {one["action"] for one in browser.events if one["action"]} == {"recover", "clean up"}
    assert all(one["facts"] for one in browser.events if one["action"])
    assert kinds["flights", "attempt"] == 2
    assert kinds["flights", "stage"] == 4
    for job_id in ("flights", "airlines", "weather"):
        assert [kinds[job_id, kind] for kind in ("submitted", "ended", "clean")] == [1, 1, 1]


def assert_reported(store: Path, cluster: str) -> None:
    """Assert that examples/report.py tells of what the demo has stored what its records say: how
    the jobs ended by the version of their code, what the failover cost, and what each team's jobs
    took."""
    with jrs.connect(store.as_uri(), cluster=cluster) as client:
        results = {job_id: client.results.wait(job_id, 0) for job_id in JOBS}
    took = dict.fromkeys(TEAMS.values(), 0.0)
    for job_id, result in results.items():
        *earlier, last = result.attempts
        ends = [*(one.started_at for one in result.attempts[1:]), last.ended_at]
        assert not any(one.ended_at for one in earlier)
        took[TEAMS[job_id]] += sum(ends) - sum(one.started_at for one in result.attempts)
    flights = results["flights"]
    kept = max(one.finished_at for one in flights.stages if one.attempt == 1)
    done = subprocess.run(
        [sys.executable, "examples/report.py", store.as_uri(), cluster],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=BOUND,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = (line.strip("|").split("|") for line in done.stdout.splitlines() if line[:1] == "|")
    rows = {first.strip(): tuple(map(str.strip, rest)) for first, *rest in lines}

    assert rows[flights.code] == ("3", "0")
    failovers, cost = rows["flights"]
    assert failovers == "1"
    assert float(cost) == pytest.approx(flights.attempts[1].started_at - kept, abs=0.06)
    assert not {"airlines", "weather"} & rows.keys()
    for team, seconds in took.items():
        jobs, slot_seconds = rows[team]
        assert int(jobs) == list(TEAMS.values()).count(team)
        assert float(slot_seconds) == pytest.approx(seconds, abs=0.06)


def test_the_demo_without_java(tmp_path: Path) -> None:
    """Without Java the demo says in one line how to get it, exits 2 and leaves nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "demo"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "JAVA_HOME": str(tmp_path)},
        timeout=BOUND,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jrs: Spark needs Java 17")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_demo_without_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the packages of the page the demo says in one line how to get them, and runs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    without = tmp_path / "without"
    without.mkdir()
    (without / "uvicorn.py").write_text("raise ModuleNotFoundError(name='uvicorn')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(without), *sys.path]))

    assert perform(lambda setting: [], None, clusters=("c",), title="demo", keep=False) == 0
    assert "\nNo page: jrs serve needs uvicorn: pip install 'jrs[api]'\n" in capsys.readouterr().out


def test_a_wrong_decision_is_a_problem(tmp_path: Path) -> None:
    """What `jrs fsck` would name as a decision that does not follow from its facts, a demo names,
    too."""
    event = HistoryEvent(
        "job", "0123456789ab.000000", "attempt", 1.0, epoch=1, action="recover", rules=RULES,
        facts=Facts(spec=Spec.READABLE, cancel=True).to_plain(),
    )  # fmt: skip
    url = (tmp_path / "store").as_uri()
    with Scene(Setting(url, tmp_path, Screen(), ("c",), tmp_path / "files"), "c", []) as scene:
        scene.backend.commit(Create(keys.history_event("job", event.id), encode(event)))
        (problem,) = scene.problems()

    assert "says 'recover', and its facts give 'cancel'" in problem


def test_every_difference_is_named() -> None:
    """A result or an output that differs from the undisturbed one is named, and so is what a run
    finds wrong with itself.
    """

    def outcome(payload: int, output: dict[str, str], *problems: str) -> _Outcome:
        result = JobResult("flights", JobStatus.FINISHED, payload)
        return _Outcome({"flights": result}, output, problems)

    calm = outcome(1, {"flights/a": "x", "flights/b": "y"})

    assert _compare(calm, calm) == []
    assert _compare(calm, outcome(2, {"flights/a": "x", "flights/b": "y"})) == [
        "flights gave FINISHED 2, undisturbed FINISHED 1"
    ]
    assert _compare(calm, outcome(1, {"flights/a": "x x"}, "left behind: e1")) == [
        "left behind: e1",
        "output flights/a differs, is missing or is there twice",
        "output flights/b differs, is missing or is there twice",
    ]
