"""JobResultStore on the file backend, side by side with its peers: ``python benchmarks/store.py``.

Everything runs on one disk, in alternating rounds: each round measures every contender once, and
what is compared are the ratios within a round, of which the median is shown. Absolute rates vary
with the neighbours of the machine; those ratios, and the counted syncs, do not.

One job is a result made durable as dirty and then durable as clean, by a leader under its fence.
The peers write a body that was encoded beforehand and check no fence.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import click
import peers
from probe import sample
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from jrs.backend import Fence, Leadership
from jrs.backends.file import FileBackend
from jrs.codec import encode
from jrs.store import JobResultStore

PROBE = Path(__file__).with_name("probe.py")
TTL = 15.0
MB = 1e6


@attrs.frozen
class Plan:
    """How much is measured."""

    rounds: int
    slice: float
    """Seconds that each contender gets in each round."""
    sizes: tuple[int, ...]
    """Numbers of clean jobs to open a store with."""
    opens: int
    failovers: int


FULL = Plan(rounds=9, slice=1.0, sizes=(10_000, 100_000, 1_000_000), opens=7, failovers=10)
QUICK = Plan(rounds=3, slice=0.4, sizes=(10_000, 100_000), opens=3, failovers=3)
DIRTY = 1000


@attrs.frozen
class Figure:
    """One line of the report."""

    what: str
    value: str
    versus: str = ""
    target: str = ""
    met: bool | None = None


# -- jobs per second -----------------------------------------------------------------------


@attrs.define
class Slice:
    """What one contender did in one round."""

    jobs: int
    seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds


def in_threads(job: Callable[[str], None], name: str, threads: int, seconds: float) -> Slice:
    """Run `job` over and over in `threads` threads until the time is over."""
    begin = threading.Barrier(threads + 1)
    spans: list[list[float]] = [[] for _ in range(threads)]
    failures: list[BaseException] = []

    def caller(index: int) -> None:
        begin.wait()
        end = time.perf_counter() + seconds
        now = time.perf_counter()
        try:
            while now < end:
                job(f"{name}-{index}-{len(spans[index])}")
                last, now = now, time.perf_counter()
                spans[index].append(now - last)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=caller, args=(index,)) for index in range(threads)]
    for thread in running:
        thread.start()
    begin.wait()
    began = time.perf_counter()
    for thread in running:
        thread.join()
    took = time.perf_counter() - began
    if failures:
        raise failures[0]
    latencies = [span for each in spans for span in each]
    return Slice(len(latencies), took, latencies)


def in_flight(store: JobResultStore, fence: Fence, name: str, window: int, seconds: float) -> Slice:
    """Keep `window` jobs in flight from this one thread."""
    running: deque[tuple[float, Future[None]]] = deque()
    latencies: list[float] = []

    def finish() -> None:
        asked, future = running.popleft()
        future.result()
        latencies.append(time.perf_counter() - asked)

    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < seconds:
        result = sample(f"{name}-{count}")
        count += 1
        asked = time.perf_counter()
        store.create_dirty_async(result, fence)
        running.append((asked, store.mark_clean_async(result.job_id, fence)))
        if len(running) >= window:
            finish()
    while running:
        finish()
    return Slice(count, time.perf_counter() - began, latencies)


def in_processes(folder: Path, fence: Fence, name: str, processes: int, seconds: float) -> Slice:
    """Let `processes` processes with one caller each write to one log under one fence."""
    workers = [
        start("work", folder, fence.version, f"{name}-{index}", seconds)
        for index in range(processes)
    ]
    for worker in workers:
        answer(worker)
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    done = [answer(worker) for worker in workers]
    for worker in workers:
        finish_process(worker)
    return Slice(sum(d["jobs"] for d in done), max(d["seconds"] for d in done), [])


Contender = Callable[[str, float], Slice]
"""Called with a name for its jobs and the seconds it has."""

RAW, FILES, SQLITE, LMDB = (
    peers.RawPair.name,
    peers.FilePerEntry.name,
    peers.Sqlite.name,
    peers.Lmdb.name,
)


def contenders(folder: Path, leadership: Leadership, backend: FileBackend) -> dict[str, Contender]:
    store, fence = JobResultStore(backend), leadership.fence

    def ours(job_id: str) -> None:
        store.create_dirty(sample(job_id), fence)
        store.mark_clean(job_id, fence)

    def threads(job: Callable[[str], None], count: int) -> Contender:
        return lambda name, seconds: in_threads(job, name, count, seconds)

    def flight(window: int) -> Contender:
        return lambda name, seconds: in_flight(store, fence, name, window, seconds)

    def of(peer: peers.Peer) -> Callable[[str], None]:
        body = encode(sample("job-of-a-peer-0-0"))
        return lambda job_id: peer.job(job_id, body)

    raw, files = of(peers.RawPair(folder)), of(peers.FilePerEntry(folder))
    sqlite, lmdb = of(peers.Sqlite(folder)), of(peers.Lmdb(folder))
    # The ones that are compared with each other stand next to each other.
    return {
        f"{RAW}, 1 thread": threads(raw, 1),
        "jrs, 1 thread": threads(ours, 1),
        "jrs, 8 threads": threads(ours, 8),
        "jrs, 64 threads": threads(ours, 64),
        f"{SQLITE}, 64 threads": threads(sqlite, 64),
        f"{SQLITE}, 1 thread": threads(sqlite, 1),
        "jrs, 64 in flight": flight(64),
        "jrs, 512 in flight": flight(512),
        "jrs, 4 processes": lambda name, seconds: in_processes(folder, fence, name, 4, seconds),
        f"{LMDB}, 1 thread": threads(lmdb, 1),
        f"{LMDB}, 64 threads": threads(lmdb, 64),
        f"{FILES}, 1 thread": threads(files, 1),
        f"{FILES}, 64 threads": threads(files, 64),
    }


TARGETS: dict[str, list[tuple[str, float]]] = {
    "jrs, 1 thread": [(f"{RAW}, 1 thread", 0.7)],
    "jrs, 64 threads": [
        (f"{RAW}, 1 thread", 2.5),
        (f"{SQLITE}, 1 thread", 2.0),
        (f"{SQLITE}, 64 threads", 2.0),
    ],
    "jrs, 64 in flight": [(f"{RAW}, 1 thread", 5.0)],
}
"""The least ratio to another contender of the same round."""


def throughput(folder: Path, plan: Plan, tick: Callable[[str], None]) -> list[Figure]:
    with FileBackend(folder / "jrs") as backend:
        with campaign(backend) as leadership:
            entrants = contenders(folder, leadership, backend)
            for name, entrant in entrants.items():
                tick(f"warming up: {name}")
                entrant(f"warm-{list(entrants).index(name)}", plan.slice / 5)
            slices: dict[str, list[Slice]] = {name: [] for name in entrants}
            for turn in range(plan.rounds):
                for index, (name, entrant) in enumerate(entrants.items()):
                    tick(f"round {turn + 1} of {plan.rounds}: {name}")
                    slices[name].append(entrant(f"r{turn}-{index}", plan.slice))
    return [_rate_figure(name, slices) for name in slices]


def _rate_figure(name: str, slices: dict[str, list[Slice]]) -> Figure:
    mine = slices[name]
    rate = statistics.median(one.rate for one in mine)
    latencies = sorted(span for one in mine for span in one.latencies)
    value = f"{rate:,.0f} jobs/s"
    if latencies:
        value += (
            f"; p50 {latencies[len(latencies) // 2] * 1e3:.2f} ms, "
            f"p99 {latencies[len(latencies) * 99 // 100] * 1e3:.2f} ms"
        )
    wanted = TARGETS.get(name, [])
    if not wanted:
        if name.startswith(RAW):
            return Figure(name, value)
        ratio = _ratio(mine, slices[f"{RAW}, 1 thread"])
        return Figure(name, value, f"{ratio:.2f} × the raw pair")
    ratios = [(other, _ratio(mine, slices[other]), least) for other, least in wanted]
    compared = [f"{ratio:.2f} × {_short(other)}" for other, ratio, _ in ratios]
    if name.endswith(", 1 thread"):
        # A stall of the disk hits both alike and hides the difference; the usual job has none.
        compared.append(f"{_median_job(slices[wanted[0][0]]) / _median_job(mine):.2f} × by p50")
    return Figure(
        name,
        value,
        "\n".join(compared),
        "\n".join(f"≥ {least:g}" for _, _, least in ratios),
        all(ratio >= least for _, ratio, least in ratios),
    )


def _ratio(mine: list[Slice], theirs: list[Slice]) -> float:
    return statistics.median(a.rate / b.rate for a, b in zip(mine, theirs, strict=True))


def _median_job(slices: list[Slice]) -> float:
    return statistics.median(span for one in slices for span in one.latencies)


def _short(name: str) -> str:
    return "the raw pair" if name.startswith(RAW) else name.replace(" (WAL, FULL)", "")


# -- syncs per job -------------------------------------------------------------------------


def syncs(folder: Path, jobs: int = 2000) -> list[Figure]:
    """Count the calls that reach the disk; the one figure that no neighbour changes."""
    counted = 0
    lock = threading.Lock()

    def counting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def count(fd: int) -> None:
            nonlocal counted
            with lock:
                counted += 1
            sync(fd)

        return count

    with FileBackend(folder / "jrs") as backend, campaign(backend) as leadership:
        store, fence = JobResultStore(backend), leadership.fence
        with (
            mock.patch("os.fdatasync", counting(os.fdatasync)),
            mock.patch("os.fsync", counting(os.fsync)),
        ):
            for number in range(jobs):
                store.create_dirty(sample(f"one-{number}"), fence)
                store.mark_clean(f"one-{number}", fence)
            alone, counted = counted / jobs, 0
            many = in_flight(store, fence, "many", 64, 1.0)
            pipelined = counted / many.jobs
    return [
        Figure("syncs per job, one caller", f"{alone:.3f}", "", "≤ 2", alone <= 2.01),
        Figure("syncs per job, 64 in flight", f"{pipelined:.3f}", "", "≤ 0.25", pipelined <= 0.25),
    ]


# -- opening -------------------------------------------------------------------------------


def opening(folder: Path, plan: Plan, tick: Callable[[str], None]) -> list[Figure]:
    """Open a store with many clean entries in a fresh process and list the dirty ones."""
    folders = {size: folder / f"with-{size}" for size in plan.sizes}
    figures = []
    for size, place in folders.items():
        place.mkdir()
        tick(f"building a store of {size:,} jobs")
        probe("build", place, size, DIRTY)
        if size == max(plan.sizes):
            figures.append(_uncompacted(place, size, plan, tick))
        tick(f"compacting {size:,} jobs")
        seconds = probe("compact", place)["seconds"]
        figures.append(Figure(f"compacting {size:,} clean", f"{seconds:.2f} s"))
    ours: dict[int, list[dict[str, float]]] = {size: [] for size in plan.sizes}
    theirs: dict[int, list[dict[str, float]]] = {size: [] for size in plan.sizes}
    for turn in range(plan.opens):
        for size, place in folders.items():
            tick(f"opening {size:,} jobs, {turn + 1} of {plan.opens}")
            ours[size].append(probe("open", place))
            theirs[size].append(probe("open-sqlite", place))
            assert ours[size][-1]["entries"] == theirs[size][-1]["entries"] == DIRTY
    smallest = min(plan.sizes)
    for size in plan.sizes:
        figures += _opened(size, ours[size], theirs[size], ours[smallest], size == max(plan.sizes))
    return figures


def _uncompacted(place: Path, size: int, plan: Plan, tick: Callable[[str], None]) -> Figure:
    found = []
    for turn in range(min(3, plan.opens)):
        tick(f"replaying {2 * size:,} lines, {turn + 1}")
        found.append(probe("open", place))
    seconds, private = _median(found, "seconds"), _median(found, "private")
    judged = size == 1_000_000
    return Figure(
        f"open + list {DIRTY:,} dirty, {size:,} clean, never compacted",
        f"{seconds:.2f} s ({_median(found, 'cpu'):.2f} s of CPU), {private / MB:.0f} MB",
        target="< 6 s" if judged else "",
        met=seconds < 6 if judged else None,
    )


def _opened(
    size: int,
    ours: list[dict[str, float]],
    theirs: list[dict[str, float]],
    smallest: list[dict[str, float]],
    judged: bool,
) -> list[Figure]:
    what = f"open + list {DIRTY:,} dirty, {size:,} clean"
    private = _median(ours, "private")
    against = _median_ratio(ours, theirs)
    growth = _median_ratio(ours, smallest)
    return [
        Figure(
            what,
            f"{_median(ours, 'seconds') * 1e3:.1f} ms, {private / MB:.0f} MB",
            f"{against:.2f} × SQLite's time\n{growth:.2f} × with {min(FULL.sizes):,} clean",
            "≤ 1\n≤ 1.5\n< 80 MB" if judged else "",
            against <= 1 and growth <= 1.5 and private < 80 * MB if judged else None,
        ),
        Figure(
            f"{what}: SQLite, indexed query",
            f"{_median(theirs, 'seconds') * 1e3:.1f} ms, {_median(theirs, 'private') / MB:.0f} MB",
            f"{_median(theirs, 'fetched') * 1e3:.1f} ms before decoding",
        ),
    ]


def _median(found: list[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in found)


def _median_ratio(mine: list[dict[str, float]], theirs: list[dict[str, float]]) -> float:
    pairs = zip(mine, theirs, strict=True)
    return statistics.median(a["seconds"] / b["seconds"] for a, b in pairs)


# -- failover ------------------------------------------------------------------------------


def failover(folder: Path, plan: Plan, tick: Callable[[str], None]) -> Figure:
    """Kill a leading process; measure until a waiting candidate's epoch is bumped."""
    times = []
    for turn in range(plan.failovers):
        tick(f"killing leader {turn + 1} of {plan.failovers}")
        leader = start("lead", folder, TTL)
        answer(leader)
        with FileBackend(folder / "jrs") as backend:
            bumped: list[float] = []

            def candidate(backend: FileBackend = backend, bumped: list[float] = bumped) -> None:
                with campaign(backend):
                    bumped.append(time.perf_counter())

            waiting = threading.Thread(target=candidate)
            waiting.start()
            time.sleep(0.3)
            assert not bumped
            killed = time.perf_counter()
            leader.send_signal(signal.SIGKILL)
            waiting.join()
            finish_process(leader)
            times.append((bumped[0] - killed) * 1e3)
    return Figure(
        f"failover after kill -9 of the leader (ttl {TTL:g} s)",
        f"{min(times):.0f} / {statistics.median(times):.0f} / {max(times):.0f} ms",
        f"least / median / most of {len(times)}",
        "< 100 ms",
        max(times) < 100,
    )


