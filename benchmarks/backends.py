"""The backends on servers, next to their bare clients: ``python benchmarks/backends.py``.

It starts servers of its own, of one member each, that sync what they acknowledge. As in
``store.py``, contenders take turns and what is compared are ratios within a round. A commit creates
a key of 256 bytes under the leader's fence; the bare client sends the same as one transaction.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import attrs
import click
from bare import BARE, VALUE, Bare
from leaders import Failovers, failover
from measure import (
    Contender,
    Figure,
    Slice,
    Waiting,
    in_flight,
    in_rounds,
    in_threads,
    latency,
    measuring,
    median_job,
    print_report,
    ratio,
)
from probe import sample

from jrs.contract.backend import Backend
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Create, Fence
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from jrs.testing.processes import guardians
from jrs.testing.servers import EtcdServer, Server, ServerError, find_etcd, find_zookeeper

TTL = 15.0
MB = 1e6
DIRTY = 1000
CHUNK = 1000
"""Jobs that are written at a time to fill a store."""
SERVERS: dict[str, Callable[[], Server]] = {
    "etcd": lambda: find_etcd(fsync=True),
    "zookeeper": lambda: find_zookeeper(fsync=True),
}
# The servers for tests have a small heap and half a compiler, which these would be a measure of.
# What this variable says wins over a command line.
JAVA = {"_JAVA_OPTIONS": "-Xmx1g -XX:TieredStopAtLevel=4"}


@attrs.frozen
class Plan:
    """How much is measured."""

    rounds: int
    slice: float
    """Seconds that each contender gets in each round."""
    warming: float
    """Seconds that each server is used for before."""
    clean: tuple[int, int]
    """Clean entries next to which the dirty ones are listed."""
    listings: int
    failovers: Failovers


FULL = Plan(7, 1.0, 6.0, (100, 100_000), 21, Failovers(runs=10, ttl=15.0, lone=2))
QUICK = Plan(3, 0.4, 2.0, (100, 10_000), 11, Failovers(runs=3, ttl=4.0, lone=1))


# -- commits per second --------------------------------------------------------------------


BATCHING = {"etcd": 5.0, "zookeeper": 3.0}
"""How many times the bare client's one-by-one rate many commits at once have to reach."""


def contenders(backend: Backend, fence: Fence, bare: Bare) -> dict[str, Contender]:
    store = JobResultStore(backend)

    def commit(name: str) -> None:
        backend.commit(Create(f"benchmark/{name}", VALUE), fence=fence)

    def submit(name: str) -> Waiting:
        return backend.commit_async(Create(f"benchmark/{name}", VALUE), fence=fence).result

    def job(name: str) -> None:
        store.create_dirty(sample(name), fence)
        store.mark_clean(name, fence)

    def submit_job(name: str) -> Waiting:
        dirty = store.create_dirty_async(sample(name), fence)

        def clean() -> Waiting:
            dirty.result()
            return store.mark_clean_async(name, fence).result

        return clean

    def threads(work: Callable[[str], None], count: int) -> Contender:
        return lambda name, seconds: in_threads(work, name, count, seconds)

    def flight(begin: Callable[[str], Waiting], window: int) -> Contender:
        return lambda name, seconds: in_flight(begin, name, window, seconds)

    return {
        "jrs, 1 thread": threads(commit, 1),
        "bare, 1 thread": threads(bare.commit, 1),
        "jrs, 64 threads": threads(commit, 64),
        "jrs, 64 in flight": flight(submit, 64),
        "jrs, 16 threads": threads(commit, 16),
        "bare, 16 threads": threads(bare.commit, 16),
        "bare, 64 threads": threads(bare.commit, 64),
        "bare, 64 in flight": flight(bare.submit, 64),
        "jobs, 1 thread": threads(job, 1),
        "jobs, 64 threads": threads(job, 64),
        "jobs, 64 in flight": flight(submit_job, 64),
    }


def throughput(
    kind: str, server: Server, plan: Plan, tick: Callable[[str], None]
) -> Iterator[Figure]:
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(open_backend(server.url(), cluster="throughput"))
        leadership = stack.enter_context(campaign(backend))
        bare = stack.enter_context(contextlib.closing(BARE[kind](server.url_part)))
        # A server of Java's is slow at first.
        in_flight(bare.submit, "first", 64, plan.warming)
        slices = in_rounds(
            contenders(backend, leadership.fence, bare), plan.rounds, plan.slice, tick
        )
        name = bare.name
    alone = slices["bare, 1 thread"]
    for who, mine in slices.items():
        what = f"{kind}: {who.replace('bare', f'bare {name}')}"
        rate = statistics.median(one.rate for one in mine)
        value = f"{rate:,.0f}/s{latency(mine)}"
        against = "" if mine is alone else f"{ratio(mine, alone):.2f} × bare, 1 thread"
        least = _target(kind, who)
        if who == "jrs, 1 thread":
            against += f"\n{median_job(alone) / median_job(mine):.2f} × by p50"
        yield Figure(
            what,
            value,
            against,
            "" if least is None else f"≥ {least:g}",
            None if least is None else ratio(mine, alone) >= least,
        )


def _target(kind: str, who: str) -> float | None:
    if who == "jrs, 1 thread":
        return 0.8
    return BATCHING[kind] if who in ("jrs, 64 threads", "jrs, 64 in flight") else None


# -- listing -------------------------------------------------------------------------------


