"""How long a stream on a Spark cluster stands still when the host of its leader is cut off.

    python benchmarks/cluster_failover.py [--runs N] [--json]

As root, with etcd and Java. A standalone cluster of two workers, which have one core each, runs as
another user in a network namespace; two masters run in others. The stream holds both cores. The
namespace of the leader is cut off, and it is measured until the other master is elected, until
Spark gives executors to the new attempt, and until its first batch is published. Each row has to be
there once. With ``--refused`` the cluster does not end the old application when it is asked to, and
it is measured whether the new attempt has executors within three minutes.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from measure import print_plain

import jrs
from jrs import Job
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, JobSpec
from jrs.recovery.files.job_folders import JobStorage
from jrs.store.jobs import JobCatalog
from jrs.testing.masters import Masters
from jrs.testing.servers.etcd import EtcdServer
from jrs.testing.servers.namespaces import Namespaces
from jrs.testing.servers.standalone import standalone

CLUSTER, FIRST, SECOND = 0, 1, 2
"""The hosts: of etcd and the cluster, and of two masters."""
LONG = 600.0
EXECUTORS = "executors"
CONF = {
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
}


def stream(job: Job, source: str) -> None:
    """Pass the lines of files on."""
    spark = jrs.spark(job, CONF)

    def build(stage: jrs.StreamStage) -> Any:
        return spark.readStream.schema("line string").csv(source).writeStream.format("jrs")

    job.stream("lines", build)


def trial(*, refused: bool) -> dict[str, float]:
    """Cut one leader off; return the seconds to each step."""
    with ExitStack() as stack:
        place = Namespaces(1, clients=2)
        stack.callback(place.close)
        hosts = place.hosts
        spark = stack.enter_context(
            standalone(
                hosts.address(CLUSTER), hosts.command(CLUSTER), ends_applications=not refused
            )
        )
        server = stack.enter_context(EtcdServer(place, 1))
        environment = {"PYSPARK_SUBMIT_ARGS": f"--master {spark.master} pyspark-shell"}
        masters = stack.enter_context(
            Masters(server.url(), storage=spark.storage, environment=environment)
        )
        source = spark.storage / "source"
        source.mkdir()
        source.chmod(0o755)

        def start(host: int) -> None:
            alone = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
            ip = ("env", f"SPARK_LOCAL_IP={hosts.address(host)}")
            masters.start(f"m{host}", prefix=hosts.command(host, *alone, *ip))

        def has_executors(attempt: int) -> bool:
            stored = masters.backend.get(keys.ATTEMPTS + "stream")
            record = stored and decode(AttemptRecord, stored.value, stored.key)
            found = record.spark if record and record.attempt == attempt else None
            return found is not None and not found.waiting

        out = JobStorage(spark.storage, masters.backend.cluster).published(
            "stream", "lines", temporary=False
        )
        (source / "1.csv").write_text("wind\nrain\n")
        start(FIRST)
        spec = JobSpec("stream", f"{Path(__file__).resolve()}:stream", {"source": str(source)})
        JobCatalog(masters.backend).submit(spec)
        masters.until(lambda: (out / "batch=0").is_dir() and has_executors(1), "it runs", LONG)
        start(SECOND)
        hosts.isolate(FIRST)
        cut = time.time()
        aside = source.with_name("2.csv")
        aside.write_text("fog\n")
        aside.rename(source / "2.csv")
        try:
            masters.until(lambda: has_executors(2), "it has executors", 180.0 if refused else LONG)
        except TimeoutError:
            if refused:
                return {EXECUTORS: math.inf}
            raise
        executors = time.time()
        masters.until(lambda: (out / "batch=1").is_dir(), "its batch is published", LONG)
        published = time.time()
        hosts.mend()
        rows = sorted(row["line"] for row in pq.read_table(out, columns=["line"]).to_pylist())
        assert rows == ["fog", "rain", "wind"], rows
        elected = next(
            event.at
            for event in masters.events
            if event.kind == "elected" and event.master == f"m{SECOND}"
        )
    return {"elected": elected - cut, EXECUTORS: executors - cut, "first batch": published - cut}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--refused", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    runs = [trial(refused=given.refused) for _ in range(given.runs)]
    figures = {
        f"{step}, s, {what}": of(run[step] for run in runs)
        for step in runs[0]
        for what, of in (("median", statistics.median), ("most", max))
    }
    print_plain(figures, digits=1, as_json=given.json)


if __name__ == "__main__":
    main()
