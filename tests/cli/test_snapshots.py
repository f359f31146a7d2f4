"""``jrs snapshot``, run as its users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jrs.recovery.files.job_folders import JobStorage
from jrs.store.opening import open_backend
from tests.recovery.snapshots.fabricate import FakeJob, put

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A suspended job on the file backend, and what runs ``jrs`` there."""
    url = (tmp_path / "store").as_uri()
    with open_backend(url, cluster="default") as backend:
        FakeJob(backend, JobStorage(tmp_path / "store" / "storage", "default")).run(4).suspend()

    def jrs(*args: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "jrs", *map(str, args)],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
            env={**os.environ, "JRS_BACKEND": url, "NO_COLOR": "1"},
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done

    return jrs


def test_from_creation_to_deletion(run: Run, tmp_path: Path) -> None:
    """All that can be done with snapshots, one command after the other."""
    assert "hourly at batch 3" in run("snapshot", "create", "job", "--name", "mine").stdout
    run("snapshot", "create", "job", "--format", "cas", "--batch", "hourly=1")
    listed = json.loads(run("snapshot", "list", "--json").stdout)
    assert [(each["number"], each["name"], each["format"]) for each in listed] == [
        (1, "mine", "link"),
        (2, None, "cas"),
    ]
    assert "mine" in run("snapshot", "list", "job").stdout
    assert "stage hourly: batch 1" in run("snapshot", "show", "job", 2).stdout
    shown = json.loads(run("snapshot", "show", "job", "mine", "--json").stdout)
    assert shown["job_id"] == "job"
    assert "is intact" in run("snapshot", "verify", "job", "mine").stdout
    run("snapshot", "move", "job", 1, tmp_path / "far")
    run("snapshot", "export", "job", 2, tmp_path / "out")
    forked = json.loads(run("snapshot", "fork", "job", "mine", "--as", "new", "--json").stdout)
    assert forked["job_id"] == "new"
    run("snapshot", "restore", "--from", tmp_path / "out", "--as", "other")
    assert "is at snapshot 2" in run("snapshot", "restore", "job").stdout
    run("snapshot", "delete", "job", "mine")
    assert "newest" in run("snapshot", "delete", "job", 2, code=2).stderr
    assert run("fsck").returncode == 0


@pytest.mark.parametrize(
    "more",
    [["job"], ["job", 1], ["--from", "."], ["--as", "new"], ["--claim"], ["--accept-published"]],
    ids=lambda more: str(more[-1]),
)
def test_a_restore_is_finished_as_it_was_begun(run: Run, more: list[object]) -> None:
    """What is given next to --finish would have no effect."""
    refused = run("snapshot", "restore", *more, "--finish", "job", code=2)
    assert "give nothing next to it" in refused.stderr


def test_a_fork_of_what_is_there_now(run: Run) -> None:
    """S6, N6: `jrs fork` makes a job of another's present state, and keeps no snapshot of it."""
    before = json.loads(run("show", "job", "--json").stdout)
    assert "hourly at batch 3" in run("fork", "job", "--as", "blue").stdout

    assert json.loads(run("snapshot", "list", "--json").stdout) == []
    after = json.loads(run("show", "job", "--json").stdout)
    (made,) = after.pop("descendants")
    assert (made["descendant"], made["how"], before.pop("descendants")) == ("blue", "fork", [])
    assert after == before
    assert json.loads(run("show", "blue", "--json").stdout)["spec"]["job_id"] == "blue"
    assert run("fsck").returncode == 0
    for args, said in (
        (("job", "--as", "blue"), "blue"),
        (("job", "--as", "job"), "job"),
        (("nobody", "--as", "new"), "there is no job 'nobody'"),
        (("job", "--as", "a/b"), "a/b"),
        (("job",), "--as"),
    ):
        refused = run("fork", *args, code=2)
        assert said in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert json.loads(run("snapshot", "list", "--json").stdout) == []


BAD = [
    ("create nobody", "there is no job 'nobody'"),
    ("create job --name 7", "not a snapshot's name"),
    ("create job --batch hourly", "write STAGE=N"),
    ("create job --batch hourly=99", "is not retained"),
    ("create job --format tar", "tar"),
    ("show job 9", "has no snapshot '9'"),
    ("verify job", "no snapshot that could be restored"),
    ("delete job 9", "has no snapshot '9'"),
    ("delete no/id 9", "not a job id"),
    ("restore", "nothing to restore"),
    ("restore job", "no snapshot that could be restored"),
    ("restore --finish job", "job 'job' has no unfinished restore"),
    ("restore --from /nowhere", "/nowhere"),
    ("fork job", "--as"),
]


@pytest.mark.parametrize(("command", "says"), BAD, ids=[command for command, _ in BAD])
def test_bad_input(run: Run, command: str, says: str) -> None:
    """One line that says what, where and what to do; exit code 2."""
    done = run("snapshot", *command.split(), code=2)

    (line,) = done.stderr.splitlines()
    assert line.startswith("jrs: ")
    assert says in line


def test_fsck_names_what_is_damaged_and_left(run: Run, tmp_path: Path) -> None:
    """A folder that is not listed, and one that was not finished."""
    folder = tmp_path / "store" / "storage" / "default" / "job" / "snapshots"
    put(folder / "7" / "manifest.json", "{}")
    put(folder / ".8.tmp" / "files" / "x", "x")

    lines = run("fsck", code=1).stdout.splitlines()

    assert any(f"{folder / '7'}: a snapshot that is not listed" in line for line in lines)
    assert any(f"{folder / '.8.tmp'}: an unfinished snapshot" in line for line in lines)


def test_help_has_examples(run: Run) -> None:
    """Every command shows how it is used."""
    for name in ["create", "list", "show", "verify", "delete", "move", "export", "restore", "fork"]:
        assert "jrs snapshot" in run("snapshot", name, "--help").stdout