# -- processes and plumbing ----------------------------------------------------------------


def campaign(backend: FileBackend) -> Leadership:
    leadership = backend.campaign("benchmark", ttl=TTL, stop=threading.Event())
    assert leadership is not None
    return leadership


def start(command: str, folder: Path, *rest: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PROBE, command, folder, *map(str, rest)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended without an answer")
    found: dict[str, Any] = json.loads(line)
    return found


def finish_process(process: subprocess.Popen[str]) -> None:
    process.communicate()


def probe(command: str, folder: Path, *rest: object) -> dict[str, Any]:
    process = start(command, folder, *rest)
    try:
        return answer(process)
    finally:
        finish_process(process)


def report(figures: list[Figure]) -> Table:
    table = Table(title="JobResultStore on the file backend and its peers", show_lines=True)
    for column in ("what", "measured", "compared", "target", "met"):
        table.add_column(column)
    for one in figures:
        met = "" if one.met is None else "[green]yes" if one.met else "[red]no"
        table.add_row(one.what, one.value, one.versus, one.target, met)
    return table


SECTIONS = ("throughput", "syncs", "opening", "failover")


@click.command()
@click.option("--quick", is_flag=True, help="Fewer rounds, up to 10^5 jobs: about a minute.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder on the disk to measure; by default the system's temporary one.",
)
@click.option(
    "--only", type=click.Choice(SECTIONS), multiple=True, help="Measure only this; repeatable."
)
def main(quick: bool, as_json: bool, folder: Path | None, only: tuple[str, ...]) -> None:
    """Measure the store and its peers on one disk; leaves nothing behind.

    \b
    python benchmarks/store.py --quick
    python benchmarks/store.py --folder /var/lib --json
    """
    plan = QUICK if quick else FULL
    wanted = only or SECTIONS
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="jrs-benchmark-", dir=folder) as temporary,
        Progress("{task.description}", console=Console(stderr=True), transient=True) as progress,
    ):
        task = progress.add_task("")

        def tick(what: str) -> None:
            progress.update(task, description=what)

        def place(section: str) -> Path:
            path = Path(temporary) / section
            path.mkdir()
            return path

        if "throughput" in wanted:
            figures += throughput(place("throughput"), plan, tick)
        if "syncs" in wanted:
            tick("counting syncs")
            figures += syncs(place("syncs"))
        if "opening" in wanted:
            figures += opening(place("opening"), plan, tick)
        if "failover" in wanted:
            figures.append(failover(place("failover"), plan, tick))
        progress.update(task, description="removing what was written")
    if as_json:
        click.echo(json.dumps([attrs.asdict(one) for one in figures], indent=2))
    else:
        # Wide enough for a log file too, where rich would assume 80 columns.
        Console(width=None if sys.stdout.isatty() else 140).print(report(figures))


if __name__ == "__main__":
    main()
