"""A job whose checkpoint is damaged resumes from its newest usable snapshot, or is held."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from jrs.records.model import JobStatus, StopMode
from jrs.recovery.snapshots.catalog import SnapshotCatalog
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops

from .conftest import Cluster
from .support import BOUND
from .test_streams import expected, make_events, published, submit


def newest_state(checkpoint: Path) -> Path:
    """Return a file of the newest state, which every restart needs."""
    found = [path for path in checkpoint.glob("state/0/0/*.changelog") if path.name[0] != "."]
    return max(found, key=lambda path: int(re.split(r"\D", path.name)[0]))


def lose(path: Path) -> None:
    path.unlink()


def flip(path: Path) -> None:
    """Change one byte. The file is replaced: a snapshot may hold a link to it."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.unlink()
    path.write_bytes(data)


def suspended(cluster: Cluster, source: Path, batches: int) -> Path:
    """Let the job read what is there and suspend it; return its checkpoint."""
    folder = cluster.storage.folder("job")
    cluster.masters.until(
        lambda: list(folder.glob(f"e*/streams/sums/ck/commits/{batches - 1}")), "it reads", BOUND
    )
    stops = JobStops(cluster.masters.backend)
    stops.request("job", StopMode.SUSPEND)
    stops.wait("job", BOUND)
    (checkpoint,) = folder.glob("e*/streams/sums/ck")
    return checkpoint


@pytest.mark.parametrize("damage", [lose, pytest.param(flip, marks=pytest.mark.soak)])
def test_the_newest_usable_snapshot_is_gone_on_from(
    cluster: Cluster, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """N1: what is damaged is passed over, a snapshot included; and every row is there once."""
    source, backend = tmp_path / "in", cluster.masters.backend
    rows = make_events(source, 3)
    cluster.masters.start("m")
    submit(cluster, "job", "unbounded", source=str(source))
    suspended(cluster, source, 3)
    JobStops(backend).resume("job")
    rows += make_events(source, 2, first=3)
    checkpoint = suspended(cluster, source, 6)
    catalog = SnapshotCatalog(backend, cluster.storage)

    assert [snapshot.number for snapshot in catalog.list("job")] == [1, 2]

    damage(newest_state(checkpoint))
    pinned = cluster.storage.folder("job") / "snapshots" / "2"
    lose(newest_state(next(pinned.rglob("sums/ck"))))
    JobStops(backend).resume("job")
    rows += make_events(source, 2, first=5)
    cluster.masters.event(
        lambda e: "resumes from snapshot 1" in str(e), "it resumes from a snapshot", BOUND
    )
    JobStops(backend).request("job", StopMode.DRAIN)
    cluster.until_clean("job")
    result = cluster.results.wait("job", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert published(cluster, "job", "sums") == expected(rows)


@pytest.mark.soak
def test_a_job_without_anything_usable_is_held(cluster: Cluster, tmp_path: Path) -> None:
    """It is not started from zero; what is wrong is named, and nothing is changed."""
    source, backend = tmp_path / "in", cluster.masters.backend
    make_events(source, 3)
    cluster.masters.start("m")
    submit(cluster, "job", "unbounded", source=str(source))
    checkpoint = suspended(cluster, source, 3)
    catalog = SnapshotCatalog(backend, cluster.storage)
    for snapshot in catalog.list("job"):
        catalog.remove(snapshot)
    before = published(cluster, "job", "sums")
    lost = newest_state(checkpoint)
    lose(lost)
    JobStops(backend).resume("job")
    jobs = JobCatalog(backend)
    cluster.masters.until(
        lambda: (stop := jobs.view("job").stop) is not None and stop.mode is StopMode.HOLD,
        "it is held", BOUND,
    )  # fmt: skip
    view = jobs.view("job")

    assert view.status is JobStatus.SUSPENDED
    assert view.stop is not None
    assert "state/0/0/" in view.stop.reason
    assert view.attempt is not None
    assert view.attempt.attempt == 1
    assert published(cluster, "job", "sums") == before
