"""One replica of a driver, for test_application.py to start several times and to kill.

    python application.py URL FOLDER KIND

FOLDER takes a line for each side effect, and holds the files that let `main` continue.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jrs
from jrs import Driver, Job, RestartPolicy

FOLDER = Path(sys.argv[2])


def note(what: str, line: object = "") -> None:
    """Add a line to a file, whole."""
    with open(FOLDER / what, "a") as file:
        file.write(f"{line}\n")


def wait_for(what: str) -> None:
    while not (FOLDER / what).exists():
        time.sleep(0.005)


def first(job: Job, rows: int) -> dict[str, Any]:
    note("first.ran", job.epoch)
    return {"rows": rows, "pid": os.getpid()}


def second(job: Job) -> str:
    note("second.ran", job.epoch)
    wait_for("second.may.end")
    return "second"


def broken(job: Job) -> None:
    note("broken.ran", job.epoch)
    raise ValueError("no good")


def between_jobs(driver: Driver) -> Any:
    """Die between two jobs, or continue."""
    note("main", f"{os.getpid()} {driver.epoch}")
    one = driver.run("first", first, rows=3)
    wait_for("may.go.on")
    return [one, driver.run("second", second)]


def in_a_job(driver: Driver) -> Any:
    note("main", f"{os.getpid()} {driver.epoch}")
    return [driver.run("first", first, rows=3), driver.run("second", second)]


def in_a_process(driver: Driver) -> Any:
    here = Path(__file__).with_name("jobs.py")
    note("main", f"{os.getpid()} {driver.epoch}")
    calls = str(FOLDER / "calls")
    hold = str(FOLDER / "hold")
    return driver.run("staged", f"{here}:two_stages", calls=calls, hold=hold)


def failing(driver: Driver) -> Any:
    note("main", f"{os.getpid()} {driver.epoch}")
    return driver.run("broken", broken, restart=RestartPolicy(attempts=1))


def main() -> None:
    url, _, kind = sys.argv[1:]
    kinds: dict[str, Callable[[Driver], Any]] = {
        main.__name__: main for main in (between_jobs, in_a_job, in_a_process, failing)
    }
    try:
        returned = jrs.run(kinds[kind], url, name="main", cluster="test", ttl=30.0)
    except jrs.JobNotFinished as error:
        returned = {"failed": error.result.job_id, "why": str(error)}
    print(json.dumps(returned))


if __name__ == "__main__":
    main()
