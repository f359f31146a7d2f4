"""Checking a large history on Spark: ``python benchmarks/chaos_checks.py --operations 1000000``.

A history without a fault is generated first, which is not measured. With ``--copies`` it is checked
together with copies of itself, one behind the other. Then the checks run on this machine, in a JVM
of their own; the peak of the memory is that of this process and all below it.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
from long_history import copies
from measure import Figure, measuring, print_report
from pyspark.sql import SparkSession

from jrs.testing.chaos.checking import store
from jrs.testing.chaos.checking.columns import Columns, facts_of_table
from jrs.testing.chaos.checking.garbage import without_collections
from jrs.testing.chaos.checking.generate import Shape, events, rows
from jrs.testing.chaos.checking.generate_lists import list_rows
from jrs.testing.chaos.checking.known_on_spark import settled_table
from jrs.testing.chaos.checking.list_append import list_append
from jrs.testing.chaos.checking.notes import Context, notes_in
from jrs.testing.chaos.checking.on_spark import CHECKS, violations
from jrs.testing.chaos.checking.partitions import told
from jrs.testing.chaos.checking.tables import write_rows
from jrs.testing.chaos.checking.verdict import Run
from jrs.testing.chaos.recorded import calls_of
from jrs.testing.processes import pss


class Peak:
    """The largest resident memory of this process and all below it, while it is entered."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            self.bytes = max(self.bytes, resident())


def resident() -> int:
    """Return the bytes of this process and all below it; shared pages count for their share."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    waiting, total = [os.getpid()], 0
    while waiting:
        pid = waiting.pop()
        waiting += parents.get(pid, [])
        total += pss(pid)
    return total


def local_session(cores: int = 2) -> SparkSession:
    """Return a session of this process, whose workers run this Python."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )


def generate(operations: int, count: int, table: Path) -> Figure:
    shape = Shape(
        operations, processes=20, keys=max(8, operations // 100), jobs=operations // 1_000
    )
    began = time.perf_counter()
    gc.disable()  # It makes millions of tuples, and no cycles of references.
    with tempfile.TemporaryDirectory() as name:
        once = Path(name) if count > 1 else table
        write_rows(rows(1, shape), once)
        if count > 1:
            copies(once, count, table)
    gc.enable()
    took = time.perf_counter() - began
    size = sum(path.stat().st_size for path in table.iterdir())
    return Figure(
        "generated", f"{operations * count:,} operations in {took:.0f} s", f"{size / 1e6:,.0f} MB"
    )


def plainly(table: Path, operations: int) -> Figure:
    """Measure the linearizability of a history in this process, without reading it."""
    paths = sorted(map(str, table.iterdir()))
    numbers = pa.RecordBatch.from_arrays([pa.array(range(len(paths)))], ["id"])
    notes = pa.Table.from_batches(notes_in(paths, False, [numbers]))
    context = Context.of({"linearizable"}, notes)
    tables = [pq.read_table(path) for path in paths]
    began = time.process_time()
    facts = pa.concat_tables([facts_of_table(settled_table(one, {})) for one in tables])
    found = list(told(context, Columns.of(facts, context.absences)))
    took = time.process_time() - began
    assert not found, found[:3]
    rate = f"{operations / took:,.0f} operations per CPU-second"
    return Figure("linearizable in one process", rate, f"{took:.1f} s", "200,000",
                  operations / took > 200_000)  # fmt: skip


def lists_plainly(operations: int) -> Figure:
    """Measure the check of lists in this process, on operations that are in memory."""
    with without_collections():  # Nor do the operations have cycles of references.
        made = list_rows(1, shape_of_lists(operations), 40)
        run = Run([])
        run.__dict__["calls"] = list(calls_of(event for row in made for event in events([row])))
        began = time.process_time()
        found = list_append.violations(run)
        took = time.process_time() - began
    assert not found, found[:3]
    rate = f"{operations / took:,.0f} operations per CPU-second"
    return Figure(
        "list_append in one process", f"{operations:,} operations", f"{took:.1f} s, {rate}"
    )


def shape_of_lists(operations: int) -> Shape:
    return Shape(operations, processes=20, keys=12)


def lists_on_spark(operations: int, cores: int) -> Iterator[Figure]:
    """Measure the check of lists on Spark, with the time to read the table."""
    with tempfile.TemporaryDirectory() as name:
        with without_collections():
            write_rows(list_rows(1, shape_of_lists(operations), 40), Path(name))
        with Peak() as peak:
            spark = local_session(cores)
            began = time.perf_counter()
            found = violations(spark, Path(name), [list_append])
            took = time.perf_counter() - began
            spark.stop()
    assert not found, found[:3]
    yield Figure("list_append on Spark", f"{operations:,} operations", f"{took:.1f} s")
    yield Figure("peak memory", f"{peak.bytes / 1e9:.2f} GB", "JVM and Python",
                 "4 GB", peak.bytes < 4e9)  # fmt: skip


@click.command()
@click.option("--operations", default=1_000_000, show_default=True)
@click.option("--all", "all_checks", is_flag=True, help="Run all checks, not only two of them.")
@click.option("--lists", is_flag=True, help="Evaluate appends to lists, plainly and on Spark.")
@click.option("--copies", "count", default=1, help="How often the history is repeated.")
@click.option("--plain", is_flag=True, help="Evaluate it in one process, too, all in memory.")
@click.option("--cores", default=2, show_default=True)
@click.option("--json", "as_json", is_flag=True)
@click.option(
    "--table",
    type=click.Path(path_type=Path),
    default=None,
    help="Where the history is made, if it is not there, and kept.",
)
def main(
    operations: int,
    all_checks: bool,
    lists: bool,
    count: int,
    plain: bool,
    cores: int,
    as_json: bool,
    table: Path | None,
) -> None:
    """Measure the checks on Spark."""
    if lists:
        figures = [lists_plainly(operations), *lists_on_spark(operations, cores)]
        print_report("The check of lists", figures, as_json)
        return
    checks = CHECKS if all_checks else (store.linearizable, store.fenced)
    figures = []
    with tempfile.TemporaryDirectory() as name, measuring() as tick:
        table = table or Path(name) / "table"
        if not table.exists():
            tick(f"generating {operations * count:,} operations")
            figures.append(generate(operations, count, table))
        tick("evaluating them")
        with Peak() as peak:
            spark = local_session(cores)
            began = time.perf_counter()
            found = violations(spark, table, checks)
            took = time.perf_counter() - began
            spark.stop()
        assert not found, found[:3]
        names = "all checks" if all_checks else "linearizable and fenced"
        rate = f"{operations * count / took:,.0f} operations/s"
        figures.append(Figure(names, f"{took / 60:.2f} minutes", rate))
        figures.append(Figure("peak memory", f"{peak.bytes / 1e9:.2f} GB", "JVM and Python",
                              "4 GB", peak.bytes < 4e9))  # fmt: skip
        if plain:
            tick("evaluating in one process")
            figures.append(plainly(table, operations * count))
    print_report("The checks of a history", figures, as_json)


if __name__ == "__main__":
    main()
