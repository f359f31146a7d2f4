"""Two drivers of one job, both alive: the old one can neither double a row nor lose one, and
always the new one survives. What Spark alone does in the same trials is printed next to it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pytest

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.records.model import JobStatus, StopMode
from jrs.recovery.files.disk_errors import GONE
from jrs.recovery.processes import left_running as left
from jrs.store.stops import JobStops

from . import events
from .conftest import Cluster
from .events import EXPECTED, in_order, published, submit, until_committed
from .support import left_over, marked, until
from .test_orphans import Attempt, Successor, lives

KINDS = ["python stopped, then continued", "all stopped, then continued", "nothing stopped"]
"""What becomes of the old driver while the new one takes over. In the first its JVM runs on, as far
as it comes without its Python. In the second it is stopped in the middle of its work, and continues
later."""
PYTHON, ALL, NOTHING = KINDS
ALONE = Path(__file__).with_name("alone.py")


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def spare_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next leader find no process of an earlier one, as if it ran on a host that is cut
    off: all that it has against them is its fence."""
    end = left.end

    def spare(backend: Backend, job_id: str, *arguments: Any, **options: Any) -> list[int]:
        if job_id == "job" and "up_to_epoch" in options:
            return []
        return end(backend, job_id, *arguments, **options)

    monkeypatch.setattr(left, "end", spare)


def newest(cluster: Cluster, epoch: int) -> int:
    commits = cluster.storage.checkpoint("job", epoch, "windows") / "commits"
    try:
        return max(map(int, filter(str.isdigit, os.listdir(commits))), default=-1)
    except GONE:
        return -1


def is_over(attempt: Attempt) -> bool:
    """Return whether the Python of an attempt is dead, whose watchdog is stopped. Read what it has
    printed, in place of the watchdog: it would wait for that."""
    for pid in (attempt.python, attempt.jvm):
        with suppress(OSError):  # It is dead, or nothing is left to read.
            printed = os.open(f"/proc/{pid}/fd/2", os.O_RDONLY | os.O_NONBLOCK)
            try:
                while os.read(printed, 65536):
                    pass
            finally:
                os.close(printed)
    return not lives(attempt.python)


class Second(Protocol):
    """The master that takes the job over."""

    def start(self) -> object: ...

    def close(self) -> object: ...


