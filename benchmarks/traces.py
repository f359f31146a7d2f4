"""Validating a recorded history: ``python benchmarks/traces.py --events 1000000``.

A chaos run with real masters is recorded first, or taken from ``--history FOLDER``, the folder of a
run that was kept. It is repeated until it has as many events as are asked for, and then the check
`protocol` evaluates it in this process: it brings the events of each operation together, sorts what
they tell by keys, and folds the rules over the commits of each job. Reading files is not measured.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click
from measure import Figure, measuring, print_report
from repeated import repeated

from jrs.testing.chaos.checking.traces import protocol
from jrs.testing.chaos.checking.verdict import Run
from jrs.testing.chaos.faults import kill, pause
from jrs.testing.chaos.jobs import FOLDER, staged
from jrs.testing.chaos.plan import Plan
from jrs.testing.chaos.reading import run_of
from jrs.testing.chaos.recorded import Event
from jrs.testing.chaos.world import World

WANTED = 100_000


def record(folder: Path) -> None:
    """Run jobs of three stages on masters that are killed and paused, and record that."""
    nemesis = kill("master", every=5) | pause(3.0, "master", every=5) | kill("attempt", every=5)
    (folder / "left").mkdir(parents=True)
    plan = Plan(masters=3, seconds=30.0, seed=1, nemesis=nemesis, environment={FOLDER: str(folder)})
    with World(plan, "file", folder) as world:
        world.submit("job", staged, copies=30, number=1, seconds=1.0)
        world.check(protocol)


def validated(events: list[Event]) -> list[Figure]:
    """Measure the check, with and without what all checks of a run share."""
    run = Run(events)
    began = time.process_time()
    facts = len(run.facts)
    shared = time.process_time()
    found = protocol.violations(run)
    ended = time.process_time()
    assert not found, found[:3]
    rate = len(events) / (ended - began)
    alone = len(events) / (ended - shared)
    return [
        Figure("from events to a verdict", f"{rate:,.0f} events per CPU-second",
               f"{len(events):,} events, {facts:,} keys", f"{WANTED:,}", rate > WANTED),
        Figure("the rules alone", f"{alone:,.0f} events per CPU-second",
               f"{ended - shared:.1f} s, after {shared - began:.1f} s that all checks share"),
    ]  # fmt: skip


@click.command()
@click.option("--events", default=1_000_000, show_default=True)
@click.option("--history", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="The folder of a chaos run, instead of a new one.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True)
def main(events: int, history: Path | None, as_json: bool) -> None:
    """Measure the check `protocol` on a recorded history."""
    with tempfile.TemporaryDirectory() as name, measuring() as tick:
        if history is None:
            tick("recording a chaos run")
            history = Path(name, "run")
            record(history)
        tick("repeating it")
        recorded = run_of(history).events
        many = list(repeated(recorded, -(-events // len(recorded))))
        tick("evaluating it")
        figures = validated(many)
    of = f"{len(recorded):,} recorded events, repeated"
    print_report(f"Trace validation: {of}", figures, as_json)


if __name__ == "__main__":
    main()
