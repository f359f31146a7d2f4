"""Snapshots of a query that runs, of every format: files, bytes, new bytes and time.

    python benchmarks/snapshots.py [--quick] [--json] [--provider changelog] [--mb 100]

A query with at least `--mb` of state keeps changing it. Between two snapshots it commits at least
one batch, and each format takes its turn in every round. *Alone* is linking or copying the files;
*hashed* is that and the sha256 of what is new since the one before; *whole* is a snapshot as
`SnapshotCatalog.create` takes it: gathered while the query runs, hashed, synced and listed.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click
from measure import measuring
from rich.console import Console
from rich.table import Table

from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobSpec
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.checkpoint_format import checkpoint
from jrs.recovery.files import transfer
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import SnapshotCatalog, contents
from jrs.store.opening import open_backend

_STATE = "org.apache.spark.sql.execution.streaming.state."
_STORE = "spark.sql.streaming.stateStore."
_ROCKSDB = {_STORE + "providerClass": _STATE + "RocksDBStateStoreProvider"}
_CHANGELOG = {_STORE + "rocksdb.changelogCheckpointing.enabled": "true"}
PROVIDERS = {
    "hdfs": {_STORE + "providerClass": _STATE + "HDFSBackedStateStoreProvider"},
    "rocksdb": _ROCKSDB,
    "changelog": {**_ROCKSDB, **_CHANGELOG},
    "changelog-v2": {**_ROCKSDB, **_CHANGELOG, _STORE + "checkpointFormatVersion": "2"},
}
FORMATS = (SnapshotFormat.LINK, SnapshotFormat.FULL, SnapshotFormat.CAS)


@attrs.define
class Measured:
    """What the snapshots of one format were."""

    files: list[int] = attrs.field(factory=list)
    bytes: list[int] = attrs.field(factory=list)
    new_bytes: list[int] = attrs.field(factory=list)
    alone: list[float] = attrs.field(factory=list)
    hashed: list[float] = attrs.field(factory=list)
    seen: set[tuple[str, int, int]] = attrs.field(factory=set)
    whole: list[float] = attrs.field(factory=list)


def start_query(folder: Path, provider: str, mb: float) -> Any:
    """Start a query whose state grows to `mb` and then keeps changing."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        _STORE + "maintenanceInterval": "2s",
        **PROVIDERS[provider],
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    keys_wanted = int(mb * 9_000)  # A row is 200 to 600 bytes on disk.
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", max(1000, keys_wanted // 8))
        .load()
    )
    key = (F.col("value") % keys_wanted).alias("key")
    payload = F.concat(*(F.sha2(F.concat(F.col("value"), F.lit(n)), 256) for n in range(3)))
    state = rows.select(key, payload.alias("payload")).groupBy("key").agg(F.max("payload"))
    writer = state.writeStream.outputMode("update").format("noop")
    return writer.option("checkpointLocation", str(folder)).start()


def alone(
    items: tuple[contents.Item, ...], target: Path, how: SnapshotFormat, one: Measured
) -> None:
    """Link or copy the files, and then hash what is new; note the milliseconds each took."""
    put: Callable[[Path, Path], Any] = (
        transfer.link_or_copy if how is SnapshotFormat.LINK else shutil.copyfile
    )
    began = time.perf_counter()
    transfer.parents(target / item.path for item in items)
    for item in items:
        put(item.source, target / item.path)
    put_after = time.perf_counter() - began
    for item in items:
        found = (target / item.path).stat()
        known = (item.path, found.st_size, item.source.stat().st_mtime_ns)
        if known not in one.seen or how is SnapshotFormat.FULL:
            one.seen.add(known)
            transfer.digest(target / item.path)
    one.alone.append(put_after * 1e3)
    one.hashed.append((time.perf_counter() - began) * 1e3)
    shutil.rmtree(target)


def measure(
    root: Path, provider: str, mb: float, count: int, say: Callable[[str], None]
) -> dict[str, Measured]:
    storage = JobStorage(root, "bench")
    found = {how.value: Measured() for how in FORMATS}
    with open_backend((root / "store").as_uri(), cluster="bench") as backend:
        backend.commit(Create(keys.JOBS + "job", encode(JobSpec("job", "m:f"))))
        catalog = SnapshotCatalog(backend, storage)
        ck = storage.take_over("job", 1) / "streams" / "big" / "ck"
        query = start_query(ck, provider, mb)
        pinned = -1

        def next_batch() -> None:
            nonlocal pinned
            while True:
                committed = checkpoint.batches(ck)
                if committed and committed[-1] > pinned:
                    pinned = committed[-1]
                    return
                if not query.isActive:
                    raise click.ClickException(f"the query died: {query.exception()}")
                time.sleep(0.02)

        def gathered() -> tuple[contents.Item, ...]:
            while True:
                try:
                    records = contents.read_records(backend, "job")
                    return contents.gather(storage, "job", records).items
                except FileNotFoundError:
                    continue

        while True:
            next_batch()
            try:
                size = sum(item.source.stat().st_size for item in gathered())
            except FileNotFoundError:
                continue
            say(f"filling the state: {size / 1e6:,.0f} of {mb:,.0f} MB")
            if size >= mb * 1e6:
                break
        for turn in range(count):
            for how in FORMATS:
                say(f"snapshot {turn + 1} of {count}: {how.value}")
                next_batch()
                one = found[how.value]
                while True:
                    try:
                        alone(gathered(), storage.root / "alone", how, one)
                        break
                    except FileNotFoundError:
                        shutil.rmtree(storage.root / "alone", ignore_errors=True)
                began = time.perf_counter()
                record = catalog.create("job", format=how)
                one.whole.append((time.perf_counter() - began) * 1e3)
                one.files.append(record.files)
                one.bytes.append(record.bytes)
                one.new_bytes.append(record.new_bytes)
                for old in catalog.list("job")[:-6]:
                    catalog.delete("job", old.number)
        query.stop()
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Little state and few snapshots: does it run?")
@click.option("--json", "as_json", is_flag=True)
@click.option("--provider", type=click.Choice(list(PROVIDERS)), default="changelog")
@click.option("--mb", default=100.0, show_default=True, help="State, at least.")
@click.option("--count", default=20, show_default=True, help="Snapshots of each format.")
def main(quick: bool, as_json: bool, provider: str, mb: float, count: int) -> None:
    """Measure snapshots of a running query."""
    mb, count = (5.0, 3) if quick else (mb, count)
    folder = Path(tempfile.mkdtemp(prefix="jrs-snapshots-"))
    try:
        with measuring() as say:
            found = measure(folder, provider, mb, count, say)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        plain = {
            name: attrs.asdict(one, filter=lambda field, _: field.name != "seen")
            for name, one in found.items()
        }
        click.echo(json.dumps(plain, indent=2))
        return
    drawn = Table(title=f"{count} snapshots of a running query, state store {provider}")
    for column in ("format", "files", "MB", "new MB", "alone, ms", "hashed, ms", "whole, ms"):
        drawn.add_column(column, justify="right")
    for name, one in found.items():
        drawn.add_row(
            name,
            f"{statistics.median(one.files):.0f}",
            f"{statistics.median(one.bytes) / 1e6:.1f}",
            f"{statistics.median(one.new_bytes) / 1e6:.1f}",
            f"{statistics.median(one.alone):.1f} (most {max(one.alone):.1f})",
            f"{statistics.median(one.hashed):.1f} (most {max(one.hashed):.1f})",
            f"{statistics.median(one.whole):.1f} (most {max(one.whole):.1f})",
        )
    Console().print(drawn)


if __name__ == "__main__":
    main()
