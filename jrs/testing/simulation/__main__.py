"""Simulates failovers, and prints one line of figures.

    python -m jrs.testing.simulation --seeds 1000

A run is a function of its seed. The exit status is 1 if one breaks a promise; its story is printed.
With `--shortest`, smaller scenarios are searched for a shorter story of the same check.

    python -m jrs.testing.simulation --exhaustive --crashes 1

goes through every state of a small scenario instead, in one process. With `--shortest`, it then
searches a shorter run that breaks a promise, until there is none.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import attrs

from jrs.host.signals import ended_by_signals
from jrs.testing.chaos.figures import commit, machine, scratch
from jrs.testing.simulation.exhaustive import explore
from jrs.testing.simulation.exhaustive import shortest as shorten
from jrs.testing.simulation.failover import Scenario
from jrs.testing.simulation.random_runs import SimulatedRun, simulate
from jrs.testing.simulation.systematic import SMALL, Faults, all_faults, run_with

_EVERY = 10.0
"""Seconds between two lines that tell how far an exploration is."""
_CHUNK = 20
"""Runs that a process does before it reports."""
_SMALLER = (
    Scenario(masters=2, jobs=1, stages=1, crashes=0, pauses=0, unknowns=0),
    Scenario(masters=2, jobs=1, stages=1, crashes=1, pauses=0, unknowns=0),
    Scenario(masters=2, jobs=1, stages=1, crashes=0, pauses=1, unknowns=0),
    Scenario(masters=2, jobs=1, stages=1, crashes=0, pauses=0, unknowns=1),
    Scenario(masters=2, jobs=1, stages=1, crashes=1, pauses=1, unknowns=1),
    Scenario(masters=2, jobs=1, stages=1, dying=1, canceled=1),
)


@attrs.frozen
class Chunk:
    """What came of some runs."""

    runs: int
    leaders: int
    steps: int
    seconds: float
    """Of the processor."""
    bad: tuple[tuple[int, str, tuple[str, ...], tuple[str, ...]], ...]
    """Runs that broke a promise: the number, the faults, what was found, and the story."""


Simulated = Callable[[Path], SimulatedRun]
"""Simulates one run in an empty folder."""
Numbered = tuple[int, str, Simulated]
"""A run, its number, and what goes wrong in it, if its number does not say that."""


def in_folder(simulated: Simulated) -> SimulatedRun:
    """Simulate a run in a folder in memory, if there is one, that is removed."""
    with tempfile.TemporaryDirectory(prefix="jrs-simulation-", dir=scratch()) as folder:
        return simulated(Path(folder))


def run_chunk(runs: Sequence[Numbered]) -> Chunk:
    """Simulate some runs."""
    began = time.process_time()
    gc.freeze()
    gc.disable()  # For nothing here is worth to be collected before the chunk is over.
    ended = [in_folder(run) for _, _, run in runs]
    gc.enable()
    bad = tuple(
        (number, faults, tuple(map(str, one.violations)), one.story)
        for (number, faults, _), one in zip(runs, ended, strict=True)
        if one.violations
    )
    return Chunk(
        runs=len(ended),
        leaders=sum(one.epochs for one in ended),
        steps=sum(one.steps for one in ended),
        seconds=time.process_time() - began,
        bad=bad,
    )


def systematic(scenario: Scenario, stride: int, *, pairs: bool) -> Iterator[Numbered]:
    """Yield the runs of a scenario, one with each of its faults."""
    calm = in_folder(partial(run_with, Faults(), scenario))
    every = all_faults(calm.steps, calm.commits, stride, pairs=pairs)
    for number, faults in enumerate(every):
        yield number, str(faults), partial(run_with, faults, scenario)


def seeded(scenario: Scenario) -> Iterator[Numbered]:
    """Yield the runs of a scenario, one for each seed."""
    for seed in itertools.count():
        yield seed, "", partial(simulate, seed, scenario)


def shortest(check: str, seeds: int = 200) -> SimulatedRun | None:
    """Return a short run that the check finds something in: of the smallest scenario that has one,
    the one of fewest steps; None if the smaller scenarios have none."""
    for scenario in _SMALLER:
        runs = (in_folder(partial(simulate, seed, scenario)) for seed in range(seeds))
        found = [run for run in runs if any(one.check == check for one in run.violations)]
        if found:
            return min(found, key=lambda run: run.steps)
    return None


def explored(scenario: Scenario, states: int, *, shortest: bool) -> int:
    """Go through all states of a scenario, print what was found, and return the exit status."""
    began = time.monotonic()
    last = [began]

    def tell(entered: int, steps: int) -> None:
        if time.monotonic() - last[0] > _EVERY:
            last[0] = time.monotonic()
            took = last[0] - began
            print(f"{took:.0f} s: {entered:,} states, {steps:,} steps", file=sys.stderr)

    found = explore(scenario, most=states, tell=tell)
    took = time.monotonic() - began
    if shortest:
        found = shorten(scenario, found, most=states)
    if found.violations:
        print(*found.violations, *found.story, sep="\n")
    print(
        f"`python -m jrs.testing.simulation {' '.join(sys.argv[1:])}` | {commit()} | {machine()} | "
        f"states {found.states:,}{'' if found.is_whole else ' (not all)'}, "
        f"steps {found.steps:,}, ends {len(found.ends):,}, longest run {found.longest} steps, "
        f"violations {len(found.violations)} | {took:.0f} s"
    )
    return 1 if found.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jrs.testing.simulation")
    parser.add_argument("--seeds", type=int,
                        help="how many runs (default: 1000; with --systematic, all)")  # fmt: skip
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--systematic", action="store_true",
                        help="every single fault at every step of a small scenario")  # fmt: skip
    parser.add_argument("--pairs", action="store_true",
                        help="with --systematic: a death and a lost answer together")  # fmt: skip
    parser.add_argument("--stride", type=int, default=1,
                        help="with --systematic: only every so many steps")  # fmt: skip
    parser.add_argument("--exhaustive", action="store_true",
                        help="every state of a small scenario")  # fmt: skip
    parser.add_argument("--states", type=int, default=1 << 24,
                        help="with --exhaustive: so many at most")  # fmt: skip
    parser.add_argument("--shortest", action="store_true", help="search a shorter story")
    for field in attrs.fields(Scenario):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=int)
    return parser


def main() -> int:
    parser = _parser()
    given = vars(parser.parse_args())
    if given["seeds"] is None and not given["systematic"]:
        given["seeds"] = 1000
    if min(given["seeds"] or 1, given["workers"], given["stride"], given["states"]) < 1:
        parser.error("--seeds, --workers, --stride and --states are at least 1")
    if given["first"] < 0:
        parser.error("--first is at least 0")
    scenario = SMALL if given["systematic"] or given["exhaustive"] else Scenario()
    named = {field.name: given[field.name] for field in attrs.fields(Scenario)}
    scenario = attrs.evolve(scenario, **{k: v for k, v in named.items() if v is not None})
    if scenario.masters < 1:
        parser.error("--masters is at least 1")
    if given["exhaustive"]:
        with ended_by_signals():
            return explored(scenario, given["states"], shortest=given["shortest"])
    every = (
        systematic(scenario, given["stride"], pairs=given["pairs"])
        if given["systematic"]
        else seeded(scenario)
    )
    first = given["first"]
    runs = list(itertools.islice(every, first, given["seeds"] and first + given["seeds"]))
    if not runs:
        parser.error(f"--first {first}: there are fewer runs")
    began = time.monotonic()
    chunks = [runs[start : start + _CHUNK] for start in range(0, len(runs), _CHUNK)]
    with ProcessPoolExecutor(given["workers"]) as pool:
        done = list(pool.map(run_chunk, chunks))
    bad = [one for chunk in done for one in chunk.bad]
    for number, faults, found, story in bad[:3]:
        print(f"run {number}, again: --first {number} --seeds 1  {faults}".rstrip())
        print(*found[:5], sep="\n  ")
        run = shortest(found[0].partition(":")[0]) if given["shortest"] else None
        if run is not None:
            print(f"a shorter one, seed {run.seed}: {run.violations[0]}")
        print(*(story if run is None else run.story), sep="\n")
    count, leaders = sum(chunk.runs for chunk in done), sum(chunk.leaders for chunk in done)
    cpu = sum(chunk.seconds for chunk in done)
    print(
        f"`python -m jrs.testing.simulation {' '.join(sys.argv[1:])}` | {commit()} | {machine()} | "
        f"runs {count:,}, failovers {leaders - count:,}, steps {sum(c.steps for c in done):,}, "
        f"violations {len(bad)}, runs per CPU-second {count / cpu:.0f} | "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of texts are then in the same order each time.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "jrs.testing.simulation", *sys.argv[1:]])
    sys.exit(main())
