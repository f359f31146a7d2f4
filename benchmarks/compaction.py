"""Compacting a large store while many processes look on: ``python benchmarks/compaction.py``.

One process leads, the others read; this one commits. Counted are the writers of the next base and
the leads that were lost; the slowest commits before and during the compaction are compared.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import click

from jrs.backends.file.backend import FileBackend
from jrs.contract.clock import Deadline
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.operations import Create
from jrs.testing.worker import Worker

VALUE = b"v" * 10_000
LOOK = """
import threading, time
def look():
    while True:
        try:
            server.backend.get("k/0")
        except Exception:
            pass
        time.sleep(0.01)
threading.Thread(target=look, daemon=True).start()
"""


def commits(backend: FileBackend, name: str, over: threading.Event) -> tuple[list[float], int]:
    """Commit until it is over; return the seconds that each took, and how many failed."""
    took: list[float] = []
    failed = 0
    while not over.is_set():
        began = time.perf_counter()
        try:
            backend.commit(Create(f"{name}/{len(took)}", b"x"), deadline=Deadline.after(120.0))
        except (Unavailable, OutcomeUnknown):
            failed += 1
        took.append(time.perf_counter() - began)
    return took, failed


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


@click.command()
@click.option("--megabytes", default=500, show_default=True)
@click.option("--processes", default=12, show_default=True)
@click.option("--ttl", default=5.0, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=None)
def main(megabytes: int, processes: int, ttl: float, folder: Path | None) -> None:
    """Measure one compaction."""
    with tempfile.TemporaryDirectory(dir=folder) as name, ExitStack() as stack:
        root = Path(name)
        with FileBackend(root, seal_at=1 << 40) as backend:
            for start in range(0, megabytes * 100, 1000):
                some = range(start, start + 1000)
                for future in [backend.commit_async(Create(f"k/{n}", VALUE)) for n in some]:
                    future.result(120.0)
            backend.compact()
        log = root / "clusters/default/log"
        workers = [stack.enter_context(Worker(root.as_uri(), "default")) for _ in range(processes)]
        workers[0].lead("leader", ttl)
        for worker in workers[1:]:
            worker.call("run", LOOK)
        backend = stack.enter_context(FileBackend(root))
        # In a process of its own: threads of this one would keep it from the interpreter's lock.
        other = stack.enter_context(Worker(root.as_uri(), "default"))
        names: set[str] = set()
        calm, done = threading.Event(), threading.Event()
        seconds: list[float] = []

        def compact() -> None:
            began = time.perf_counter()
            other.call("compact")
            seconds.append(time.perf_counter() - began)
            done.set()

        def look() -> None:
            while not done.wait(0.02):
                names.update(
                    name
                    for name in os.listdir(log)
                    if name.startswith(".") and (".base." in name or ".run." in name)
                )

        looking, compacting = threading.Thread(target=look), threading.Thread(target=compact)
        looking.start()
        threading.Timer(5.0, calm.set).start()
        before, _ = commits(backend, "before", calm)
        compacting.start()
        during, failed = commits(backend, "during", done)
        compacting.join()
        looking.join()
        lost = workers[0].call("lost", 0.0)
    click.echo(
        f"{megabytes} MB, {processes} processes, ttl {ttl:g} s: compacted in {seconds[0]:.1f} s, "
        f"{len(names)} writer(s), {int(lost)} lead(s) lost\n"
        f"commits before: {len(before)}, p99 {p99(before) * 1000:.1f} ms; "
        f"during: {len(during)}, p99 {p99(during) * 1000:.1f} ms, "
        f"slowest {max(during):.1f} s, {failed} failed"
    )


if __name__ == "__main__":
    main()
