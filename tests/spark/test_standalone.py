"""Jobs on a real Spark cluster: other hosts, another user, an environment without jrs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import pyarrow.parquet as pq
import pytest

import jrs
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, JobStatus
from jrs.recovery.files.job_folders import JobStorage
from jrs.testing.masters import MasterProcess, Masters
from jrs.testing.servers import standalone
from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.etcd import EtcdServer
from jrs.testing.servers.fixtures import had, missing
from jrs.testing.servers.namespaces import Namespaces

from .support import BOUND, until

CLUSTER, FIRST, SECOND = 0, 1, 2
"""The hosts: of etcd and Spark's cluster, and of two masters."""


@attrs.define
class World:
    place: Namespaces
    spark: standalone.Standalone
    masters: Masters

    def start(self, host: int) -> MasterProcess:
        """Start a master on a host of its own, with processes of its own."""
        hosts = self.place.hosts
        alone = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
        ip = ("env", f"SPARK_LOCAL_IP={hosts.address(host)}")
        return self.masters.start(f"m{host}", prefix=hosts.command(host, *alone, *ip))

    def attempt(self, job_id: str) -> AttemptRecord | None:
        stored: Record | None = self.masters.backend.get(keys.ATTEMPTS + job_id)
        return stored and decode(AttemptRecord, stored.value, stored.key)

    def application(self, job_id: str, attempt: int) -> jrs.SparkApplication | None:
        """Return what the attempt runs on the cluster, once it has executors."""
        record = self.attempt(job_id)
        spark = record.spark if record and record.attempt == attempt else None
        return spark if spark and not spark.waiting else None


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        try:
            place = Namespaces(1, clients=2)
            stack.callback(place.close)
            hosts = place.hosts
            cluster = standalone.standalone(hosts.address(CLUSTER), hosts.command(CLUSTER))
            spark = stack.enter_context(cluster)
        except ServerMissing as error:
            missing(error)
        server = stack.enter_context(had(lambda: EtcdServer(place, 1)))
        environment = {"PYSPARK_SUBMIT_ARGS": f"--master {spark.master} pyspark-shell",
                       "PYTHONPATH": str(Path(__file__).parent)}  # fmt: skip
        masters = Masters(server.url(), storage=spark.storage, environment=environment)
        stack.enter_context(masters)
        yield World(place, spark, masters)


def test_a_batch_job_survives_its_leader(world: World, tmp_path: Path) -> None:
    """C2, C3, C5, C6, C10: on executors without jrs, of another user, named by the submit
    arguments, with functions of the job's own package; they also read by format("jrs"). After
    `kill -9` the next leader ends the dead driver's application, whose executors hold all cores."""
    backend, go = world.masters.backend, tmp_path / "go"
    world.start(FIRST)
    with jrs.connect(backend.url, cluster=backend.cluster) as client:
        output = {"backend": backend.url, "cluster": backend.cluster}
        job = client.submit("pipeline.jobs:batch", id="batch", wait_for=str(go), output=output)
        until(lambda: any(one.name == "write" for one in job.view().stages), "a stage has finished")
        before = world.application("batch", 1)
        assert before is not None
        assert before.master == world.spark.master
        assert before.ui.startswith(f"http://{world.place.hosts.address(FIRST)}:")

        world.masters.leader().kill()
        world.start(SECOND)
        go.touch()
        result = job.result(timeout=BOUND)

    assert result.status is JobStatus.FINISHED, result.failure
    assert result.payload == {
        "words": ["FOG", "RAIN", "WIND"],
        "executors": [[standalone.USER, False]],
    }
    assert [one.spark and one.spark.id == before.id for one in result.attempts] == [True, False]
    said = [one.message for one in world.masters.events if one.kind == "orphans"]
    # The cluster may have noticed by itself: the driver's sockets were closed by its death.
    assert said in ([], [f"had {before.master} end its application {before.id}"])


def test_a_stream_survives_a_partition(world: World) -> None:
    """C4: the host of the leader is cut off. Its driver and executors live on, and hold all cores;
    the next leader has the cluster end them, and each row appears once."""
    backend, source = world.masters.backend, world.spark.storage / "source"
    source.mkdir()
    source.chmod(0o755)
    (source / "1.csv").write_text("wind\nrain\n")
    world.start(FIRST)
    with jrs.connect(backend.url, cluster=backend.cluster) as client:
        job = client.submit("pipeline.jobs:stream", id="stream", source=str(source))
        out = JobStorage(world.spark.storage, backend.cluster).published(
            "stream", "loud", temporary=False
        )
        until(lambda: (out / "batch=0").is_dir(), "a batch is published")
        before = world.application("stream", 1)
        assert before is not None

        world.start(SECOND)
        world.place.hosts.isolate(FIRST)
        ended = world.masters.event(
            lambda one: one.kind == "orphans" and before.id in one.message,
            "the old application is ended",
            BOUND,
        )
        aside = source.with_name("2.csv")
        aside.write_text("rain\nfog\n")
        aside.rename(source / "2.csv")
        until(lambda: (out / "batch=1").is_dir(), "a batch is published by the next leader")
        world.place.hosts.mend()
        job.cancel()
        assert job.result(timeout=BOUND).status is JobStatus.CANCELED

    assert ended.message == f"had {before.master} end its application {before.id}"
    rows = [row["word"] for row in pq.read_table(out, columns=["word"]).to_pylist()]
    assert sorted(rows) == ["FOG", "RAIN", "WIND"]
