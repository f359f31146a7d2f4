"""How long a stream stands still when its leader is killed, and where that time goes.

    python benchmarks/failover.py [--runs N] [--json]

Two masters on the file backend; a windowed aggregation over Spark's rate source, with its state in
RocksDB. The leader is killed with all that it runs, and it is measured when the next one leads and
has decided, when its attempt's session is ready and its query is started, and when the first batch
is committed; of that, how long its tasks took, which begin by loading the state. Each run is made
with each of four JVMs in turn: as Spark starts it, with the archive of classes that jrs makes, with
that and one compiler instead of two, and with that and a warm standby (``jrs master --warm 1``).
What one compiler costs a job that runs for long is measured next to it, in rows a second; and of
the warm process, its memory (PSS of Python, JVM and watchdog) and processor time while it waits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from jrs import Job
from jrs.records.model import JobSpec, Json
from jrs.recovery.spark import class_data
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from jrs.testing.processes import pss

HERE = Path(__file__)
NONE = "-Xshare:auto"
WARM = "shared classes, warm"
JVMS = {
    "as Spark starts it": ("off", NONE),
    "shared classes": ("", NONE),
    "and one compiler": ("", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    WARM: ("", NONE),
}
"""What is set for the archive of classes, and the options of the JVM."""
WAITS = 60.0
"""Seconds for which the warm process is watched while it waits."""
STEPS = ("elected", "decided", "attempt begun", "session ready", "query started", "batch committed")
LOADING = "of it, with state"
MEMORY, SHARE = "it waits, MB", "it waits, %"
ROWS = 20_000_000


def counts(job: Job, notes: str, java: str) -> Json:
    """Count by window forever, and note when each step is taken."""
    from pyspark.sql import functions as F

    import jrs

    def note(what: str, at: float | None = None) -> None:
        line = {"attempt": job.attempt, "what": what, "at": at or time.time()}
        with open(notes, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

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
    while not (
        progress := [one for query in session.streams.active for one in query.recentProgress]
    ):
        time.sleep(0.02)
    note(LOADING, progress[0].durationMs["addBatch"] / 1000)
    return stream.result()


def works(job: Job, java: str) -> Json:
    """Return how many rows a second a JVM that is warm aggregates."""
    import jrs

    session = jrs.spark(job, spark_sql_shuffle_partitions="2", spark_driver_extraJavaOptions=java)

    def once() -> float:
        began = time.monotonic()
        rows = session.range(0, ROWS, 1, 2).selectExpr("hash(id) % 1000 as key", "id as value")
        rows.groupBy("key").avg("value").agg({"avg(value)": "max"}).collect()
        return ROWS / (time.monotonic() - began)

    return max([once() for _ in range(6)][3:])


def steady(folder: Path, archive: str, java: str) -> float:
    """Return the rows a second of a job that runs for long."""
    with masters_of(folder, archive) as masters:
        masters.start("only")
        JobCatalog(masters.backend).submit(JobSpec("works", f"{HERE}:works", {"java": java}))
        result = JobResultStore(masters.backend).wait("works", 300.0)
        assert isinstance(result.payload, float), result.failure
        return result.payload


def masters_of(folder: Path, archive: str) -> Masters:
    environment = {class_data.FOLDER: archive} if archive else {}
    return Masters((folder / "store").as_uri(), storage=folder / "files", environment=environment)


def trial(folder: Path, archive: str, java: str, *, warm: bool) -> dict[str, float]:
    """Kill one leader; return the seconds to each step."""
    notes = folder / "notes"
    with masters_of(folder, archive) as masters:
        masters.start("first")
        JobCatalog(masters.backend).submit(
            JobSpec("counts", f"{HERE}:counts", {"notes": str(notes), "java": java})
        )
        ran = folder / "files" / masters.backend.cluster / "counts"
        masters.until(lambda: committed(ran) >= 2, "it runs", 120.0)
        second = masters.start("second", options=["--warm", "1"] if warm else [])
        leader = masters.leader()
        time.sleep(1.0)  # The second has registered, and waits for its turn.
        waiting = waits(masters, second.process.pid) if warm else {}
        killed, before = leader.kill(), committed(ran)
        masters.until(lambda: committed(ran, "e2") > before, "it continues", 120.0)
        done = time.time()
        masters.until(lambda: LOADING in noted(notes), "its first batch is reported", 120.0)
        said = {
            event.kind: event.at
            for event in reversed(masters.events)
            if event.master == "second" and event.kind in ("elected", "decision", "attempt")
        }
        of_attempt = noted(notes)
    moments = [said["elected"], said["decision"], said["attempt"], of_attempt["session ready"],
               of_attempt["query started"], done]  # fmt: skip
    found = dict(zip(STEPS, (moment - killed for moment in moments), strict=True))
    return {**found, LOADING: of_attempt[LOADING], **waiting}


def waits(masters: Masters, master: int) -> dict[str, float]:
    """Return what a warm process costs while it waits: memory, and the share of a core."""
    masters.until(lambda: any(e.kind == "warm" for e in masters.events), "it is warm", 300.0)
    pids = descendants(master)
    before, began = sum(map(busy, pids)), time.monotonic()
    time.sleep(WAITS)
    share = (sum(map(busy, pids)) - before) / (time.monotonic() - began)
    return {MEMORY: sum(map(pss, pids)) / 1e6, SHARE: 100 * share}


def descendants(process: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *descendants(child)]
    return found


def busy(process: int) -> float:
    """Return the seconds of processor time that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def noted(notes: Path) -> dict[str, float]:
    """Return what the second attempt has noted."""
    lines = map(json.loads, notes.read_text().splitlines())
    return {line["what"]: line["at"] for line in lines if line["attempt"] == 2}


def committed(job: Path, epoch: str = "e*") -> int:
    found = job.glob(f"{epoch}/streams/counts/ck/commits/[0-9]*")
    return max((int(path.name) for path in found), default=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="with each JVM")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in JVMS}
    rows: dict[str, list[float]] = {name: [] for name in JVMS}
    class_data.make()
    for _ in range(options.runs):
        for name, (archive, java) in JVMS.items():
            with tempfile.TemporaryDirectory(prefix="jrs-failover-") as folder:
                warm = name == WARM
                seconds[name].append(trial(Path(folder, "kill"), archive, java, warm=warm))
                if not warm:
                    rows[name].append(steady(Path(folder, "steady"), archive, java))
    if options.json:
        print(json.dumps({"seconds": seconds, "rows a second": rows}, indent=2))
        return
    print(f"seconds from kill -9 of the leader to …, median of {options.runs} (min to max)")
    print(" " * 18, "   ".join(f"{name:26}" for name in JVMS))
    for step in (*STEPS, LOADING, MEMORY, SHARE):
        cells = []
        for name in JVMS:
            found = [run.get(step, 0.0) for run in seconds[name]]
            middle, least, most = statistics.median(found), min(found), max(found)
            cells.append(f"{f'{middle:.2f} ({least:.2f} to {most:.2f})':26}")
        print(f"  {step:16}", "   ".join(cells))
    first = statistics.median(rows[next(iter(JVMS))])
    ratios = (f"{statistics.median(rows[name]) / first:.2f}" for name in JVMS if name != WARM)
    print(f"  {'rows/s, warm':16}", "   ".join(f"{ratio:26}" for ratio in ratios))


if __name__ == "__main__":
    main()
