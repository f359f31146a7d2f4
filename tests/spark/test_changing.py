"""Rescaling and upgrading a job with streams: said once, done by the system, nothing lost."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from jrs.cli import cli
from jrs.records.model import JobStatus, StopMode
from jrs.recovery.spark import rescaling
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops

from . import events, failing
from .conftest import Cluster
from .events import EXPECTED, in_order
from .support import BOUND
from .test_streams import STREAMS, expected, make_events, published, submit


def jrs(cluster: Cluster, *args: str) -> Result:
    backend = cluster.masters.backend
    where = ["--backend", backend.url, "--cluster", backend.cluster]
    return CliRunner().invoke(cli, [*where, *args])


def attempt_of(cluster: Cluster) -> int:
    """Return the number of the job's attempt, 0 before the first."""
    attempt = JobCatalog(cluster.masters.backend).view("job").attempt
    return attempt.attempt if attempt is not None else 0


def test_a_job_is_rescaled_and_upgraded_while_it_runs(cluster: Cluster, tmp_path: Path) -> None:
    """N6, S7: its state survives other partitions and other code; every row once."""
    source = tmp_path / "in"
    rows = make_events(source, 2)
    folder = cluster.storage.folder("job")
    until = cluster.masters.until
    cluster.masters.start("m")
    submit(cluster, "job", "unbounded", source=str(source))
    until(lambda: list(folder.glob("e*/streams/sums/ck/commits/1")), "it has read all", BOUND)

    assert jrs(cluster, "rescale", "job", "--partitions", "0").exit_code != 0
    assert jrs(cluster, "rescale", "job", "--partitions", "-1").exit_code != 0

    where = ("--storage", str(cluster.storage.root.parent))
    rescaled = jrs(cluster, "rescale", "job", "--partitions", "1", *where)

    assert rescaled.exit_code == 0, rescaled.output

    rows += make_events(source, 2, first=2)
    (checkpoint,) = folder.glob("e*/streams/sums/ck")
    until(lambda: rescaling.partitions(checkpoint) == 1, "it is rescaled", BOUND)
    seen = json.loads(jrs(cluster, "show", "job", "--json").stdout)

    assert (seen["status"], seen["attempt"]["failure"]) == ("RUNNING", None)

    upgraded = jrs(cluster, "upgrade", "job", "--entry", f"{STREAMS}:unbounded_v2", "--no-check")

    assert upgraded.exit_code == 0, upgraded.output

    rows += make_events(source, 1, first=4)
    until(lambda: attempt_of(cluster) >= 3, "the new code is started", BOUND)
    JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
    cluster.until_clean("job")
    result = cluster.results.wait("job", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert result.payload == "v2"
    assert published(cluster, "job", "sums") == expected(rows)
    # What is left of the partition that is no more is not taken for damage.
    assert not [event for event in cluster.masters.events if event.kind == "damaged"]


@pytest.mark.soak
def test_state_that_cannot_be_spread(cluster: Cluster, tmp_path: Path) -> None:
    """S7: the state of an aggregation without a key stays in its one partition, and is used, while
    the other stages of its job are rescaled."""
    source, file = tmp_path / "in", Path(failing.__file__)
    rows = events.write(source, 2)
    cluster.masters.start("m")
    events.submit(cluster, "job", "totals", file=file, folder=str(source))
    for stage in ("sums", "totals"):
        events.until_committed(cluster, "job", stage, 1)
    JobStops(cluster.masters.backend).reconfigure("job", partitions=4)
    folder = cluster.storage.folder("job")

    def partitions() -> dict[str, int | None]:
        found = folder.glob("e*/streams/*/ck")
        return {path.parent.name: rescaling.partitions(path) for path in found}

    events.until_or_ended(
        cluster, "job", lambda: partitions().get("sums") == 4, "what can be is rescaled"
    )
    rows += events.write(source, 1, first=2)
    wanted = [(len(rows), sum(row.value for row in rows))]
    events.until_or_ended(
        cluster, "job", lambda: totals(tmp_path / "table") == wanted, "it has read the rest"
    )

    assert partitions() == {"sums": 4, "totals": 2}

    JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
    cluster.until_clean("job")

    assert totals(tmp_path / "table") == wanted
    assert events.published(cluster, "job", "sums") == in_order(EXPECTED["windows"](rows))
    assert not [event for event in cluster.masters.events if event.kind == "damaged"]


def totals(table: Path) -> list[tuple[object, ...]]:
    """Return the newest of the totals: there is no later batch without new rows."""
    newest = max(table.glob("[0-9]*.parquet"), key=lambda path: int(path.stem))
    return [tuple(row.values()) for row in pq.read_table(newest).to_pylist()]


@pytest.mark.soak
def test_a_store_that_cannot_be_rescaled(cluster: Cluster, tmp_path: Path) -> None:
    """Refused at once, by name, and nothing is changed."""
    source = tmp_path / "in"
    make_events(source, 2)
    folder = cluster.storage.folder("job")
    cluster.masters.start("m")
    submit(cluster, "job", "unbounded", source=str(source), store="HDFSBackedStateStoreProvider")
    cluster.masters.until(
        lambda: list(folder.glob("e*/streams/sums/ck/commits/1")), "it has read all", BOUND
    )
    before = JobCatalog(cluster.masters.backend).view("job")
    where = ("--storage", str(cluster.storage.root.parent))
    refused = jrs(cluster, "rescale", "job", "--partitions", "3", *where)

    assert "HDFSBackedStateStoreProvider, cannot be rescaled" in str(refused.exception)
    assert JobCatalog(cluster.masters.backend).view("job") == before


@pytest.mark.soak
def test_a_file_sink_is_rescaled(cluster: Cluster, tmp_path: Path) -> None:
    """Rescaling leaves no gap in a file sink's log; and with the job, the log goes and what it does
    not name: the table is the same for every reader."""
    import pyarrow.parquet as pq

    source = tmp_path / "in"
    rows = make_events(source, 2)
    folder = cluster.storage.folder("job")
    cluster.masters.start("m")
    submit(cluster, "job", "unbounded", source=str(source), sink="parquet")
    until = cluster.masters.until
    until(lambda: list(folder.glob("e*/streams/sums/ck/commits/1")), "it has read all", BOUND)
    JobStops(cluster.masters.backend).reconfigure("job", partitions=3)
    (checkpoint,) = folder.glob("e*/streams/sums/ck")
    until(lambda: rescaling.partitions(checkpoint) == 3, "it is rescaled", BOUND)
    rows += make_events(source, 4, first=2)
    until(lambda: list(folder.glob("e*/streams/sums/ck/commits/6")), "its log is compacted", BOUND)
    JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
    cluster.until_clean("job")
    result = cluster.results.wait("job", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]

    table = folder / "out" / "sums"
    found = [row for path in table.rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    sums = [(f"{row['start']:%Y-%m-%dT%H:%M:%S}", row["key"], row["n"], row["total"])
            for row in found]  # fmt: skip

    assert sorted(sums) == expected(rows)
    assert not (table / "_spark_metadata").exists()
