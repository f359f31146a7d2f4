"""What an operator does: logs, storage, a pause, a switchover; through the command line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jrs as face
from tests.cli.conftest import Jrs
from tests.support import until

PRINTS = """
import sys
def prints(job, lines=3, fail=False):
    for number in range(lines):
        print("line %d \\x1b[31mred" % number)
    print("to stderr", file=sys.stderr)
    if fail:
        raise ValueError("no good")
    return lines
def waits(job, path):
    import os, time
    while not os.path.exists(path):
        time.sleep(0.02)
    return "done"
"""


@pytest.fixture(autouse=True)
def jobs(home: Path) -> None:
    (home / "operated.py").write_text(PRINTS)


class Masters:
    """Real masters, each with options of its own."""

    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "jrs", "--backend", self.url, "master", "--name", name]
        with (self.home / f"{name}.said").open("wb") as said:
            self.started[name] = subprocess.Popen(
                [*command, "--ttl", "5", *options],
                cwd=self.home,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        return self.started[name]

    def role(self, name: str) -> face.MasterRole | None:
        with face.connect(self.url) as client:
            roles = {view.info.name: view.role for view in client.masters()}
        return roles.get(name)

    def said(self, name: str) -> str:
        return (self.home / f"{name}.said").read_text()

    def until_leads(self, name: str) -> None:
        until(lambda: self.role(name) is face.MasterRole.LEADER, f"{name} leads")

    def until_stands_by(self, name: str) -> None:
        until(lambda: self.role(name) is face.MasterRole.STANDBY, f"{name} stands by")

    def stop(self) -> None:
        for process in self.started.values():
            process.terminate()
        for process in self.started.values():
            process.wait(60)


@pytest.fixture
def masters(home: Path, url: str) -> Iterator[Masters]:
    started = Masters(home, url)
    yield started
    started.stop()


def test_logs_outlive_the_cleanup(jrs: Jrs, masters: Masters, home: Path) -> None:
    """U6: what a job printed is there after its cleanup, whole and by stream, and `show` has the
    path; 40 MB of output do not take 40 MB of disk."""
    masters.start("m1")
    jrs("submit", "loud", "operated:prints", "--arg", "lines=2000000", "--wait")
    assert jrs("submit", "small", "operated:prints", "--wait").returncode == 0
    with face.connect(masters.url) as client:
        until(lambda: client.results.has_clean("small"), "the small job is clean")
        until(lambda: client.results.has_clean("loud"), "the loud job is clean")

    small = jrs("logs", "small", "--out")
    assert small.stdout == "".join(f"line {number} \x1b[31mred\n" for number in range(3))
    assert jrs("logs", "small", "--err").stdout == "to stderr\n"
    both = jrs("logs", "small", "--tail", "1").stdout
    assert "==> attempt 1, stdout <==\nline 2" in both
    assert "==> attempt 1, stderr <==\nto stderr\n" in both

    folder = next(
        line.split()[-1] for line in jrs("show", "loud").stdout.splitlines() if "logs:" in line
    )
    assert sum(path.stat().st_size for path in Path(folder).iterdir()) < 17 * 1024 * 1024
    kept = jrs("logs", "loud", "--out").stdout
    assert kept.startswith("line 0 ")
    assert kept.endswith("line 1999999 \x1b[31mred\n")
    assert "bytes are left out here" in kept


def test_logs_that_are_not_here(jrs: Jrs, masters: Masters) -> None:
    """U6: a job without logs, and an unknown one, get one line; the wrong attempt names others."""
    jrs("submit", "waiting", "operated:prints")
    early = jrs("logs", "waiting")
    assert (early.returncode, early.stdout) == (2, "")
    assert "it has not been started" in early.stderr
    masters.start("m1")
    jrs("wait", "waiting")

    assert "'nobody'" in jrs("logs", "nobody").stderr
    assert "kept are those of attempts 1" in jrs("logs", "waiting", "--attempt", "7").stderr
    followed = jrs("logs", "-f", "waiting", "--err")
    assert (followed.returncode, followed.stdout) == (0, "to stderr\n")


def test_another_storage_is_refused(
    jrs: Jrs, masters: Masters, home: Path, tmp_path: Path, url: str
) -> None:
    """U4: a master or a command that names another storage than the cluster's is refused, with both
    named, and a failover cannot fail a healthy job; JRS_STORAGE names the right one."""
    one, two = tmp_path / "one", tmp_path / "two"
    two.mkdir()
    masters.start("m1", "--storage", str(one))
    assert jrs("submit", "job", "operated:prints", "--wait").returncode == 0

    wrong = masters.start("m2", "--storage", str(two))
    assert wrong.wait(60) == 2
    assert f"{two} is not the storage of cluster 'default'" in masters.said("m2")
    assert str(one) in masters.said("m2")
    for command in (("fsck",), ("logs", "job"), ("cleanup", "dry-run", "job")):
        refused = jrs(*command, "--storage", two)
        assert refused.returncode == 2, command
        assert f"{two} is not the storage" in refused.stderr
        assert str(one) in refused.stderr
        assert jrs(*command, JRS_STORAGE=str(one)).returncode == 0, command
    assert "is not the storage" in jrs("fsck", JRS_STORAGE=str(two)).stderr
    assert jrs("fsck").returncode == 0  # The recorded one is on this host.
    assert str(one) in jrs("storage").stdout


def test_a_moved_storage(jrs: Jrs, masters: Masters, tmp_path: Path) -> None:
    """U4: a storage that was moved whole is the same one; the copy that stayed behind is not used
    again, unless an operator adopts it."""
    one, two = tmp_path / "one", tmp_path / "two"
    masters.start("m1", "--storage", str(one))
    masters.until_leads("m1")
    masters.stop()
    subprocess.run(["cp", "-a", one, two], check=True)
    masters.start("m2", "--storage", str(two))
    masters.until_leads("m2")
    masters.stop()

    masters.start("m3", "--storage", str(one))
    until(lambda: "an older copy of the storage" in masters.said("m3"), "m3 waits")
    assert str(two) in masters.said("m3")
    refused = jrs("storage", "--adopt", "--storage", one)
    assert (refused.returncode, "stop all masters first" in refused.stderr) == (2, True)
    masters.stop()
    assert jrs("storage", "--adopt", "--storage", one).returncode == 0
    masters.start("m4", "--storage", str(one))
    masters.until_leads("m4")


def test_a_store_from_an_older_backup(jrs: Jrs, masters: Masters, tmp_path: Path) -> None:
    """U4: a store that is behind its storage is noticed: the master waits, with both numbers and
    the remedy, and `fsck --repair` accepts the loss."""
    store, files, backup = tmp_path / "store", tmp_path / "files", tmp_path / "backup"
    for name in ("m1", "m2", "m3"):
        masters.start(name, "--storage", str(files))
        masters.until_leads(name)
        masters.stop()
        if name == "m1":
            subprocess.run(["cp", "-a", store, backup], check=True)
    subprocess.run(["rm", "-r", store], check=True)
    subprocess.run(["cp", "-a", backup, store], check=True)

    masters.start("m4", "--storage", str(files))
    until(lambda: "the store is older than the files" in masters.said("m4"), "m4 waits")
    assert "is at epoch 1" in masters.said("m4")
    assert "used up to epoch 3" in masters.said("m4")
    for command, code in (("fsck", 2), ("doctor", 1)):
        found = jrs(command, "--storage", files)
        assert (found.returncode, "the store is older" in found.stdout) == (code, True)
    assert "no master leads" in jrs("masters").stderr
    repaired = jrs("fsck", "--repair", "--storage", files)
    assert (repaired.returncode, "epoch 4" in repaired.stderr) == (0, True)
    masters.until_leads("m4")


def test_a_store_from_a_backup_under_the_same_leader(
    jrs: Jrs, masters: Masters, tmp_path: Path
) -> None:
    """A job that has ended since does not run again unnoticed, although no other master has led
    since the backup; `fsck --repair` accepts the loss."""
    store, files, backup = tmp_path / "store", tmp_path / "files", tmp_path / "backup"
    masters.start("m1", "--storage", str(files))
    masters.until_leads("m1")
    assert jrs("submit", "before", "operated:prints", "--wait").returncode == 0
    counted = files / "default" / ".storage"
    until((counted / "n1").exists, "the leader has counted the end")
    subprocess.run(["cp", "-a", store, backup], check=True)
    assert jrs("submit", "after", "operated:prints", "--wait").returncode == 0
    until((counted / "n2").exists, "the leader has counted the next one")
    masters.started["m1"].kill()
    masters.stop()
    subprocess.run(["rm", "-r", store], check=True)
    subprocess.run(["cp", "-a", backup, store], check=True)

    masters.start("m2", "--storage", str(files))
    until(lambda: "the store is older than the files" in masters.said("m2"), "m2 waits")
    found = jrs("fsck", "--storage", files)
    assert (found.returncode, "the store is older" in found.stdout) == (2, True)
    repaired = jrs("fsck", "--repair", "--storage", files)
    assert (repaired.returncode, "epoch 2" in repaired.stderr) == (1, True)  # Knows no "after".
    masters.until_leads("m2")


def test_a_pause(jrs: Jrs, masters: Masters, home: Path) -> None:
    """While a cluster is paused nothing new starts, what runs continues, and everyone says so."""
    masters.start("m1")
    go = home / "go"
    jrs("submit", "running", "operated:waits", "--arg", f"path={go}")
    with face.connect(masters.url) as client:
        until(lambda: client.job("running").status() is face.JobStatus.RUNNING, "it runs")
    assert jrs("pause", "--because", "the lake is down").returncode == 0
    again = jrs("pause", "--because", "another one")
    assert (again.returncode, "was paused already" in again.stderr) == (0, True)
    jrs("submit", "new", "operated:prints")
    go.touch()
    assert jrs("wait", "running").returncode == 0

    assert "the cluster is paused" in jrs("explain", "new").stdout
    for command in ("masters", "list", "explain new"):
        assert "the lake is down" in jrs(*command.split()).stderr, command
    until(lambda: "new: waiting: the cluster is paused" in masters.said("m1"), "the leader says so")
    with face.connect(masters.url) as client:
        assert client.job("new").view().attempt is None
    assert "is no longer paused" in jrs("unpause").stderr
    assert jrs("wait", "new").returncode == 0
    assert "was not paused" in jrs("unpause").stderr


def test_a_switchover(jrs: Jrs, masters: Masters) -> None:
    """The leader hands over to the named master; a name that is not there is refused."""
    for name in ("m1", "m2", "m3"):
        masters.start(name)
        if name == "m1":
            masters.until_leads("m1")
    with face.connect(masters.url) as client:
        until(lambda: len(client.masters()) == 3, "all three are there")

    unknown = jrs("switchover", "--to", "m22")
    assert (unknown.returncode, "did you mean 'm2'" in unknown.stderr) == (2, True)
    for name in ("m3", "m2"):
        done = jrs("switchover", "--to", name, "--because", "a reboot")
        assert (done.returncode, f"{name} leads" in done.stderr) == (0, True), done.stderr
        assert f"{name} leads already" in jrs("switchover", "--to", name).stderr
    said = jrs("masters")
    assert f"requested by {os.environ.get('USER', '')}"[:12] in said.stderr
    assert "a reboot" in said.stderr
    assert jrs("switchover").returncode == 0


def test_a_killed_leader_does_not_stand_by(jrs: Jrs, masters: Masters) -> None:
    """After a kill -9 of the leader, and once another master leads, it is shown as one that lost
    its lead, until its heartbeats are old; it is never a standby, and no switchover is to it."""
    masters.start("m1")
    masters.until_leads("m1")
    masters.start("m2")
    masters.until_stands_by("m2")
    with face.connect(masters.url) as client:
        led = client.leader().epoch
    masters.started["m1"].kill()
    masters.until_leads("m2")

    refused = jrs("switchover", "--to", "m1")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    said = set[str]()

    def is_gone() -> bool:
        rows = jrs("masters").stdout.splitlines()
        (row,) = [row for row in rows if row.split()[:1] == ["m1"]]
        said.add(re.split(r" {2,}", row.strip())[1])
        return "gone" in said

    until(is_gone, "its heartbeats are old")
    assert said <= {f"lost its lead, epoch {led}", "gone"}


def test_a_leader_that_hung_stands_by_again(masters: Masters) -> None:
    """A leader that hangs and is replaced has lost its lead; once it runs on it says that it lives,
    and stands by."""
    masters.start("m1")
    masters.until_leads("m1")
    masters.start("m2")
    masters.until_stands_by("m2")
    masters.started["m1"].send_signal(signal.SIGSTOP)
    try:
        masters.until_leads("m2")
        assert masters.role("m1") is not face.MasterRole.STANDBY
    finally:
        masters.started["m1"].send_signal(signal.SIGCONT)
    masters.until_stands_by("m1")


def test_a_switchover_needs_masters(jrs: Jrs) -> None:
    """Without a leader there is nothing to hand over, and that is said in one line."""
    jrs("submit", "job", "operated:prints")
    refused = jrs("switchover")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "no master leads" in refused.stderr
