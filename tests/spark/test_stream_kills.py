"""Every kind of stage in one job, its leaders killed -9 at random moments until it is drained."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from jrs.client.client import Client
from jrs.contract.clock import Deadline
from jrs.records.model import JobStatus, StopMode
from jrs.store.stops import JobStops

from . import events, mixed
from .conftest import Cluster
from .events import EXPECTED, Rows, in_order, published, rows_in, submit
from .support import BOUND, left_over, watchdogs
from .test_kills import ran_again

JOB = "mixed"
IN_ONE_RUN = 6
"""Most kills in the life of one job; then it is left to finish."""
LONGEST = 14.0
"""Seconds within which the next leader is killed: its job is recovered in about half of them."""


class Follower:
    """Reads the output of a stream while its leaders die, each time what is new since the last."""

    def __init__(self, cluster: Cluster, stage: str) -> None:
        self._client = Client(cluster.masters.backend)
        self._storage = cluster.storage
        self._stage = stage
        self._cursor = ""
        self.rows: Rows = []

    def follow(self) -> None:
        new = self._client.job(JOB).files(self._stage, since=self._cursor)
        self.rows += rows_in(new, self._storage)
        self._cursor = new.cursor


def one_run(
    cluster: Cluster,
    chance: random.Random,
    folder: Path,
    kills: int,
    after_kill: Callable[[], None] = lambda: None,
) -> int:
    """Kill leaders at random moments, ask for a drain at one of them; return how many died."""
    source, more, journal = folder / "in", folder / "more", folder / "journal"
    read = events.write(source, 4)
    live = events.write(more, 2)
    drain_at = chance.randint(1, kills)
    masters, stops = cluster.masters, JobStops(cluster.masters.backend)
    masters.start("first")
    masters.start("second")
    submit(
        cluster, JOB, "every_kind", file=Path(mixed.__file__),
        source=str(source), more=str(more), journal=str(journal), backend=masters.backend.url,
    )  # fmt: skip
    killed, follower = 0, Follower(cluster, "live")

    def is_over(moment: Deadline) -> bool:
        follower.follow()
        return moment.expired or cluster.is_clean(JOB)

    while killed < kills and not cluster.is_clean(JOB):
        moment = Deadline.after(chance.uniform(0, LONGEST))
        masters.until(partial(is_over, moment), "a moment", BOUND)
        if killed + 1 == drain_at:
            stops.request(JOB, StopMode.DRAIN)
        elif killed + 1 < drain_at:
            live += events.write(more, 1, first=len(live) // 10)
        if not cluster.is_clean(JOB):
            masters.leader().kill()
            killed += 1
            after_kill()
            masters.start(f"after-{killed}")
    cluster.until_clean(JOB)
    result = cluster.results.wait(JOB, 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    windows = EXPECTED["windows"]
    assert result.payload == {"rows": len(read), "windows": len(windows(read))}
    assert published(cluster, JOB, "hourly") == in_order(windows(read))
    assert published(cluster, JOB, "live") == in_order(windows(live))
    follower.follow()
    assert in_order(follower.rows) == in_order(windows(live))
    assert ran_again(journal) == []
    assert left_over(masters.backend, cluster.storage, JOB) == []
    masters.until(lambda: not watchdogs(masters.backend), "no watchdog is left")
    print(f"{killed} leaders killed, {result.attempt} attempts, drain at {drain_at}: equal")
    return killed


def rounds(new_cluster: Callable[[str], Cluster], folder: Path, *, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    done = 0
    while done < kills:
        cluster = new_cluster(f"run-{done}")
        done += one_run(cluster, chance, folder / str(done), min(IN_ONE_RUN, kills - done))
        cluster.close()


def test_three_kills(new_cluster: Callable[[str], Cluster], tmp_path: Path) -> None:
    """F1, F2, F7, J6: however its leaders die, a job of batch, bounded and unbounded stages gives
    each row once, no finished stage runs again and nothing is left behind: 3 kills.
    """
    rounds(new_cluster, tmp_path, kills=3, seed=3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_kills(new_cluster: Callable[[str], Cluster], tmp_path: Path) -> None:
    """F1, F2, F7, J6: however its leaders die, a job of batch, bounded and unbounded stages gives
    each row once, no finished stage runs again and nothing is left behind: 50 kills.
    """
    rounds(new_cluster, tmp_path, kills=50, seed=50)
