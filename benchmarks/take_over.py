"""Taking a job's files over: the time and the calls, by the number of state files and their size.

    python benchmarks/take_over.py [--quick] [--json] [--folder FOLDER]

Each take-over makes new folders with links to all files. *Rename* is what clusters before format 5
do, on the same files; the ratio is between medians of the same run.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from jrs.recovery.checkpoint_format.links import link_checkpoint
from jrs.recovery.files.job_folders import JobStorage

SIZES = ((100, 10_000), (1_000, 10_000), (10_000, 10_000), (100, 10_000_000))
"""The number of state files, and the bytes of each."""
PARTITIONS = 16
_COUNTED = ("link", "mkdir", "unlink", "rmdir", "rename", "fsync")


def make(storage: JobStorage, files: int, size: int) -> None:
    """Write a checkpoint with that many state files."""
    ck = storage.take_over("job", 0) / "streams" / "stage" / "ck"
    data = os.urandom(min(size, 1_000_000))
    for number in range(files):
        folder = ck / "state" / "0" / str(number % PARTITIONS)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{number // PARTITIONS + 1}.data").open("wb") as file:
            for _ in range(0, size, len(data)):
                file.write(data)
            os.fsync(file.fileno())


def counted(act: Callable[[], object]) -> Counter[str]:
    """Return how often each call to the filesystem was made meanwhile."""
    calls: Counter[str] = Counter()
    before = {name: getattr(os, name) for name in _COUNTED}

    def counting(name: str) -> Callable[..., Any]:
        def call(*args: Any, **how: Any) -> Any:
            calls[name] += 1
            return before[name](*args, **how)

        return call

    for name in _COUNTED:
        setattr(os, name, counting(name))
    try:
        act()
    finally:
        for name, function in before.items():
            setattr(os, name, function)
    return calls


def measure(root: Path, files: int, size: int, count: int) -> dict[str, Any]:
    storage = JobStorage(root, "bench")
    make(storage, files, size)
    times: dict[str, list[float]] = {"links": [], "rename": []}
    epoch, calls = 0, Counter[str]()
    for turn in range(2 * count):
        how = ("links", "rename")[turn % 2]
        epoch += 1
        link = link_checkpoint if how == "links" else None
        began = time.perf_counter()
        storage.take_over("job", epoch, staged=(), link_checkpoint=link)
        times[how].append(time.perf_counter() - began)
    calls = counted(
        lambda: storage.take_over("job", epoch + 1, staged=(), link_checkpoint=link_checkpoint)
    )
    found = {how: statistics.median(each) * 1e3 for how, each in times.items()}
    return {"files": files, "bytes": files * size, "ms": found, "calls": dict(calls)}


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Without the largest ones, three times each.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where to work.")
def main(quick: bool, as_json: bool, folder: Path | None) -> None:
    rows = []
    for files, size in SIZES[: 2 if quick else None]:
        with tempfile.TemporaryDirectory(dir=folder) as root:
            rows.append(measure(Path(root), files, size, 3 if quick else 9))
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("files", "MB", "ms, links", "ms, rename", *_COUNTED)
    for row in rows:
        calls = (str(row["calls"].get(name, 0)) for name in _COUNTED)
        ms = (f"{row['ms'][how]:,.1f}" for how in ("links", "rename"))
        table.add_row(f"{row['files']:,}", f"{row['bytes'] / 1e6:,.0f}", *ms, *calls)
    Console().print(table)


if __name__ == "__main__":
    main()
