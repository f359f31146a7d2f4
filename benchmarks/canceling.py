"""How long a cancel takes while a stop is stuck.

    python benchmarks/canceling.py [--runs N] [--json]

One master on the file backend; the streaming job of the tests, `tests/spark/stuck.py`, whose
suspend waits for Python in foreachBatch, for Python in an executor, or for a JVM that was stopped.
It is measured from the cancel to the durable result, which is CANCELED and dirty, and to clean: by
then no process and no file of the job is left. A cancel gives no grace: all is killed at once.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jrs.records.model import JobStatus
from jrs.recovery.processes import marks
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters

TESTS = Path(__file__).parent.parent / "tests" / "spark"
STEPS = ("canceled", "clean")
TARGET = 2.0
"""Seconds that a cancel may take besides the grace that it gives."""


def trial(stuck: Any, folder: Path, where: str) -> dict[str, float]:
    """Cancel one job; return the seconds to each step."""
    with Masters((folder / "store").as_uri(), storage=folder / "files") as masters:
        masters.start("master")
        stuck.hang(masters, "job", folder, where)
        results = JobResultStore(masters.backend)
        began = time.monotonic()
        JobCatalog(masters.backend).cancel("job")
        canceled = results.wait("job", 120.0)
        seconds = {"canceled": time.monotonic() - began}
        masters.until(lambda: results.has_clean("job"), "it is clean", 120.0)
        seconds["clean"] = time.monotonic() - began
        backend = masters.backend
        left = marks.marked(marks.mark_of_job(backend.url, backend.cluster, "job"))
        if canceled.status is not JobStatus.CANCELED or left:
            raise RuntimeError(f"{where}: {canceled.status.name}, and {left} are left")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each case")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    stuck = importlib.import_module("stuck")
    seconds: dict[str, list[dict[str, float]]] = {where: [] for where in stuck.WHERE}
    for _ in range(options.runs):
        for where, found in seconds.items():
            with tempfile.TemporaryDirectory(prefix="jrs-canceling-") as folder:
                found.append(trial(stuck, Path(folder), where))
    if options.json:
        print(json.dumps(seconds, indent=2))
        return
    print(
        f"seconds from a cancel, while a suspend is stuck …, median of {options.runs} (min to max)"
    )
    for where, runs in seconds.items():
        cells = []
        for step in STEPS:
            times = [run[step] for run in runs]
            middle, least, most = statistics.median(times), min(times), max(times)
            cells.append(f"to {step}: {middle:.2f} ({least:.2f} to {most:.2f})")
        print(f"  {where:16}", "   ".join(cells))
    slowest = max(run["clean"] for runs in seconds.values() for run in runs)
    met = "met" if slowest < TARGET else "NOT met"
    print(f"no grace is given; target: clean within {TARGET:g} s: {met} ({slowest:.2f} s)")


if __name__ == "__main__":
    main()
