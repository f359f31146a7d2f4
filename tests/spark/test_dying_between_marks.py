"""A drain of more streams than are marked in one commit, whose attempt dies between two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.records.model import JobStatus, StopMode
from jrs.store.stops import JobStops

from . import events, marking
from .conftest import Cluster
from .events import EXPECTED, in_order, published, submit, until_committed
from .support import left_over

FILE = Path(marking.__file__)


@pytest.mark.parametrize(
    ("stages", "marks"), [(3, 1), pytest.param(70, 64, marks=pytest.mark.soak)]
)
def test_a_drain_is_marked_by_two_attempts(
    cluster: Cluster, tmp_path: Path, stages: int, marks: int
) -> None:
    """B3: the next attempt marks the stages that are not marked, starts none that is, and each row
    is there once."""
    folder = tmp_path / "in"
    rows = events.write(folder, 1)
    names = [f"s{number:02}" for number in range(stages)]
    cluster.masters.start("m")
    submit(cluster, "job", "many", file=FILE, folder=str(folder), stages=stages, marks=marks)
    for name in names:
        until_committed(cluster, "job", name)
    rows += events.write(folder, 1, first=1)
    JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
    cluster.masters.until(lambda: cluster.results.has_entry("job"), "the job has ended", 400)
    result = cluster.results.wait("job", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert result.attempt == 2
    by = {stage.name: stage.attempt for stage in result.stages}
    assert sorted(by) == names
    assert sorted(by.values()) == [1] * marks + [2] * (stages - marks)
    started = (tmp_path / "journal").read_text().splitlines()
    assert sorted(started) == sorted(
        f"{name} {attempt}" for name in names for attempt in range(1, by[name] + 1)
    )
    cluster.until_clean("job")
    for name in names:
        assert published(cluster, "job", name) == in_order(EXPECTED["stateless"](rows)), name
    assert left_over(cluster.masters.backend, cluster.storage, "job") == []
