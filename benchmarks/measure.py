"""What every benchmark does: contenders in alternating rounds, probes in processes of their own,
and a report of ratios.

Absolute rates vary with the neighbours of the machine; ratios within a round do not, and of those
the median is shown.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

PROBE = Path(__file__).with_name("probe.py")


@attrs.frozen
class Figure:
    """One line of the report."""

    what: str
    value: str
    versus: str = ""
    target: str = ""
    met: bool | None = None


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


Waiting = Callable[[], Any]
"""Waits until what was begun is done; may then begin the rest, and return what waits for that."""


def in_flight(begin: Callable[[str], Waiting], name: str, window: int, seconds: float) -> Slice:
    """Keep `window` jobs in flight from this one thread, until the time is over."""
    running: deque[tuple[float, Waiting]] = deque()
    latencies: list[float] = []

    def finish() -> None:
        asked, wait = running.popleft()
        rest = wait()
        if rest is not None:
            running.append((asked, rest))
        else:
            latencies.append(time.perf_counter() - asked)

    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < seconds:
        running.append((time.perf_counter(), begin(f"{name}-{count}")))
        count += 1
        while len(running) >= window:
            finish()
    while running:
        finish()
    return Slice(count, time.perf_counter() - began, latencies)


Contender = Callable[[str, float], Slice]
"""Called with a name for its jobs and the seconds it has."""


def in_rounds(
    entrants: Mapping[str, Contender], rounds: int, seconds: float, tick: Callable[[str], None]
) -> dict[str, list[Slice]]:
    """Let every contender work in every round, one after the other."""
    for index, (name, entrant) in enumerate(entrants.items()):
        tick(f"warming up: {name}")
        entrant(f"warm-{index}", seconds / 5)
    slices: dict[str, list[Slice]] = {name: [] for name in entrants}
    for turn in range(rounds):
        for index, (name, entrant) in enumerate(entrants.items()):
            tick(f"round {turn + 1} of {rounds}: {name}")
            slices[name].append(entrant(f"r{turn}-{index}", seconds))
    return slices


def latency(slices: list[Slice]) -> str:
    """Return p50 and p99 of all slices, as they stand behind a rate."""
    spans = sorted(span for one in slices for span in one.latencies)
    if not spans:
        return ""
    p50, p99 = spans[len(spans) // 2], spans[len(spans) * 99 // 100]
    return f"; p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms"


def ratio(mine: list[Slice], theirs: list[Slice]) -> float:
    return statistics.median(a.rate / b.rate for a, b in zip(mine, theirs, strict=True))


def median_job(slices: list[Slice]) -> float:
    return statistics.median(span for one in slices for span in one.latencies)


def median_ms(act: Callable[[], object], times: int) -> float:
    """Return the median of the milliseconds that a call takes."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


@contextmanager
def counted_syncs() -> Iterator[Callable[[], int]]:
    """Yield a function that returns how often this process has synced a file since."""
    calls: list[int] = []

    def counting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def count(fd: int) -> None:
            calls.append(fd)
            sync(fd)

        return count

    with (
        mock.patch("os.fdatasync", counting(os.fdatasync)),
        mock.patch("os.fsync", counting(os.fsync)),
    ):
        yield lambda: len(calls)


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


@contextmanager
def measuring() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows, while it is measured, what is being measured."""
    console = Console(stderr=True)
    with Progress("{task.description}", console=console, transient=True) as progress:
        task = progress.add_task("")
        yield lambda what: progress.update(task, description=what)


def print_plain(figures: Mapping[str, float], *, digits: int, as_json: bool) -> None:
    """Print figures by their names, each on a line or all as JSON."""
    if as_json:
        click.echo(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        click.echo(f"{name:24}{value:10.{digits}f}")


def print_report(title: str, figures: list[Figure], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([attrs.asdict(one) for one in figures], indent=2))
        return
    table = Table(title=title, show_lines=True)
    for column in ("what", "measured", "compared", "target", "met"):
        table.add_column(column)
    for one in figures:
        met = "" if one.met is None else "[green]yes" if one.met else "[red]no"
        table.add_row(one.what, one.value, one.versus, one.target, met)
    # Wide enough for a log file too, where rich would assume 80 columns.
    Console(width=None if sys.stdout.isatty() else 140).print(table)
