"""The commit of batches, as Spark drives it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from jrs.records.model import JobStatus

from . import committing, events
from .conftest import Cluster

FILES = 5


def test_a3_a_commit_that_fails_behind_its_effect(cluster: Cluster, tmp_path: Path) -> None:
    """A3, A5: Spark aborts such a batch and runs it again. Each row is there once, and the head has
    passed over each batch, also over those without rows."""
    source = tmp_path / "in"
    source.mkdir()
    for number in range(FILES):
        text = "# nothing" if number in (2, FILES - 1) else f"line {number}"
        (source / f"{number}.txt").write_text(text + "\n")
    cluster.masters.start("m")
    events.submit(cluster, "job", "cut", file=Path(committing.__file__), folder=str(source))
    cluster.until_clean("job")
    result = cluster.results.wait("job", 0)

    assert (result.status, result.attempt) == (JobStatus.FINISHED, 1), str(result.failure)[:3000]
    payload = result.payload
    assert isinstance(payload, dict)
    assert payload["batches"] == payload["head"] + 1 >= FILES
    assert sorted(path.name for path in (tmp_path / "failed").iterdir()) == ["1"]
    out = cluster.storage.published("job", "lines", temporary=False)
    rows = [row for path in out.rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    lines = sorted(str(row["value"]) for row in rows)
    assert lines == [f"line {number}" for number in (0, 1, 3)]
