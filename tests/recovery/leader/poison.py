"""Jobs that kill the process they run in, and one replica of a driver that runs one of them.

python poison.py URL FOLDER POISON ATTEMPTS TTL

FOLDER takes a line for each side effect and each event, and holds the files that let jobs end.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jrs
from jrs import Driver, Job, RestartPolicy
from jrs.recovery.rules.events import Event


def note(folder: Path, what: str, line: object) -> None:
    """Add a line to a file, whole."""
    with open(folder / what, "a") as file:
        file.write(f"{line}\n")


def segv(job: Job) -> None:
    ctypes.string_at(0)


def exits(job: Job) -> None:
    os._exit(3)


def hogs(job: Job) -> None:
    """Hold the interpreter's lock in a loop in C, forever."""
    collections.deque(itertools.repeat(0), maxlen=0)


def eats(job: Job) -> None:
    """Take memory until the kernel kills this process."""
    taken = []
    while True:
        taken.append(bytearray(b"x" * (8 << 20)))


def forks(job: Job) -> None:
    """Fork as often as the system lets it; each child does the same."""
    while True:
        os.fork()


def later(job: Job) -> None:
    """Die as `segv` does, after longer than the shortest probation of a job that may do so."""
    time.sleep(6.0)
    ctypes.string_at(0)


def good(job: Job) -> str:
    return job.job_id


POISONS: dict[str, Callable[[Job], None]] = {
    poison.__name__: poison for poison in (segv, later, exits, hogs, eats, forks)
}


def next_to_good_ones(folder: Path, poison: str, attempts: int) -> Callable[[Driver], Any]:
    """Return a main that runs a poison job next to good ones, one of which outlives it."""
    over = threading.Event()

    def lasting(job: Job) -> str:
        while not over.wait(0.01):
            job.check()
        return job.job_id

    def bad(driver: Driver) -> list[str]:
        try:
            driver.run("poison", POISONS[poison], restart=RestartPolicy(attempts, delay=0.05))
        except jrs.JobNotFinished as error:
            return [error.result.status.value, str(error)]
        finally:
            over.set()
        return ["FINISHED", ""]

    def main(driver: Driver) -> Any:
        note(folder, "main", f"{os.getpid()} {driver.epoch}")
        jobs = {"a-good": good, "lasting": lasting, "z-good": good}
        with ThreadPoolExecutor(8) as pool:
            ended = pool.submit(bad, driver)
            runs = [pool.submit(driver.run, name, function) for name, function in jobs.items()]
            return {"good": [run.result() for run in runs], "poison": ended.result()}

    return main


def until_told(folder: Path) -> Callable[[Driver], Any]:
    """Return a main with jobs that note each start and run until the file `may.end` exists."""

    def patient(job: Job) -> int:
        note(folder, "ran", f"{os.getpid()} {job.epoch} {job.job_id}")
        while not (folder / "may.end").exists():
            job.check()
            time.sleep(0.005)
        return job.attempt

    def main(driver: Driver) -> Any:
        with ThreadPoolExecutor(3) as pool:
            runs = [pool.submit(driver.run, f"job-{n}", patient) for n in range(3)]
            return [run.result() for run in runs]

    return main


def main() -> None:
    url, folder, poison, attempts, ttl = sys.argv[1:]
    place = Path(folder)
    what = (
        next_to_good_ones(place, poison, int(attempts)) if poison in POISONS else until_told(place)
    )

    def report(event: Event) -> None:
        said = f"{event.at:.2f} e{event.epoch} {event.kind} {event.job_id}: {event.message}"
        note(place, "events", said)

    returned = jrs.run(what, url, name="main", cluster="test", ttl=float(ttl), report=report)
    print(json.dumps(returned), flush=True)


if __name__ == "__main__":
    main()
