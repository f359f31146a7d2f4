"""Cancel while a stop is stuck, wherever that may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.records.model import JobStatus, StopState
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops

from . import stuck
from .conftest import Cluster
from .support import BOUND, left_over, marked, watchdogs


@pytest.mark.parametrize(
    "where",
    [
        stuck.IN_DRIVER,
        pytest.param(stuck.IN_EXECUTOR, marks=pytest.mark.soak),
        stuck.IN_JVM,
    ],
)
def test_a_cancel_overrides_a_suspend_that_is_stuck(
    cluster: Cluster, tmp_path: Path, where: str
) -> None:
    """S5: a suspend that waits for Python in the driver, for Python in an executor or for a JVM
    that hangs is overridden by a cancel, and nothing of the job is left."""
    backend = cluster.masters.backend
    cluster.masters.start("m")
    stuck.hang(cluster.masters, "job", tmp_path, where)
    stop = JobStops(backend).get("job")

    assert stop is not None
    assert stop.state is StopState.REQUESTED

    JobCatalog(backend).cancel("job")
    result = cluster.results.wait("job", BOUND)

    assert result.status is JobStatus.CANCELED
    assert result.attempt == 1
    assert marked(backend, "job") == {}

    cluster.until_clean("job")

    assert left_over(backend, cluster.storage, "job") == []
    cluster.masters.until(lambda: not watchdogs(backend), "no watchdog is left")
