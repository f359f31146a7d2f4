"""How long a stream stands still when its leader is killed, and where that time goes.

    python benchmarks/streaming.py [--runs N] [--json]

Two masters on the file backend; a windowed aggregation over Spark's rate source, with its state in
RocksDB. The leader is killed with all that it runs, and it is measured when the next one leads and
has decided, when its attempt's session is ready and its query is started, and when the first batch
is committed. Each run is made with Spark's own JVM and with one that does without the second
compiler, in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from jrs import Job
from jrs.jobs import JobCatalog
from jrs.model import JobSpec, Json
from jrs.testing.masters import Masters

HERE = Path(__file__)
JVMS = {"as it is": "-Xshare:auto", "tuned": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
STEPS = ("elected", "decided", "attempt begun", "session ready", "query started", "batch committed")


def counts(job: Job, notes: str, java: str) -> Json:
    """Count by window for ever, and note when each step is taken."""
    from pyspark.sql import functions as F

    import jrs

    def note(what: str) -> None:
        with open(notes, "a", encoding="utf-8") as file:
            file.write(json.dumps({"attempt": job.attempt, "what": what, "at": time.time()}) + "\n")

    session = jrs.spark(job, spark_sql_shuffle_partitions="2", spark_driver_extraJavaOptions=java)
    note("session ready")

    def build(stage: Any) -> Any:
        rows = session.readStream.format("rate").option("rowsPerSecond", 1000).load()
        by_window = rows.withWatermark("timestamp", "2 seconds").groupBy(
            F.window("timestamp", "1 second"), F.expr("value % 100")
        )
        return by_window.count().writeStream.format("parquet").option("path", str(stage.output))

    stream = job.stream("counts", build)
    note("query started")
    return stream.result()


def trial(folder: Path, java: str) -> dict[str, float]:
    """Kill one leader; return the seconds to each step."""
    notes = folder / "notes"
    with Masters((folder / "store").as_uri(), storage=folder / "files") as masters:
        masters.start("first")
        JobCatalog(masters.backend).submit(
            JobSpec("counts", f"{HERE}:counts", {"notes": str(notes), "java": java})
        )
        ran = folder / "files" / masters.backend.cluster / "counts"
        masters.until(lambda: committed(ran) >= 2, "it runs", 120.0)
        masters.start("second")
        leader = masters.leader()
        time.sleep(1.0)  # The second has registered, and waits for its turn.
        killed, before = leader.kill(), committed(ran)
        masters.until(lambda: committed(ran, "e2") > before, "it goes on", 120.0)
        done = time.time()
        said = {
            event.kind: event.at
            for event in reversed(masters.events)
            if event.master == "second" and event.kind in ("elected", "decision", "attempt")
        }
        noted = {
            line["what"]: line["at"]
            for line in map(json.loads, notes.read_text().splitlines())
            if line["attempt"] == 2
        }
    moments = [said["elected"], said["decision"], said["attempt"], noted["session ready"],
               noted["query started"], done]  # fmt: skip
    return dict(zip(STEPS, (moment - killed for moment in moments), strict=True))


def committed(job: Path, epoch: str = "e*") -> int:
    found = job.glob(f"{epoch}/streams/counts/ck/commits/[0-9]*")
    return max((int(path.name) for path in found), default=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="with each JVM")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in JVMS}
    for _ in range(options.runs):
        for name, java in JVMS.items():
            with tempfile.TemporaryDirectory(prefix="jrs-streaming-") as folder:
                seconds[name].append(trial(Path(folder), java))
    if options.json:
        print(json.dumps(seconds, indent=2))
        return
    print(f"seconds from kill -9 of the leader to …, median of {options.runs} (min to max)")
    for step in STEPS:
        cells = []
        for name in JVMS:
            found = [run[step] for run in seconds[name]]
            middle, least, most = statistics.median(found), min(found), max(found)
            cells.append(f"{name}: {middle:6.2f} ({least:.2f} to {most:.2f})")
        print(f"  {step:16}", "   ".join(cells))


if __name__ == "__main__":
    main()
