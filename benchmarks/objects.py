"""Checkpoints in objects: requests and time of a batch, and of fetching one to another host.

    python benchmarks/objects.py [--quick] [--json] [--storage URL]

Without ``--storage``, it starts a server of S3's protocol on this host, whose times say little; the
requests are the same everywhere. *Local* is reading the same files from this host's disk.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from jrs.contract.storage_place import check_url
from jrs.recovery.storage.objects import Objects
from jrs.recovery.storage.packed_copies import PrefixWriter, fetch
from jrs.testing.polling import Poll
from jrs.testing.servers.ports import Ports

ROOT = Path(__file__).parents[1]
SIZES = ((100, 10_000), (1_000, 10_000), (10_000, 10_000), (100, 10_000_000))
"""The number of files of a checkpoint, and the bytes of each."""
PARTITIONS = 16
ROWS = 4
"""Files with rows of a batch."""
_METHODS = ("put", "get", "get_ranges", "list", "delete", "head")


@contextmanager
def server() -> Iterator[str]:
    """Run a server with one bucket; yield the URL of a storage."""
    ports = Ports()
    port = ports.take()
    command = [sys.executable, "-m", "tests.s3_server", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench")
    address, poll = f"http://127.0.0.1:{port}", Poll()
    try:
        while True:
            request = urllib.request.Request(f"{address}/bucket", method="PUT")
            try:
                with urllib.request.urlopen(request, timeout=30):
                    break
            except OSError:
                poll.sleep()
        yield f"s3://bucket/bench?endpoint={address}&region=us-east-1"
    finally:
        process.kill()
        process.wait()
        ports.close()


def counted(objects: Objects, act: Callable[[], Any]) -> tuple[float, Counter[str]]:
    """Return the seconds that something takes, and its calls of the store."""
    calls: Counter[str] = Counter()
    store = objects._open()

    class Counting:
        def __getattr__(self, name: str) -> Any:
            if name in _METHODS:
                calls[name] += 1
            return getattr(store, name)

    objects._store = Counting()
    began = time.perf_counter()
    try:
        act()
    finally:
        objects._store = store
    return time.perf_counter() - began, calls


def write(folder: Path, files: int, size: int) -> dict[str, Path]:
    data = os.urandom(min(size, 1_000_000))
    found = {}
    for number in range(files):
        path = folder / f"{number:06}"
        with path.open("wb") as file:
            for _ in range(0, size, len(data)):
                file.write(data)
        found[f"state/0/{number % PARTITIONS}/{path.name}"] = path
    return found


def batch(objects: Objects, folder: Path, count: int) -> dict[str, Any]:
    """Measure what one batch of a stream uploads: a change of each partition's state, and rows."""
    writer = PrefixWriter(objects, "job", f"e1.a1.{uuid.uuid4().hex[:12]}")
    state, rows = write(folder, PARTITIONS, 5_000), folder / "rows"
    rows.mkdir()
    parts = write(rows, ROWS, 200_000)
    times, calls = [], Counter[str]()

    def upload() -> None:
        writer.put_files("s/ck", state, together=True)
        writer.put_files("s/rows", parts)

    for _ in range(count):
        seconds, calls = counted(objects, upload)
        times.append(seconds)
    return {"what": "a batch", "files": PARTITIONS + ROWS, "ms": statistics.median(times) * 1e3,
            "local_ms": None, "calls": dict(calls)}  # fmt: skip


def checkpoint(objects: Objects, folder: Path, files: int, size: int, count: int) -> dict[str, Any]:
    """Measure fetching a checkpoint to a host that has none of it."""
    writer = PrefixWriter(objects, "job", f"e1.a1.{uuid.uuid4().hex[:12]}")
    source = write(folder, files, size)
    stored = writer.put_files("s/ck", source, together=True)
    times, local, calls = [], [], Counter[str]()
    for turn in range(count):
        target = folder / f"fetched-{turn}"
        seconds, calls = counted(objects, lambda target=target: fetch(objects, stored, target))  # type: ignore[misc]
        times.append(seconds)
        shutil.rmtree(target)
        began = time.perf_counter()
        for path in source.values():
            path.read_bytes()
        local.append(time.perf_counter() - began)
    return {"what": "a fetch", "files": files, "bytes": files * size,
            "ms": statistics.median(times) * 1e3, "local_ms": statistics.median(local) * 1e3,
            "calls": dict(calls)}  # fmt: skip


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Without the largest ones, three times each.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--storage", help="The URL of objects to measure.")
def main(quick: bool, as_json: bool, storage: str | None) -> None:
    count = 3 if quick else 5
    with (
        tempfile.TemporaryDirectory() as root,
        server() if storage is None else nullcontext(storage) as url,
    ):
        objects = Objects(check_url(url), f"bench-{uuid.uuid4().hex[:8]}")
        folders = (Path(root, str(number)) for number in range(9))
        rows = [batch(objects, _made(next(folders)), count)]
        for files, size in SIZES[: 2 if quick else None]:
            rows.append(checkpoint(objects, _made(next(folders)), files, size, count))
        objects.delete(one.name for one in objects.under())
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("", "files", "MB", "ms", "ms, local", *_METHODS)
    for row in rows:
        megabytes = f"{row['bytes'] / 1e6:,.0f}" if "bytes" in row else ""
        local = "" if row["local_ms"] is None else f"{row['local_ms']:,.1f}"
        calls = (str(row["calls"].get(name, 0)) for name in _METHODS)
        table.add_row(
            row["what"], f"{row['files']:,}", megabytes, f"{row['ms']:,.1f}", local, *calls
        )
    Console().print(table)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
