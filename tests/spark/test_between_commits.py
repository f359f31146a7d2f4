"""A leader that dies between what a sink commits and what its query does."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jrs.records.model import JobStatus, StopMode
from jrs.recovery.spark import rescaling
from jrs.store.stops import JobStops

from . import between, events
from .conftest import Cluster
from .events import EXPECTED, in_order, submit, until_or_ended

FILE = Path(between.__file__)
CASES = [
    pytest.param(sink, at, marks=[] if (sink, at) == ("parquet", "batch") else [pytest.mark.soak])
    for sink in ("parquet", "jrs", "foreachBatch")
    for at in ("batch", "flush", "rescale")
]
"""What the stage writes with, and when it is cut off; in the long form all of them."""


@pytest.mark.parametrize(("sink", "at"), CASES)
def test_a_batch_that_only_its_sink_has(
    cluster: Cluster, tmp_path: Path, sink: str, at: str
) -> None:
    """F1, F7: a sink that has a batch from before does not have it computed, and without that Spark
    could not commit it, at any start: its state is computed again, and each row is there once.
    """
    rows = events.write(tmp_path / "in", 8)
    cluster.masters.start("m")
    name = "keyed" if sink == "foreachBatch" else "publishing"
    submit(cluster, "job", name, file=FILE, folder=str(tmp_path / "in"), at=at, sink=sink)
    if at == "rescale":
        rescaled(cluster)
        JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
    cluster.until_clean("job")
    result = cluster.results.wait("job", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert result.attempt == 2
    assert int((cluster.storage.root / "cut-off").read_text()) > 0
    table = tmp_path / "table" if name == "keyed" else cluster.storage.folder("job") / "out" / "one"
    found = [
        tuple(row.values())
        for path in table.rglob("*.parquet")
        for row in pq.read_table(path, partitioning=None).to_pylist()
    ]
    assert in_order(found) == in_order(EXPECTED["windows"](rows))


def rescaled(cluster: Cluster) -> None:
    def partitions() -> int | None:
        for checkpoint in cluster.storage.folder("job").glob("e*/streams/one/ck"):
            return rescaling.partitions(checkpoint)
        return None

    until_or_ended(cluster, "job", lambda: partitions() == between.RESCALED, "it is rescaled")