def trial(
    cluster: Cluster,
    folder: Path,
    kind: str,
    chance: random.Random,
    prefix: Sequence[str] = (),
    successor: Second | None = None,
) -> int:
    """Have two drivers of one job alive at once; check that nobody could tell.

    Args:
        prefix: a command that runs the first master, for example on a host of its own.
        successor: by default a master in this process.

    Returns:
        How many rows were published, each once.
    """
    rows = events.write(folder, 2)
    first, successor = (
        cluster.masters.start("first", prefix=prefix),
        successor or Successor(cluster),
    )
    submit(cluster, "job", "unbounded", folder=str(folder), windows="windows")
    until_committed(cluster, "job", "windows")
    attempt = Attempt(cluster, "job")
    old = list(marked(cluster.masters.backend, "job"))
    try:
        rows += events.write(folder, 2, first=2)
        moment = Deadline.after(chance.uniform(0.0, 2.0))
        until(lambda: moment.expired, "a moment of the batches that follow")
        os.kill(attempt.watchdog, signal.SIGSTOP)  # For good: without it the attempt would end.
        stopped = {PYTHON: [attempt.python], ALL: old, NOTHING: []}[kind]
        send(stopped, signal.SIGSTOP)
        first.kill()
        successor.start()
        rows += events.write(folder, 1, first=4)
        until(lambda: newest(cluster, 2) > newest(cluster, 1), "the new driver has begun")
        before = newest(cluster, 2)
        send(stopped, signal.SIGCONT)
        rows += events.write(folder, 1, first=5)
        until(lambda: is_over(attempt), "the old driver is dead")
        rows += events.write(folder, 1, first=6)
        until(lambda: newest(cluster, 2) > before, "the new driver continues")
        JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
        until(lambda: cluster.is_clean("job"), "the job is clean")
        result = cluster.results.wait("job", 0)

        assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
        assert (result.attempt, result.epoch) == (2, 2)
        found = published(cluster, "job", "windows")
        assert found == in_order(EXPECTED["windows"](rows))
        assert left_over(cluster.masters.backend, cluster.storage, "job") == []
        return len(found)
    finally:
        attempt.close()
        successor.close()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(PYTHON, marks=pytest.mark.soak),
        pytest.param(ALL, marks=pytest.mark.soak),
        NOTHING,
    ],
)
def test_the_new_driver_survives(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """F7: with two drivers of one job alive, no row is doubled, none is lost, and the new leader's
    driver continues, in its first attempt.
    """
    spare_orphans(monkeypatch)
    trial(cluster, tmp_path / "in", kind, random.Random(kind))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_the_new_driver_survives_ten_times(
    new_cluster: Callable[[str], Cluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """F7: with two drivers of one job alive, no row is doubled, none is lost, and the new leader's
    driver continues, in its first attempt: ten times.
    """
    chance = random.Random(kind)
    for number in range(10):
        cluster = new_cluster(f"trial-{number}")
        spare_orphans(monkeypatch)
        trial(cluster, tmp_path / str(number), kind, chance)
        cluster.close()
    print(f"jrs, {kind}: the new driver survived 10 of 10, no row doubled, none lost")


# -- Spark alone -----------------------------------------------------------------------------


class Alone:
    """A driver that nobody looks after."""

    def __init__(self, folder: Path, name: str) -> None:
        self.committed = folder / f"out.{name}"
        places = [str(folder / place) for place in ("ck", "in", "out")]
        with (folder / f"{name}.err").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(ALONE), *places, name],
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )

    def send(self, number: int, *, all_of_it: bool) -> None:
        try:
            (os.killpg if all_of_it else os.kill)(self.process.pid, number)
        except ProcessLookupError:
            pass

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


def trial_alone(folder: Path, kind: str) -> tuple[str, int, int]:
    """Return which of two drivers survives, how many rows are doubled, and how many are lost."""
    rows = events.write(folder / "in", 2)
    old = Alone(folder, "old")
    drivers = [old]

    def feed() -> None:
        rows.extend(events.write(folder / "in", 1, first=len(rows) // 10))
        time.sleep(0.3)

    def new_has_or_is_dead() -> bool:
        feed()
        return new.committed.exists() or not new.alive

    def there() -> list[str]:
        return (folder / "out").read_text().splitlines()

    try:
        until(old.committed.exists, "the old driver has begun")
        old.send(0 if kind == NOTHING else signal.SIGSTOP, all_of_it=kind == ALL)
        new = Alone(folder, "new")
        drivers.append(new)
        until(new_has_or_is_dead, "the new one has or is dead")
        old.send(0 if kind == NOTHING else signal.SIGCONT, all_of_it=kind == ALL)
        for _ in range(10):
            feed()
        patience = Deadline.after(20.0)
        while len({*there()}) < len(rows) and not patience.expired:
            time.sleep(0.1)
        alive = [name for driver, name in ((old, "old"), (new, "new")) if driver.alive]
        found = there()
        survivor = " and ".join(alive) or "none"
        return survivor, len(found) - len({*found}), len(rows) - len({*found})
    finally:
        for driver in drivers:
            driver.send(signal.SIGKILL, all_of_it=True)
            driver.process.wait()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_what_spark_alone_does(tmp_path: Path, kind: str) -> None:
    """The same trials without jrs, for the record: five of each."""
    trials = [trial_alone(tmp_path / str(number), kind) for number in range(5)]
    survivors = Counter(survivor for survivor, _, _ in trials)
    doubled = [doubled for _, doubled, _ in trials]
    lost = [lost for _, _, lost in trials]
    print(f"Spark alone, {kind}: survives {dict(survivors)}; rows doubled {doubled}, lost {lost}")

    assert survivors.total() == 5