def listing(kind: str, server: Server, plan: Plan, tick: Callable[[str], None]) -> Iterator[Figure]:
    """List the same number of dirty entries next to few clean ones, and next to many."""
    many = max(plan.clean)
    url = server.url()
    for clean in plan.clean:
        tick(f"{kind}: writing {clean:,} clean jobs")
        with open_backend(url, cluster=f"with-{clean}") as backend, campaign(backend) as leadership:
            filled = fill(JobResultStore(backend), leadership.fence, clean)
    yield Figure(
        f"{kind}: filling with {many:,} clean, {DIRTY:,} dirty",
        f"{filled.rate:,.0f} jobs/s",
        f"commit_async, {CHUNK} jobs at a time",
    )
    yield _listed(kind, url, plan, tick)
    if isinstance(server, EtcdServer):
        # Until then a range is as slow as if the deleted keys in it were still there.
        tick(f"{kind}: compacting")
        revision = server.ask("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        server.ask("/v3/kv/compaction", {"revision": revision, "physical": True}, timeout=60.0)
        yield _listed(f"{kind}, compacted", url, plan, tick)


def _listed(kind: str, url: str, plan: Plan, tick: Callable[[str], None]) -> Figure:
    few, many = plan.clean
    times: dict[int, list[float]] = {few: [], many: []}
    for turn in range(plan.listings):
        for clean in plan.clean:
            tick(f"{kind}: listing next to {clean:,}, {turn + 1} of {plan.listings}")
            # A handle that has seen nothing yet.
            with open_backend(url, cluster=f"with-{clean}") as backend:
                began = time.perf_counter()
                found = sum(1 for _ in JobResultStore(backend).dirty())
                times[clean].append(time.perf_counter() - began)
            assert found == DIRTY
    growth = statistics.median(b / a for a, b in zip(times[few], times[many], strict=True))
    return Figure(
        f"{kind}: listing {DIRTY:,} dirty next to {many:,} clean",
        f"{statistics.median(times[many]) * 1e3:.1f} ms",
        f"{growth:.2f} × next to {few:,} ({statistics.median(times[few]) * 1e3:.1f} ms)",
        "≤ 1.2",
        growth <= 1.2,
    )


def fill(store: JobResultStore, fence: Fence, clean: int) -> Slice:
    """Write so many clean jobs, and the dirty ones spread among them."""
    total = clean + DIRTY
    began = time.perf_counter()
    for start in range(0, total, CHUNK):
        numbers = range(start, min(start + CHUNK, total))
        jobs = [f"job-{number:07}" for number in numbers]
        # Exactly DIRTY of all numbers are the first of their share.
        shares = [number * DIRTY % total >= DIRTY for number in numbers]
        futures = [store.create_dirty_async(sample(job_id), fence) for job_id in jobs]
        futures += [
            store.mark_clean_async(job_id, fence)
            for job_id, cleaned in zip(jobs, shares, strict=True)
            if cleaned
        ]
        for future in futures:
            future.result()
    return Slice(total, time.perf_counter() - began, [])


# -- memory --------------------------------------------------------------------------------


def memory(kind: str, url: str, folder: Path, tick: Callable[[str], None]) -> Iterator[Figure]:
    """Look at a master that leads and has nothing to do, and at its guardian."""
    tick(f"{kind}: an idle master")
    with Masters(url, cluster="idle", storage=folder, ttl=TTL) as masters:
        master = masters.start("m1")
        masters.event(lambda event: event.kind == "leading", "it leads")
        time.sleep(2.0)
        yield Figure(f"{kind}: resident, an idle master", f"{resident(master.process.pid):.0f} MB")
        for guardian in guardians(master.process.pid):
            yield Figure(f"{kind}: resident, its guardian", f"{resident(guardian):.0f} MB")


def resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kilobytes) * 1024 / MB


# -- plumbing ------------------------------------------------------------------------------


def campaign(backend: Backend) -> Leadership:
    leadership = backend.campaign("benchmark", ttl=TTL, stop=threading.Event())
    assert leadership is not None
    return leadership


SECTIONS = ("throughput", "listing", "memory", "failover")


def measure(
    kind: str, wanted: tuple[str, ...], plan: Plan, folder: Path, tick: Callable[[str], None]
) -> Iterator[Figure]:
    tick(f"{kind}: starting a server")
    with SERVERS[kind]() as server:
        if "throughput" in wanted:
            yield from throughput(kind, server, plan, lambda what: tick(f"{kind}: {what}"))
        if "memory" in wanted:
            yield from memory(kind, server.url(), folder / kind / "idle", tick)
        if "failover" in wanted:
            yield from failover(kind, server, folder / kind, plan.failovers, TTL, tick)
        if "listing" in wanted:
            yield from listing(kind, server, plan, tick)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer rounds, 10^4 jobs, shorter ttls.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option(
    "--only", type=click.Choice(SECTIONS), multiple=True, help="Measure only this; repeatable."
)
@click.option(
    "--backend",
    "backends",
    type=click.Choice(list(SERVERS)),
    multiple=True,
    help="Measure only this one; repeatable.",
)
def main(quick: bool, as_json: bool, only: tuple[str, ...], backends: tuple[str, ...]) -> None:
    """Measure the backends on real servers next to their bare clients; leaves nothing behind.

    \b
    python benchmarks/backends.py --quick
    python benchmarks/backends.py --backend etcd --only throughput --json
    """
    figures: list[Figure] = []
    with (
        mock.patch.dict(os.environ, JAVA),
        tempfile.TemporaryDirectory(prefix="jrs-benchmark-") as temporary,
        measuring() as tick,
    ):
        for kind in backends or SERVERS:
            try:
                figures += measure(
                    kind, only or SECTIONS, QUICK if quick else FULL, Path(temporary), tick
                )
            except ServerError as error:
                raise click.ClickException(f"{kind}: {error}") from error
    print_report("The backends on servers and their bare clients", figures, as_json)


if __name__ == "__main__":
    main()
