"""Jobs of an older version, continued by this one once the cluster's format is raised."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from jrs import connect
from jrs.contract.formats import NEWEST_FORMAT
from jrs.records import keys
from jrs.records.model import JobStatus
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.files.job_folders import JobStorage
from jrs.store import cluster_format, heads
from jrs.store.masters import Registry
from jrs.testing.masters import MasterProcess, Masters
from tests.older_versions import OlderVersion, unpack, version

from .conftest import Cluster
from .support import BOUND
from .test_streams import STREAMS, expected, make_events, published

OLD = 4
"""The newest format of a version whose streams have no heads."""
RESTORED = [one for one in SnapshotFormat if one is not SnapshotFormat.LOGICAL]
"""The formats that a job can be restored from: from a logical snapshot nothing is."""
NAME = "default"


@attrs.frozen
class Older:
    """An older version, and the cluster that it has made."""

    version: OlderVersion
    url: str
    files: Path

    def jrs(self, *arguments: str) -> None:
        done = self.version.jrs(self.url, NAME, *arguments)
        assert done.returncode == 0, done.stderr

    def snapshot(self, one: SnapshotFormat) -> None:
        self.jrs("snapshot", "create", "job", "--format", one.value, "--name", one.value,
                 "--storage", str(self.files))  # fmt: skip

    def replaced(self, leader: MasterProcess, masters: Masters) -> None:
        """Kill its leader, and raise the format of its cluster."""
        leader.kill()
        # It was killed, and would count for some seconds more.
        Registry(masters.backend).remove(leader.name)
        assert cluster_format.raise_format(masters.backend) == OLD
        assert cluster_format.format_of(masters.backend) == NEWEST_FORMAT


@pytest.fixture
def older(tmp_path: Path) -> Older:
    unpack(tmp_path / "older")
    folder = tmp_path / "cluster"
    return Older(version(tmp_path / "older", OLD), (folder / "store").as_uri(), folder / "files")


def table_of(cluster: Cluster) -> dict[str, int]:
    """Return the files of the batch stage that the older version has finished, by their inodes."""
    rows = cluster.storage.folder("job") / "out" / "typed" / "rows"
    return {path.name: path.stat().st_ino for path in rows.iterdir()}


@pytest.mark.parametrize(
    "formats", [RESTORED[:1], pytest.param(RESTORED, marks=pytest.mark.soak)], ids=["one", "all"]
)
def test_c_a_job_continues(tmp_path: Path, older: Older, formats: list[SnapshotFormat]) -> None:
    """C: a job with a finished stage, a stream with state, a drain that waits and snapshots, all
    made before streams had heads: the first attempt of this version makes the head of the stream,
    and is killed right behind it; the next one drains the job. Each row is there once, the finished
    stage is not run again, and what is restored from the old snapshots gives the same rows."""
    rows = make_events(tmp_path / "in", 4)
    more = make_events(tmp_path / "more", 3)
    inputs = ("--arg", f"source={tmp_path / 'in'}", "--arg", f"more={tmp_path / 'more'}")
    older.jrs("submit", "job", f"{STREAMS}:every_kind", "--no-check", *inputs)
    with (
        Masters(older.url, storage=older.files) as masters,
        connect(older.url, storage=older.files) as client,
    ):
        cluster, backend = Cluster(masters, JobStorage(older.files, NAME)), masters.backend
        job = cluster.storage.folder("job")
        leader = older.version.start(masters, "old")
        masters.until(
            lambda: list(job.glob("e*/streams/live/ck/commits/2")), "live has read all", BOUND
        )
        masters.until(lambda: backend.get(keys.stage("job", "report")), "the rest ended", BOUND)
        for one in formats:
            older.snapshot(one)
        leader.pause()  # The drain waits until it has gone.
        older.jrs("drain", "job", "--no-wait")
        older.replaced(leader, masters)
        table = table_of(cluster)
        more += make_events(tmp_path / "more", 2, first=3)

        assert heads.stored(backend, "job", "live") is None

        first = masters.start("first")
        masters.until(lambda: heads.stored(backend, "job", "live"), "live has a head", BOUND)
        first.kill()
        for one in formats:
            client.job("job").snapshots.restore(one.value, as_id=f"from-{one.value}")
        masters.start("second")
        cluster.until_clean("job")
        result = cluster.results.wait("job", 0)

        assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
        assert published(cluster, "job", "hourly") == expected(rows)
        assert published(cluster, "job", "live") == expected(more)
        assert table_of(cluster) == table

        for one in formats:
            again = f"from-{one.value}"
            client.job(again).drain()
            cluster.until_clean(again)

            assert published(cluster, again, "hourly") == expected(rows), one
            assert published(cluster, again, "live") == expected(more), one
        assert masters.wrong_histories() == []
