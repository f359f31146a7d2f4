"""``jrs retry``: a job that failed runs again as another, which skips its finished stages (U3)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import jrs
from jrs.contract.errors import WrongState
from jrs.records import keys
from jrs.records.model import FormatRecord, JobResult, JobStatus
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import lead
from tests.cli.conftest import Jrs
from tests.recovery.support import put
from tests.support import until

STEPS = """
from pathlib import Path

def ran(name):
    with open("ran", "a") as file:
        file.write(name + "\\n")

def steps(job, top=1):
    def write(stage):
        ran(stage.name)
        (stage.output / "rows").write_text(f"{stage.name} of {job.job_id}")
        return top

    first = job.stage("first", write)
    second = job.stage("second", write, temporary=True)
    assert second.output.joinpath("rows").exists()
    if not Path("fixed").exists():
        raise ValueError("a bug")
    third = job.stage("third", write)
    return {"first": (first.output / "rows").read_text(), "sum": first.result() + third.result()}
"""


@pytest.fixture
def failed(jrs: Jrs, home: Path, master: subprocess.Popen[bytes]) -> str:
    """A job of three stages, two of which have finished."""
    (home / "steps_here.py").write_text(STEPS)
    done = jrs("submit", "nightly", "steps_here:steps", "--wait")
    assert (done.returncode, "a bug" in done.stderr) == (1, True)
    return "nightly"


def until_clean(jrs: Jrs) -> None:
    until(lambda: "nightly" in jrs("list", "--state", "clean", "--json").stdout, "it is clean")


def ran(home: Path) -> list[str]:
    return (home / "ran").read_text().split()


def test_after_the_bug_is_fixed(jrs: Jrs, home: Path, failed: str) -> None:
    """U3: what had finished is taken over and not run again; both jobs show the lineage."""
    (home / "fixed").touch()
    done = jrs("retry", "nightly", "--wait", "--arg", "top=5")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"first": "first of nightly", "sum": 6}
    assert "nightly.2 is a retry of job 'nightly', from snapshot 1" in done.stderr
    assert "finished stages that are taken over: first, second" in done.stderr
    assert ran(home) == ["first", "second", "third"]
    shown = jrs("show", "nightly")
    assert "retried as:" in shown.stdout
    assert "nightly.2, 20" in shown.stdout
    assert "FAILED" in shown.stdout
    made = json.loads(jrs("show", "nightly", "--json").stdout)["descendants"]
    assert [(one["descendant"], one["how"]) for one in made] == [("nightly.2", "retry")]
    again = jrs("retry", "nightly.2")
    assert again.returncode == 2
    assert "'nightly.2' has FINISHED" in again.stderr
    assert "--from-stage STAGE" in again.stderr


def test_a_stage_again(jrs: Jrs, home: Path, failed: str) -> None:
    """U3: from a stage on, all that comes after it runs again, under an id of one's own."""
    wrong = jrs("retry", "nightly", "--from-stage", "zeroth")
    assert wrong.returncode == 2
    assert "(what has: first, second)" in wrong.stderr
    assert json.loads(jrs("list", "--json").stdout)[0]["job_id"] == "nightly"
    (home / "fixed").touch()
    done = jrs("retry", "nightly", "--as", "other", "--from-stage", "second", "--wait")

    assert done.returncode == 0, done.stderr
    assert "again from stage second" in done.stderr
    assert ran(home) == ["first", "second", "second", "third"]
    assert jrs("retry", "nightly", "--as", "other").returncode == 2


def test_other_code_and_once(jrs: Jrs, home: Path, failed: str) -> None:
    """U3: the same retry is begun once, however often it is requested; another one is refused while
    it is under way; then the next free id follows."""
    jrs("submit", "nightly.2", "jobs_here:add", "--wait")
    args = ("retry", "nightly", "--entry", "jobs_here:sleeps", "--args", "{}", "--json")
    first, second = jrs(*args), jrs(*args)

    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert json.loads(first.stdout)["job_id"] == json.loads(second.stdout)["job_id"] == "nightly.3"
    other = jrs("retry", "nightly")
    assert other.returncode == 2
    assert "is being retried already, in another way, as 'nightly.3'" in other.stderr
    jrs("cancel", "nightly.3", "--wait")
    assert jrs("retry", "nightly.3", "--json").returncode == 0
    assert "made as:" in jrs("show", "nightly.4").stdout


