"""How long an operator waits for the first page, and for a query, next to very many results.

    python benchmarks/first_page.py [--size N] [--rounds N] [--no-spark] [--json]

The file backend, with 1,000 dirty results; one in a thousand jobs FAILED. Each first request goes
to a `jrs serve` of its own, which has answered nothing but `/livez`. The table `results` of
`spark.read.format("jrs")` is read in one session, whole and with each filter that finds its rows
without reading the others.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from measure import median_ms, print_plain
from scale import CLUSTER, DIRTY, fill

from jrs.contract.clock import Deadline
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore

PATHS = ("/v1/overview", "/", "/jobs")
_BOUND = 60.0
"""Seconds for which anything is awaited."""
_AGAIN = 20
"""Further requests of each path."""
_END = 1_700_000_000
"""When the first job ended, as `scale.fill` has it: one a second."""


def asked(place: Path, path: str) -> int:
    """Ask for a path at a new connection, and read all of the answer; return its length."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_BOUND)
        connection.connect(str(place))
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{path}: {answer[:100]!r}")
    return len(answer)


def started(stack: ExitStack, url: str, place: Path) -> None:
    """Start a server, and wait until it answers."""
    log = stack.enter_context(place.with_suffix(".log").open("w+"))
    process = subprocess.Popen(
        [sys.executable, "-m", "jrs", "--backend", url, "--cluster", CLUSTER, "serve",
         "--listen", f"unix:{place}"],
        stdout=log, stderr=log,
    )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(process.kill)
    over = Deadline.after(_BOUND)
    while not over.expired:
        with suppress(OSError):
            asked(place, "/livez")
            return
        time.sleep(0.05)
    log.seek(0)
    raise RuntimeError(f"the server does not answer: {log.read()[-2000:]} {process.poll()=}")


def of_pages(url: str, folder: Path, rounds: int) -> dict[str, float]:
    """Return the milliseconds until a page is there: the first of a server, and further ones."""
    found = {}
    for number, path in enumerate(PATHS):
        first, later = [], []
        for turn in range(rounds):
            place = folder / f"api-{number}-{turn}"
            with ExitStack() as stack:
                started(stack, url, place)
                first.append(median_ms(partial(asked, place, path), 1))
                later.append(median_ms(partial(asked, place, path), _AGAIN))
        found[f"{path}, first, ms"] = statistics.median(first)
        found[f"{path}, again, ms"] = statistics.median(later)
    return found


def of_tables(url: str, size: int, rounds: int) -> dict[str, float]:
    """Return the milliseconds that queries over the table of results take, once each has run."""
    from pyspark.sql import SparkSession

    import jrs

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    jrs.register_format(spark)

    def count(where: str = "", **options: str) -> int:
        given = {"backend": url, "cluster": CLUSTER, "table": "results", **options}
        rows = spark.read.format("jrs").options(**given).load()
        return (rows.where(where) if where else rows).count()

    newest = datetime.fromtimestamp(_END + size + DIRTY - 100, UTC).isoformat()
    queries: dict[str, Callable[[], int]] = {
        "status=FAILED": lambda: count(status="FAILED"),
        "since, 100 jobs": lambda: count(since=newest),
        "prefix, one in 256": lambda: count(prefix="job-00"),
        "whole": lambda: count(),
        "whole, where status": lambda: count("status = 'FAILED'"),
    }
    found = {}
    for name, query in queries.items():
        found[f"results, {name}, rows"] = float(query())
        found[f"results, {name}, ms"] = median_ms(query, rounds)
    spark.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100_000, help="Clean results.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-spark", action="store_true", help="The pages alone.")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jrs-first-page-") as name:
        folder = Path(name)
        url = (folder / "store").as_uri()
        with open_backend(url, cluster=CLUSTER) as backend:
            fill(JobResultStore(backend), 0, given.size + DIRTY)
        figures = of_pages(url, folder, given.rounds)
        if not given.no_spark:
            figures |= of_tables(url, given.size, given.rounds)
    print_plain(figures, digits=1, as_json=given.json)


if __name__ == "__main__":
    main()
