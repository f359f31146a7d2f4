"""Explores small scenarios with and without what leaves orders and deaths out, and compares.

``python -m tests.testing.simulation.reduction [--all]`` prints how many states were entered in both
ways, and the exit status is 1 if runs have ended in other states.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

import attrs

from jrs.testing.simulation.exhaustive import explore
from jrs.testing.simulation.failover import Scenario
from jrs.testing.simulation.systematic import SMALL
from jrs.testing.simulation.ways import Situation, start


def main() -> int:
    """Explore all orders, from where an attempt is about to write its result, or all; and a death,
    from shortly before the job is marked clean."""
    first = "" if sys.argv[1:] == ["--all"] else "a1: commit ('create', 'results/"
    orders = partial(compared, SMALL, first)
    deaths = partial(compared, attrs.evolve(SMALL, crashes=1), "commit ('delete', 'dirty/")
    return int(not (orders() and deaths()))


def compared(scenario: Scenario, says: str) -> bool:
    """Return whether the same ends are reached both ways, behind the first state where a choice
    says something."""
    way = way_to(scenario, says)
    reduced, full = (explore(scenario, way=way, reduces=reduces) for reduces in (True, False))
    print(f"states {reduced.states} of {full.states}, ends {len(reduced.ends)} of {len(full.ends)}",
          *reduced.violations, *full.violations)  # fmt: skip
    is_whole = reduced.is_whole and full.is_whole and reduced.states <= full.states
    return is_whole and bool(full.ends) and reduced.ends == full.ends


def way_to(scenario: Scenario, says: str) -> list[int]:
    """Return the first way to a state where a choice says something."""
    way: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        simulator = start(scenario, Path(folder) / "run")
        situation: Situation = simulator.go([])
        while not any(says in option.says for option in situation.options):
            way.append(0)
            situation = simulator.go([0])
        simulator.end()
    return way


if __name__ == "__main__":
    sys.exit(main())
