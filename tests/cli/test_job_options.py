"""Options of a job: its place in the queue, its time limits and settings, as users give them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Jrs
from tests.support import until

SECRET = 'hunter2-\u00e9 "x"'

MORE_JOBS = """
import os, sys, time

def tell(job, **arguments):
    import extra
    return {"env": os.environ.get("A"), "file": os.environ.get("B"), "extra": extra.NUMBER,
            "known": os.environ["PW"] == SECRET_VALUE, "arguments": arguments}

def leak(job):
    job.log.warning("logging in with %s", os.environ["PW"])
    raise ValueError("wrong password: " + os.environ["PW"])

def die(job):
    print("dying with " + os.environ["PW"], file=sys.stderr, flush=True)
    os._exit(3)

def stuck(job):
    import ctypes
    # It holds the interpreter's lock: no thread of the process can do anything.
    job.stage("stuck", lambda stage: ctypes.PyDLL(None).sleep(600), timeout=0.5)

def long(job):
    time.sleep(600)
""".replace("SECRET_VALUE", repr(SECRET))


@pytest.fixture
def secret(home: Path) -> Path:
    """A file with a secret, next to a module of jobs."""
    (home / "more_jobs.py").write_text(MORE_JOBS)
    (home / "extra.py").write_text("NUMBER = 7\n")
    path = home / "secret.txt"
    path.write_text(f"{SECRET}\n")
    return path


def test_the_settings_of_a_job_reach_it(
    jrs: Jrs, master: subprocess.Popen[bytes], secret: Path, home: Path
) -> None:
    """U17: environment, variables from a file, modules and a secret are there when the job runs;
    `show` has what was given, and the reference in place of the secret."""
    (home / "more.env").write_text("# a comment\nB=from a file\n\nA=less\n")
    (home / "lib").mkdir()
    (home / "extra.py").rename(home / "lib" / "extra.py")
    done = jrs(
        "submit", "tells", "more_jobs:tell", "--no-check", "--arg", "priority=1",
        "--env-from-file", "more.env", "--env", "A=1", "--secret", f"PW=file:{secret}",
        "--py-files", "lib/extra.py", "--priority", "3", "--tag", "team=sales", "--tag", "nightly",
        "--timeout", "2h", "--wait",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "env": "1", "file": "from a file", "extra": 7, "known": True, "arguments": {"priority": 1},
    }  # fmt: skip


def test_what_was_given_is_shown(jrs: Jrs, home: Path) -> None:
    """U15, U16, U17: `show` of a job that waits has its priority, slots, tags, limits, settings."""
    (home / "spark.conf").write_text("spark.executor.memory 4g\nspark.x = y\n# no\n")
    jrs(
        "submit", "waits", "jobs_here:add", "--priority", "-2", "--slots", "3", "--tag", "a=b",
        "--timeout", "1.5h", "--attempt-timeout", "90", "--on-timeout", "restart",
        "--properties-file", "spark.conf", "--conf", "spark.x=z", "--packages", "g:a:1,g:b:2",
        "--jars", "a.jar", "--secret", "PW=env:HOME_PW", "--python", "python3",
    )  # fmt: skip
    spec = json.loads(jrs("show", "waits", "--json").stdout)["spec"]
    shown = jrs("show", "waits").stdout

    assert (spec["priority"], spec["slots"], spec["tags"]) == (-2, 3, ["a=b"])
    assert spec["timeout"] == {"job": 5400.0, "attempt": 90.0, "then": "restart"}
    assert spec["settings"] == {
        "conf": {"spark.executor.memory": "4g", "spark.x": "z"},
        "packages": ["g:a:1", "g:b:2"], "jars": [str(home / "a.jar")], "py_files": [],
        "python": "python3", "env": {}, "secrets": {"PW": "env:HOME_PW"},
    }  # fmt: skip
    for text in ("priority:", "slots:", "a=b", "1 h 30 min, then restart", "env:HOME_PW"):
        assert text in shown


@pytest.mark.parametrize("function", ["leak", "die"])
def test_no_secret_is_stored_or_printed(
    jrs: Jrs, master: subprocess.Popen[bytes], secret: Path, url: str, function: str
) -> None:
    """U17: failures, their details and jrs's own log lines have asterisks in the secret's place."""
    entry = f"more_jobs:{function}"
    done = jrs("submit", "j", entry, "--secret", f"PW=file:{secret}", "--attempts", "1", "--wait")
    shown = jrs("show", "j").stdout

    assert done.returncode == 1
    assert "***" in shown
    for text in (done.stdout, done.stderr, shown, jrs("show", "j", "--json").stdout):
        assert "hunter2" not in text
    until(
        lambda: "\nresult:      clean\n" in jrs("show", "j").stdout, "cleanup has written its own"
    )
    for path in Path(url.removeprefix("file://")).rglob("*"):
        if path.is_file() and not path.name.endswith(".err"):
            assert b"hunter2" not in path.read_bytes(), path


def test_what_a_host_lacks_does_not_end_a_job(
    jrs: Jrs, master: subprocess.Popen[bytes], secret: Path
) -> None:
    """U17: a job whose secret is missing on this host starts once it is there."""
    hidden = secret.rename(secret.with_suffix(".hidden"))
    jrs("submit", "j", "more_jobs:tell", "--secret", f"PW=file:{secret}")
    until(lambda: "no master could start it" in jrs("explain", "j").stdout, "a start was tried")
    hidden.rename(secret)

    assert jrs("wait", "j", "--timeout", "60").returncode == 0


def test_a_stage_that_hangs_ends_its_attempt(
    jrs: Jrs, master: subprocess.Popen[bytes], secret: Path
) -> None:
    """U16: a stage stuck in C with the interpreter's lock is ended by its timeout, and the policy
    restart has the restart policy decide."""
    done = jrs(
        "submit", "j", "more_jobs:stuck", "--on-timeout", "restart", "--attempts", "2",
        "--delay", "0s", "--wait",
    )  # fmt: skip
    result = json.loads(jrs("show", "j", "--json").stdout)["entry"]["result"]

    assert done.returncode == 1
    assert "stage 'stuck' has run for longer than 0.5 s" in done.stderr
    assert (result["attempt"], result["failure"]["kind"]) == (2, "timeout")


def test_a_job_whose_time_is_up_is_failed(
    jrs: Jrs, master: subprocess.Popen[bytes], secret: Path
) -> None:
    """U16: `--timeout` ends a job that runs for too long, and `show` says so."""
    done = jrs("submit", "j", "more_jobs:long", "--timeout", "1s", "--wait")
    result = json.loads(jrs("show", "j", "--json").stdout)["entry"]["result"]

    assert done.returncode == 1
    assert "the job has run for longer than 1 s" in done.stderr
    assert (result["attempt"], result["failure"]["kind"]) == (1, "timeout")


def test_the_result_is_told(
    jrs: Jrs, master: subprocess.Popen[bytes], secret: Path, tmp_path: Path
) -> None:
    """`--on-result` runs a command with the result on its standard input; one that fails for too
    long is given up, and `show` says so."""
    told = tmp_path / "told"
    jrs("submit", "j", "more_jobs:tell", "--on-result", f"tee {told}", "--wait")
    jrs("submit", "k", "more_jobs:tell", "--on-result", "false", "--on-result-deadline", "0s")
    until(lambda: "given up:" in jrs("show", "k").stdout, "it is given up")

    until(told.exists, "it was told")
    assert json.loads(told.read_text())["job_id"] == "j"
    assert "on_result: false: exit status 1" in jrs("show", "k").stdout
