"""Applications as their users meet them: a program that cron starts, and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import until

from .conftest import Jrs

NIGHTLY = """
import sys
import jrs

def load(job, day):
    return len(day)

def main(driver, day):
    if day == "bad":
        raise LookupError("no table of " + day)
    return {"rows": driver.run("load-" + day, load, day=day), "day": day}

day, name, url = sys.argv[1:]
try:
    print(jrs.run(main, url, name=name, arguments={"day": day}))
except jrs.JrsError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""

Nightly = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def nightly(home: Path, url: str) -> Nightly:
    """Runs the program of every night, with a day and a name."""
    (home / "nightly.py").write_text(NIGHTLY)

    def run(day: str, name: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "nightly.py", day, name, url]
        return subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)

    return run


def test_u1_the_second_night_is_another_run(nightly: Nightly) -> None:
    """U1: a program that cron runs each night gets its own day's result, or an error that says how;
    never that of another day without a word."""
    first = nightly("2026-11-20", "nightly-2026-11-20")
    again = nightly("2026-11-20", "nightly-2026-11-20")
    same_name = nightly("2026-11-21", "nightly-2026-11-20")
    unnamed = nightly("2026-11-21")
    second = nightly("2026-11-21", "nightly-2026-11-21")

    assert first.stdout == again.stdout == "{'rows': 10, 'day': '2026-11-20'}\n"
    assert first.stderr == ""
    assert again.stderr.startswith("jrs: application 'nightly-2026-11-20' has ended ")
    assert again.stderr.endswith(" ago; its result is returned, main does not run\n")
    assert "InvalidInput: 'nightly-2026-11-20' has ended already" in same_name.stderr
    assert 'name=f"nightly-{date}"' in unnamed.stderr
    assert second.stdout == "{'rows': 10, 'day': '2026-11-21'}\n"


def test_a_master_keeps_an_application_from_running(
    nightly: Nightly, jrs: Jrs, home: Path, url: str
) -> None:
    """No command says to start one for it; one that is started says so, and so does what waits
    for it."""
    nightly("bad", "nightly-bad")
    listed, explained = jrs("list"), jrs("explain", "nightly-bad")
    top = json.loads(jrs("top", "nightly-bad", "--json").stdout)
    for said in (listed.stderr, explained.stdout):
        assert "start the program of the application 'nightly-bad' again" in said
    assert not any("jrs master" in step["command"] for step in top["steps"])

    command = [sys.executable, "-m", "jrs", "--backend", url, "master", "--name", "m1"]
    program = [sys.executable, "nightly.py", "bad", "nightly-bad", url]
    with meanwhile(command, home) as master:
        assert "'nightly-bad' has not ended" in next(master.stderr)
        until(lambda: "leads," in jrs("masters").stdout, "it leads")
        said = jrs("explain", "nightly-bad").stdout
        assert "leads, and runs no application: stop it" in said
        with meanwhile(program, home) as replica:
            assert "it runs no application, and does not end by itself" in next(replica.stderr)


@contextmanager
def meanwhile(command: list[str], folder: Path) -> Iterator[Any]:
    """Run a program."""
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.terminate()


def test_u18_a_failed_main_is_listed_shown_and_canceled(nightly: Nightly, jrs: Jrs) -> None:
    """U18: an application whose main raises is seen by list, show and explain; `jrs cancel` ends it
    for good."""
    assert "LookupError: no table of bad" in nightly("bad", "nightly-bad").stderr
    listed = " ".join(jrs("list").stdout.split())
    shown = jrs("show", "nightly-bad").stdout
    explained = jrs("explain", "nightly-bad").stdout

    assert "nightly-bad" in listed
    assert "main raised LookupError: no table of bad" in listed
    assert "kind:        application" in shown
    assert "entry point: nightly.py:main" in shown
    assert 'arguments:   {"day": "bad"}' in shown
    assert "raised:      1 times, last " in shown
    assert "an application: the replica that leads runs its main" in explained
    assert jrs("fsck").returncode == 0

    assert jrs("cancel", "nightly-bad", "--because", "not needed").returncode == 0
    ended = nightly("bad", "nightly-bad")
    result = json.loads(jrs("wait", "nightly-bad", "--json").stdout)

    assert "JobNotFinished: job 'nightly-bad' ended CANCELED: canceled on request" in ended.stderr
    assert (result["status"], result["main"]["attempts"]) == ("CANCELED", 1)
    shown = jrs("show", "nightly-bad").stdout
    assert "application" in shown
    assert shown.count("\nstarted: ") == 1
    assert "jrs retry" not in jrs("explain", "nightly-bad").stdout
