"""The demo's job with its leaders killed -9 at random moments, again and again until it is done."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from jrs.contract.clock import Deadline
from jrs.records import keys
from jrs.records.model import JobStatus

from .conftest import Cluster, Undisturbed
from .support import BOUND, left_over, published, watchdogs

JOB = "flights"
IN_ONE_RUN = 6
"""Most kills in the life of one job; then it is left to finish."""
STAGES = ["ingest", "join", "statistics", "report"]
LONGEST = {"any": 12.0, "start": 0.5, "dirty": 0.03}
"""Seconds from the beginning of a phase within which its moments are."""


def finished(cluster: Cluster) -> list[str]:
    records = cluster.masters.backend.scan(f"{keys.STAGES}{JOB}/")
    return [record.key.rpartition("/")[2] for record in records]


def where(cluster: Cluster) -> str:
    """Return what the job is doing, for the record."""
    if cluster.results.has_entry(JOB):
        return "cleanup"
    done = finished(cluster)
    staged = {path.name.partition(".")[0] for path in cluster.storage.folder(JOB).glob("e*/*.*")}
    return next((stage for stage in STAGES if stage in staged and stage not in done), "between")


def random_moment(cluster: Cluster, chance: random.Random) -> None:
    """Wait for a moment of the job: any, or one of a phase that is too short to be hit often."""
    done = finished(cluster)
    left = [*(stage for stage in STAGES if stage not in done), "dirty"]
    near = left[min(int(chance.expovariate(1.0)), len(left) - 1)]
    phase = chance.choice(["any", "start", near, near, near])
    folder = cluster.storage.folder(JOB)

    def begun() -> bool:
        if phase in ("any", "start"):
            return True
        return phase in STAGES and any(folder.glob(f"e*/{phase}.*"))

    def over() -> bool:
        return cluster.results.has_entry(JOB)

    cluster.masters.until(lambda: begun() or over(), f"{phase} of {JOB} begins", BOUND)
    wait = Deadline.after(chance.uniform(0, LONGEST.get(phase, 3.0)))
    cluster.masters.until(
        lambda: wait.expired or (over() and phase != "dirty"), f"a moment of {phase}", BOUND
    )


def kill_until_done(cluster: Cluster, chance: random.Random, most: int) -> Counter[str]:
    """Kill leaders at random moments until the job is clean or `most` are dead.

    Return how many were killed in each phase.
    """
    kills: Counter[str] = Counter()
    while kills.total() < most and not cluster.is_clean(JOB):
        random_moment(cluster, chance)
        leader = cluster.masters.leader()
        phase = where(cluster)
        if not cluster.is_clean(JOB):
            leader.kill()
            kills[phase] += 1
            cluster.masters.start(f"after-{kills.total()}")
    cluster.until_clean(JOB)
    return kills


def disturb(
    cluster: Cluster, chance: random.Random, most: int, data: str, journal: Path
) -> Counter[str]:
    cluster.masters.start("first")
    cluster.masters.start("second")
    cluster.submit(JOB, "flights", data=data, journal=str(journal))
    return kill_until_done(cluster, chance, most)


def ran_again(journal: Path) -> list[str]:
    """Return the stages that ran although they were known to be finished."""
    finished: set[str] = set()
    found = []
    for line in journal.read_text().splitlines():
        what, stage, attempt = line.split()
        if what == "finished":
            finished.add(stage)
        elif stage in finished:
            found.append(f"{stage} in attempt {attempt}")
    return found


def check(cluster: Cluster, undisturbed: Undisturbed, journal: Path) -> None:
    result = cluster.results.wait(JOB, 0)

    assert result.status is JobStatus.FINISHED, result.failure
    assert result.payload == undisturbed.payload
    assert published(cluster.storage, JOB) == undisturbed.published
    assert ran_again(journal) == []
    assert left_over(cluster.masters.backend, cluster.storage, JOB) == []
    cluster.masters.until(lambda: not watchdogs(cluster.masters.backend), "no watchdog is left")


def rounds(
    new_cluster: Callable[[str], Cluster],
    undisturbed: Undisturbed,
    data: str,
    tmp_path: Path,
    *,
    kills: int,
    seed: int,
) -> None:
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    jobs = 0
    while done.total() < kills:
        jobs += 1
        cluster = new_cluster(f"run-{jobs}")
        journal = tmp_path / f"journal-{jobs}"
        most = min(IN_ONE_RUN, kills - done.total())
        made = disturb(cluster, chance, most, data, journal)
        done += made
        check(cluster, undisturbed, journal)
        attempts = cluster.results.wait(JOB, 0).attempt
        print(f"run {jobs}: {made.total()} leaders killed, {attempts} attempts, equal")
        cluster.close()
    print(f"{done.total()} leaders killed in {jobs} runs: {dict(done.most_common())}")


def test_some_kills(
    new_cluster: Callable[[str], Cluster], undisturbed: Undisturbed, data: str, tmp_path: Path
) -> None:
    """However its leaders die, the job gives the undisturbed result, each output exactly once, no
    finished stage runs again and nothing is left behind: 4 kills.
    """
    rounds(new_cluster, undisturbed, data, tmp_path, kills=4, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thirty_kills(
    new_cluster: Callable[[str], Cluster], undisturbed: Undisturbed, data: str, tmp_path: Path
) -> None:
    """However its leaders die, the job gives the undisturbed result, each output exactly once, no
    finished stage runs again and nothing is left behind: 30 kills.
    """
    rounds(new_cluster, undisturbed, data, tmp_path, kills=30, seed=2013)
