"""What the history costs the store: ``python benchmarks/history.py [--kind KIND] [--json]``.

One job is a result made durable as dirty and then as clean, by a leader under its fence: once with
the events that a master records in these commits, and once without. Contenders take turns, and what
is compared are ratios within a round. On a server the syncs are its own, and are not counted.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
from measure import (
    Contender,
    Figure,
    counted_syncs,
    in_rounds,
    in_threads,
    latency,
    measuring,
    print_report,
    ratio,
)
from probe import sample

from backends import SERVERS
from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict
from jrs.contract.operations import Fence
from jrs.records import keys
from jrs.records.history import HistoryKind
from jrs.store.historian import Historian
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore

WITH, WITHOUT = "with the history", "without"
LEAST = 0.9
WRITERS = 8
COUNTED = 500
"""Jobs of which syncs are counted, and events of each writer of one job."""


def job_with(store: JobResultStore, historian: Historian, fence: Fence, job_id: str) -> None:
    """End a job and clean it up, as a master does."""
    with historian.recorded(job_id, HistoryKind.ENDED, "FINISHED", repeatable=True) as event:
        store.create_dirty(sample(job_id), fence, also=event)
    store.mark_clean(
        job_id, fence, also=historian.folding(job_id, fence, HistoryKind.CLEAN, "clean")
    )


def job_without(store: JobResultStore, fence: Fence, job_id: str) -> None:
    store.create_dirty(sample(job_id), fence)
    store.mark_clean(job_id, fence)


def threaded(job: Callable[[str], None], threads: int) -> Contender:
    return lambda name, seconds: in_threads(job, name, threads, seconds)


def rates(
    jobs: dict[str, Callable[[str], None]], rounds: int, seconds: float, tick: Callable[[str], None]
) -> list[Figure]:
    """Measure the jobs of one caller, and of 64."""
    figures = []
    for threads in (1, 64):
        entrants = {f"{name}, {threads}": threaded(job, threads) for name, job in jobs.items()}
        slices = in_rounds(entrants, rounds, seconds, tick)
        mine, theirs = slices[f"{WITH}, {threads}"], slices[f"{WITHOUT}, {threads}"]
        reached = ratio(mine, theirs)
        rate = sum(one.jobs for one in mine) / sum(one.seconds for one in mine)
        figures.append(Figure(
            f"{WITH}, {threads} callers", f"{rate:,.0f} jobs/s{latency(mine)}",
            f"{reached:.2f} × {WITHOUT}", f"≥ {LEAST:g}", reached >= LEAST,
        ))  # fmt: skip
    return figures


def counts(backend: Backend, jobs: dict[str, Callable[[str], None]], fence: Fence) -> list[Figure]:
    """Count the syncs of a job, the conflicts of writers of one job, and the bytes of an event."""
    found = {}
    for name, job in jobs.items():
        with counted_syncs() as syncs:
            for number in range(COUNTED):
                job(f"counted-{name.replace(' ', '-')}-{number}")
            found[name] = syncs() / COUNTED
    more = found[WITH] - found[WITHOUT]
    conflicts = [0] * WRITERS

    def writer(number: int) -> None:
        mine = Historian(backend, f"writer-{number}", fence.epoch)
        for _ in range(COUNTED // 10):
            try:
                with mine.recorded("shared", HistoryKind.DIED, "attempt 1 died: exit 9") as event:
                    backend.commit(*event, fence=fence)
            except Conflict:
                conflicts[number] += 1

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(WRITERS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    sizes = [len(record.value) for record in backend.scan(keys.history("shared"))]
    return [
        Figure("syncs of a job more than without", f"{more:.3f}", "", "0", abs(more) < 0.01),
        Figure(f"conflicts of {WRITERS} writers of one job", f"{sum(conflicts)}", "", "0",
               not any(conflicts)),
        Figure("bytes of an event", f"{sum(sizes) / len(sizes):.0f}", "", "about 250"),
    ]  # fmt: skip


@click.command()
@click.option("--kind", type=click.Choice(["file", *SERVERS]), default="file")
@click.option("--rounds", type=int, default=9)
@click.option("--seconds", type=float, default=1.0, help="Of each contender in each round.")
@click.option("--json", "as_json", is_flag=True)
def main(kind: str, rounds: int, seconds: float, as_json: bool) -> None:
    """Measure what the history costs the store."""
    with ExitStack() as stack:
        tick = stack.enter_context(measuring())
        if kind == "file":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jrs-history-"))
            url = (Path(folder) / "store").as_uri()
        else:
            url = stack.enter_context(SERVERS[kind]()).url()
        backend = stack.enter_context(open_backend(url, cluster="history"))
        leadership = stack.enter_context(backend.campaign("m", ttl=60.0, stop=threading.Event()))  # type: ignore[arg-type]  # Nothing stops it.
        store, fence = JobResultStore(backend), leadership.fence
        historian = Historian(backend, "m", fence.epoch)
        jobs: dict[str, Callable[[str], None]] = {
            WITH: lambda job_id: job_with(store, historian, fence, job_id),
            WITHOUT: lambda job_id: job_without(store, fence, job_id),
        }
        figures = rates(jobs, rounds, seconds, tick) + counts(backend, jobs, fence)
    print_report(f"the history on {kind}", figures, as_json)


if __name__ == "__main__":
    main()