def test_what_cannot_be_retried(jrs: Jrs, home: Path, master: subprocess.Popen[bytes]) -> None:
    """One line says why, and what to do."""
    jrs("submit", "fine", "jobs_here:add", "--wait")
    jrs("submit", "gone", "jobs_here:boom", "--snapshots-at-end", "failed=delete", "--wait")
    jrs("submit", "runs", "jobs_here:sleeps")

    for job, why in {
        "nobody": "there is no job 'nobody'",
        "fine": "'fine' has FINISHED",
        "gone": "nothing is kept of job 'gone'",
        "runs": "'runs' has not ended",
    }.items():
        done = jrs("retry", job)
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr
        assert done.stderr.count("\n") == 1


def test_in_an_older_cluster(tmp_path: Path) -> None:
    """A version that knows no lineage could run a stage that was to run again."""
    with jrs.connect("memory://", storage=tmp_path) as client:
        client.backend.marked_format = 4
        put(client.backend, keys.FORMAT, FormatRecord(4))
        with pytest.raises(WrongState, match="jrs cluster-format --raise"):
            client.job("nightly").retry()


def test_snapshots_are_the_users(jrs: Jrs, home: Path, failed: str) -> None:
    """U10, U11: the list shows who took each; they have the job's format, and are converted."""
    until_clean(jrs)
    shown = jrs("snapshot", "list", "nightly").stdout
    assert "system, at the end" in shown
    done = jrs("snapshot", "convert", "nightly", "1", "--to", "cas")
    assert (done.returncode, done.stdout) == (0, "")
    assert "snapshot 1 of job 'nightly' has the format cas" in done.stderr
    (record,) = json.loads(jrs("snapshot", "list", "--json").stdout)
    assert (record["format"], record["taken_by"], record["number"]) == ("cas", "system", 1)
    assert jrs("snapshot", "verify", "nightly", "1").returncode == 0
    refused = jrs("snapshot", "convert", "nightly", "1", "--to", "logical")
    assert refused.returncode == 2
    jrs("submit", "runs", "jobs_here:sleeps", "--snapshot-format", "full")
    jrs("snapshot", "create", "runs", "--name", "mine")
    (mine,) = json.loads(jrs("snapshot", "list", "runs", "--json").stdout)
    assert (mine["format"], mine["taken_by"]) == ("full", "user")


def test_a_cleanup_that_was_not_tried_yet(jrs: Jrs, url: str) -> None:
    """It has something left to do, and who does it is said; a clean result has nothing left."""
    jrs("submit", "ended", "jobs_here:add", "--no-check")
    with open_backend(url) as backend, lead(backend) as leadership:
        results = JobResultStore(backend)
        results.create_dirty(JobResult("ended", JobStatus.FINISHED), leadership.fence)
        waits = jrs("cleanup", "retry", "ended")
        results.mark_clean("ended", leadership.fence)
        done = jrs("cleanup", "retry", "ended")
        as_json = jrs("cleanup", "retry", "ended", "--json")

    assert (waits.returncode, done.returncode) == (0, 0)
    assert "has not ended its first try" in waits.stderr
    assert "no master leads" in waits.stderr
    assert "has nothing left to do" in done.stderr
    assert json.loads(as_json.stdout) == {"job_id": "ended", "retried": False}


def test_what_is_garbage(jrs: Jrs, home: Path, failed: str, tmp_path: Path) -> None:
    """U19: the output of an expired job can be removed; a preview removes nothing. One result can
    be expired."""
    until_clean(jrs)
    output = tmp_path / "store" / "storage" / "default" / "nightly" / "out"
    assert (
        jrs("expire").returncode == jrs("expire", "nightly", "--older-than", "1d").returncode == 2
    )
    kept = jrs("expire", "nightly", "--keep", "5")
    assert (kept.returncode, "--keep needs --older-than" in kept.stderr) == (2, True)
    assert jrs("gc", "--older-than", "soon").returncode == 2
    nothing = jrs("gc", "--older-than", "0s")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "freed 0 bytes\n")
    assert jrs("expire", "nightly").stdout == "expired 1 result\n"
    preview = jrs("gc", "--older-than", "0s", "--dry-run", "--json")
    assert [one["path"] for one in json.loads(preview.stdout)["removed"]] == [str(output)]
    assert (output / "first" / "rows").is_file()
    assert jrs("gc").stdout == ""
    done = jrs("gc", "--older-than", "0s")

    assert f"{output} (the output of an expired job)" in done.stdout
    assert not output.exists()
    assert jrs("retry", "nightly", "--json").returncode == 0
    assert (tmp_path / "store/storage/default/nightly.2/out/first/rows").is_file()
