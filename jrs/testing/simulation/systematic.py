"""Systematic runs: every single fault at every step, instead of some faults at random.

Without faults and with a fair scheduler, a run is always the same one. So each of its steps can be
the one at which a process dies or is stopped, or at which another actor goes first; and each of its
commits the one whose answer is lost, in each of the three ways. Pairs of a death and a lost answer
are many: `stride` leaves steps out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from jrs.testing.simulation.chances import FATES
from jrs.testing.simulation.failover import Scenario
from jrs.testing.simulation.random_runs import RandomSimulation, SimulatedRun
from jrs.testing.simulation.scheduler import Actor

SMALL = Scenario(masters=2, jobs=1, stages=1, crashes=0, pauses=0, unknowns=0, most_steps=25_000)
"""The scenario whose steps are gone through."""
_VICTIMS = 3
"""Processes that can die at a step: two masters and an attempt."""


@attrs.frozen
class Faults:
    """What goes wrong in one run.

    Attributes:
        crash: the step and the number of the process that dies then.
        pause: the same, of the one that is stopped.
        unknown: the number of the commit whose answer is lost, and its fate.
        delay: the step at which the second one in line goes first.
    """

    crash: tuple[int, int] | None = None
    pause: tuple[int, int] | None = None
    unknown: tuple[int, str] | None = None
    delay: int | None = None


class _Fair:
    """Chooses who has waited longest, but for one step."""

    def __init__(self, delay: int | None) -> None:
        self._delay = delay
        self._turns = 0
        self._ran: dict[int, int] = {}

    def __call__(self, able: Sequence[Actor]) -> int:
        self._turns += 1
        order = sorted(range(len(able)), key=lambda place: self._ran.get(able[place].number, 0))
        chosen = order[1 if self._turns == self._delay else 0]
        self._ran[able[chosen].number] = self._turns
        return chosen


def run_with(faults: Faults, scenario: Scenario, folder: Path) -> SimulatedRun:
    """Simulate the run in which these faults happen.

    Args:
        folder: an empty folder for the files of jobs.
    """
    simulation = RandomSimulation(0, scenario, folder)
    simulation.scheduler.choose = _Fair(faults.delay)
    simulation.setting.chances.lost_answers = dict([faults.unknown] if faults.unknown else [])
    if faults.crash is not None:
        simulation.faults.append((*faults.crash, simulation.crash))
    if faults.pause is not None:
        simulation.faults.append((*faults.pause, simulation.pause))
    return simulation.run()


def all_faults(
    steps: int, commits: int, stride: int = 1, *, pairs: bool = False
) -> Iterator[Faults]:
    """Yield the faults of all runs.

    Args:
        steps, commits: of the run without faults.
        stride: only every so many steps.
        pairs: yield the pairs of a death and a lost answer, instead of single faults.
    """
    lost = [(number, fate) for number in range(1, commits + 1) for fate in FATES]
    deaths = [(step, victim) for step in range(0, steps, stride) for victim in range(_VICTIMS)]
    if pairs:
        for unknown in lost:
            yield from (Faults(crash=death, unknown=unknown) for death in deaths)
        return
    yield Faults()
    yield from (Faults(unknown=unknown) for unknown in lost)
    yield from (Faults(crash=death) for death in deaths)
    yield from (Faults(pause=death) for death in deaths)
    yield from (Faults(delay=step) for step in range(1, steps, stride))
