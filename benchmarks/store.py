"""JobResultStore on the file backend, side by side with its peers: ``python benchmarks/store.py``.

Everything runs on one disk, in alternating rounds: each round measures every contender once, and
what is compared are the ratios within a round, of which the median is shown. Absolute rates vary
with the neighbours of the machine; those ratios, and the counted syncs, do not.

One job is a result made durable as dirty and then durable as clean, by a leader under its fence.
The peers write a body that was encoded beforehand and check no fence.
"""

from __future__ import annotations

import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import click
import peers
from measure import (
    Contender,
    Figure,
    Slice,
    Waiting,
    answer,
    counted_syncs,
    finish_process,
    in_flight,
    in_rounds,
    in_threads,
    latency,
    measuring,
    median_job,
    print_report,
    probe,
    ratio,
    start,
)
from probe import sample

from jrs.backends.file.backend import FileBackend
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Fence
from jrs.records.codec import encode
from jrs.store.result_store import JobResultStore

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


# -- jobs per second -----------------------------------------------------------------------


def flying(store: JobResultStore, fence: Fence) -> Callable[[str], Waiting]:
    """Return what begins a job and does not wait for it."""

    def begin(job_id: str) -> Waiting:
        store.create_dirty_async(sample(job_id), fence)
        return store.mark_clean_async(job_id, fence).result

    return begin


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
        return lambda name, seconds: in_flight(flying(store, fence), name, window, seconds)

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
            slices = in_rounds(entrants, plan.rounds, plan.slice, tick)
    return [_rate_figure(name, slices) for name in slices]


def _rate_figure(name: str, slices: dict[str, list[Slice]]) -> Figure:
    mine = slices[name]
    rate = statistics.median(one.rate for one in mine)
    value = f"{rate:,.0f} jobs/s{latency(mine)}"
    wanted = TARGETS.get(name, [])
    if not wanted:
        if name.startswith(RAW):
            return Figure(name, value)
        against = ratio(mine, slices[f"{RAW}, 1 thread"])
        return Figure(name, value, f"{against:.2f} × the raw pair")
    ratios = [(other, ratio(mine, slices[other]), least) for other, least in wanted]
    compared = [f"{reached:.2f} × {_short(other)}" for other, reached, _ in ratios]
    if name.endswith(", 1 thread"):
        # A stall of the disk hits both alike and hides the difference; the usual job has none.
        compared.append(f"{median_job(slices[wanted[0][0]]) / median_job(mine):.2f} × by p50")
    return Figure(
        name,
        value,
        "\n".join(compared),
        "\n".join(f"≥ {least:g}" for _, _, least in ratios),
        all(reached >= least for _, reached, least in ratios),
    )


def _short(name: str) -> str:
    return "the raw pair" if name.startswith(RAW) else name.replace(" (WAL, FULL)", "")


# -- syncs per job -------------------------------------------------------------------------


def syncs(folder: Path, jobs: int = 2000) -> list[Figure]:
    """Count the calls that reach the disk; the one figure that no neighbour changes."""
    with FileBackend(folder / "jrs") as backend, campaign(backend) as leadership:
        store, fence = JobResultStore(backend), leadership.fence
        with counted_syncs() as counted:
            for number in range(jobs):
                store.create_dirty(sample(f"one-{number}"), fence)
                store.mark_clean(f"one-{number}", fence)
            before = counted()
            many = in_flight(flying(store, fence), "many", 64, 1.0)
            alone, pipelined = before / jobs, (counted() - before) / many.jobs
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
    evaluated = size == 1_000_000
    return Figure(
        f"open + list {DIRTY:,} dirty, {size:,} clean, never compacted",
        f"{seconds:.2f} s ({_median(found, 'cpu'):.2f} s of CPU), {private / MB:.0f} MB",
        target="< 6 s" if evaluated else "",
        met=seconds < 6 if evaluated else None,
    )


def _opened(
    size: int,
    ours: list[dict[str, float]],
    theirs: list[dict[str, float]],
    smallest: list[dict[str, float]],
    evaluated: bool,
) -> list[Figure]:
    what = f"open + list {DIRTY:,} dirty, {size:,} clean"
    private = _median(ours, "private")
    against = _medianratio(ours, theirs)
    growth = _medianratio(ours, smallest)
    return [
        Figure(
            what,
            f"{_median(ours, 'seconds') * 1e3:.1f} ms, {private / MB:.0f} MB",
            f"{against:.2f} × SQLite's time\n{growth:.2f} × with {min(FULL.sizes):,} clean",
            "≤ 1\n≤ 1.5\n< 80 MB" if evaluated else "",
            against <= 1 and growth <= 1.5 and private < 80 * MB if evaluated else None,
        ),
        Figure(
            f"{what}: SQLite, indexed query",
            f"{_median(theirs, 'seconds') * 1e3:.1f} ms, {_median(theirs, 'private') / MB:.0f} MB",
            f"{_median(theirs, 'fetched') * 1e3:.1f} ms before decoding",
        ),
    ]


def _median(found: list[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in found)


def _medianratio(mine: list[dict[str, float]], theirs: list[dict[str, float]]) -> float:
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
        measuring() as tick,
    ):

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
        tick("removing what was written")
    print_report("JobResultStore on the file backend and its peers", figures, as_json)


if __name__ == "__main__":
    main()
