"""Processes that main, a job or a stage forks: they end where the user's code ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from jrs.recovery.attempt.launch import EXIT_DIED
from tests.support import BOUND

PROGRAM = """
import json, multiprocessing, os, sys
import jrs

def status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def returns(stage):
    child = os.fork()
    return status(child) if child else "of the child"

def raises(stage):
    child = os.fork()
    if not child:
        raise ValueError("of the child")
    return status(child)

def etl(job):
    return [job.stage(each.__name__, each).result() for each in (returns, raises)]

def in_the_child(number):
    return driver.run(f"etl-{number}", etl)

def main(given):
    global driver
    driver = given
    if not (child := os.fork()):
        return "of the child"
    statuses = [status(child), *driver.run("etl", etl)]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return [*statuses, pool.map(in_the_child, [1])]
        except jrs.WrongProcess as error:
            return [*statuses, str(error)]

print(json.dumps(jrs.run(main, sys.argv[1], name="nightly")))
"""


def test_a_child_runs_nothing_that_its_parent_runs(tmp_path: Path) -> None:
    """One that leaves main or a stage ends there; one that uses what its parent has opened, as in a
    pool, is told so. Nothing hangs."""
    url = (tmp_path / "store").as_uri()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, timeout=BOUND
    )

    said = f"{url} was opened before a fork: open it again in the child"
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [EXIT_DIED, EXIT_DIED, EXIT_DIED, said]
    assert "ValueError: of the child" in done.stderr
