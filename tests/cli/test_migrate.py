"""`jrs migrate`: masters, clients and operators before, during and after a move."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import jrs as face
from jrs.contract.operations import Create
from tests.cli.conftest import Jrs
from tests.cli.test_bad_input import contents, refused
from tests.support import until

JOBS = """
import os, time

def staged(job, path):
    first = job.stage("first", lambda stage: job.attempt)
    while not os.path.exists(path):
        job.check()
        time.sleep(0.02)
    return {"first": first.result(), "attempt": job.attempt}

def quick(job):
    return "done"
"""


class Masters:
    """Real masters of any backend."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, url: str, name: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "jrs", "--backend", url, "master", "--name", name]
        with (self._home / f"{name}.said").open("wb") as said:
            process = subprocess.Popen(
                [*command, "--ttl", "5", *options],
                cwd=self._home,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        self._started.append(process)
        return process

    def said(self, name: str) -> str:
        return (self._home / f"{name}.said").read_text()

    def until_leads(self, name: str) -> None:
        until(lambda: f"{name} leads" in self.said(name), f"{name} leads")

    def stop(self) -> None:
        for process in self._started:
            process.terminate()
        for process in self._started:
            process.wait(60)
        self._started.clear()


@pytest.fixture
def masters(home: Path) -> Iterator[Masters]:
    (home / "moving.py").write_text(JOBS)
    started = Masters(home)
    yield started
    started.stop()


@pytest.fixture
def target(tmp_path: Path) -> str:
    return (tmp_path / "target").as_uri()


@pytest.fixture
def paused(url: str) -> str:
    """A cluster with two jobs, paused."""
    with face.connect(url) as client:
        client.submit("moving:quick", id="j1")
        client.submit("moving:quick", id="j2")
        client.pause(reason="it moves")
    return url


def test_a_move_tells_how_far_it_is(paused: str, target: str) -> None:
    """A cluster of 10^6 records moves for minutes."""
    told = list[tuple[int, int]]()
    report = face.migrate(paused, target, progress=lambda *found: told.append(found))

    assert len(told) >= 2
    assert told[-1] == (report.records, told[0][1])
    assert min(told[0]) > 0


def free(etcd_url: str) -> str:
    """Return the URL of a prefix of an etcd that nobody uses."""
    return f"{etcd_url}/moved-{uuid.uuid4().hex[:8]}"


def test_jobs_continue_at_the_target(
    jrs: Jrs, masters: Masters, url: str, home: Path, request: pytest.FixtureRequest
) -> None:
    """From a folder to an etcd: results are read there, a finished stage is not run again, job ids
    stay used, and the epoch continues."""
    target = free(request.getfixturevalue("etcd_server").url())
    goes = home / "goes"
    m1 = masters.start(url, "m1")
    masters.until_leads("m1")
    assert jrs("submit", "ended", "moving:quick", "--wait").returncode == 0
    jrs("submit", "staged", "moving:staged", "--arg", f"path={goes}")
    with face.connect(url) as client:
        client.job("staged").wait_stage("first", timeout=60)
        m1.kill()
        m1.wait(60)
        client.pause()
        before = client.epoch()
        until(lambda: not running(client), "the killed master counts as gone")
    assert before is not None

    refused(jrs("migrate", "--from", url, "--to", target), "do not share the storage", "--accept")
    moved = jrs("migrate", "--from", url, "--to", target, "--accept-storage")
    assert moved.returncode == 0, moved.stderr
    assert f"of cluster default to {target}; all compared" in moved.stdout
    assert "of that, remove only clusters/default" in moved.stderr

    assert jrs("--backend", target, "wait", "ended").stdout == '"done"\n'
    storage = url.removeprefix("file://") + "/storage"
    masters.start(target, "m2", "--storage", storage)
    masters.until_leads("m2")
    refused(
        jrs("--backend", target, "submit", "ended", "moving:quick"), "'ended' has ended already"
    )
    goes.touch()
    assert "paused" in jrs("--backend", target, "explain", "staged").stderr
    jrs("--backend", target, "unpause")
    done = jrs("--backend", target, "wait", "staged", "--timeout", "60")
    assert json.loads(done.stdout) == {"first": 1, "attempt": 2}
    with face.connect(target) as client:
        newest = client.epoch()
    assert newest is not None
    assert newest.epoch > before.epoch + 1

    # And back, to the folder that was closed.
    masters.stop()
    assert jrs("--backend", target, "pause").returncode == 0
    back = jrs("migrate", "--from", target, "--to", url)
    assert back.returncode == 0, back.stderr
    masters.start(url, "m3")
    masters.until_leads("m3")
    jrs("unpause")
    assert jrs("submit", "last", "moving:quick", "--wait").returncode == 0
    assert json.loads(jrs("wait", "staged").stdout) == {"first": 1, "attempt": 2}
    assert jrs("fsck").returncode == 0


def running(client: face.Client) -> bool:
    return any(view.role is not face.MasterRole.GONE for view in client.masters())


def main(driver: face.Driver) -> None:
    """The main of an application."""


def test_all_who_come_are_told(
    jrs: Jrs, masters: Masters, paused: str, target: str, home: Path
) -> None:
    """A master, commands, a client from before, an application and a program with a campaign of
    its own: each gets one error that names the target."""
    waits = subprocess.Popen(
        [sys.executable, "-m", "jrs", "--backend", paused, "wait", "j1"],
        cwd=home, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waits.stderr is not None
    assert "waiting" in waits.stderr.readline()  # It has looked at the job.
    assert jrs("migrate", "--from", paused, "--to", target).returncode == 0

    says = ["was moved to", target]
    refused(jrs("list"), *says)
    refused(jrs("submit", "j3", "moving:quick"), *says)
    refused(jrs("fsck"), *says)
    refused(jrs("pause"), *says)
    refused(jrs("doctor"), *says)
    masters.start(paused, "late").wait(60)
    assert target in masters.said("late")
    assert len(masters.said("late").splitlines()) == 1
    _, told = waits.communicate(timeout=60)
    assert waits.returncode == 2
    assert target in told.splitlines()[-1]
    with pytest.raises(face.ClusterMoved, match=target):
        face.connect(paused)
    with pytest.raises(face.ClusterMoved, match=target):
        face.run(main, paused, name="application")


def test_a_dry_run_changes_nothing(jrs: Jrs, paused: str, target: str, tmp_path: Path) -> None:
    """It names what moves, what has to be done first, and what would be refused."""
    before = contents(tmp_path / "store")

    shown = jrs("migrate", "--from", paused, "--to", target, "--dry-run")
    assert shown.returncode == 0
    assert "would move 6 records" in shown.stdout
    assert "2 jobs" in shown.stdout
    assert shown.stderr == ""
    as_json = json.loads(
        jrs("migrate", "--from", paused, "--to", target, "--dry-run", "--json").stdout
    )
    assert (as_json["records"], as_json["moved"], as_json["first"]) == (6, False, [])
    assert as_json["by_kind"] == {"cluster": 2, "history": 2, "jobs": 2}
    assert contents(tmp_path / "store") == before
    assert not (tmp_path / "target").exists()

    jrs("unpause")
    first = jrs("migrate", "--from", paused, "--to", target, "--dry-run")
    assert first.returncode == 0
    assert "before that: cluster 'default'" in first.stderr
    assert "not paused" in first.stderr


def test_abandoning(jrs: Jrs, tmp_path: Path, paused: str, target: str) -> None:
    """Of a migration that has not closed the source there is nothing to abandon, and one that is
    complete cannot be."""
    nothing = jrs("migrate", "--from", paused, "--to", target, "--abandon")
    assert nothing.returncode == 0
    assert "nothing to abandon" in nothing.stderr
    refused(jrs("migrate", "--from", paused, "--to", target, "--abandon", "--dry-run"), "exclude")
    refused(jrs("migrate", "--from", paused, "--to", target, "--copy-lost"), "needs --abandon")
    assert jrs("migrate", "--from", paused, "--to", target).returncode == 0
    refused(jrs("migrate", "--from", paused, "--to", target, "--abandon"), "exchange")
    wrong = tmp_path / "wrong"
    typo = jrs("migrate", "--from", paused, "--to", wrong.as_uri(), "--abandon")
    refused(typo, f"left for {target}", "--copy-lost")
    assert not wrong.exists()


def test_it_says_that_it_was_moved_already(jrs: Jrs, paused: str, target: str) -> None:
    assert jrs("migrate", "--from", paused, "--to", target).returncode == 0
    again = jrs("migrate", "--from", paused, "--to", target)
    assert again.returncode == 0
    assert again.stdout == ""
    assert "was moved to" in again.stderr
    assert "already" in again.stderr
    assert json.loads(jrs("migrate", "--from", paused, "--to", target, "--json").stdout)["already"]


def test_a_master_that_runs_is_named(jrs: Jrs, masters: Masters, paused: str, target: str) -> None:
    """While a master leads or waits for its turn, nothing is moved and nothing is changed."""
    masters.start(paused, "m1")
    masters.until_leads("m1")
    with face.connect(paused) as client:
        until(lambda: running(client), "the master is registered")
    refused(jrs("migrate", "--from", paused, "--to", target), "'m1'", "stop all masters")
    assert jrs("list").returncode == 0


BAD = [
    pytest.param(["{url}", "{url}"], ["the same backend"], id="same"),
    pytest.param(["{url}", "{url}/"], ["the same backend"], id="same-spelled-otherwise"),
    pytest.param(["{url}", "redis://h/0"], ["unknown backend"], id="scheme"),
    pytest.param(["redis://h/0", "{target}"], ["unknown backend"], id="scheme-of-the-source"),
    pytest.param(["{url}", "memory://m"], ["memory://m ends with its process"], id="memory"),
    pytest.param(["{url}", "file:target"], ["file:///"], id="relative"),
    pytest.param(["{target}", "{url}"], ["there is no jrs cluster"], id="no-source"),
    pytest.param(
        ["{url}", "{target}", "--cluster", "nope"], ["no jrs cluster 'nope'"], id="no-cluster"
    ),
    pytest.param(["{url}", "{target}", "--cluster", "a/b"], ["not a cluster id"], id="bad-cluster"),
    pytest.param(
        ["{url}", "etcd://127.0.0.1:1?timeout=1"], ["127.0.0.1:1", "cannot be reached"],
        id="unreachable",
    ),
    pytest.param(
        ["etcd://me:hunter2@127.0.0.1:1?timeout=1", "{target}"], ["cannot be reached"],
        id="unreachable-source",
    ),
    pytest.param(["{url}", "{foreign}"], ["not a jrs folder"], id="foreign"),
    pytest.param(["{url}", "{full}"], ["is not empty", "'history/mine/"], id="not-empty"),
    pytest.param(["{url}", "{target}", "--storage", "/gone"], ["/gone"], id="no-storage"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "says"), BAD)
def test_bad_input(
    jrs_here: Jrs, paused: str, target: str, tmp_path: Path, args: list[str], says: list[str]
) -> None:
    """One line that says what, where and what to do; exit code 2; nothing is changed."""
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "file").touch()
    full = (tmp_path / "full").as_uri()
    with face.connect(full) as client:
        client.submit("moving:quick", id="mine")
    known = {"url": paused, "target": target, "full": full}
    known["foreign"] = (tmp_path / "foreign").as_uri()
    source, to, *more = (text.format_map(known) for text in args)
    before = contents(tmp_path / "store")

    done = jrs_here("migrate", "--from", source, "--to", to, *more)

    refused(done, *says)
    assert "hunter2" not in done.stderr
    assert contents(tmp_path / "store") == before
    assert jrs_here("list").returncode == 0


def test_options_that_are_missing(jrs_here: Jrs, url: str) -> None:
    refused(jrs_here("migrate", "--from", url), "--to")
    refused(jrs_here("migrate", "--to", url), "--from")


def test_not_paused(jrs_here: Jrs, paused: str, target: str, tmp_path: Path) -> None:
    jrs_here("unpause")
    before = contents(tmp_path / "store")
    refused(jrs_here("migrate", "--from", paused, "--to", target), "not paused", "jrs pause")
    assert contents(tmp_path / "store") == before
    assert not (tmp_path / "target").exists()


def test_a_value_that_the_target_refuses(
    jrs_here: Jrs, target: str, request: pytest.FixtureRequest
) -> None:
    """An etcd takes larger values than a folder: the record is named before anything is written."""
    url = free(request.getfixturevalue("etcd_server").url())
    with face.connect(url) as client:
        client.backend.commit(Create("big/one", b"x" * 600_000))
        client.pause()
    refused(
        jrs_here("migrate", "--from", url, "--to", target), "'big/one'", "600,000 bytes", "524,288"
    )
    assert jrs_here("--backend", url, "list").returncode == 0


def test_storage_of_another_cluster(
    jrs: Jrs, masters: Masters, url: str, target: str, tmp_path: Path
) -> None:
    """The storage that is named has to be the cluster's own, and on this host."""
    masters.start(url, "m1")
    masters.until_leads("m1")
    masters.stop()
    jrs("pause")
    (tmp_path / "elsewhere").mkdir()
    refused(
        jrs("migrate", "--from", url, "--to", target, "--storage", tmp_path / "elsewhere"),
        "is not on this host",
    )
    (tmp_path / "store" / "storage").rename(tmp_path / "gone")
    refused(jrs("migrate", "--from", url, "--to", target), "is not on this host", "--storage DIR")
    moved = jrs("migrate", "--from", url, "--to", target, "--storage", tmp_path / "gone")
    assert moved.returncode == 0, moved.stderr
