"""A drain whose attempt is killed -9 at each of its steps ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.records.model import JobStatus, StopMode
from jrs.store.stops import JobStops

from . import deadly, events
from .conftest import Cluster
from .events import EXPECTED, in_order, published, submit, until_committed
from .support import left_over

FILE = Path(deadly.__file__)
TOGETHER = [
    ("drain requested", "catching up"),
    ("stopped at a boundary", "caught up"),
    ("flush planned", "flushing"),
    ("flushed, not recorded", "recorded, no result"),
    ("result not stored", "result stored"),
]
"""The steps at which the first attempt of a job dies, and the second."""
SHORT = TOGETHER[2:3]
"""Those that are died at wherever the tests are run; all of them are in the long form."""


def test_every_step_is_died_at() -> None:
    """The table of deaths in a drain leaves no step out."""
    died_at = {step for steps in TOGETHER for step in steps}

    assert died_at == {*deadly.STEPS, *deadly.IN_A_BATCH}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            steps, id=", then ".join(steps), marks=[] if steps in SHORT else [pytest.mark.soak]
        )
        for steps in TOGETHER
    ],
)
def test_a_drain_survives(cluster: Cluster, tmp_path: Path, steps: tuple[str, ...]) -> None:
    """F2, F6, F7, S3: killed at this step of a drain, the job is drained by its next attempt: each
    row once, all stages finished together, and none of them started again once it has.
    """
    folder = tmp_path / "in"
    rows = events.write(folder, 2)
    cluster.masters.start("m")
    submit(cluster, "job", "drained", file=FILE, folder=str(folder), steps=list(steps))
    for stage in ("one", "two"):
        until_committed(cluster, "job", stage)
    rows += events.write(folder, 2, first=2)
    JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
    cluster.masters.until(lambda: cluster.results.has_entry("job"), "the job has ended", 240)
    result = cluster.results.wait("job", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert result.attempt == deaths(steps) + 1
    (recorded,) = {stage.attempt for stage in result.stages}
    cluster.until_clean("job")
    assert sorted((tmp_path / "journal").read_text().splitlines()) == sorted(
        f"{stage} {attempt}" for stage in ("one", "two") for attempt in range(1, recorded + 1)
    )
    for stage in ("one", "two"):
        assert published(cluster, "job", stage) == in_order(EXPECTED["windows"](rows))
    assert left_over(cluster.masters.backend, cluster.storage, "job") == []


def deaths(steps: tuple[str, ...]) -> int:
    """Return how many attempts died without a result."""
    return len([step for step in steps if step != "result stored"])
