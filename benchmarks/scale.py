"""What the store costs next to many clean results, one size after the other in one run.

    python benchmarks/scale.py [--sizes 10000,100000] [--kind KIND] [--json]

A new process looks at each size, so that nothing is in its memory. 1,000 results are dirty, and
every thousandth job FAILED. At the end the clean results are expired.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import attrs
from measure import median_ms, print_plain
from probe import sample

from backends import SERVERS
from jrs import JobHandle, JobView, connect
from jrs.client.listing import JobOrder
from jrs.records.model import Failure, JobResult, JobStatus
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore

CLUSTER = "scale"
DIRTY = 1000
_CHUNK = 1000
"""Jobs that are written at a time."""
_FAILED = 1000
"""One of so many jobs FAILED."""
_PAGE = 100
_TIMES = 5


def fill(store: JobResultStore, first: int, last: int) -> None:
    """Write the jobs of these numbers; the first ones stay dirty."""
    for start in range(first, last, _CHUNK):
        numbers = range(start, min(start + _CHUNK, last))
        pending = [store.create_dirty_async(_result(number), None) for number in numbers]
        for one in pending:
            one.result()
        clean = [store.mark_clean_async(_id(number), None) for number in numbers if number >= DIRTY]
        for one in clean:
            one.result()


def _id(number: int) -> str:
    return f"job-{number * 2654435761 % (1 << 32):08x}-{number}"


def _result(number: int) -> JobResult:
    found = attrs.evolve(sample(_id(number)), finished_at=1700000000.0 + number)
    if number % _FAILED:
        return found
    return attrs.evolve(
        found, status=JobStatus.FAILED, payload=None, failure=Failure("exit", "exit 9")
    )


def look(url: str, known: str) -> dict[str, float]:
    """Return what operations cost in this process, which has not opened the store before."""
    began = time.perf_counter()
    with connect(url, cluster=CLUSTER) as client:
        listed = len(list(client.results.dirty()))
        opened = time.perf_counter() - began
        assert listed == DIRTY, listed
        found = {
            "open and list 1,000 dirty, ms": 1000 * opened,
            "get, ms": median_ms(lambda: client.results.get(known), _TIMES),
            "page by id, ms": median_ms(lambda: _page(client.views()), _TIMES),
            "page by end, ms": median_ms(lambda: _page(client.views(order=JobOrder.ENDED)), _TIMES),
            "page of FAILED, ms": median_ms(
                lambda: _page(client.views(status=JobStatus.FAILED)), _TIMES
            ),
            "page of unfinished, ms": median_ms(
                lambda: _page(client.views(status=JobStatus.RUNNING)), _TIMES
            ),
            "100 jobs one by one, ms": median_ms(lambda: _one_by_one(client.jobs()), _TIMES),
        }
        lines = Path("/proc/self/status").read_text().splitlines()
        private = next(line for line in lines if line.startswith("RssAnon:"))
        return {**found, "private memory, MB": int(private.split()[1]) / 1024}


def _page(views: Iterable[JobView]) -> None:
    """Read a page as ``jrs list`` and the API do."""
    for _ in islice(views, _PAGE):
        pass


def _one_by_one(jobs: Iterable[JobHandle]) -> None:
    for job in islice(jobs, _PAGE):
        job.view()


def trial(url: str, sizes: Sequence[int], folder: Path | None) -> dict[str, float]:
    """Return the figures of each size."""
    found, done = dict[str, float](), 0
    with open_backend(url, cluster=CLUSTER) as backend:
        leadership = backend.campaign("benchmark", ttl=60.0, stop=threading.Event())
        assert leadership is not None
        leadership.resign()  # What is written needs no leader; a cluster that had one is as usual.
        store = JobResultStore(backend)
        for size in sizes:
            began = time.perf_counter()
            fill(store, done, size + DIRTY)
            written = size + DIRTY - done
            per_second = written / (time.perf_counter() - began)
            told = subprocess.run(
                [sys.executable, __file__, "--look", url, _id(size // 2)],
                check=True, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            figures = {"written, jobs a second": per_second, **json.loads(told.stdout)}
            if folder is not None:
                bytes_kept = sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
                figures["bytes on disk a job"] = bytes_kept / (size + DIRTY)
            found |= {f"{size}: {name}": value for name, value in figures.items()}
            done = size + DIRTY
        began, count = time.perf_counter(), 0
        for _ in islice(store.expiring(0.0), 50_000):
            count += 1
        found["expired, results a second"] = count / (time.perf_counter() - began)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,100000", help="Numbers of clean results.")
    parser.add_argument("--kind", choices=["file", *SERVERS], default="file")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--look", nargs=2, metavar=("URL", "JOB"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.look:
        print(json.dumps(look(*given.look)))
        return
    sizes = [int(size) for size in given.sizes.split(",")]
    with ExitStack() as stack:
        if given.kind == "file":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jrs-scale-")))
            figures = trial((folder / "store").as_uri(), sizes, folder)
        else:
            figures = trial(stack.enter_context(SERVERS[given.kind]()).url(), sizes, None)
    print_plain(figures, digits=2, as_json=given.json)


if __name__ == "__main__":
    main()
